"""Which weights are kept.

Hides: how evaluations are compared. Belongs here: the best state of a run; its final form, the model folder, is the
bundle's. Invariants: a kept state is a copy on the CPU that later steps do not touch; of equal evaluations the earlier wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

State = dict[str, Tensor]


@dataclass
class Best:
    """The best evaluation so far, its weights, and how long ago it was.

    :ivar rank: what evaluations are compared by, entry by entry, larger being better.
    :ivar num_worse: evaluations since.
    """

    rank: tuple[float, ...] | None = None
    epoch: int = -1
    step: int = -1
    metrics: dict[str, float | None] = field(default_factory=dict)
    state: State = field(default_factory=dict)
    num_worse: int = 0

    def consider(
        self,
        rank: tuple[float, ...],
        metrics: Mapping[str, float | None],
        state: Mapping[str, Tensor],
        *,
        epoch: int,
        step: int,
    ) -> bool:
        """Keep the evaluated state if it is the best so far, and return whether it is."""
        if self.rank is not None and rank <= self.rank:
            self.num_worse += 1
            return False
        self.rank, self.epoch, self.step, self.num_worse = rank, epoch, step, 0
        self.metrics = dict(metrics)
        self.state = {name: value.detach().to("cpu", copy=True) for name, value in state.items()}
        return True
