"""Per-read shift and scale.

Hides: how the two numbers are found. Belongs here: one function per normalisation of the recipe; applying them is
``(adc - shift) / scale``, done when a batch is made. Invariants: shift and scale are ADC units; the stored signal never
changes; a read that has no scale is reported, never given a made-up one. Statistics of the read's used samples, being
taken of whole numbers, are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.data.pod5 import Calibration

MAD_TO_SD = 1.4826
"""Ratio of a normal distribution's standard deviation to its median absolute deviation."""

LOW_QUANTILE, HIGH_QUANTILE = 0.1, 0.9
"""Quantiles between which the scale of 'quantile' is measured."""

_SMALLEST, _LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)

QUANTILES_TO_SD = 1 / (2 * 1.2815515655446004)
"""Ratio of a normal distribution's standard deviation to the distance between those quantiles."""


class UsedSignal(NamedTuple):
    """What shift and scale of a read are measured on.

    :ivar samples: used samples, int16, at least one, in time order.
    :ivar bounds: where in them each base begins, in time order too, and where the last one ends, int64 (num_bases + 1,); no
        base is empty.
    """

    samples: NDArray[np.int16]
    bounds: NDArray[np.int64]
    calibration: Calibration


class Normalisation(NamedTuple):
    """Normalised signal is ``(adc - shift) / scale``; both in ADC units."""

    shift: float
    scale: float


def normalise_mad(used: UsedSignal) -> Normalisation | str:
    """Return median and 1.4826 x median absolute deviation."""
    found = median_mad(used.samples)
    return "constant_signal" if found is None else Normalisation(*found)


def normalise_base_mad(used: UsedSignal) -> Normalisation | str:
    """Return median and 1.4826 x median absolute deviation of the bases' mean currents.

    Each base counts once, however long the motor held it, so what is left is the sequence's composition, which reads of one
    reference share; the median of samples moves with the dwell of single bases.
    """
    starts, end = used.bounds[:-1], int(used.bounds[-1])
    # Samples behind the last base belong to none.
    means = np.add.reduceat(used.samples[:end], starts, dtype=np.int64) / (used.bounds[1:] - starts)
    median = _median(means)
    mad = _median(np.abs(means - median))
    return "constant_signal" if mad == 0 else Normalisation(median, MAD_TO_SD * mad)


def normalise_zscore(used: UsedSignal) -> Normalisation | str:
    """Return mean and standard deviation (of the population)."""
    wide = used.samples.astype(np.int64)
    total, squares, number = int(wide.sum()), int((wide * wide).sum()), len(wide)
    # n * sum of squares - square of sum, in whole numbers: no cancellation.
    variance = (number * squares - total * total) / (number * number)
    return "constant_signal" if variance == 0 else Normalisation(total / number, math.sqrt(variance))


def normalise_quantile(used: UsedSignal) -> Normalisation | str:
    """Return the middle of the 10 % and 90 % quantiles, and their distance over that of a standard normal distribution.

    A quantile q of n samples is the one in place floor(q * (n - 1)) of the sorted samples, counted from 0.
    """
    signal, lowest = used.samples, int(used.samples.min())
    cumulative = np.cumsum(np.bincount(signal.astype(np.int64) - lowest))
    places = [math.floor(share * (len(signal) - 1)) for share in (LOW_QUANTILE, HIGH_QUANTILE)]
    low, high = (int(value) + lowest for value in np.searchsorted(cumulative, places, side="right"))
    return "constant_signal" if low == high else Normalisation((low + high) / 2, (high - low) * QUANTILES_TO_SD)


def normalise_picoamp(used: UsedSignal) -> Normalisation | str:
    """Return the shift and scale that give picoamperes: ``(adc + offset) * scale`` is ``(adc - -offset) / (1 / scale)``."""
    signal, calibration = used.samples, used.calibration
    if not (math.isfinite(calibration.offset) and math.isfinite(calibration.scale) and calibration.scale > 0):
        return "bad_calibration"
    if signal.min() == signal.max():
        return "constant_signal"
    return Normalisation(-calibration.offset, 1 / calibration.scale)


NORMALISATIONS: dict[str, Callable[[UsedSignal], Normalisation | str]] = {
    "mad": normalise_mad,
    "base_mad": normalise_base_mad,
    "zscore": normalise_zscore,
    "quantile": normalise_quantile,
    "picoamp": normalise_picoamp,
}
"""Name in the recipe -> function that returns shift and scale of a read, or the reason why it has none; a new normalisation
is one entry, and a choice in ``recipe.py``."""


def normalise(name: str, used: UsedSignal) -> Normalisation | str:
    """Return shift and scale of a read by the named normalisation, or the reason why it has none.

    Both can be stored in float32, the scale without becoming 0.
    """
    found = NORMALISATIONS[name](used)
    if isinstance(found, str):
        return found
    storable = abs(found.shift) <= _LARGEST and _SMALLEST <= found.scale <= _LARGEST
    return found if storable else "bad_calibration"


def median_mad(signal: NDArray[np.int16]) -> tuple[float, float] | None:
    """Return median and 1.4826 x median absolute deviation of integer samples, exactly; None for constant signal.

    Both are read off one histogram of the ADC values, which costs a tenth of two partitions in float.

    :param signal: int16, shape (num_samples,), at least one sample.
    """
    lowest = int(signal.min())
    counts = np.bincount(signal.astype(np.int64) - lowest)
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


def _median(values: NDArray[np.float64]) -> float:
    """Sort the values in place and return their median; ``np.median`` costs ten times as much on the bases of a read."""
    values.sort()
    middle = len(values) // 2
    return float(values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2)


def _sum_of_middles(counts: NDArray[np.int64]) -> int:
    """Return lower plus upper median of the values 0, 1, 2 ... that occur ``counts`` times."""
    cumulative = counts.cumsum()
    total = int(cumulative[-1])
    lower = int(cumulative.searchsorted((total - 1) // 2, side="right"))
    # The upper one is the same value unless the samples split evenly right behind the lower one.
    upper = lower if cumulative[lower] > total // 2 else int(cumulative.searchsorted(total // 2, side="right"))
    return lower + upper
