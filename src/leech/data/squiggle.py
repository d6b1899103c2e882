"""Chunks looked at one by one: window geometry, fit to the expected levels, medians by class and examples.

Hides: how chunks are drawn from a large corpus, and how reads of different speed are laid over each other. Belongs here:
numbers that need signal or bases; counts of rows are ``inspect.py``'s, drawing is ``page.py``'s. Invariants: the same
corpus, numbers and seed give the same values; memory grows with the chunks looked at, and with the corpus by a few bytes per
row; levels are normalised as networks see them, dwell is in samples.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.data.corpus import UNUSED_CODE, Corpus
from leech.data.features import base_bounds
from leech.data.grouping import Groups
from leech.data.recipe import CONTEXT_BASES, Recipe

Floats = NDArray[np.float64]

POINTS_PER_BASE = 8
"""Points at which the signal of each base is read for the median over reads, however long the base lasted."""

FEWEST_SHARE = 0.5
"""Share of a label's reads that must reach a point for it to be drawn: those that do are the faster ones, not all."""

QUANTILES = (0.16, 0.5, 0.84)
"""Of reads, at every point: one read of wild current moves none of them, as it does mean and standard deviation."""

_BLOCK_SAMPLES = 2**22
"""Samples of signal in memory at once."""

_FEWEST_BASES = 5
"""A read with fewer bases of known level says nothing about its fit."""

_CONSENSUS = 0.9
"""Share of the chunks that must have a base for it to be shown for all."""

_SMALL = (
    "label",
    "reference",
    "run",
    "valid_start",
    "valid_end",
    "shift",
    "scale",
    "focus_base_start",
    "dwell",
    "median_dwell",
    "sequence",
    "level_mean",
)


class Spread(NamedTuple):
    """The 5 %, 50 % and 95 % quantiles of a number over chunks; None where there is none."""

    low: float | None
    median: float | None
    high: float | None

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """Return the quantiles of the values that are numbers."""
        known = [value for value in values if np.isfinite(value)]
        if not known:
            return cls(None, None, None)
        return cls(*(round(float(value), 4) for value in np.quantile(known, [0.05, 0.5, 0.95])))


@dataclass(frozen=True)
class LabelView:
    """What chunks of one label look like.

    :ivar label: empty where there is none.
    :ivar num_chunks: looked at.
    :ivar shares: of chunks whose window is full, padded at its start, padded at its end, and whose focus base has no
        signal of its own.
    :ivar spreads: samples per base of the read; the same in ms; bases in the window; and, with a k-mer table, correlation of
        level means with expected levels.
    :ivar signal: median normalised signal over reads, ``POINTS_PER_BASE`` points per feature base, NaN where there is none;
        ``signal_low`` and ``signal_high`` are the 16 % and 84 % quantiles, ``signal_reads`` how many reads reach a point.
    :ivar level: median normalised level of every feature base; ``dwell`` is the geometric mean over reads, in samples, because
        moves come in strides and medians of them hardly move; ``base_reads`` are the reads that have the base.
    :ivar num_averaged: reads that could be in those: those of the references averaged.
    """

    label: str
    num_chunks: int
    shares: dict[str, float]
    spreads: dict[str, Spread]
    signal: Floats
    signal_low: Floats
    signal_high: Floats
    signal_reads: NDArray[np.int64]
    level: Floats
    dwell: Floats
    base_reads: NDArray[np.int64]
    num_averaged: int

    def enough(self, reads: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return at which points enough of the reads are there, ``FEWEST_SHARE`` of them, for the point to speak for all."""
        return reads >= max(1, FEWEST_SHARE * self.num_averaged)

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "label": self.label or None,
            "chunks": self.num_chunks,
            **self.shares,
            **{name: spread._asdict() for name, spread in self.spreads.items()},
            "reads_averaged": self.num_averaged,
            "median_signal": _plain(self.signal),
            "low_signal": _plain(self.signal_low),
            "high_signal": _plain(self.signal_high),
            "reads_signal": self.signal_reads.tolist(),
            "median_level": _plain(self.level),
            "geometric_mean_dwell": _plain(self.dwell),
            "reads_base": self.base_reads.tolist(),
        }


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
            "signal": _plain(self.signal),
            "bases": [base._asdict() for base in self.bases],
        }


@dataclass(frozen=True)
class View:
    """Chunks of a corpus looked at one by one.

    :ivar labels: one view per label of which chunks were looked at.
    :ivar offsets: of the feature bases; ``letters`` are theirs, ``.`` where chunks differ.
    :ivar num_references: references that weigh the same in every label's medians; 0 where the labels have none in common and
        each has the medians of its own.
    """

    labels: tuple[LabelView, ...]
    offsets: tuple[int, ...]
    letters: str
    num_references: int
    examples: tuple[Example, ...]

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "offsets": list(self.offsets),
            "letters": self.letters,
            "points_per_base": POINTS_PER_BASE,
            "references_averaged": self.num_references or None,
            "labels": [view.to_mapping() for view in self.labels],
            "examples": [example.to_mapping() for example in self.examples],
        }


@dataclass
class _Tally:
    """What was seen of one label."""

    shares: dict[str, list[float]] = field(default_factory=dict)
    spreads: dict[str, list[float]] = field(default_factory=dict)
    by_reference: dict[int, list[NDArray[np.float32]]] = field(default_factory=dict)


def view(corpus: Corpus, num_chunks: int, num_examples: int, seed: int) -> View:
    """Look at chunks drawn from a corpus, as many of every label as there are or as are asked for.

    Chunks that a merge left out are not looked at.

    :param num_chunks: over all labels.
    :param num_examples: of every label.
    """
    labels = np.asarray(corpus.column("label")).astype(np.int64)
    chosen = _choose(corpus, labels, num_chunks, np.random.default_rng(seed))
    names = {code: _name(corpus, code) for code in chosen}
    return _look(corpus, labels, chosen, names, _examples(corpus, chosen, num_examples, seed))


def view_groups(corpus: Corpus, groups: Groups, num_chunks: int, seed: int) -> View:
    """Look at chunks as :func:`view` does, by groups of rows in place of labels, and without examples.

    :param groups: rows with code -1 are not looked at.
    """
    chosen = _choose(corpus, groups.codes, num_chunks, np.random.default_rng(seed), unnamed=False)
    return _look(corpus, groups.codes, chosen, dict(enumerate(groups.names)), ())


def _look(
    corpus: Corpus,
    codes: NDArray[np.int64],
    chosen: dict[int, NDArray[np.int64]],
    names: dict[int, str],
    examples: tuple[Example, ...],
) -> View:
    recipe = corpus.recipe
    tallies = {code: _Tally() for code in chosen}
    letters = _Letters(recipe)
    rows = np.sort(np.concatenate([*chosen.values(), np.zeros(0, dtype=np.int64)]))
    for block in _blocks(corpus, rows, codes):
        letters.add(block)
        values = _values(block, recipe)
        for code in np.unique(block["group"]).tolist():
            mine = block["group"] == code
            _tally(tallies[code], corpus, {name: column[mine] for name, column in block.items()}, values[mine])
    common = _common(tallies)
    return View(
        labels=tuple(_label_view(names[code], tally, common, recipe) for code, tally in tallies.items()),
        offsets=tuple(range(recipe.feature_start, recipe.feature_end + 1)),
        letters=letters.consensus(),
        num_references=len(common),
        examples=examples,
    )


def _name(corpus: Corpus, code: int) -> str:
    return corpus.labels[code] if code >= 0 else ""


def _choose(
    corpus: Corpus, labels: NDArray[np.int64], num_chunks: int, generator: np.random.Generator, *, unnamed: bool = True
) -> dict[int, NDArray[np.int64]]:
    """Draw rows by code, in the order in which they were drawn.

    :param unnamed: draw from the rows with code -1 too.
    """
    used = np.asarray(corpus.column("split")) != UNUSED_CODE if corpus.is_split else np.ones(len(labels), dtype=bool)
    if not unnamed:
        used &= labels >= 0
    codes = np.unique(labels[used]).tolist()
    chosen = {}
    for code in codes:
        rows = np.flatnonzero(used & (labels == code))
        chosen[code] = generator.choice(rows, min(len(rows), num_chunks // len(codes)), replace=False)
    return {code: rows for code, rows in chosen.items() if len(rows)}


def _blocks(corpus: Corpus, rows: NDArray[np.int64], codes: NDArray[np.int64]) -> Iterator[dict[str, NDArray[Any]]]:
    names = [*_SMALL, "signal", *(["expected_level"] if corpus.has_column("expected_level") else [])]
    size = max(1, _BLOCK_SAMPLES // corpus.recipe.num_samples)
    for start in range(0, len(rows), size):
        some = rows[start : start + size]
        yield {**corpus.gather(some, names), "group": codes[some]}


def _normalised(block: dict[str, NDArray[Any]], name: str) -> Floats:
    shift, scale = (block[column].astype(np.float64)[:, None] for column in ("shift", "scale"))
    return (block[name] - shift) / scale


def _feature_bases(recipe: Recipe) -> slice:
    first = recipe.bases_before + recipe.feature_start
    return slice(first, first + recipe.num_feature_bases)


def _values(block: dict[str, NDArray[Any]], recipe: Recipe) -> Floats:
    """Return, of every chunk, signal at fixed points of the feature bases, levels and dwell; NaN where there is none."""
    bases = _feature_bases(recipe)
    dwell = block["dwell"][:, bases].astype(np.float64)
    start = base_bounds(block, recipe)[:, :-1][:, bases]
    point = (np.arange(POINTS_PER_BASE) + 0.5) / POINTS_PER_BASE
    place = np.floor(start[:, :, None] + dwell[:, :, None] * point).astype(np.int64).reshape(len(dwell), -1)
    inside = (place >= block["valid_start"][:, None]) & (place < block["valid_end"][:, None])
    inside &= np.repeat(dwell > 0, POINTS_PER_BASE, axis=1)
    signal = np.take_along_axis(_normalised(block, "signal"), np.clip(place, 0, recipe.num_samples - 1), axis=1)
    level = _normalised(block, "level_mean")
    absent = dwell == 0
    return np.hstack(
        [np.where(inside, signal, np.nan), np.where(absent, np.nan, level), np.where(absent, np.nan, dwell)]
    )


def _tally(tally: _Tally, corpus: Corpus, block: dict[str, NDArray[Any]], values: Floats) -> None:
    recipe = corpus.recipe
    before, after = block["valid_start"] > 0, block["valid_end"] < recipe.num_samples
    rates = np.array([corpus.manifest.runs.get(name, np.nan) for name in corpus.categories["run"]], dtype=np.float64)
    bounds = base_bounds(block, recipe)
    within = (bounds[:, 1:] > block["valid_start"][:, None]) & (bounds[:, :-1] < block["valid_end"][:, None])
    shares = {
        "full_window": ~before & ~after,
        "padded_start": before,
        "padded_end": after,
        "focus_without_signal": block["dwell"][:, recipe.bases_before] == 0,
    }
    spreads = {
        "samples_per_base": block["median_dwell"],
        "ms_per_base": 1000 * block["median_dwell"] / rates[block["run"]],
        "bases_in_window": (within & (block["dwell"] > 0)).sum(axis=1),
    }
    if "expected_level" in block:
        spreads["level_correlation"] = _correlations(block, recipe)
    for told, found in ((tally.shares, shares), (tally.spreads, spreads)):
        for name, column in found.items():
            told.setdefault(name, []).extend(column.astype(float).tolist())
    for reference in np.unique(block["reference"]).tolist():
        found_values = values[block["reference"] == reference].astype(np.float32)
        tally.by_reference.setdefault(reference, []).append(found_values)


def _correlations(block: dict[str, NDArray[Any]], recipe: Recipe) -> Floats:
    """Return Pearson's correlation of level means with expected levels by chunk; NaN where it is not defined."""
    level, expected = _normalised(block, "level_mean"), block["expected_level"].astype(np.float64)
    known = (block["dwell"][:, _feature_bases(recipe)] > 0) & np.isfinite(expected)
    number = np.maximum(known.sum(axis=1), 1)[:, None]
    first, second = (
        np.where(known, values - np.where(known, values, 0).sum(axis=1, keepdims=True) / number, 0)
        for values in (level, expected)
    )
    size = np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
    defined = (known.sum(axis=1) >= _FEWEST_BASES) & (size > 0)
    result = np.full(len(level), np.nan)
    np.divide((first * second).sum(axis=1), size, out=result, where=defined)
    return result


def _common(tallies: dict[int, _Tally]) -> list[int]:
    """Return the references of which every label has chunks."""
    sets = [set(tally.by_reference) for tally in tallies.values()]
    return sorted(set.intersection(*sets)) if sets else []


def _label_view(label: str, tally: _Tally, common: list[int], recipe: Recipe) -> LabelView:
    # References weigh the same, so that labels do not differ by which tRNAs they hold more of.
    kept = [np.concatenate(tally.by_reference[reference]) for reference in (common or sorted(tally.by_reference))]
    low, middle, high = _quantiles(kept)
    reads = np.isfinite(np.concatenate(kept)).sum(axis=0)
    num_points = recipe.num_feature_bases * POINTS_PER_BASE
    logs = [np.log(values[:, num_points + recipe.num_feature_bases :].astype(np.float64)) for values in kept]
    return LabelView(
        label=label,
        num_chunks=len(tally.shares["full_window"]),
        shares={name: round(float(np.mean(values)), 4) for name, values in tally.shares.items()},
        spreads={name: Spread.of(values) for name, values in tally.spreads.items()},
        signal=middle[:num_points],
        signal_low=low[:num_points],
        signal_high=high[:num_points],
        signal_reads=reads[:num_points],
        level=middle[num_points : num_points + recipe.num_feature_bases],
        dwell=np.exp(_average(np.array([_average(values) for values in logs]))),
        base_reads=reads[num_points : num_points + recipe.num_feature_bases],
        num_averaged=sum(map(len, kept)),
    )


def _average(values: NDArray[Any]) -> Floats:
    """Return the mean of every column over the rows that have a number there; NaN where none has."""
    known = np.isfinite(values)
    total = np.where(known, values, 0).sum(axis=0, dtype=np.float64)
    return np.where(known.any(axis=0), total / np.maximum(known.sum(axis=0), 1), np.nan)


def _quantiles(groups: list[NDArray[np.float32]]) -> Floats:
    """Return :data:`QUANTILES` of every column over the rows of groups that weigh the same; NaN where no row has a number.

    Half of the value at which the weight up to there reaches the quantile and half of that at which it exceeds it: definition
    2 of Hyndman and Fan 1996, with weights.
    """
    width = groups[0].shape[1]
    found = np.full((len(QUANTILES), width), np.nan)
    # Column by column, so that no copy of all values is needed.
    for column in range(width):
        parts = [values[np.isfinite(values)] for values in (group[:, column] for group in groups)]
        values = np.concatenate(parts)
        if not len(values):
            continue
        weights = np.concatenate([np.full(len(part), 1 / len(part)) for part in parts if len(part)])
        order = np.argsort(values, kind="stable")
        reached = np.cumsum(weights[order]) / weights.sum()
        for row, quantile in enumerate(QUANTILES):
            # Sums of thirds and the like miss the whole by a hair.
            at, beyond = np.searchsorted(reached, quantile - 1e-9), np.searchsorted(reached, quantile + 1e-9, "right")
            found[row, column] = (float(values[order[at]]) + float(values[order[beyond]])) / 2
    return found


class _Letters:
    """Counts the bases at the feature offsets."""

    def __init__(self, recipe: Recipe) -> None:
        bases = _feature_bases(recipe)
        self._bases = slice(bases.start + CONTEXT_BASES, bases.stop + CONTEXT_BASES)
        self._counts = np.zeros((5, recipe.num_feature_bases), dtype=np.int64)

    def add(self, block: dict[str, NDArray[Any]]) -> None:
        codes = np.minimum(block["sequence"][:, self._bases], 4)
        self._counts += (codes[None] == np.arange(5)[:, None, None]).sum(axis=1)

    def consensus(self) -> str:
        total = np.maximum(self._counts.sum(axis=0), 1)
        best = self._counts.argmax(axis=0)
        agreed = self._counts.max(axis=0) / total >= _CONSENSUS
        return "".join("ACGTN"[code] if sure else "." for code, sure in zip(best, agreed, strict=True))


def _examples(corpus: Corpus, chosen: dict[int, NDArray[np.int64]], number: int, seed: int) -> tuple[Example, ...]:
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
    block = corpus.gather(rows, [*_SMALL, "signal", "read_id"])
    return tuple(
        _example(corpus, row, {name: column[place : place + 1] for name, column in block.items()})
        for place, row in enumerate(rows.tolist())
    )


def _example(corpus: Corpus, row: int, block: dict[str, NDArray[Any]]) -> Example:
    recipe = corpus.recipe
    start, end = int(block["valid_start"][0]), int(block["valid_end"][0])
    sample = np.arange(recipe.num_samples)
    signal = np.where((sample >= start) & (sample < end), _normalised(block, "signal")[0], np.nan)
    bounds = base_bounds(block, recipe)[0].tolist()
    letters = ["ACGTN"[min(int(code), 4)] for code in block["sequence"][0]][CONTEXT_BASES:-CONTEXT_BASES]
    bases = [
        Base(place - recipe.bases_before, letter, first, last)
        for place, (letter, first, last) in enumerate(zip(letters, bounds[:-1], bounds[1:], strict=True))
        if first < last and last > 0 and first < recipe.num_samples
    ]
    return Example(
        row=row,
        label=_name(corpus, int(block["label"][0])),
        reference=corpus.categories["reference"][int(block["reference"][0])],
        read_id=str(uuid.UUID(bytes=block["read_id"][0].tobytes())),
        signal=signal,
        bases=tuple(bases),
    )


def _plain(values: Floats) -> list[float | None]:
    return [round(value, 4) if np.isfinite(value) else None for value in values.tolist()]
