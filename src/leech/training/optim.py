"""How weights move: optimizer, learning rate, averaging.

Hides: which parameters decay, the shape of the schedule. Belongs here: everything between a gradient and a weight.
Invariants: the learning rate and the averaging are pure functions of the step, so that a run can go on from any step.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Schedule:
    """Learning rate over a run: a linear rise to ``peak`` during the first ``warmup_steps``, then half a cosine to 0."""

    peak: float
    num_steps: int
    warmup_steps: int

    def rate(self, step: int) -> float:
        """Return the learning rate of step ``step``, the first being 0 and the last ``num_steps - 1``."""
        if step < self.warmup_steps:
            return self.peak * (step + 1) / (self.warmup_steps + 1)
        progress = (step - self.warmup_steps) / max(1, self.num_steps - self.warmup_steps)
        return self.peak * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


_EPSILON = 1e-6
"""What the root of the second moment is increased by. It must lie above the rounding errors of a gradient (about 1e-9 here):
where the true gradient is 0 they alone would otherwise decide steps of full length, other ones at each number of ranks."""


def make_optimizer(network: nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.AdamW:
    """Return AdamW (Loshchilov and Hutter 2019); weights of two or more dimensions decay, biases and norms do not."""
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=learning_rate, eps=_EPSILON)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use ``rate`` from the next step on."""
    for group in optimizer.param_groups:
        group["lr"] = rate


class WeightAverage:
    """Exponential moving average of a network's weights, which is what is evaluated and kept.

    After step t (from 0) the average is ``d * average + (1 - d) * weights`` with ``d = min(decay, (1 + t) / (10 + t))``: a
    short run averages over its latest tenth instead of holding on to the random start. A decay of 0 is no averaging.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self._decay = decay
        self.network = copy.deepcopy(network).requires_grad_(False).eval()

    @torch.no_grad()
    def update(self, network: nn.Module, step: int) -> None:
        """Take in the weights after step ``step``."""
        keep = min(self._decay, (1 + step) / (10 + step))
        latest = network.state_dict()
        for name, average in self.network.state_dict().items():
            if average.is_floating_point():
                average.lerp_(latest[name], 1 - keep)
            else:
                average.copy_(latest[name])
