"""The optimum that boundary refinement must find, searched for plainly: the oracle of its tests."""

from __future__ import annotations

import numpy as np


def best_bounds(signal, bounds, levels, *, half_band, dwell_target, dwell_weight):
    """Return the boundaries of least cost, and that cost.

    A base may hold only samples whose base under ``bounds`` is at most ``half_band`` bases away, and holds at least one.
    The cost is the squared difference of every sample from its base's level, plus, for each base of d <= dwell_target
    samples, dwell_weight * (dwell_target + 1 - d)^2.
    """
    num_bases, num_samples = len(levels), len(signal)
    base_of_sample = np.repeat(np.arange(num_bases), np.diff(bounds))
    ends = np.arange(num_samples + 1)
    # best[e]: least cost of the bases so far when the last of them ends before sample e.
    best = np.where(ends == 0, 0.0, np.inf)
    starts_of_base = []
    for base, level in enumerate(levels):
        allowed = np.flatnonzero(np.abs(base_of_sample - base) <= half_band)
        first, last = allowed[0], allowed[-1] + 1
        total = np.concatenate([[0.0], np.cumsum((signal - level) ** 2)])
        from_start = best - total
        from_start[:first] = np.inf
        cost, start = np.full(num_samples + 1, np.inf), np.zeros(num_samples + 1, dtype=int)
        longest_short = int(dwell_target)
        for dwell in range(1, longest_short + 1):
            here = from_start[:-dwell] + dwell_weight * (dwell_target + 1 - dwell) ** 2
            better = here < cost[dwell:]
            cost[dwell:][better], start[dwell:][better] = here[better], ends[:-dwell][better]
        # Longer bases are free of penalty, so any earlier start will do: the best of them so far.
        best_start = 0
        for end in range(longest_short + 1, num_samples + 1):
            candidate = end - longest_short - 1
            if from_start[candidate] < from_start[best_start]:
                best_start = candidate
            if from_start[best_start] < cost[end]:
                cost[end], start[end] = from_start[best_start], best_start
        best = np.where((ends > first) & (ends <= last), cost + total, np.inf)
        starts_of_base.append(start)
    found = [num_samples]
    for start in reversed(starts_of_base):
        found.append(int(start[found[-1]]))
    return np.array(found[::-1]), float(best[num_samples])
