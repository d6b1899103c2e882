"""Two models on the same reads: how far apart they are, and how surely.

Hides: the covariance of two AUROCs and exact tests. Belongs here: differences of paired scores and calls, on arrays; which
reads are the same and what is written is ``compare.py``'s. Invariants: a difference is the second less the first; what the
reads do not define is None.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from leech.evaluation.intervals import NORMAL_97_5, Estimate, Interval, placements
from leech.evaluation.metrics import Bools, Floats


class Difference(NamedTuple):
    """A difference with its interval and the p-value of there being none; what cannot be told is None."""

    estimate: Estimate
    p_value: float | None


class Discordance(NamedTuple):
    """Reads that only one of two models calls rightly.

    :ivar only_first: right by the first alone; ``only_second`` likewise.
    :ivar p_value: McNemar's exact test: two-sided, of such reads falling to either model with a chance of one half.
    """

    only_first: int
    only_second: int
    p_value: float


def auroc_difference(positive: Bools, first: Floats, second: Floats) -> Difference:
    """Return the difference of two AUROCs of the same reads, with DeLong's interval and test.

    The variance is that of DeLong, DeLong and Clarke-Pearson (1988) for correlated curves; reads count as independent. Where
    it is 0 (equal orders, or two perfect ones) neither interval nor p-value can be had.
    """
    num_positive = int(positive.sum())
    num_negative = len(positive) - num_positive
    if num_positive == 0 or num_negative == 0:
        return Difference(Estimate(None), None)
    (above, below), (above_second, below_second) = placements(positive, first), placements(positive, second)
    difference = float(above_second.mean() - above.mean())
    if num_positive < 2 or num_negative < 2:
        return Difference(Estimate(difference), None)
    variance = (above_second - above).var(ddof=1) / num_positive + (below_second - below).var(ddof=1) / num_negative
    # Equal placements leave rounding errors, no variance.
    if variance < 1e-20:
        return Difference(Estimate(difference), None)
    error = float(variance) ** 0.5
    half = NORMAL_97_5 * error
    interval = Interval(max(-1.0, difference - half), min(1.0, difference + half))
    return Difference(Estimate(difference, interval), math.erfc(abs(difference) / error / 2**0.5))


def discordance(first_right: Bools, second_right: Bools) -> Discordance:
    """Compare two models' calls of the same reads.

    :param first_right: whether the first calls each read rightly, bool (n,).
    """
    from scipy.stats import binomtest

    only_first, only_second = int((first_right & ~second_right).sum()), int((second_right & ~first_right).sum())
    total = only_first + only_second
    return Discordance(only_first, only_second, float(binomtest(only_first, total).pvalue) if total else 1.0)
