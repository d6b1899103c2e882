"""The best that is possible: the oracle's scores over one or more simulated libraries.

Hides: how truth files are read. Belongs here: comparing scores that ``molecules.oracle_logit`` gave. Invariants: memory does
not grow with the number of reads; reads of several libraries of one design may be judged together, since the scores are
likelihood ratios.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leech.errors import InputError

_ROWS_AT_ONCE = 10000


def auroc(positive: NDArray[np.bool_], score: NDArray[np.float64]) -> float:
    """Return the area under the ROC curve: the chance that a positive outscores a negative, ties counting half.

    By mid-ranks (Mann-Whitney U), so that simulating needs no machine-learning library.
    """
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    num_positive = int(positive.sum())
    num_negative = len(positive) - num_positive
    return float((ranks[positive].sum() - num_positive * (num_positive + 1) / 2) / (num_positive * num_negative))


_BINS_PER_UNIT = 512
_LARGEST_SCORE = 64


class ScoreHistogram:
    """Scores of both states in bins, for an AUROC in memory that does not grow with the number of reads.

    Scores are rounded to 1/512 and cut off at 64; a likelihood ratio of e^64 is as good as certain.
    """

    def __init__(self) -> None:
        self.counts = np.zeros((2, 2 * _LARGEST_SCORE * _BINS_PER_UNIT + 1), dtype=np.int64)

    def add(self, positive: NDArray[np.bool_], score: NDArray[np.float64]) -> None:
        """Count scores."""
        bins = np.rint(np.clip(score, -_LARGEST_SCORE, _LARGEST_SCORE) * _BINS_PER_UNIT).astype(np.int64)
        np.add.at(self.counts, (positive.astype(np.int64), bins + _LARGEST_SCORE * _BINS_PER_UNIT), 1)

    def auroc(self) -> float | None:
        """Return the AUROC; None where all reads are of one state."""
        negative, positive = self.counts
        pairs = int(negative.sum()) * int(positive.sum())
        if not pairs:
            return None
        below = np.cumsum(negative) - negative
        # Twice the wins, to count ties as half without leaving integers.
        return float(int((positive * (2 * below + negative)).sum()) / (2 * pairs))


def oracle_auroc(truth_paths: Sequence[Path]) -> float:
    """Return the oracle's AUROC over all reads of the given truth files.

    :raises InputError: all reads are of one state.
    """
    histogram = ScoreHistogram()
    for path in truth_paths:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file, delimiter="\t")
            while part := list(islice(rows, _ROWS_AT_ONCE)):
                charged = np.array([row["charged"] == "1" for row in part])
                histogram.add(charged, np.array([float(row["oracle_logit"]) for row in part]))
    result = histogram.auroc()
    if result is None:
        raise InputError(
            "An AUROC needs reads of both states; give the truth of a charged and of an uncharged library."
        )
    return result
