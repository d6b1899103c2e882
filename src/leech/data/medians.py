"""Medians of many short groups of numbers at once.

Belongs here: the arithmetic; what the numbers are is for whoever asks. Invariant: the median of an even number of values is
the mean of the two in the middle.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray


def medians(values: NDArray[Any], lengths: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sort each group in place and return its median, float64 (num_groups,).

    :param values: one group after the other.
    :param lengths: numbers in each group, at least one, (num_groups,).
    """
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    # Sorting one short slice costs half a microsecond, and sorting all by (group, value) six times as much.
    for start, end in pairwise(offsets.tolist()):
        values[start:end].sort()
    starts = offsets[:-1]
    middle: NDArray[np.float64] = (values[starts + (lengths - 1) // 2] + values[starts + lengths // 2]) / 2
    return middle
