"""What a corpus was cut from, and cutting some of its reads again at another site.

Hides: how paths are stored so that they are found again, and that a merged corpus has several runs behind it. Belongs here:
going from a corpus back to its inputs; the cutting itself is ``stream.py``'s, as in ``prepare``. Invariants: paths are no
part of a corpus's digest; a read is cut by the same code as before; rows keep the order of the runs.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pysam
from numpy.typing import NDArray

from leech.config import build, to_mapping
from leech.console import Task
from leech.data.config import ReadSources
from leech.data.corpus import Corpus
from leech.data.reasons import NOT_A_LOSS, USED
from leech.data.recipe import Recipe
from leech.data.sites import sites_for_model
from leech.data.stream import open_stream
from leech.errors import InputError
from leech.provenance import final_path, read_description

FILE_NAME = "inputs.json"
FORMAT = "leech-inputs"
SCHEMA_VERSION = 1

_BATCH_READS = 500


class Recut(NamedTuple):
    """Reads cut again.

    :ivar columns: the columns asked for, and ``read_id``; one row per read that could be cut.
    :ivar lost: records of the wanted reads that could not be cut, by reason.
    """

    columns: dict[str, NDArray[Any]]
    lost: Counter[str]


def record_inputs(folder: Path, output: Path, sources: ReadSources) -> None:
    """Write into a corpus folder where its reads lie, so that they can be cut again.

    Each path is stored relative to the corpus, which holds when all is moved together, and absolute, which holds when the
    corpus alone is.

    :param folder: where the corpus is being written.
    :param output: where it will lie.
    """
    given = {name: getattr(sources, name) for name in to_mapping(sources)}
    base = final_path(output.resolve())
    content = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "sources": {name: _portable(value, base) for name, value in given.items()},
    }
    (folder / FILE_NAME).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _portable(value: Any, base: Path) -> Any:
    if isinstance(value, tuple):
        return [_portable(item, base) for item in value]
    if isinstance(value, Path) and str(value) != "-":
        absolute = final_path(value.absolute())
        return {"relative": os.path.relpath(absolute, base), "absolute": str(absolute)}
    return str(value) if isinstance(value, Path) else value


def find_inputs(corpus: Path) -> ReadSources:
    """Return where the reads of a corpus lie now.

    :param corpus: folder made by ``prepare``.
    :raises InputError: not recorded, read from standard input, or not there any more.
    """
    path = corpus / FILE_NAME
    if not path.is_file():
        raise InputError(f"corpus '{corpus}' does not say what it was cut from (no {FILE_NAME})")
    remedy = "Prepare the corpus again with this version of leech."
    content = read_description(path, "record of inputs", form=FORMAT, schema_version=SCHEMA_VERSION, remedy=remedy)
    found = {name: _locate(value, corpus) for name, value in dict(content.get("sources", {})).items()}
    return build(ReadSources, found, source=str(path))


def _locate(value: Any, corpus: Path) -> Any:
    if isinstance(value, list):
        return [_locate(item, corpus) for item in value]
    if value == "-":
        raise InputError(f"the BAM of corpus '{corpus}' was read from standard input")
    if not isinstance(value, dict):
        return value
    # A resolved folder has no links, so dropping ".." by name alone goes where the system would.
    beside, absolute = Path(os.path.normpath(corpus.resolve() / value["relative"])), Path(value["absolute"])
    for place in (beside, absolute):
        if place.exists():
            return place
    raise InputError(f"'{absolute}', from which corpus '{corpus}' was cut, is not there any more")


def leaves(corpus: Corpus) -> Iterator[Corpus]:
    """Yield the corpora that hold the chunks: the corpus itself, or what it was merged from."""
    if not corpus.parts:
        yield corpus
    for part in corpus.parts:
        yield from leaves(part)


def recut(corpus: Corpus, read_ids: NDArray[np.uint8], motif_offset: int, columns: Sequence[str], task: Task) -> Recut:
    """Cut some reads of a corpus again with the focus at another base, all else as its recipe says.

    :param read_ids: of the wanted reads, uint8 (n, 16).
    :param motif_offset: the focus base, counted from the motif's first base.
    :param columns: names of the columns to keep.
    :param task: advanced by one per record of a wanted read.
    :raises InputError: inputs that are not there any more or cannot be used.
    """
    wanted = {row.tobytes() for row in read_ids}
    sources = [(part, find_inputs(part.path)) for part in leaves(corpus)]
    kept: dict[str, list[NDArray[Any]]] = {name: [] for name in ("read_id", *columns)}
    lost: Counter[str] = Counter()
    for part, inputs in sources:
        here = wanted & {row.tobytes() for row in np.asarray(part.column("read_id"))}
        if not here:
            continue
        recipe = replace(part.recipe, motif_offset=motif_offset)
        for rows, outcomes in _cut(part, inputs, recipe, here, task):
            for name, arrays in kept.items():
                arrays.append(rows[name])
            lost.update(outcome for outcome in outcomes if outcome != USED and outcome not in NOT_A_LOSS)
    if not any(len(array) for array in kept["read_id"]):
        reasons = (
            ", ".join(f"{reason} {number}" for reason, number in lost.most_common()) or "none was found in the BAM"
        )
        raise InputError(f"none of the {len(wanted)} reads could be cut there ({reasons})")
    return Recut({name: np.concatenate(arrays) for name, arrays in kept.items()}, lost)


def _cut(
    part: Corpus, inputs: ReadSources, recipe: Recipe, read_ids: set[bytes], task: Task
) -> Iterator[tuple[dict[str, NDArray[Any]], list[str]]]:
    names = {str(UUID(bytes=read_id)) for read_id in read_ids}

    def is_wanted(record: pysam.AlignedSegment) -> bool:
        return (record.query_name or "").lower() in names

    sites = sites_for_model(part.path, recipe, inputs.read_sites)
    with open_stream(inputs, recipe, part.kmer_table(), sites, keep=is_wanted) as stream:
        for batch in stream.batches(_BATCH_READS, 1):
            yield dict(batch.cut.chunks.columns), batch.outcomes
            task.advance(len(batch.records))
