"""Which weights are kept.

Hides: how evaluations are compared. Belongs here: the state of a run that is kept; its final form, the model folder, is
the bundle's. Invariant: a kept state is a copy on the CPU that later steps do not touch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

State = dict[str, Tensor]


class Judgement(NamedTuple):
    """How good an evaluation was.

    :ivar value: what is aimed at, larger being better; ``error`` is its standard error.
    :ivar loss: what decides between evaluations whose values cannot be told apart, smaller being better.
    """

    value: float
    error: float
    loss: float


@dataclass
class Kept:
    """The evaluation of least loss among those that cannot be told from the best one.

    The highest of many evaluations is to some extent the luckiest, and a rank measure such as the AUROC does not see
    probabilities grow overconfident. So of those within one standard error of the highest value the one of least loss is
    kept. On many validation reads the error is small, and this is all but the best one.

    :ivar highest: the highest evaluation so far.
    :ivar judgement: of the kept evaluation.
    :ivar num_since: evaluations since the highest.
    """

    highest: Judgement | None = None
    judgement: Judgement | None = None
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
        """Keep the evaluated state if it is better than the kept one, and return whether it is."""
        self.num_since += 1
        if self.highest is None or judgement.value > self.highest.value:
            self.highest, self.num_since = judgement, 0
        least = self.highest.value - self.highest.error
        if judgement.value < least:
            return False
        if self.judgement is not None and self.judgement.value >= least and self.judgement.loss <= judgement.loss:
            return False
        self.judgement = judgement
        self.epoch, self.step, self.metrics = epoch, step, dict(metrics)
        self.state = {name: value.detach().to("cpu", copy=True) for name, value in state.items()}
        return True
