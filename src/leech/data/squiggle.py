"""Chunks looked at one by one: window geometry, fit to the expected levels, means by class and examples.

Hides: how chunks are drawn from a large corpus, and how reads of different speed are laid over each other. Belongs here:
numbers that need signal or bases; counts of rows are ``inspect.py``'s, drawing is ``page.py``'s. Invariants: the same
corpus, numbers and seed give the same values; memory does not grow with the corpus beyond a few bytes per row; levels are
normalised as networks see them, dwell is in samples.
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
"""Points at which the signal of each base is read for the mean over reads, however long the base lasted."""

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
    :ivar signal: mean normalised signal, ``POINTS_PER_BASE`` points per feature base, NaN where there is none; ``signal_sd``
        is the standard deviation between reads of one reference.
    :ivar level: mean normalised level of every feature base; ``dwell`` likewise in samples.
    """

    label: str
    num_chunks: int
    shares: dict[str, float]
    spreads: dict[str, Spread]
    signal: Floats
    signal_sd: Floats
    level: Floats
    dwell: Floats

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "label": self.label or None,
            "chunks": self.num_chunks,
            **self.shares,
            **{name: spread._asdict() for name, spread in self.spreads.items()},
            "mean_signal": _plain(self.signal),
            "sd_signal": _plain(self.signal_sd),
            "mean_level": _plain(self.level),
            "mean_dwell": _plain(self.dwell),
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
    :ivar num_references: references whose means every label's mean is the plain average of; 0 where the labels have none in
        common and each is averaged over its own.
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
class _Sums:
    """Sums over chunks of one label and reference: of values, of their squares, and how many there were."""

    total: Floats
    squares: Floats
    count: NDArray[np.int64]

    @classmethod
    def zero(cls, width: int) -> _Sums:
        return cls(np.zeros(width), np.zeros(width), np.zeros(width, dtype=np.int64))

    def add(self, values: Floats) -> None:
        known = np.isfinite(values)
        present = np.where(known, values, 0)
        self.total += present.sum(axis=0)
        self.squares += (present**2).sum(axis=0)
        self.count += known.sum(axis=0)

    def mean(self) -> Floats:
        return np.where(self.count > 0, self.total / np.maximum(self.count, 1), np.nan)

    def variance(self) -> Floats:
        spread = self.squares / np.maximum(self.count, 1) - np.nan_to_num(self.mean()) ** 2
        return np.where(self.count > 0, np.maximum(spread, 0), np.nan)


@dataclass
class _Tally:
    """What was seen of one label."""

    shares: dict[str, list[float]] = field(default_factory=dict)
    spreads: dict[str, list[float]] = field(default_factory=dict)
    by_reference: dict[int, _Sums] = field(default_factory=dict)


def view(corpus: Corpus, num_chunks: int, num_examples: int, seed: int) -> View:
    """Look at chunks drawn from a corpus, as many of every label as there are or as are asked for.

    Chunks that a merge left out are not looked at.

    :param num_chunks: over all labels.
    :param num_examples: of every label.
    """
    labels = np.asarray(corpus.column("label")).astype(np.int64)
    chosen = _choose(corpus, labels, num_chunks, np.random.default_rng(seed))
    names = {code: _name(corpus, code) for code in chosen}
    return _look(corpus, labels, chosen, names, _examples(corpus, chosen, num_examples))


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
        sums = tally.by_reference.setdefault(reference, _Sums.zero(values.shape[1]))
        sums.add(values[block["reference"] == reference])


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
    sums = [tally.by_reference[reference] for reference in (common or sorted(tally.by_reference))]
    mean, variance = (_average(np.array([values(one) for one in sums])) for values in (_Sums.mean, _Sums.variance))
    edges = np.cumsum([recipe.num_feature_bases * POINTS_PER_BASE, recipe.num_feature_bases])
    signal, level, dwell = np.split(mean, edges)
    return LabelView(
        label=label,
        num_chunks=len(tally.shares["full_window"]),
        shares={name: round(float(np.mean(values)), 4) for name, values in tally.shares.items()},
        spreads={name: Spread.of(values) for name, values in tally.spreads.items()},
        signal=signal,
        signal_sd=np.sqrt(np.split(variance, edges)[0]),
        level=level,
        dwell=dwell,
    )


def _average(values: Floats) -> Floats:
    known = np.isfinite(values)
    total = np.where(known, values, 0).sum(axis=0)
    return np.where(known.any(axis=0), total / np.maximum(known.sum(axis=0), 1), np.nan)


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


def _examples(corpus: Corpus, chosen: dict[int, NDArray[np.int64]], number: int) -> tuple[Example, ...]:
    """Return the first chunks drawn of every label, of the reference that all labels have most of where there is one."""
    references = {code: np.asarray(corpus.gather(rows, ["reference"])["reference"]) for code, rows in chosen.items()}
    width = len(corpus.categories["reference"])
    counts = np.array([np.bincount(found, minlength=width) for found in references.values()]).reshape(-1, width)
    shared = int(counts.min(axis=0).argmax()) if counts.size else 0
    examples: list[Example] = []
    for code, rows in chosen.items():
        # A stable sort keeps the order in which they were drawn.
        order = np.argsort(references[code] != shared, kind="stable")
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
