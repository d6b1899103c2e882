"""Boundary refinement without levels: moving base boundaries to where the current steps.

Hides: the search for the step. A move table says in which of its blocks a new base began, and says so early rather than late:
on real tRNA reads the current steps from one base's level to the next up to two blocks after that block begins. Belongs here:
refinement that knows the signal alone, so that it cannot pull a boundary towards the levels of one state; refinement against a
k-mer table is ``refine.py``'s. Invariants: boundaries only move to later samples in time, in each pass by at most
:data:`REACH_BLOCKS` blocks; they never cross; a base that has no signal gets none, and its boundaries stay; what is found for
a boundary depends on :data:`MARGIN_BASES` bases to either side and on nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

REACH_BLOCKS = 2
"""Blocks of the move table that a boundary may move in one pass."""

PASSES = 2
"""A boundary is looked for between its neighbours, which move too; a third pass changes hardly anything."""

MARGIN_BASES = PASSES
"""Bases on either side of those wanted that the search has to be given."""

_FEWEST_SAMPLES = 2
"""A base keeps this many: one sample's noise is no base."""


def find_steps(
    signals: Sequence[NDArray[np.int16]], bounds: NDArray[np.int64], strides: NDArray[np.int64], *, is_reversed: bool
) -> NDArray[np.int64]:
    """Move the boundaries of consecutive bases to where the current steps most.

    Between the boundaries before and behind it, a boundary goes to the sample that leaves least variance within its two
    bases: the greatest ``n_left n_right (mean_left - mean_right)^2``, the criterion of change-point detection by binary
    segmentation (Scott and Knott 1974). Of equally good samples the nearest is taken.

    :param signals: one int16 ADC array per read, in the direction of the sequence.
    :param bounds: boundaries in each read's own signal (num_reads, num_bases + 1), not descending. The first and the last
        stay; all between them are found as in any wider stretch but for the outer :data:`MARGIN_BASES`.
    :param strides: samples per block of each read's move table (num_reads,).
    :param is_reversed: whether the direction of the sequence is against time, as for RNA.
    :returns: int64, same shape.
    """
    if not len(bounds):
        return bounds.copy()
    starts, ends = bounds[:, 0], bounds[:, -1]
    offsets = np.cumsum(np.append(0, ends - starts))
    stretch = np.concatenate([signal[start:end] for signal, start, end in zip(signals, starts, ends, strict=True)])
    # Sums of integers are exact, so that the same samples give the same step wherever they lie.
    sums = np.concatenate([[0], np.cumsum(stretch, dtype=np.int64)]).astype(np.float64)
    shift = (offsets[:-1] - starts)[:, None]
    edges = bounds + shift
    reach = REACH_BLOCKS * strides[:, None]
    for _ in range(PASSES):
        edges[:, 1:-1] = _greatest_steps(sums, edges, reach, is_reversed)
    return edges - shift


def _greatest_steps(
    sums: NDArray[np.float64], edges: NDArray[np.int64], reach: NDArray[np.int64], is_reversed: bool
) -> NDArray[np.int64]:
    """Return the inner boundaries, each moved between its neighbours as they are now.

    :param sums: of the samples before each one.
    """
    before, given, behind = edges[:, :-2], edges[:, 1:-1], edges[:, 2:]
    left, right = given - before, behind - given
    direction, shrinking = (-1, left) if is_reversed else (1, right)
    limit = np.minimum(reach, shrinking - _FEWEST_SAMPLES)
    limit[(left == 0) | (right == 0)] = -1
    first_sum = sums[before]
    total, number = sums[behind] - first_sum, (behind - before).astype(np.float64)
    n_left = left.astype(np.float64)
    found, greatest = given.copy(), np.zeros(given.shape)
    for distance in range(int(limit.max(initial=-1)) + 1):
        moved = direction * distance
        # n_left n_right (mean_left - mean_right)^2, times the square of the number of both, without a division but one.
        # Where the boundary may not go this far, the figure means nothing and is passed over.
        here = n_left + moved
        step = (sums.take(given + moved, mode="clip") - first_sum) * number - here * total
        step *= step
        step /= np.maximum(here * (number - here), 1.0)
        better = (step > greatest) & (distance <= limit)
        np.copyto(greatest, step, where=better)
        np.copyto(found, given + moved, where=better)
    return found
