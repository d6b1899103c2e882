"""Networks: branches of layers from the inputs of a chunk to its logits.

Hides: how inputs are laid out and one-hot encoded, and how branches are joined. Belongs here: running what ``spec.py``
has built; layers are in ``layers.py``. Invariants: encodings are made on the network's device; branches are joined by
channels along one axis, so that position i means the same in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from leech.data.recipe import CONTEXT_BASES
from leech.errors import MismatchError
from leech.models.layers import Geometry, Layer, Noise
from leech.models.noise import Draw

if TYPE_CHECKING:
    from leech.data.batches import Inputs

KMER_CHANNELS = 4 * (2 * CONTEXT_BASES + 1)
"""One-hot channels of a base with its context of four bases on either side."""


def base_kmers(sequence: Tensor) -> Tensor:
    """Return the one-hot k-mer of every base, float32 (n, 36, num_bases); unknown bases are all zero.

    :param sequence: uint8 (n, num_bases + 2 * CONTEXT_BASES), codes 0..3 and 4.
    """
    letters = torch.arange(4, device=sequence.device, dtype=sequence.dtype)
    one_hot = (sequence[:, None, :] == letters[None, :, None]).to(torch.float32)
    num_bases = sequence.shape[1] - 2 * CONTEXT_BASES
    shifted = [one_hot[:, :, step : step + num_bases] for step in range(2 * CONTEXT_BASES + 1)]
    return torch.cat(shifted, dim=1)


def sample_kmers(kmers: Tensor, base_bounds: Tensor, num_samples: int) -> Tensor:
    """Spread the k-mer of each base over its samples, float32 (n, 36, num_samples); zero outside the base window.

    :param base_bounds: int32 (n, num_bases + 1), in window samples.
    """
    samples = torch.arange(num_samples, device=base_bounds.device, dtype=base_bounds.dtype)
    every = samples.repeat(len(base_bounds), 1)
    owner = torch.searchsorted(base_bounds.contiguous(), every, right=True) - 1
    inside = (owner >= 0) & (owner < kmers.shape[2])
    index = owner.clamp(0, kmers.shape[2] - 1)[:, None, :].expand(-1, kmers.shape[1], -1)
    return kmers.gather(2, index) * inside[:, None, :]


class Branch(nn.Module):
    """Layers in a row, fed by the inputs or branches named in ``sources``."""

    def __init__(self, sources: Sequence[str], layers: Sequence[Layer]) -> None:
        super().__init__()
        self.sources = tuple(sources)
        self.layers = nn.ModuleList(layers)


class Network(nn.Module):
    """A network as built by ``spec.build_network``.

    :param branches: by name, each fed by inputs and earlier branches; the last one ends in a vector.
    :param bases: positions of the network's base axis within the recipe's base window.
    :param feature_bases: the same within the recipe's feature window.
    :param input_shapes: shape per chunk of each input, as the recipe and the listed features decide it.
    """

    def __init__(
        self,
        branches: Mapping[str, Branch],
        bases: slice,
        feature_bases: slice,
        input_shapes: Mapping[str, tuple[int, ...]],
        num_outputs: int,
    ) -> None:
        super().__init__()
        self.branches = nn.ModuleDict(branches)
        last = list(branches.values())[-1].layers[-1]
        assert isinstance(last, Layer)
        self.output = nn.Linear(last.output.channels, num_outputs)
        self._bases, self._feature_bases, self._input_shapes = bases, feature_bases, dict(input_shapes)
        self._used = {source for branch in branches.values() for source in branch.sources}
        for place, noise in enumerate(module for module in self.modules() if isinstance(module, Noise)):
            noise.place = place

    def forward(self, inputs: Inputs, draw: Draw | None = None) -> Tensor:
        """Return raw logits: (n, 1) for the positive of two classes, (n, K) for K classes.

        :param draw: what dropout is drawn from in training; None leaves it to torch's generator.
        :raises MismatchError: inputs of other shapes than the network was built for.
        """
        return self.output(self.summarise(inputs, draw))  # type: ignore[no-any-return]

    def summarise(self, inputs: Inputs, draw: Draw | None = None) -> Tensor:
        """Return what the logits are read from, float32 (n, channels of the last layer); see :meth:`forward`."""
        self._require_shapes(inputs)
        values = self._encode(inputs)
        bounds = inputs.base_bounds[:, self._bases.start : self._bases.stop + 1]
        geometry = Geometry(edges=bounds.to(torch.float32), draw=draw)
        result = inputs.signal
        for name, branch in self.branches.items():
            assert isinstance(branch, Branch)
            result = torch.cat([values[source] for source in branch.sources], dim=1)
            if result.dim() == 4:
                result = result.contiguous(memory_format=torch.channels_last)
            for layer in branch.layers:
                result = layer(result, geometry)
            values[name] = result
        return result

    def _require_shapes(self, inputs: Inputs) -> None:
        # A wider base window would still be sliced, at the wrong bases, and give numbers that mean nothing.
        for name, expected in self._input_shapes.items():
            found = tuple(getattr(inputs, name).shape[1:])
            if found != expected:
                raise MismatchError(
                    f"The network was built for chunks whose '{name}' has shape {expected}, but these have {found}: they "
                    "were cut by another recipe or carry other features.",
                    hint="Cut the chunks by the recipe of the model.",
                )

    def _encode(self, inputs: Inputs) -> dict[str, Tensor]:
        values: dict[str, Tensor] = {}
        if "signal" in self._used:
            values["signal"] = inputs.signal[:, None, None, :]
        if "features" in self._used:
            values["features"] = inputs.features[:, :, None, self._feature_bases]
        if self._used & {"base_onehot", "signal_kmer"}:
            kmers = base_kmers(inputs.sequence)
            values["base_onehot"] = kmers[:, :, None, self._bases]
            if "signal_kmer" in self._used:
                values["signal_kmer"] = sample_kmers(kmers, inputs.base_bounds, inputs.signal.shape[1])[:, :, None, :]
        return values
