"""Chunks looked at one by one: window geometry, fit to the expected levels and medians by class.

Hides: how chunks are drawn from a large corpus, and how reads of different speed are laid over each other. Belongs here:
numbers over chunks that need signal or bases; single chunks are ``examples.py``'s, counts of rows ``inspect.py``'s, drawing is
``page.py``'s. Invariants: the same corpus, numbers and seed give the same values; memory grows with the chunks looked at, and
with the corpus by a few bytes per row; levels are normalised as networks see them, dwell is in samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.data.corpus import UNUSED_CODE, Corpus
from leech.data.examples import Example, choose_examples, label_name, normalised, plain
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
            "median_signal": plain(self.signal),
            "low_signal": plain(self.signal_low),
            "high_signal": plain(self.signal_high),
            "reads_signal": self.signal_reads.tolist(),
            "median_level": plain(self.level),
            "geometric_mean_dwell": plain(self.dwell),
            "reads_base": self.base_reads.tolist(),
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
    names = {code: label_name(corpus, code) for code in chosen}
    return _look(corpus, labels, chosen, names, choose_examples(corpus, chosen, num_examples, seed))


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
    signal = np.take_along_axis(normalised(block, "signal"), np.clip(place, 0, recipe.num_samples - 1), axis=1)
    level = normalised(block, "level_mean")
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
    level, expected = normalised(block, "level_mean"), block["expected_level"].astype(np.float64)
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
