"""The best that is possible: the oracle's scores over one or more simulated libraries.

Hides: how truth files are read. Belongs here: comparing scores that ``molecules.oracle_logit`` gave; invariants: reads of
several libraries of one design may be judged together, since the scores are likelihood ratios.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leech.errors import InputError


def auroc(positive: NDArray[np.bool_], score: NDArray[np.float64]) -> float:
    """Return the area under the ROC curve: the chance that a positive outscores a negative, ties counting half.

    By mid-ranks (Mann-Whitney U), so that simulating needs no machine-learning library.
    """
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    num_positive = int(positive.sum())
    num_negative = len(positive) - num_positive
    return float((ranks[positive].sum() - num_positive * (num_positive + 1) / 2) / (num_positive * num_negative))


def oracle_auroc(truth_paths: Sequence[Path]) -> float:
    """Return the oracle's AUROC over all reads of the given truth files.

    :raises InputError: all reads are of one state.
    """
    charged: list[bool] = []
    scores: list[float] = []
    for path in truth_paths:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                charged.append(row["charged"] == "1")
                scores.append(float(row["oracle_logit"]))
    if len(set(charged)) < 2:
        raise InputError(
            "An AUROC needs reads of both states; give the truth of a charged and of an uncharged library."
        )
    return auroc(np.array(charged), np.array(scores))
