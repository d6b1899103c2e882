"""Files that say where sites are: a BED of positions, or a table with one position per read.

Hides: both file formats. Belongs here: reading them and which of them a recipe needs; what a site is made of is decided in
``anchors.py``. Invariants: positions are 0-based on the reference, intervals half-open; the first base of an interval is
the focus; one site per reference of a BED, one per read of a table, because a read gives one chunk; a BED's text travels
with corpora and models, so that they alone are enough, and a table of reads cannot, because other reads need another.
"""

from __future__ import annotations

import hashlib
import io
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.config import nearest
from leech.data.packed import read_unpacked
from leech.data.pod5 import pack_read_id
from leech.data.recipe import Recipe
from leech.errors import ConfigError, InputError, MismatchError

_MOST_DIGITS = 18
"""A longer number is no position, and no 64-bit integer."""

_BED_REMARKS = ("track", "browser")


class Place(NamedTuple):
    """An interval on a reference whose first base is the focus, and the state that its reads have."""

    start: int
    end: int
    label: str | None


@dataclass(frozen=True)
class BedSites:
    """One site per reference.

    :ivar places: by reference name; the label is the name column, None where there is none.
    :ivar sha256: digest of the text (after decompression).
    :ivar text: the BED itself.
    """

    FILE_NAME: ClassVar[str] = "sites.bed"

    places: dict[str, Place]
    sha256: str
    text: bytes = field(repr=False)

    @classmethod
    def load(cls, path: Path) -> BedSites:
        """Read a BED: reference, start, end, and optionally name, score and strand; gzip allowed.

        :raises InputError: unreadable, a line that is no interval or lies on the reverse strand, a reference with two
            sites, or no site at all.
        """
        return cls.parse(read_unpacked(path, "BED"), name=str(path))

    @classmethod
    def parse(cls, text: bytes, name: str = "BED") -> BedSites:
        """Read a BED's text; see :meth:`load`."""
        places: dict[str, Place] = {}
        for number, line in _lines(text, name):
            # By the whole word: a reference may be called track1.
            if line.startswith("#") or line.split()[0] in _BED_REMARKS:
                continue
            where = f"line {number} of BED '{name}'"
            # Spaces at the end of a name are no part of it: 'charged ' would be a state of its own.
            fields = [field.strip() for field in line.split("\t")] if "\t" in line else line.split()
            if len(fields) < 3 or not all(text.isdecimal() and len(text) <= _MOST_DIGITS for text in fields[1:3]):
                raise InputError(
                    f"{where} is not 'reference, start, end': '{line}'.", hint="Columns are split by tabs."
                )
            reference, start, end = fields[0], int(fields[1]), int(fields[2])
            if end <= start:
                raise InputError(f"{where} holds no base: its end {end} is not behind its start {start}.")
            if len(fields) > 5 and fields[5] == "-":
                raise InputError(
                    f"{where} lies on the reverse strand, but reads are only used where they align forward.",
                    hint="Give the position on the reference's forward strand, or the reverse complement as reference.",
                )
            if reference in places:
                raise InputError(
                    f"{where} is the second site on reference '{reference}'; a read gives one chunk, so it has one site.",
                    hint="Give one BED per site, and prepare a corpus with each.",
                )
            label = fields[3] if len(fields) > 3 and fields[3] not in ("", ".") else None
            places[reference] = Place(start, end, label)
        if not places:
            raise InputError(f"BED '{name}' holds no site.")
        return cls(places=places, sha256=hashlib.sha256(text).hexdigest(), text=text)

    def save(self, folder: Path) -> None:
        """Write the BED into an artefact's folder under :data:`FILE_NAME`."""
        (folder / self.FILE_NAME).write_bytes(self.text)

    @property
    def has_labels(self) -> bool:
        """Whether any site has a name."""
        return any(place.label is not None for place in self.places.values())

    def without_labels(self) -> BedSites:
        """Return the same sites, their names being no states."""
        return replace(self, places={name: place._replace(label=None) for name, place in self.places.items()})


@dataclass(frozen=True)
class ReadSites:
    """One site per read, in ascending order of read id.

    :ivar high: uint64, first eight bytes of each read id (big-endian).
    :ivar low: uint64, last eight bytes.
    :ivar positions: int64, of the focus base on the reference that the read aligns to.
    :ivar label_codes: int32, into ``labels``; -1 where the read has no label.
    :ivar labels: None where the table has no such column.
    :ivar sha256: digest of the text (after decompression).
    """

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    positions: NDArray[np.int64]
    label_codes: NDArray[np.int32]
    labels: tuple[str, ...] | None
    sha256: str

    @classmethod
    def load(cls, path: Path) -> ReadSites:
        """Read a table with a header line and the tab-separated columns read_id, position and optionally label.

        :raises InputError: unreadable, a missing column, an id that is no UUID or occurs twice, or a position that is not
            a whole number from 0.
        """
        text = read_unpacked(path, "table of reads")
        lines = _lines(text, str(path))
        header = next(lines, (0, ""))[1].split("\t")
        columns = {name: _column(header, name, path) for name in ("read_id", "position")}
        label_column = header.index("label") if "label" in header else None
        ids, positions, codes = bytearray(), array("q"), array("i")
        labels: dict[str, int] = {}
        for number, line in lines:
            fields = line.split("\t")
            fields += [""] * (len(header) - len(fields))
            read_id, position = pack_read_id(fields[columns["read_id"]]), fields[columns["position"]]
            if read_id is None or not position.isdecimal() or len(position) > _MOST_DIGITS:
                raise InputError(
                    f"Line {number} of '{path}' needs a read id (UUID) and a position counted from 0, got '{line}'."
                )
            ids += read_id
            positions.append(int(position))
            label = "" if label_column is None else fields[label_column].strip()
            codes.append(labels.setdefault(label, len(labels)) if label else -1)
        if not positions:
            raise InputError(f"'{path}' lists no read.")
        halves = np.frombuffer(bytes(ids), dtype=">u8").reshape(-1, 2).astype(np.uint64)
        order = np.lexsort((halves[:, 1], halves[:, 0]))
        halves = halves[order]
        repeated = np.flatnonzero((halves[1:] == halves[:-1]).all(axis=1))
        if len(repeated):
            first = order[repeated[0]]
            raise InputError(
                f"'{path}' lists {len(repeated)} reads more than once, for example that of entry {first + 1}; "
                "a read gives one chunk, so it has one site."
            )
        return cls(
            high=halves[:, 0].copy(),
            low=halves[:, 1].copy(),
            positions=np.array(positions, dtype=np.int64)[order],
            label_codes=np.array(codes, dtype=np.int32)[order],
            labels=None if label_column is None else tuple(labels),
            sha256=hashlib.sha256(text).hexdigest(),
        )

    def __len__(self) -> int:
        return len(self.high)

    def find(self, read_id: bytes) -> Place | None:
        """Return the place of a read given by its 16 bytes, or None where the table does not list it."""
        high, low = int.from_bytes(read_id[:8], "big"), int.from_bytes(read_id[8:], "big")
        # For one id a tenth of the time that numpy's own search takes.
        row = bisect_left(self.high.data, high)
        while row < len(self) and self.high[row] == high:
            if self.low[row] == low:
                code, start = int(self.label_codes[row]), int(self.positions[row])
                return Place(start, start + 1, None if code < 0 or self.labels is None else self.labels[code])
            row += 1
        return None


SiteFile = BedSites | ReadSites


def settle_sites(recipe: Recipe, bed: Path | None, read_sites: Path | None) -> tuple[Recipe, SiteFile | None]:
    """Read the file of sites that was given, if any, and return the recipe that says so.

    :raises ConfigError: no way to find the site was given, or more than one.
    :raises InputError: the file cannot be used.
    """
    if bed is not None and read_sites is not None:
        raise ConfigError("--sites and --read-sites both say where the site is.", hint="Give one of them.")
    changes: dict[str, str] = {}
    sites: SiteFile | None = None
    if bed is not None:
        sites = BedSites.load(bed)
        changes = {"site_source": "sites", "sites_sha256": sites.sha256}
    elif read_sites is not None:
        sites = ReadSites.load(read_sites)
        changes = {"site_source": "read_sites"}
    elif recipe.motif is None:
        raise ConfigError(
            "Nothing says where the site is.",
            hint="Give --motif and --motif-offset, or positions by --sites or --read-sites.",
        )
    try:
        return replace(recipe, **changes), sites  # type: ignore[arg-type]
    except ValueError as error:
        raise ConfigError(f"{error}.") from error


def settle_labels(sites: SiteFile | None, label: str | None, *, from_name: bool) -> SiteFile | None:
    """Return the sites with the labels that their reads are to have; they have none where the file says none.

    :param label: the label given for all reads.
    :param from_name: whether the names of a BED are labels.
    :raises ConfigError: two sources of labels, or none where one is asked for.
    """
    bed = sites if isinstance(sites, BedSites) else None
    if from_name and (bed is None or not bed.has_labels):
        what = "there is no --sites" if bed is None else "no line has one"
        raise ConfigError(f"--label-from-name needs names in the fourth column of a BED, but {what}.")
    if bed is not None:
        sites = bed if from_name else bed.without_labels()
    has_labels = from_name or (isinstance(sites, ReadSites) and sites.labels is not None)
    if has_labels and label is not None:
        raise ConfigError(
            f"Label '{label}' was given for all reads, but the file of sites has its own.",
            hint="Leave out --label, or the file's labels.",
        )
    return sites


def stored_bed(folder: Path, recipe: Recipe) -> BedSites | None:
    """Return the BED stored in a corpus or model folder; None where the recipe has none.

    :raises MismatchError: the stored BED is not the one that the recipe names.
    """
    if recipe.sites_sha256 is None:
        return None
    sites = BedSites.load(folder / BedSites.FILE_NAME)
    if sites.sha256 != recipe.sites_sha256:
        raise MismatchError(
            f"The sites in '{folder}' have digest {sites.sha256}, but chunks are cut with {recipe.sites_sha256}.",
            hint="The folder was changed since it was made; use the original.",
        )
    return sites


def sites_for_model(folder: Path, recipe: Recipe, read_sites: Path | None) -> SiteFile | None:
    """Return the sites by which new reads are cut as those that a model was trained on.

    :raises ConfigError: the model needs a table of these reads and none is given, or one is given that it has no use for.
    """
    if recipe.site_source == "read_sites":
        if read_sites is None:
            raise ConfigError(
                f"The sites of model '{folder}' came from a table with one position per read, and these reads need one too.",
                hint="Give your own with --read-sites: columns read_id and position (0-based on the reference).",
            )
        return ReadSites.load(read_sites)
    if read_sites is not None:
        raise ConfigError(
            f"--read-sites has no effect: model '{folder}' knows its site ({recipe.site_words}).", hint="Leave it out."
        )
    bed = stored_bed(folder, recipe)
    return None if bed is None else bed.without_labels()


def _lines(text: bytes, name: str) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, line) of every line that is not blank."""
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"'{name}' is not text: {error}.") from error
    # Line by line, because a table of all reads of a run has millions.
    for number, line in enumerate(io.StringIO(decoded, newline=None), start=1):
        if line.strip():
            yield number, line.rstrip("\n")


def _column(header: list[str], name: str, path: Path) -> int:
    if name not in header:
        close = nearest(name, header)
        raise InputError(
            f"'{path}' has no column '{name}'; its header line is {header}.",
            hint=f"Rename '{close}' to '{name}'." if close else "Columns are read_id, position and, if wanted, label.",
        )
    return header.index(name)
