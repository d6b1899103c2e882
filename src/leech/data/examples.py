"""Single chunks, with the boundaries of their bases: what pages and ``leech data view`` draw.

Hides: how examples are spread over references, and where a chunk's bases lie in its window. Belongs here: one chunk at a
time; what holds over many is ``squiggle.py``'s, the drawing ``page.py``'s. Invariants: the same corpus, rows and seed give the
same examples; signal is normalised as networks see it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.data.corpus import Corpus
from leech.data.features import base_bounds
from leech.data.pod5 import unpack_read_ids
from leech.data.recipe import CONTEXT_BASES

Floats = NDArray[np.float64]

_COLUMNS = (
    "label",
    "reference",
    "valid_start",
    "valid_end",
    "shift",
    "scale",
    "focus_base_start",
    "dwell",
    "sequence",
    "signal",
    "read_id",
)


class Base(NamedTuple):
    """One base of an example: offset from the focus, letter, and samples [start, end) of the window."""

    offset: int
    letter: str
    start: int
    end: int


@dataclass(frozen=True)
class Example:
    """One chunk.

    :ivar signal: normalised, NaN where the window overhangs the read.
    :ivar bases: those that reach into the window.
    """

    row: int
    label: str
    reference: str
    read_id: str
    signal: Floats
    bases: tuple[Base, ...]

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "row": self.row,
            "label": self.label or None,
            "reference": self.reference,
            "read_id": self.read_id,
            "signal": plain(self.signal),
            "bases": [base._asdict() for base in self.bases],
        }


def choose_examples(
    corpus: Corpus, chosen: dict[int, NDArray[np.int64]], number: int, seed: int
) -> tuple[Example, ...]:
    """Return chunks of every label, one of each reference before a second of any.

    References come in an order drawn by the seed, the same for all labels, with those that all labels have before the others:
    so the first example of every label is of one reference, and the second of another.
    """
    references = {code: np.asarray(corpus.gather(rows, ["reference"])["reference"]) for code, rows in chosen.items()}
    width = len(corpus.categories["reference"])
    rank = np.random.default_rng([seed, 1]).permutation(width)
    held = [set(found.tolist()) for found in references.values()]
    shared = set.intersection(*held) if held else set()
    rank[sorted(set(range(width)) - shared)] += width
    examples: list[Example] = []
    for code, rows in chosen.items():
        turn = np.zeros(len(rows), dtype=np.int64)
        for reference in np.unique(references[code]).tolist():
            mine = references[code] == reference
            turn[mine] = np.arange(mine.sum())
        order = np.lexsort((rank[references[code]], turn))
        examples.extend(examples_at(corpus, rows[order[:number]]))
    return tuple(examples)


def examples_at(corpus: Corpus, rows: NDArray[np.int64]) -> tuple[Example, ...]:
    """Return the chunks in rows of a corpus, in the order of ``rows``."""
    block = corpus.gather(rows, _COLUMNS)
    return tuple(
        _example(corpus, row, {name: column[place : place + 1] for name, column in block.items()})
        for place, row in enumerate(rows.tolist())
    )


def _example(corpus: Corpus, row: int, block: dict[str, NDArray[Any]]) -> Example:
    recipe = corpus.recipe
    start, end = int(block["valid_start"][0]), int(block["valid_end"][0])
    sample = np.arange(recipe.num_samples)
    signal = np.where((sample >= start) & (sample < end), normalised(block, "signal")[0], np.nan)
    bounds = base_bounds(block, recipe)[0].tolist()
    letters = ["ACGTN"[min(int(code), 4)] for code in block["sequence"][0]][CONTEXT_BASES:-CONTEXT_BASES]
    bases = [
        Base(place - recipe.bases_before, letter, first, last)
        for place, (letter, first, last) in enumerate(zip(letters, bounds[:-1], bounds[1:], strict=True))
        if first < last and last > 0 and first < recipe.num_samples
    ]
    return Example(
        row=row,
        label=label_name(corpus, int(block["label"][0])),
        reference=corpus.categories["reference"][int(block["reference"][0])],
        read_id=unpack_read_ids(block["read_id"])[0],
        signal=signal,
        bases=tuple(bases),
    )


def plain(values: Floats) -> list[float | None]:
    """Return values rounded for JSON, None where there is no number."""
    return [round(value, 4) if np.isfinite(value) else None for value in values.tolist()]


def label_name(corpus: Corpus, code: int) -> str:
    """Return the label of a code; empty where a chunk has none."""
    return corpus.labels[code] if code >= 0 else ""


def normalised(block: dict[str, NDArray[Any]], name: str) -> Floats:
    """Return a column in ADC units as networks see it, a row per chunk."""
    shift, scale = (block[column].astype(np.float64)[:, None] for column in ("shift", "scale"))
    return (block[name] - shift) / scale
