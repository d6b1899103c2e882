"""How sure a metric is: 95 % intervals.

Hides: resampling and closed forms. Belongs here: intervals of any metric of ``metrics.py``. Invariants: an interval is
None where it cannot be had, it contains its estimate's support only ([0, 1] for shares), and resampling depends on the
seed alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.data.proportion import NORMAL_97_5 as NORMAL_97_5
from leech.data.proportion import Interval as Interval
from leech.data.proportion import wilson as wilson

if TYPE_CHECKING:
    # Its own imports bring torch, which nothing here needs.
    from leech.evaluation.metrics import Bools, Floats

_MIN_USABLE = 0.5
"""Share of resamplings that must define the metric; below, an interval would describe the lucky ones only."""


class Estimate(NamedTuple):
    """A metric with its interval; either may be None."""

    value: float | None
    interval: Interval | None = None

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {"value": self.value, "interval": None if self.interval is None else list(self.interval)}

    def cells(self, sign: str = "") -> tuple[str, str]:
        """Return value and interval as text; empty for None.

        :param sign: ``+`` shows the sign of a difference.
        """
        text = "" if self.interval is None else " to ".join(f"{limit:{sign}.3f}" for limit in self.interval)
        return cell(self.value, sign), text


def cell(value: float | None, sign: str = "") -> str:
    """Return a figure as text; empty for None."""
    return "" if value is None else f"{value:{sign}.3f}"


def share_interval(interval: Interval | None, share: float | None, num_trials: float) -> Interval | None:
    """Return the interval of a share: the resampled one, but Wilson's where the share is 0 or 1.

    A share of 0 is 0 in every resampling, which would make its interval [0, 0] however few reads there are.
    """
    if share is None or interval is None:
        return None
    return wilson(share * num_trials, num_trials) if share in (0, 1) else interval


def _mid_ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Floats = (ends - (counts - 1) / 2)[inverse]
    return ranks


def placements(positive: Bools, p: Floats) -> tuple[Floats, Floats]:
    """Return, for each positive read, the share of negative reads below it, and for each negative that of positives above.

    Ties count half (DeLong, DeLong and Clarke-Pearson 1988, from mid-ranks as Sun and Xu 2014); the mean of either is the
    AUROC. Both classes must be there.
    """
    num_positive = int(positive.sum())
    ranks = _mid_ranks(p)
    above = (ranks[positive] - _mid_ranks(p[positive])) / (len(positive) - num_positive)
    below = 1 - (ranks[~positive] - _mid_ranks(p[~positive])) / num_positive
    return above, below


def auroc_interval(positive: Bools, p: Floats) -> Interval | None:
    """Return a closed-form interval of the AUROC, for groups that are too many or too small to resample.

    The variance is DeLong's, that of :func:`placements`, carried to the logit scale so that the interval stays inside [0, 1].
    Reads count as independent. Where that variance is 0 (perfect separation, or a class of one read) the reads are taken as
    the ``min(num_positive, num_negative)`` independent pairs that can be formed of them, each ordered rightly with
    probability AUROC: Wilson's interval of that share, which is wider.
    """
    num_positive = int(positive.sum())
    num_negative = len(positive) - num_positive
    if num_positive == 0 or num_negative == 0:
        return None
    above, below = placements(positive, p)
    area = float(above.mean())
    pairs = min(num_positive, num_negative)
    variance = 0.0
    if pairs > 1:
        variance = float(above.var(ddof=1) / num_positive + below.var(ddof=1) / num_negative)
    if variance <= 0 or not 0 < area < 1:
        return wilson(area * pairs, pairs)
    centre = np.log(area / (1 - area))
    half = NORMAL_97_5 * variance**0.5 / (area * (1 - area))
    low, high = 1 / (1 + np.exp(-(centre - half))), 1 / (1 + np.exp(-(centre + half)))
    return Interval(float(low), float(high))


def auroc_influences(positive: Bools, p: Floats) -> Floats:
    """Return how far each read moves the AUROC off its expectation, float64 (n,); their squares sum up to its variance.

    So the squares of two scores' differences sum up to the variance of the difference of their AUROCs on the same reads
    (DeLong, DeLong and Clarke-Pearson 1988). Reads count as independent; the read of a class of one moves nothing.
    """
    influences = np.zeros(len(positive))
    for side, placed in zip((positive, ~positive), placements(positive, p), strict=True):
        number = len(placed)
        influences[side] = (placed - placed.mean()) / math.sqrt(max(number * (number - 1), 1))
    return influences


def parent_codes(parents: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Number the parent reads from 0: uint8 ids of shape (n, 16) to int64 (n,)."""
    keys = np.ascontiguousarray(parents).view([("high", ">u8"), ("low", ">u8")]).reshape(len(parents))
    codes: NDArray[np.int64] = np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return codes


def bootstrap_intervals(
    measure: Callable[[Floats], tuple[float | None, ...]],
    parents: NDArray[np.int64],
    num_resamplings: int,
    seed: int,
) -> tuple[Interval | None, ...]:
    """Return percentile intervals of metrics under resampling of parent reads with replacement.

    Children of one parent read are not independent, so they come and go together.

    :param measure: metrics of the reads, each counting as often as its weight says; weights are float64 (n,).
    :param parents: number of each read's parent, 0 to the number of parents - 1, shape (n,).
    :returns: one interval per metric; None where too many resamplings leave the metric undefined.
    """
    generator = np.random.default_rng(seed)
    num_parents = int(parents.max()) + 1 if len(parents) else 0
    results = []
    for _ in range(num_resamplings):
        drawn = np.bincount(generator.integers(0, num_parents, num_parents), minlength=num_parents)
        results.append([np.nan if value is None else value for value in measure(drawn[parents].astype(np.float64))])
    if not results:
        return tuple(None for _ in measure(np.ones(len(parents))))
    return tuple(_percentiles(column) for column in np.array(results, dtype=np.float64).T)


def _percentiles(values: Floats) -> Interval | None:
    usable = values[~np.isnan(values)]
    if len(usable) < _MIN_USABLE * len(values):
        return None
    low, high = np.percentile(usable, (2.5, 97.5))
    return Interval(float(low), float(high))
