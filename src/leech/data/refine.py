"""Boundary refinement: moving base boundaries to where the current says they are.

Hides: escapepod's dynamic programme, the units it needs, and which bases it is given. A basecaller's moves know a boundary
to a stride at best and often put it bases away; the current of a base follows its k-mer, so the boundaries under which the
current fits the expected levels best are nearer the truth. Belongs here: one read's stretch around the focus, and counting
what came of it; expected levels are ``levels.py``'s, boundaries from moves and alignment ``moves.py``'s. Invariants: only
boundaries change, never the signal, its shift or its scale; no read's correlation with the levels falls, because such a
read keeps the boundaries it had; bases beyond the stretch keep theirs; the same input gives the same boundaries.

What escapepod minimises over all boundaries within a band of bases around the given ones is the sum over samples of
``(signal - level)^2`` plus, for each base of d <= DWELL_TARGET samples, ``weight * (DWELL_TARGET + 1 - d)^2``, after one
least-squares fit of shift and scale to the stretch. A test compares it with a plain search of the same optimum.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import escapepod
import numpy as np
from numpy.typing import NDArray

from leech.errors import MismatchError

MARGIN_BASES = 15
"""Bases refined on either side of the base window and then thrown away.

The ends of a stretch are held where the moves put them. With shift and scale held fixed, boundaries inside the window stop
depending on where the stretch ends at a margin of 8. The fit of shift and scale wants more bases: on real tRNA reads its
scale lies 3 % (median) from that of the whole read at a margin of 15 and 7 % at none. Beyond 20 the stretch reaches the
ends of a tRNA read, where the current fits the levels badly.
"""

MIN_BASES = 40
"""Shortest stretch that is refined: the fit of shift and scale leaves out ten bases at either end."""

HALF_BAND_BASES = 8
"""How many bases a sample may move from its base. 12 changes 1 % of the boundaries of real reads, 5 changes 5 %."""

DWELL_TARGET = 4.0
"""Bases of at most this many samples are penalised; without that, a quarter of all bases shrink to one sample."""

UNITS = 2.0**-6
"""Signal and levels are multiplied by this before the search.

escapepod takes an accumulated cost above about 100 for impossible and then returns nonsense. In plain units a window of
real signal costs 200 to 500; in these, 100 stands for 400,000. A power of two rounds nothing.
"""

_DWELL_WEIGHT = 0.5 * UNITS**2
_LARGEST_SIGNAL = 5.0
"""Normalised signal is clipped here for search and correlation: levels lie within -1.6 and 2.8; a spike must not decide."""

MIN_READS_TO_JUDGE = 10
"""Reads needed before a run's medians are believed."""

Outcome = Literal["refined", "kept_moves", "unrefinable"]


class Refinement(NamedTuple):
    """What became of one read's boundaries.

    :ivar bounds: the boundaries to use, int64, same shape as those given.
    :ivar outcome: "refined"; "kept_moves" where the correlation would have fallen; "unrefinable" where fewer than
        :data:`MIN_BASES` bases around the focus have both signal and a known level.
    :ivar correlation_before: of per-base means with expected levels over the stretch; None when it is unrefinable.
    :ivar correlation_after: the same under the boundaries found, whether or not they are used.
    """

    bounds: NDArray[np.int64]
    outcome: Outcome
    correlation_before: float | None
    correlation_after: float | None


def refine_bounds(
    signal: NDArray[np.int16],
    bounds: NDArray[np.int64],
    levels: NDArray[np.float32],
    focus: int,
    spread: tuple[float, float] | None,
) -> Refinement:
    """Refine the boundaries of consecutive reference bases around the focus.

    :param signal: samples in the direction of the sequence, ADC units.
    :param bounds: boundaries of the bases in ``signal``, shape (num_bases + 1,), not descending.
    :param levels: expected normalised level of each base, shape (num_bases,); NaN where unknown.
    :param focus: which of the bases is the focus; the stretch grows from it while bases have signal and a level.
    :param spread: median and 1.4826 x MAD of the whole read, ADC units; None where it has none.
    """
    first, last = _stretch(np.isfinite(levels) & (bounds[1:] > bounds[:-1]), focus)
    if last - first < MIN_BASES or spread is None:
        return Refinement(bounds, "unrefinable", None, None)
    given = bounds[first : last + 1]
    start = int(given[0])
    normalised = _normalised(signal[start : given[-1]], *spread)
    fit = _LevelFit(normalised, levels[first:last])
    found = _search(normalised, given - start, fit.levels)
    before, after = fit.correlation(given - start), fit.correlation(found)
    if after < before:
        return Refinement(bounds, "kept_moves", before, after)
    refined = bounds.copy()
    refined[first : last + 1] = start + found
    return Refinement(refined, "refined", before, after)


class _LevelFit:
    """How per-base means of a signal follow expected levels; what no boundaries change is computed once."""

    def __init__(self, signal: NDArray[np.float32], levels: NDArray[np.float32]) -> None:
        self.levels = levels
        self._signal = signal
        self._centred = levels - np.add.reduce(levels, dtype=np.float64) / len(levels)
        self._variation = self._centred @ self._centred

    def correlation(self, bounds: NDArray[np.int64]) -> float:
        """Return Pearson's correlation of per-base means with the levels; 0 where it is undefined.

        :param bounds: strictly ascending from 0 to the number of samples; anything else counts as no correlation.
        """
        dwell = bounds[1:] - bounds[:-1]
        if bounds[0] != 0 or bounds[-1] != len(self._signal) or np.minimum.reduce(dwell) < 1:
            return 0.0
        means = np.add.reduceat(self._signal, bounds[:-1], dtype=np.float64) / dwell
        means -= np.add.reduce(means) / len(means)
        norm = math.sqrt((means @ means) * self._variation)
        return float(means @ self._centred) / norm if norm > 0 else 0.0


def level_correlation(signal: NDArray[np.float32], bounds: NDArray[np.int64], levels: NDArray[np.float32]) -> float:
    """Return Pearson's correlation of per-base means with expected levels; 0 where it is undefined.

    :param bounds: strictly ascending from 0 to the number of samples; anything else counts as no correlation.
    """
    return _LevelFit(signal, levels).correlation(bounds)


def _normalised(samples: NDArray[np.int16], shift: float, scale: float) -> NDArray[np.float32]:
    normalised = samples.astype(np.float32)
    normalised -= np.float32(shift)
    normalised /= np.float32(scale)
    np.minimum(normalised, _LARGEST_SIGNAL, out=normalised)
    return np.maximum(normalised, -_LARGEST_SIGNAL, out=normalised)


def _stretch(usable: NDArray[np.bool_], focus: int) -> tuple[int, int]:
    """Return the half-open range of usable bases around the focus; empty where the focus is not usable."""
    flags = usable.tobytes()
    if not flags[focus]:
        return focus, focus
    end = flags.find(b"\x00", focus)
    return flags.rfind(b"\x00", 0, focus) + 1, len(flags) if end < 0 else end


def _search(signal: NDArray[np.float32], bounds: NDArray[np.int64], levels: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the best boundaries, from 0 to the number of samples."""
    found, _scale, _shift, _drift = escapepod.refine_signal_map(
        signal * np.float32(UNITS),
        bounds.tolist(),
        levels * np.float32(UNITS),
        half_bandwidth=HALF_BAND_BASES,
        scale_iters=0,
        dwell_target=DWELL_TARGET,
        dwell_weight=_DWELL_WEIGHT,
    )
    return found


@dataclass
class RefinementTally:
    """Outcomes and correlations of many reads, mergeable and of bounded size.

    :ivar outcomes: reads by outcome.
    :ivar before: reads by correlation in thousandths, under the boundaries given.
    :ivar after: the same under the boundaries found.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    before: Counter[int] = field(default_factory=Counter)
    after: Counter[int] = field(default_factory=Counter)

    def add(self, refinement: Refinement) -> None:
        """Count one read."""
        self.outcomes[refinement.outcome] += 1
        if refinement.correlation_before is not None and refinement.correlation_after is not None:
            self.before[round(1000 * refinement.correlation_before)] += 1
            self.after[round(1000 * refinement.correlation_after)] += 1

    def merge(self, other: RefinementTally) -> None:
        """Add another tally's counts."""
        self.outcomes.update(other.outcomes)
        self.before.update(other.before)
        self.after.update(other.after)

    @property
    def refined_share(self) -> float | None:
        """Share of reads whose boundaries were refined; None before any read."""
        total = self.outcomes.total()
        return self.outcomes["refined"] / total if total else None

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "refined": self.outcomes["refined"],
            "kept_moves": self.outcomes["kept_moves"],
            "unrefinable": self.outcomes["unrefinable"],
            "refined_share": self.refined_share,
            "correlation_before": _median(self.before),
            "correlation_after": _median(self.after),
        }

    def refuse_harm(self) -> None:
        """Stop a run whose boundaries fit the levels worse after refinement than before.

        :raises MismatchError: at least :data:`MIN_READS_TO_JUDGE` reads, and their median correlation falls.
        """
        before, after = _median(self.before), _median(self.after)
        if before is None or after is None or self.before.total() < MIN_READS_TO_JUDGE or after >= before:
            return
        raise MismatchError(
            f"Refinement lowers the median correlation of per-base means with the expected levels from {before:.3f} to "
            f"{after:.3f} over {self.before.total()} reads, so the boundaries it finds cannot be trusted.",
            hint="Check that the k-mer table and --kmer-centre belong to this pore, or use --refinement none.",
        )


def _median(counts: Counter[int]) -> float | None:
    """Return the lower median of correlations counted in thousandths."""
    remaining = (counts.total() + 1) // 2
    for value in sorted(counts):
        remaining -= counts[value]
        if remaining <= 0:
            return value / 1000
    return None
