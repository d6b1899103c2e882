"""Losses as sums, with the weight that they sum over.

Hides: the arithmetic of each loss. Belongs here: functions of logits and truth; which loss a task uses is the task's.
Invariants: a loss is never averaged here. Whoever takes a step divides the sum by the weight of the whole batch, however
many pieces it was computed in, so that pieces of unequal weight add up to what one piece would have given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class LossSum(NamedTuple):
    """A weighted sum of losses and the sum of the weights, both float32 scalars on the network's device."""

    total: Tensor
    weight: Tensor


def binary_cross_entropy(logits: Tensor, positive: Tensor, weights: Tensor, smoothing: float = 0.0) -> LossSum:
    """Return the cross-entropy of raw logits.

    :param logits: shape (n,) or (n, 1), log-odds of the positive class.
    :param positive: bool, shape (n,).
    :param weights: float32, shape (n,).
    :param smoothing: share of either label's certainty that is taken away: the target is ``smoothing / 2`` from 0 and 1.
    """
    target = positive.to(torch.float32) * (1 - smoothing) + smoothing / 2
    losses = functional.binary_cross_entropy_with_logits(logits.float().reshape(-1), target, reduction="none")
    return LossSum((losses * weights).sum(), weights.sum())


def softmax_cross_entropy(logits: Tensor, classes: Tensor, weights: Tensor, smoothing: float = 0.0) -> LossSum:
    """Return the cross-entropy of raw logits of K > 2 classes.

    :param logits: shape (n, K).
    :param classes: int64, shape (n,).
    :param weights: float32, shape (n,).
    :param smoothing: share of the label's certainty that is spread over all classes: the target is ``smoothing / K`` for the
        others (Szegedy et al. 2016).
    """
    losses = functional.cross_entropy(logits.float(), classes, reduction="none", label_smoothing=smoothing)
    return LossSum((losses * weights).sum(), weights.sum())


def class_weights(totals: Sequence[float], scheme: str) -> tuple[float, ...]:
    """Return the weight of a read of each class.

    :param totals: number of reads by class, or the sum of their weights where they have some.
    :param scheme: "balanced" gives every class the same total weight and the average read the weight 1; "none" gives
        every read the weight 1.
    """
    if scheme == "none":
        return (1.0,) * len(totals)
    whole = sum(totals)
    return tuple(whole / (len(totals) * total) for total in totals)
