"""Which weights are kept.

Hides: how evaluations are compared. Belongs here: the state of a run that is kept; its final form, the model folder, is
the bundle's. Invariant: a kept state is a copy on the CPU that later steps do not touch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

State = dict[str, Tensor]


class Judgement(NamedTuple):
    """How good an evaluation was, larger being better.

    :ivar influences: how far each validation row moved it off its expectation, float64 (n,), in the same order of rows each
        time; see :func:`leech.evaluation.intervals.auroc_influences`.
    """

    value: float
    influences: NDArray[np.float64]

    def error_beside(self, other: Judgement) -> float:
        """Return the standard error of the difference to another evaluation of the same rows."""
        return float(np.sqrt(np.sum((self.influences - other.influences) ** 2)))


class Validation(NamedTuple):
    """What an evaluation found: figures to be told, and what evaluations are compared by."""

    metrics: Mapping[str, float | None]
    judgement: Judgement


@dataclass
class Kept:
    """The latest evaluation that cannot be told from the best one.

    The highest of many evaluations is to some extent the luckiest: on few validation reads it is often an early one, from
    before the weights have settled. So of those within one standard error of the highest the latest is kept. The error is
    that of the difference between the two on the same reads, which is far smaller than that of either: a few hundred reads
    tell a network that began to learn its training reads by heart.

    :ivar highest: the highest evaluation so far.
    :ivar num_since: evaluations since the highest.
    """

    highest: Judgement | None = None
    num_since: int = 0
    epoch: int = -1
    step: int = -1
    metrics: dict[str, float | None] = field(default_factory=dict)
    state: State = field(default_factory=dict)

    def consider(
        self,
        judgement: Judgement,
        metrics: Mapping[str, float | None],
        state: Mapping[str, Tensor],
        *,
        epoch: int,
        step: int,
    ) -> bool:
        """Keep the evaluated state if it is as good as any so far, and return whether it is."""
        self.num_since += 1
        if self.highest is None or judgement.value > self.highest.value:
            self.highest, self.num_since = judgement, 0
        if judgement.value < self.highest.value - judgement.error_beside(self.highest):
            return False
        self.epoch, self.step, self.metrics = epoch, step, dict(metrics)
        self.state = {name: value.detach().to("cpu", copy=True) for name, value in state.items()}
        return True
