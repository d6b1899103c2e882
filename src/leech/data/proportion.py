"""Shares and how sure they are.

Hides: a closed form. Belongs here: what a summary of calls and an evaluation count alike; intervals of other metrics are
``evaluation/intervals.py``'s. Invariants: 95 % intervals, inside [0, 1].
"""

from __future__ import annotations

from typing import NamedTuple

NORMAL_97_5 = 1.959963984540054
"""Quantile of the standard normal distribution: 95 % lie within this many standard deviations."""


class Interval(NamedTuple):
    """A 95 % interval."""

    low: float
    high: float


def wilson(successes: float, total: float) -> Interval | None:
    """Return Wilson's score interval of a share (Wilson 1927); None without trials."""
    if total <= 0:
        return None
    share = successes / total
    z2 = NORMAL_97_5**2 / total
    centre = (share + z2 / 2) / (1 + z2)
    half = NORMAL_97_5 / (1 + z2) * (share * (1 - share) / total + z2 / (4 * total)) ** 0.5
    # At 0 and at all successes the limit is the share itself; rounding may put it a hair inside.
    low = 0.0 if successes <= 0 else max(0.0, centre - half)
    return Interval(low, 1.0 if successes >= total else min(1.0, centre + half))
