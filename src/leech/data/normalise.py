"""Per-read shift and scale.

Hides: how the two numbers are found. Belongs here: one function per normalisation of the recipe; applying them is
``(adc - shift) / scale``, done when a batch is made. Invariants: shift and scale are ADC units; the stored signal never
changes; a read that has no scale is reported, never given a made-up one. Statistics of the read's used samples, being
taken of whole numbers, are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.data.medians import medians
from leech.data.moves import ReadBounds
from leech.data.pod5 import Calibration

MAD_TO_SD = 1.4826
"""Ratio of a normal distribution's standard deviation to its median absolute deviation."""

LOW_QUANTILE, HIGH_QUANTILE = 0.1, 0.9
"""Quantiles between which the scale of 'quantile' is measured."""

_LOWEST = int(np.iinfo(np.int16).min)

_SMALLEST, _LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)

QUANTILES_TO_SD = 1 / (2 * 1.2815515655446004)
"""Ratio of a normal distribution's standard deviation to the distance between those quantiles."""


class UsedSignals(NamedTuple):
    """What shift and scale of reads are measured on.

    :ivar samples: per read its used samples, int16, at least one, in time order.
    :ivar bounds: where in them each base begins, in time order too, and where the last one ends; no base is empty.
    :ivar calibrations: per read.
    """

    samples: Sequence[NDArray[np.int16]]
    bounds: ReadBounds
    calibrations: Sequence[Calibration]


class Normalisation(NamedTuple):
    """Normalised signal is ``(adc - shift) / scale``; both in ADC units."""

    shift: float
    scale: float


def normalise_mad(samples: NDArray[np.int16]) -> Normalisation | str:
    """Return median and 1.4826 x median absolute deviation."""
    found = median_mad(samples)
    return "constant_signal" if found is None else Normalisation(*found)


def normalise_base_mad(used: UsedSignals) -> list[Normalisation | str]:
    """Return median and 1.4826 x median absolute deviation of the bases' mean currents.

    Each base counts once, however long the motor held it, so what is left is the sequence's composition, which reads of one
    reference share; the median of samples moves with the dwell of single bases.
    """
    number = used.bounds.num_bases
    means = _base_means(used.samples, used.bounds)
    shift = medians(means, number)
    # The means are in another order now, and in another they may be.
    mad = medians(np.abs(means - np.repeat(shift, number)), number)
    return [
        "constant_signal" if deviation == 0 else Normalisation(median, MAD_TO_SD * deviation)
        for median, deviation in zip(shift.tolist(), mad.tolist(), strict=True)
    ]


def normalise_zscore(samples: NDArray[np.int16]) -> Normalisation | str:
    """Return mean and standard deviation (of the population)."""
    wide = samples.astype(np.int64)
    total, squares, number = int(wide.sum()), int((wide * wide).sum()), len(wide)
    # n * sum of squares - square of sum, in whole numbers: no cancellation.
    variance = (number * squares - total * total) / (number * number)
    return "constant_signal" if variance == 0 else Normalisation(total / number, math.sqrt(variance))


def normalise_quantile(samples: NDArray[np.int16]) -> Normalisation | str:
    """Return the middle of the 10 % and 90 % quantiles, and their distance over that of a standard normal distribution.

    A quantile q of n samples is the one in place floor(q * (n - 1)) of the sorted samples, counted from 0.
    """
    lowest = int(samples.min())
    cumulative = np.cumsum(np.bincount(samples.astype(np.int64) - lowest))
    places = [math.floor(share * (len(samples) - 1)) for share in (LOW_QUANTILE, HIGH_QUANTILE)]
    low, high = (int(value) + lowest for value in np.searchsorted(cumulative, places, side="right"))
    return "constant_signal" if low == high else Normalisation((low + high) / 2, (high - low) * QUANTILES_TO_SD)


def normalise_picoamp(used: UsedSignals) -> list[Normalisation | str]:
    """Return the shift and scale that give picoamperes: ``(adc + offset) * scale`` is ``(adc - -offset) / (1 / scale)``."""

    def of(samples: NDArray[np.int16], calibration: Calibration) -> Normalisation | str:
        if not (math.isfinite(calibration.offset) and math.isfinite(calibration.scale) and calibration.scale > 0):
            return "bad_calibration"
        if samples.min() == samples.max():
            return "constant_signal"
        return Normalisation(-calibration.offset, 1 / calibration.scale)

    return [of(*read) for read in zip(used.samples, used.calibrations, strict=True)]


def _of_samples(
    normalisation: Callable[[NDArray[np.int16]], Normalisation | str],
) -> Callable[[UsedSignals], list[Normalisation | str]]:
    """Return the normalisation of many reads that looks at each one's samples alone."""
    return lambda used: [normalisation(samples) for samples in used.samples]


NORMALISATIONS: dict[str, Callable[[UsedSignals], list[Normalisation | str]]] = {
    "mad": _of_samples(normalise_mad),
    "base_mad": normalise_base_mad,
    "zscore": _of_samples(normalise_zscore),
    "quantile": _of_samples(normalise_quantile),
    "picoamp": normalise_picoamp,
}
"""Name in the recipe -> function that returns shift and scale of each read, or the reason why it has none; a new
normalisation is one entry, and a choice in ``recipe.py``."""


def normalise(name: str, used: UsedSignals) -> list[Normalisation | str]:
    """Return shift and scale of each read by the named normalisation, or the reason why it has none.

    Both can be stored in float32, the scale without becoming 0.
    """
    if not used.samples:
        return []
    return [found if _is_storable(found) else "bad_calibration" for found in NORMALISATIONS[name](used)]


def _is_storable(found: Normalisation | str) -> bool:
    return isinstance(found, str) or (abs(found.shift) <= _LARGEST and _SMALLEST <= found.scale <= _LARGEST)


def _base_means(samples: Sequence[NDArray[np.int16]], bounds: ReadBounds) -> NDArray[np.float64]:
    """Return the mean of each base's samples, of all reads one after the other."""
    first, last = bounds.bounds[bounds.offsets[:-1]].tolist(), bounds.bounds[bounds.offsets[1:] - 1].tolist()
    # Samples before the first base and behind the last belong to none.
    joined = np.concatenate([read[start:end] for read, start, end in zip(samples, first, last, strict=True)])
    dwell = bounds.dwell()
    starts = np.cumsum(dwell) - dwell
    # The sum of a base fits 32 bits unless it has more than 65,536 samples, and is found faster in them.
    fits = int(dwell.max()) * -_LOWEST < 2**31
    sums = np.add.reduceat(joined, starts, dtype=np.int32 if fits else np.int64)
    means: NDArray[np.float64] = sums / dwell
    return means


def median_mad(signal: NDArray[np.int16]) -> tuple[float, float] | None:
    """Return median and 1.4826 x median absolute deviation of integer samples, exactly; None for constant signal.

    Both are read off one histogram of the ADC values, which costs a tenth of two partitions in float.

    :param signal: int16, shape (num_samples,), at least one sample.
    """
    lowest = int(np.minimum.reduce(signal))
    # Modulo 2^16 the difference is right whatever the range, and 16 bits are subtracted four times as fast as 64.
    counts = np.bincount(signal.view(np.uint16) - np.uint16(lowest % 2**16))
    # Twice the median is an integer, and so is twice each deviation from it: no rounding enters.
    twice_median = _sum_of_middles(counts)
    # Fold the histogram at the median. Its two halves begin at the same deviation: 0, or half a unit where the median
    # lies between two values.
    up, is_between = counts[(twice_median + 1) // 2 :], twice_median % 2
    down = counts[: twice_median // 2 + 1][::-1]
    folded = np.zeros(max(len(up), len(down)), dtype=counts.dtype)
    folded[: len(up)] += up
    if is_between:
        folded[: len(down)] += down
    else:
        folded[1 : len(down)] += down[1:]
    # The middles count whole units; a half unit each comes on top where the median lies between two values.
    twice_mad = _sum_of_middles(folded) + is_between
    if twice_mad == 0:
        return None
    return twice_median / 2 + lowest, MAD_TO_SD * twice_mad / 2


def _sum_of_middles(counts: NDArray[np.int64]) -> int:
    """Return lower plus upper median of the values 0, 1, 2 ... that occur ``counts`` times."""
    cumulative = counts.cumsum()
    total = int(cumulative[-1])
    lower = int(cumulative.searchsorted((total - 1) // 2, side="right"))
    # The upper one is the same value unless the samples split evenly right behind the lower one.
    upper = lower if cumulative[lower] > total // 2 else int(cumulative.searchsorted(total // 2, side="right"))
    return lower + upper
