"""Heads: what hangs on a network in training only.

Hides: gradient reversal. Belongs here: small networks that read a network's summary, and the module that joins them with it;
which columns they are to tell, and with what weight, is the task's. Invariants: a head never changes what the network computes;
a model folder holds no head.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from leech.models.noise import Draw

if TYPE_CHECKING:
    from leech.data.batches import Inputs
    from leech.models.network import Network

_HIDDEN = 64


class _Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * gradient, None


def reverse_gradient(values: Tensor, strength: float) -> Tensor:
    """Return the values; their gradient comes back times ``-strength`` (Ganin and Lempitsky 2015)."""
    result: Tensor = _Reversal.apply(values, strength)  # type: ignore[no-untyped-call]
    return result


class Head(nn.Module):
    """One hidden layer from a network's summary to ``num_outputs`` numbers.

    :param is_adversary: the network learns to keep the head from its goal, instead of helping it.
    """

    def __init__(self, channels: int, num_outputs: int, *, is_adversary: bool = False) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(channels, _HIDDEN), nn.SiLU(), nn.Linear(_HIDDEN, num_outputs))
        self.is_adversary = is_adversary

    def forward(self, summary: Tensor, reversal: float) -> Tensor:
        """Return (n, num_outputs).

        :param reversal: strength of the reversed gradient, for an adversary.
        """
        return self.layers(reverse_gradient(summary, reversal) if self.is_adversary else summary)  # type: ignore[no-any-return]


class NetworkWithHeads(nn.Module):
    """A network and its heads as the one module that is trained.

    All are computed in one forward pass, so that whoever shares the module among ranks shares every parameter.
    """

    def __init__(self, network: Network, heads: Mapping[str, Head]) -> None:
        super().__init__()
        self.network = network
        self.heads = nn.ModuleDict(heads)

    def forward(self, inputs: Inputs, draw: Draw | None = None, reversal: float = 0.0) -> dict[str, Tensor]:
        """Return the network's raw logits as ``logits`` and each head's outputs under its name."""
        summary = self.network.summarise(inputs, draw)
        outputs = {name: head(summary, reversal) for name, head in self.heads.items()}
        return {"logits": self.network.output(summary), **outputs}


def make_heads(channels: int, outputs: Mapping[str, tuple[int, bool]], *, seed: int) -> dict[str, Head]:
    """Return heads with first weights that depend on the seed alone.

    :param channels: of the network's summary.
    :param outputs: by name, how many numbers a head gives and whether it is an adversary.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return {name: Head(channels, count, is_adversary=adverse) for name, (count, adverse) in outputs.items()}
