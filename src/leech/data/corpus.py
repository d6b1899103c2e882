"""The corpus on disk: ``manifest.json`` and one real ``.npy`` file per column, memory-mapped.

Hides: the file layout, category codes, digests, and that a merged corpus is a set of references to others. Belongs here:
writing and reading columns; what the columns mean is decided in ``chunks.py`` and documented in ``docs/formats.md``.
Invariants: rows keep the order in which they were written; equal rows and recipe give equal bytes and an equal digest,
whoever wrote them and when (time, command line and versions live in ``provenance.json``, outside the digest); nothing is
pickled; opening costs the same at any size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from leech.data.levels import KmerTable
from leech.data.manifest import Manifest, Source, read_manifest, write_manifest
from leech.data.recipe import CONTEXT_BASES, Recipe
from leech.data.sites import BedSites, stored_bed
from leech.errors import InputError, LeechError, MismatchError

SPLITS = ("train", "validation", "test", "calibration")
"""What a chunk of a merged corpus can be for; a position here is its code in the column ``split``."""

UNUSED_CODE = 255
"""In the column ``split``: a chunk that the merge left out, which no reader of splits sees."""

CATEGORICAL = ("reference", "flow_cell", "run", "sample", "label")
"""Columns of integer codes whose names stand in the manifest, in order of first appearance."""

_SORTED_AT_ONCE = 4096
"""Rows in memory at a time while a corpus is sorted."""

_HASHED_AT_ONCE = 2**20
"""Bytes of a column that are read at a time when its digest is checked."""

Array = NDArray[Any]


def column_layout(recipe: Recipe) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    """Return dtype and shape per chunk of every column that this recipe fills, in file order."""
    bases = (recipe.num_feature_bases,)
    layout: dict[str, tuple[str, tuple[int, ...]]] = {
        "signal": ("<i2", (recipe.num_samples,)),
        "valid_start": ("<i2", ()),
        "valid_end": ("<i2", ()),
        "shift": ("<f4", ()),
        "scale": ("<f4", ()),
        "focus_base_start": ("<i4", ()),
        "focus_raw_sample": ("<i4", ()),
        "dwell": ("<u2", (recipe.num_bases,)),
        "median_dwell": ("<f4", ()),
        "sequence": ("|u1", (recipe.num_bases + 2 * CONTEXT_BASES,)),
        "level_mean": ("<f4", bases),
        "level_median": ("<f4", bases),
        "level_sd": ("<f4", bases),
        "level_range": ("<f4", bases),
        "read_id": ("|u1", (16,)),
        "parent_id": ("|u1", (16,)),
        "reference": ("<i4", ()),
        "flow_cell": ("<u2", ()),
        "run": ("<u2", ()),
        "sample": ("<u2", ()),
        "label": ("<i2", ()),
        "mapq": ("|u1", ()),
        "junction_indel": ("|u1", ()),
    }
    if recipe.kmer_table_sha256 is not None:
        layout["expected_level"] = ("<f4", bases)
    if recipe.indels:
        layout["indels"] = ("|u1", bases)
    if recipe.refinement == "kmer":
        layout["refined"] = ("|u1", ())
    return {name: (np.dtype(code), shape) for name, (code, shape) in layout.items()}


@dataclass(frozen=True)
class ChunkArrays:
    """Chunks in memory.

    :ivar columns: array per column, all of one length, dtypes and shapes of :func:`column_layout`; categorical columns
        hold codes into ``categories``, and label -1 means no label.
    :ivar categories: names by categorical column.
    """

    columns: Mapping[str, Array]
    categories: Mapping[str, Sequence[str]]

    def __len__(self) -> int:
        return len(self.columns["shift"])


class _ColumnFile:
    """One ``.npy`` file that grows row by row; its header is rewritten with the final length on closing."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.dtype, self.shape, self.rows = dtype, shape, 0
        self.hash = hashlib.sha256()
        self._file: BinaryIO = path.open("w+b")
        self._header()

    def _header(self) -> None:
        self._file.seek(0)
        header = {
            "descr": np.lib.format.dtype_to_descr(self.dtype),
            "fortran_order": False,
            "shape": (self.rows, *self.shape),
        }
        # numpy pads the header for a growing first axis, so that the final length fits in place.
        np.lib.format.write_array_header_1_0(self._file, header)

    def append(self, values: Array) -> None:
        data = np.ascontiguousarray(values, dtype=self.dtype).reshape(len(values), *self.shape).data
        self.hash.update(data)
        self._file.write(data)
        self.rows += len(values)

    def close(self) -> dict[str, Any]:
        self._header()
        self._file.close()
        return {"dtype": self.dtype.str, "shape": [self.rows, *self.shape], "sha256": self.hash.hexdigest()}

    def abandon(self) -> None:
        self._file.close()


def stored_table(folder: Path, recipe: Recipe) -> KmerTable | None:
    """Return the k-mer table stored in a corpus or model folder; None where the recipe has none.

    :raises MismatchError: the stored table is not the one that the recipe names.
    """
    if recipe.kmer_table_sha256 is None:
        return None
    table = KmerTable.load(folder / KmerTable.FILE_NAME)
    if table.sha256 != recipe.kmer_table_sha256:
        raise MismatchError(
            f"The k-mer table in '{folder}' has digest {table.sha256}, but chunks are cut with "
            f"{recipe.kmer_table_sha256}.",
            hint="The folder was changed since it was made; use the original.",
        )
    return table


def write_array(path: Path, values: Array) -> dict[str, Any]:
    """Write one whole column and return its entry for the manifest."""
    file = _ColumnFile(path, values.dtype, values.shape[1:])
    file.append(values)
    return file.close()


class CorpusWriter:
    """Writes a corpus of kind "chunks" into an existing empty folder; a context manager that closes its files."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self.folder, self.recipe = folder, recipe
        self._files = {
            name: _ColumnFile(folder / f"{name}.npy", dtype, shape)
            for name, (dtype, shape) in column_layout(recipe).items()
        }
        self._codes: dict[str, dict[str, int]] = {name: {} for name in CATEGORICAL}
        self.num_chunks = 0

    def __enter__(self) -> CorpusWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.abandon()

    def append(self, chunks: ChunkArrays) -> None:
        """Append chunks.

        :raises LeechError: a value that no later step could use (not finite, or a scale that is not positive).
        """
        for name, file in self._files.items():
            values = chunks.columns[name]
            if values.dtype.kind == "f" and name != "expected_level" and not np.isfinite(values).all():
                raise LeechError(f"Column '{name}' of a chunk is not finite; such a chunk must be counted, not stored.")
            if name == "scale" and (values <= 0).any():
                raise LeechError("A chunk has a scale that is not positive; such a read must be counted, not stored.")
            if name in CATEGORICAL:
                values = self._recode(name, values, chunks.categories[name])
            file.append(values)
        self.num_chunks += len(chunks)

    def _recode(self, column: str, local: Array, names: Sequence[str]) -> Array:
        codes = self._codes[column]
        for code in dict.fromkeys(local.tolist()):
            if code >= 0:
                codes.setdefault(names[code], len(codes))
        table = np.array([codes.get(name, -1) for name in names] + [-1], dtype=np.int64)
        mapped: Array = table[local]
        return mapped

    def finish(
        self,
        *,
        counts: Mapping[str, int],
        runs: Mapping[str, int],
        settings: Mapping[str, Any],
        by_read_id: bool = False,
    ) -> Manifest:
        """Close the columns and write the manifest.

        :param by_read_id: put the chunks into ascending order of read id first, those of one read in the order in which
            they were written; takes 24 bytes of memory per chunk and writes each column once more.
        """
        columns = {name: file.close() for name, file in self._files.items()}
        if by_read_id:
            columns = self._sorted_columns()
        return write_manifest(
            self.folder,
            kind="chunks",
            num_chunks=self.num_chunks,
            recipe=self.recipe,
            columns=columns,
            categories={name: list(codes) for name, codes in self._codes.items()},
            counts=dict(counts),
            runs={name: runs[name] for name in self._codes["run"]},
            settings=dict(settings),
        )

    def _sorted_columns(self) -> dict[str, dict[str, Any]]:
        ids = np.load(self.folder / "read_id.npy", allow_pickle=False)
        halves = ids.view(">u8").reshape(-1, 2)
        order = np.lexsort((halves[:, 1], halves[:, 0]))
        del ids, halves
        codes, self._codes = self._codes, {name: {} for name in CATEGORICAL}
        columns = {}
        for name in self._files:
            path, partial = self.folder / f"{name}.npy", self.folder / f"{name}.sorting"
            unsorted = np.load(path, mmap_mode="r", allow_pickle=False)
            file = _ColumnFile(partial, unsorted.dtype, unsorted.shape[1:])
            for start in range(0, len(order), _SORTED_AT_ONCE):
                values = unsorted[order[start : start + _SORTED_AT_ONCE]]
                # Names are numbered by first appearance, and other rows come first now.
                file.append(self._recode(name, values, list(codes[name])) if name in CATEGORICAL else values)
            columns[name] = file.close()
            partial.replace(path)
        return columns


class Corpus:
    """A corpus opened for reading; nothing is loaded before it is asked for.

    :ivar path: the folder.
    :ivar manifest: what ``manifest.json`` says.
    :ivar recipe: how its chunks were cut.
    :ivar categories: names by categorical column; of a merged corpus, over all sources.
    :ivar parts: the opened sources of a merged corpus, in row order; empty otherwise.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest
        self.recipe = Recipe.stored(manifest.recipe, str(path / "manifest.json"))
        if self.recipe.digest() != manifest.recipe_digest:
            raise MismatchError(
                f"Corpus '{path}' was cut by a recipe that this version of leech would carry out differently "
                f"(recorded {manifest.recipe_digest}, now {self.recipe.digest()}).",
                hint="Prepare the corpus again with this version of leech.",
            )
        self.categories = manifest.categories
        self.parts = [self._open_source(source) for source in manifest.sources]
        self._starts = np.cumsum([0, *(source.num_chunks for source in manifest.sources)])

    @classmethod
    def open(cls, path: Path) -> Corpus:
        """Open the corpus in folder ``path``.

        :raises InputError: not a complete corpus of this format.
        :raises MismatchError: a source of a merged corpus changed since the merge.
        """
        return cls(path, read_manifest(path))

    def __len__(self) -> int:
        return self.manifest.num_chunks

    @property
    def labels(self) -> list[str]:
        """Label names by code."""
        return self.categories["label"]

    @property
    def is_split(self) -> bool:
        """Whether rows are assigned to splits."""
        return "split" in self.manifest.columns

    def kmer_table(self) -> KmerTable | None:
        """Return the k-mer table that its chunks were cut with, or None where there was none.

        :raises MismatchError: the table in the folder is not the one that the recipe names.
        """
        if self.parts:
            return self.parts[0].kmer_table()
        return stored_table(self.path, self.recipe)

    def bed_sites(self) -> BedSites | None:
        """Return the BED that says where its sites are, or None where something else does.

        :raises MismatchError: the BED in the folder is not the one that the recipe names.
        """
        return self.parts[0].bed_sites() if self.parts else stored_bed(self.path, self.recipe)

    def has_column(self, name: str) -> bool:
        """Whether every chunk has this column."""
        return (
            all(part.has_column(name) for part in self.parts)
            if self.parts and name not in self.manifest.columns
            else name in self.manifest.columns
        )

    def _open_source(self, source: Source) -> Corpus:
        folder = (self.path / source.path).resolve()
        try:
            part = Corpus.open(folder)
        except InputError as error:
            raise InputError(
                f"Merged corpus '{self.path}' refers to '{folder}', which cannot be opened: {error.message}",
                hint="A merged corpus needs its sources where they were; move them together, or merge again.",
            ) from error
        if part.manifest.digest != source.digest:
            raise MismatchError(
                f"'{folder}' changed since it was merged into '{self.path}' "
                f"(recorded {source.digest}, found {part.manifest.digest}).",
                hint="Merge again, so that splits and counts describe the data that is there.",
            )
        return part

    def verify(self, names: Sequence[str] | None = None) -> None:
        """Compare columns with their digests, which opening a corpus does not: it costs reading them from end to end.

        :param names: of the columns; None for all. Of a merged corpus, those of its sources too.
        :raises InputError: a column file that is not as it was written.
        """
        for part in self.parts:
            part.verify(names)
        for name, entry in self.manifest.columns.items():
            if names is not None and name not in names:
                continue
            values = self._map(name)
            found, step = hashlib.sha256(), max(1, _HASHED_AT_ONCE * len(values) // max(values.nbytes, 1))
            for start in range(0, len(values), step):
                found.update(values[start : start + step].tobytes())
            if found.hexdigest() != entry["sha256"]:
                raise InputError(
                    f"Column file '{self.path / f'{name}.npy'}' is not as it was written: its values do not have the digest "
                    "that the manifest records, so what it says of the reads cannot be trusted.",
                    hint="The file was changed or damaged; copy the corpus again, or prepare it again.",
                )

    @cached_property
    def _maps(self) -> dict[str, Array]:
        return {}

    def _map(self, name: str) -> Array:
        if name not in self._maps:
            path = self.path / f"{name}.npy"
            expected = self.manifest.columns[name]
            try:
                array = np.load(path, mmap_mode="r", allow_pickle=False)
            except (OSError, ValueError, EOFError) as error:
                raise InputError(f"Cannot read column file '{path}': {error}.") from error
            if list(array.shape) != expected["shape"] or array.dtype.str != expected["dtype"]:
                raise InputError(
                    f"Column file '{path}' holds {array.dtype.str} {array.shape}, but the manifest says "
                    f"{expected['dtype']} {tuple(expected['shape'])}: the corpus is damaged."
                )
            # A plain view of the mapped pages: indexing a numpy.memmap costs several times as much.
            self._maps[name] = array.view(np.ndarray)
        return self._maps[name]

    @cached_property
    def _recodings(self) -> dict[str, list[Array]]:
        """Per categorical column and source, the code in this corpus of each code in the source; -1 stays -1."""
        return {
            column: [
                np.array([self.categories[column].index(name) for name in part.categories[column]] + [-1])
                for part in self.parts
            ]
            for column in CATEGORICAL
        }

    def gather(self, rows: NDArray[np.int64], names: Sequence[str]) -> dict[str, Array]:
        """Return the named columns of the given rows, in the order of ``rows``, as arrays in memory."""
        if not self.parts:
            return {name: self._map(name)[rows] for name in names}
        own = {name: self._map(name)[rows] for name in names if name in self.manifest.columns}
        inherited = [name for name in names if name not in own]
        owner = np.searchsorted(self._starts, rows, side="right") - 1
        gathered: dict[str, Array] = {}
        for index in np.unique(owner).tolist():
            chosen = np.flatnonzero(owner == index)
            values = self.parts[index].gather(rows[chosen] - self._starts[index], inherited)
            for name, array in values.items():
                if name in CATEGORICAL:
                    array = self._recodings[name][index][array]
                if name not in gathered:
                    gathered[name] = np.empty((len(rows), *array.shape[1:]), dtype=array.dtype)
                gathered[name][chosen] = array
        if not len(rows):
            gathered = {name: self.parts[0].gather(rows, [name])[name] for name in inherited}
        return {**own, **gathered}

    def column(self, name: str) -> Array:
        """Return one column of all rows: mapped for a plain corpus, joined in memory for a merged one."""
        if name in self.manifest.columns:
            return self._map(name)
        return self.gather(np.arange(len(self), dtype=np.int64), [name])[name]

    def weights(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the weight of each row in the training loss: that of its source, and 1 without sources."""
        if not self.parts:
            return np.ones(len(rows))
        by_source = np.array([source.weight for source in self.manifest.sources])
        return by_source[np.searchsorted(self._starts, rows, side="right") - 1]

    def rows(self, split: str | None = None) -> NDArray[np.int64]:
        """Return the row numbers of one split, ascending; all rows for None.

        :raises InputError: the corpus is not split, or the split's name is unknown.
        """
        if split is None:
            return np.arange(len(self), dtype=np.int64)
        if not self.is_split:
            raise InputError(
                f"Corpus '{self.path}' has no splits, so '{split}' cannot be chosen.",
                hint="Split it with 'leech data merge CORPUS... -o OUT --split 0.7 0.15 0.15'.",
            )
        if split not in SPLITS:
            raise InputError(f"Unknown split '{split}'.", hint=f"Known splits: {', '.join(SPLITS)}.")
        return np.flatnonzero(self._map("split") == SPLITS.index(split)).astype(np.int64)
