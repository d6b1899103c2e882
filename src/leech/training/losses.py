"""Losses as sums, with the weight that they sum over.

Hides: the arithmetic of each loss. Belongs here: functions of logits and truth; which loss a task uses is the task's.
Invariants: a loss is never averaged here. Whoever takes a step divides the sum by the weight of the whole batch, however
many pieces it was computed in, so that pieces of unequal weight add up to what one piece would have given.
"""

from __future__ import annotations

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


def class_weights(num_negative: float, num_positive: float, scheme: str) -> tuple[float, float]:
    """Return the weight of a negative and of a positive read.

    :param num_negative: number of negative reads, or the sum of their weights where they have some; ``num_positive`` likewise.
    :param scheme: "balanced" gives either class the same total weight and the average read the weight 1; "none" gives
        every read the weight 1.
    """
    if scheme == "none":
        return 1.0, 1.0
    total = num_negative + num_positive
    return total / (2 * num_negative), total / (2 * num_positive)
