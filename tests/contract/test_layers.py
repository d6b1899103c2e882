"""What every registered layer keeps to; a new layer adds a row to OPTIONS."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from leech.models.layers import LAYERS, Geometry, Layer, Shape

SAMPLES = Shape(channels=6, axis="samples", length=20, stride=5, focus=10)
BASES = Shape(channels=6, axis="bases", length=5, focus=2)
VECTOR = Shape(channels=6, axis="none", length=1)

OPTIONS: dict[str, list[tuple[Shape, dict[str, Any]]]] = {
    "convolution": [
        (SAMPLES, {"channels": 4, "kernel": 5}),
        (SAMPLES, {"channels": 4, "kernel": 4, "stride": 2, "activation": "gelu"}),
        (BASES, {"channels": 4, "kernel": 1, "activation": "silu"}),
    ],
    "residual": [(SAMPLES, {"kernel": 3, "dilation": 2, "dropout": 0.1}), (BASES, {"kernel": 3})],
    "dropout": [(BASES, {"probability": 0.5}), (VECTOR, {"probability": 0.5})],
    "pool_bases": [
        (SAMPLES, {"num_bases": 5, "focus": 2, "num_samples": 100}),
        (SAMPLES, {"num_bases": 5, "focus": 2, "num_samples": 100, "spread": True}),
    ],
    "lstm": [(SAMPLES, {"channels": 8}), (BASES, {"channels": 8})],
    "summary": [(SAMPLES, {"attention": False}), (BASES, {"attention": True})],
    "linear": [(VECTOR, {"channels": 3})],
}

NOISE = {"dropout"}
"""Layers that mean the same on every axis, and refuse none."""

CASES = [
    pytest.param(name, shape, options, id=f"{name}-{number}")
    for name, cases in OPTIONS.items()
    for number, (shape, options) in enumerate(cases)
]

EDGES = torch.tensor([[-5.0, 3.0, 3.0, 40.0, 71.0, 130.0], [10.0, 20.0, 30.0, 55.0, 55.0, 99.0], [0.0, 1, 2, 3, 4, 5]])
"""Boundaries outside the window, on and between steps, bases without signal, bases shorter than a step."""


def make(name: str, shape: Shape, options: dict[str, Any]) -> Layer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return LAYERS[name](shape, **options)


def values_of(shape: Shape) -> Tensor:
    size = (len(EDGES), shape.channels) + ((1, shape.length) if shape.axis != "none" else ())
    return torch.randn(size, generator=torch.Generator().manual_seed(2))


def size_of(shape: Shape) -> tuple[int, ...]:
    return (len(EDGES), shape.channels) + ((1, shape.length) if shape.axis != "none" else ())


def test_every_registered_layer_has_a_row_here() -> None:
    assert set(OPTIONS) == set(LAYERS)
    assert {name: cls.registered_name for name, cls in LAYERS.items()} == {name: name for name in LAYERS}


@pytest.mark.parametrize(("name", "shape", "options"), CASES)
def test_a_layer_gives_the_shape_that_it_says(name: str, shape: Shape, options: dict[str, Any]) -> None:
    layer = make(name, shape, options).eval()
    result = layer(values_of(shape), Geometry(EDGES))
    assert tuple(result.shape) == size_of(layer.output)
    assert result.dtype == torch.float32
    assert 0 <= layer.output.focus < layer.output.length


@pytest.mark.parametrize(("name", "shape", "options"), CASES)
def test_a_layer_takes_any_memory_layout(name: str, shape: Shape, options: dict[str, Any]) -> None:
    layer, values = make(name, shape, options).eval(), values_of(shape)
    other = values.contiguous(memory_format=torch.channels_last) if values.dim() == 4 else values.t().contiguous().t()
    torch.testing.assert_close(layer(values, Geometry(EDGES)), layer(other, Geometry(EDGES)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "shape", "options"), CASES)
def test_no_chunk_sees_another(name: str, shape: Shape, options: dict[str, Any]) -> None:
    layer, values = make(name, shape, options).eval(), values_of(shape)
    together = layer(values, Geometry(EDGES))
    for row in range(len(EDGES)):
        alone = layer(values[row : row + 1], Geometry(EDGES[row : row + 1]))
        torch.testing.assert_close(alone[0], together[row], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "shape", "options"), CASES)
def test_gradients_are_finite_and_reach_every_weight_and_the_input(
    name: str, shape: Shape, options: dict[str, Any]
) -> None:
    layer, values = make(name, shape, options).train(), values_of(shape).requires_grad_()
    result = layer(values, Geometry(EDGES))
    weights = torch.randn(result.shape, generator=torch.Generator().manual_seed(3))
    (result * weights).sum().backward()
    for what, tensor in [("input", values), *layer.named_parameters()]:
        assert tensor.grad is not None, what
        assert torch.isfinite(tensor.grad).all(), what
        assert tensor.grad.abs().sum() > 0, what


@pytest.mark.parametrize(("name", "shape", "options"), CASES)
def test_without_training_there_is_no_noise(name: str, shape: Shape, options: dict[str, Any]) -> None:
    layer, values = make(name, shape, options).eval(), values_of(shape)
    before = torch.get_rng_state()
    assert torch.equal(layer(values, Geometry(EDGES)), layer(values, Geometry(EDGES)))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", [name for name in OPTIONS if name not in NOISE])
def test_a_layer_refuses_an_axis_that_none_of_its_rows_uses(name: str) -> None:
    refused = [
        shape for shape in (SAMPLES, BASES, VECTOR) if shape.axis not in {case.axis for case, _ in OPTIONS[name]}
    ]
    assert refused
    for shape in refused:
        with pytest.raises(ValueError, match=f"needs values along .*, got values along {shape.axis}"):
            LAYERS[name](shape, **OPTIONS[name][0][1])
