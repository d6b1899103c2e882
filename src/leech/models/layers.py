"""The layers that networks are made of, by name.

Hides: tensor layout (channels-last images of height one, which the CPU convolves fastest) and the arithmetic between
samples, strided steps and bases. Belongs here: a class per layer with ``@register``; which layers a network has is said
in its TOML, how the TOML becomes a network in ``spec.py``. Invariants: values are float32 of shape (n, channels, 1, length),
or (n, channels) after a summary; step j of a signal axis with stride s stands for window samples [s*j, s*(j+1)); nothing
mixes chunks of a batch, so a chunk's logit does not depend on its company; dropout is the only noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from leech.models.noise import Draw, row_dropout

Axis = Literal["samples", "bases", "none"]


@dataclass(frozen=True)
class Shape:
    """What a layer's values are.

    :ivar channels: number of channels.
    :ivar axis: what the length counts; "none" after a summary.
    :ivar length: number of positions.
    :ivar stride: window samples per position, on the sample axis.
    :ivar focus: position of the focus.
    """

    channels: int
    axis: Axis
    length: int
    stride: int = 1
    focus: int = 0


class Geometry(NamedTuple):
    """What layers may know of the chunks beside their values.

    :ivar edges: boundaries of the bases of the base axis in window samples, float32 (n, num_bases + 1).
    :ivar draw: what dropout is drawn from in training; None leaves it to torch's generator.
    """

    edges: Tensor
    draw: Draw | None = None


class Layer(nn.Module):
    """Base of all layers: a module that knows the shape it gives.

    A subclass takes the incoming :class:`Shape` first and its options by keyword, and sets ``output``.
    """

    registered_name: ClassVar[str]
    output: Shape

    def forward(self, values: Tensor, geometry: Geometry) -> Tensor:
        """Transform (n, channels, 1, length); ``geometry`` is there for layers that change the axis."""
        raise NotImplementedError


LAYERS: dict[str, type[Layer]] = {}
"""Layer classes by the name that a TOML uses."""


def register(name: str) -> Callable[[type[Layer]], type[Layer]]:
    """Make a layer class known under ``name``."""

    def add(cls: type[Layer]) -> type[Layer]:
        cls.registered_name = name
        LAYERS[name] = cls
        return cls

    return add


def _require_axis(shape: Shape, *axes: Axis) -> None:
    if shape.axis not in axes:
        raise ValueError(f"needs values along {' or '.join(axes)}, got values along {shape.axis}")


def _require_positive(**options: int) -> None:
    for name, value in options.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU}


def _activation(name: str) -> nn.Module:
    if name not in ACTIVATIONS:
        raise ValueError(f"activation '{name}' is unknown; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]()


@register("convolution")
class Convolution(Layer):
    """Convolution along the axis, with activation; padded so that step j stays over samples [s*j, s*(j+1))."""

    def __init__(self, shape: Shape, *, channels: int, kernel: int, stride: int = 1, activation: str = "silu") -> None:
        super().__init__()
        _require_axis(shape, "samples", "bases")
        _require_positive(channels=channels, kernel=kernel, stride=stride)
        if kernel < stride or (kernel - stride) % 2:
            raise ValueError(
                f"kernel {kernel} must exceed stride {stride} by an even number, so that steps stay centred"
            )
        padding = (kernel - stride) // 2
        self.convolution = nn.Conv2d(shape.channels, channels, (1, kernel), stride=(1, stride), padding=(0, padding))
        self.activation = _activation(activation)
        length = (shape.length + 2 * padding - kernel) // stride + 1
        if length < 1:
            raise ValueError(f"kernel {kernel} and stride {stride} leave nothing of {shape.length} positions")
        self.output = replace(
            shape,
            channels=channels,
            length=length,
            stride=shape.stride * stride,
            focus=min(shape.focus // stride, length - 1),
        )

    def forward(self, values: Tensor, geometry: Geometry) -> Tensor:
        """Convolve."""
        return self.activation(self.convolution(values))  # type: ignore[no-any-return]


@register("residual")
class Residual(Layer):
    """Pre-normalised residual block: dilated, non-causal convolution, activation, pointwise convolution, dropout.

    The normalisation runs over all channels and positions of one chunk, so no chunk sees its batch.
    """

    def __init__(
        self, shape: Shape, *, kernel: int = 3, dilation: int = 1, dropout: float = 0.0, activation: str = "silu"
    ) -> None:
        super().__init__()
        _require_axis(shape, "samples", "bases")
        _require_positive(kernel=kernel, dilation=dilation)
        if kernel % 2 == 0:
            raise ValueError(f"kernel {kernel} must be odd, so that the block stays centred")
        self.norm = nn.GroupNorm(1, shape.channels)
        self.wide = nn.Conv2d(
            shape.channels, shape.channels, (1, kernel), padding=(0, dilation * (kernel // 2)), dilation=(1, dilation)
        )
        self.activation = _activation(activation)
        self.point = nn.Conv2d(shape.channels, shape.channels, 1)
        self.dropout = Noise(dropout)
        self.output = shape

    def forward(self, values: Tensor, geometry: Geometry) -> Tensor:
        """Add the block's correction."""
        correction = self.point(self.activation(self.wide(self.norm(values))))
        return values + self.dropout(correction, geometry.draw)  # type: ignore[no-any-return]


class Noise(nn.Module):
    """Dropout; all layers take their noise from here.

    :ivar place: its number in the network, which keeps its noise apart from that of other layers; the network counts.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        if not 0 <= probability < 1:
            raise ValueError(f"dropout {probability} must lie in [0, 1)")
        self.probability, self.place = probability, 0

    def forward(self, values: Tensor, draw: Draw | None) -> Tensor:
        """Drop single values in training, nothing otherwise."""
        if draw is None or not self.training or self.probability == 0:
            return functional.dropout(values, self.probability, self.training)
        return row_dropout(values, self.probability, draw, self.place)


@register("dropout")
class Dropout(Layer):
    """Dropout of single values in training."""

    def __init__(self, shape: Shape, *, probability: float) -> None:
        super().__init__()
        self.noise = Noise(probability)
        self.output = shape

    def forward(self, values: Tensor, geometry: Geometry) -> Tensor:
        """Drop."""
        return self.noise(values, geometry.draw)  # type: ignore[no-any-return]


def pooling_matrix(edges: Tensor, length: int, stride: int, num_samples: int) -> Tensor:
    """Return the weights that average strided steps per base, float32 (n, length, num_bases); columns sum to 1 or 0.

    A step counts with the samples that it shares with the base, inside the window of ``num_samples``.

    :param edges: base boundaries in window samples, float32 (n, num_bases + 1), not clipped.
    """
    starts = torch.arange(length, device=edges.device, dtype=edges.dtype) * stride
    ends = (starts + stride).clamp(max=num_samples)
    left, right = edges[:, None, :-1], edges[:, None, 1:]
    shared = (torch.minimum(right, ends[None, :, None]) - torch.maximum(left, starts[None, :, None])).clamp(min=0)
    return shared / shared.sum(dim=1, keepdim=True).clamp(min=1)


@register("pool_bases")
class PoolBases(Layer):
    """From samples to bases: mean of each base's samples, through the base-to-signal map; 0 for a base without any.

    With ``spread``, the standard deviation over the base's samples is added as as many channels again, 0 without samples too.
    """

    def __init__(self, shape: Shape, *, num_bases: int, focus: int, num_samples: int, spread: bool = False) -> None:
        super().__init__()
        _require_axis(shape, "samples")
        self.length, self.stride, self.num_samples, self.spread = shape.length, shape.stride, num_samples, spread
        channels = shape.channels * (2 if spread else 1)
        self.output = Shape(channels=channels, axis="bases", length=num_bases, focus=focus)

    def forward(self, values: Tensor, geometry: Geometry) -> Tensor:
        """Pool (n, channels, 1, length) to (n, channels, 1, num_bases)."""
        weights = pooling_matrix(geometry.edges, self.length, self.stride, self.num_samples)
        flat = values.squeeze(2)
        mean = torch.bmm(flat, weights)
        if self.spread:
            variance = torch.bmm(flat.square(), weights) - mean.square()
            # The root's slope is unbounded at 0, where bases of a single step lie.
            present = weights.sum(dim=1, keepdim=True) > 0
            mean = torch.cat([mean, (variance.clamp(min=0) + 1e-4).sqrt() * present], dim=1)
        return mean.unsqueeze(2).contiguous(memory_format=torch.channels_last)


@register("lstm")
class Lstm(Layer):
    """Bidirectional LSTM along the axis."""

    def __init__(self, shape: Shape, *, channels: int) -> None:
        super().__init__()
        _require_axis(shape, "samples", "bases")
        if channels < 2 or channels % 2:
            raise ValueError(f"channels {channels} must be even: half of them run either way")
        self.lstm = nn.LSTM(shape.channels, channels // 2, batch_first=True, bidirectional=True)
        self.output = replace(shape, channels=channels)

    def forward(self, values: Tensor, geometry: Geometry) -> Tensor:
        """Run both ways."""
        along, _ = self.lstm(values.squeeze(2).transpose(1, 2))
        return along.transpose(1, 2).unsqueeze(2)  # type: ignore[no-any-return]


@register("summary")
class Summary(Layer):
    """From an axis to one vector: the value at the focus, the mean, and an attention-weighted mean of all positions."""

    def __init__(self, shape: Shape, *, attention: bool = True) -> None:
        super().__init__()
        _require_axis(shape, "samples", "bases")
        self.focus = shape.focus
        self.score = nn.Conv2d(shape.channels, 1, 1) if attention else None
        self.output = Shape(channels=shape.channels * (3 if attention else 2), axis="none", length=1)

    def forward(self, values: Tensor, geometry: Geometry) -> Tensor:
        """Return (n, channels)."""
        flat = values.squeeze(2)
        parts = [flat[:, :, self.focus], flat.mean(dim=2)]
        if self.score is not None:
            weights = self.score(values).squeeze(2).softmax(dim=2)
            parts.append((flat * weights).sum(dim=2))
        return torch.cat(parts, dim=1)


@register("linear")
class Linear(Layer):
    """Full connection of a summary's channels, with activation."""

    def __init__(self, shape: Shape, *, channels: int, activation: str = "silu") -> None:
        super().__init__()
        _require_axis(shape, "none")
        _require_positive(channels=channels)
        self.linear = nn.Linear(shape.channels, channels)
        self.activation = _activation(activation)
        self.output = replace(shape, channels=channels)

    def forward(self, values: Tensor, geometry: Geometry) -> Tensor:
        """Return (n, channels)."""
        return self.activation(self.linear(values))  # type: ignore[no-any-return]
