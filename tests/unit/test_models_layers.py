"""Layers and encodings, by answers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from leech.models.layers import (
    Convolution,
    Dropout,
    Geometry,
    Layer,
    Lstm,
    PoolBases,
    Residual,
    Shape,
    Summary,
    pooling_matrix,
)
from leech.models.network import base_kmers, sample_kmers

NOWHERE = Geometry(torch.zeros(1, 2))


def reach(layer: Layer, shape: Shape, position: int) -> list[int]:
    """Return the input positions on which output ``position`` depends."""
    values = torch.randn(1, shape.channels, 1, shape.length, generator=torch.Generator().manual_seed(0))
    values.requires_grad_()
    layer(values, NOWHERE)[..., position].sum().backward()
    assert values.grad is not None
    return torch.nonzero(values.grad.abs().sum(dim=(0, 1, 2))).flatten().tolist()


def test_a_base_averages_steps_by_the_samples_it_shares_with_them() -> None:
    # Steps of 5 samples in a window of 18: [0,5) [5,10) [10,15) [15,18). Base [2,7) shares 3 samples with the first step
    # and 2 with the second; [7,7) has none; [7,18) shares 3, 5, 3 of 11; [18,30) lies outside.
    edges = torch.tensor([[2.0, 7.0, 7.0, 18.0, 30.0]])
    expected = torch.tensor(
        [[[3 / 5, 0, 0, 0], [2 / 5, 0, 3 / 11, 0], [0, 0, 5 / 11, 0], [0, 0, 3 / 11, 0]]],
    )
    torch.testing.assert_close(pooling_matrix(edges, length=4, stride=5, num_samples=18), expected)


def test_a_base_that_overhangs_the_window_averages_what_is_inside() -> None:
    # Base [-7,3) has samples 0..2 inside, all in step 0; base [3,40) has 2 + 5 of them.
    edges = torch.tensor([[-7.0, 3.0, 40.0]])
    weights = pooling_matrix(edges, length=2, stride=5, num_samples=10)
    torch.testing.assert_close(weights, torch.tensor([[[1, 2 / 7], [0, 5 / 7]]]))


def test_pooling_gives_mean_and_spread_per_base_and_zero_without_samples() -> None:
    # Steps of 1 sample, values 1 3 | 5: mean 2 with standard deviation 1, then 5 with 0, then a base without samples.
    # 1e-4 is added below the root.
    layer = PoolBases(Shape(1, "samples", 3), num_bases=3, focus=1, num_samples=3, spread=True)
    edges = torch.tensor([[0.0, 2.0, 3.0, 3.0]])
    result = layer(torch.tensor([[[[1.0, 3.0, 5.0]]]]), Geometry(edges))
    expected = torch.tensor([[[[2.0, 5.0, 0.0]], [[math.sqrt(1.0001), 0.01, 0.0]]]])
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    assert result[0, :, 0, 2].tolist() == [0.0, 0.0]
    assert layer.output == Shape(channels=2, axis="bases", length=3, focus=1)


def test_a_strided_step_sees_as_far_on_either_side_of_its_samples() -> None:
    # Step 4 of stride 5 stands for samples 20..24; a kernel of 11 adds three on either side.
    shape = Shape(1, "samples", 50, focus=25)
    layer = Convolution(shape, channels=4, kernel=11, stride=5, activation="silu")
    assert reach(layer, shape, 4) == list(range(17, 28))
    assert layer.output == Shape(channels=4, axis="samples", length=10, stride=5, focus=5)


def test_strides_multiply() -> None:
    # 50 / 5 = 10 steps, 10 / 2 = 5; the focus sample 25 lies in step 5, and that in step 2.
    first = Convolution(Shape(1, "samples", 50, focus=25), channels=2, kernel=5, stride=5)
    second = Convolution(first.output, channels=2, kernel=4, stride=2)
    assert second.output == Shape(channels=2, axis="samples", length=5, stride=10, focus=2)


def test_a_residual_block_looks_both_ways() -> None:
    # Kernel 3 with dilation 4; the block's normalisation, which sees the whole chunk, is taken out.
    shape = Shape(3, "bases", 17, focus=8)
    torch.manual_seed(0)
    block = Residual(shape, kernel=3, dilation=4, activation="silu")
    block.norm = nn.Identity()  # type: ignore[assignment]
    assert reach(block, shape, 8) == [4, 8, 12]


def test_a_residual_block_normalises_each_chunk_by_itself() -> None:
    # With the identity in the place of everything after the normalisation, the correction has mean 0 and variance 1.
    shape = Shape(2, "bases", 4)
    block = Residual(shape)
    block.wide = block.activation = block.point = nn.Identity()  # type: ignore[assignment]
    values = torch.tensor([[[[1.0, 2, 3, 4]], [[5, 6, 7, 8]]], [[[0, 0, 0, 0]], [[80, 80, 80, 80.0]]]])
    correction = block(values, NOWHERE) - values
    torch.testing.assert_close(correction.mean(dim=(1, 2, 3)), torch.zeros(2), rtol=0, atol=1e-5)
    torch.testing.assert_close(correction.square().mean(dim=(1, 2, 3)), torch.ones(2), rtol=1e-4, atol=1e-4)


def test_an_lstm_runs_both_ways() -> None:
    shape = Shape(2, "samples", 6)
    torch.manual_seed(0)
    layer = Lstm(shape, channels=4)
    assert reach(layer, shape, 0) == reach(layer, shape, 5) == [0, 1, 2, 3, 4, 5]


def test_a_summary_is_focus_mean_and_attention() -> None:
    # Channel values 1, 2, 6; focus 1. Scores log 1, log 2, log 6 weigh them 1/9, 2/9, 6/9: (1 + 4 + 36) / 9.
    layer = Summary(Shape(2, "bases", 3, focus=1), attention=True)
    assert layer.score is not None
    with torch.no_grad():
        layer.score.weight.copy_(torch.tensor([0.0, 1.0])[None, :, None, None])
        layer.score.bias.zero_()  # type: ignore[union-attr]
        values = torch.tensor([1.0, 2.0, 6.0])
        result = layer(torch.stack([values, values.log()])[None, :, None, :], NOWHERE)[0, ::2]
    torch.testing.assert_close(result, torch.tensor([2.0, 3.0, 41 / 9]))


def test_dropout_keeps_the_mean_in_training_and_everything_otherwise() -> None:
    layer = Dropout(Shape(1, "none", 1), probability=0.25)
    ones = torch.ones(100, 1000)
    torch.manual_seed(0)
    noisy = layer.train()(ones, NOWHERE)
    # A quarter is dropped, the rest divided by 3/4. Of 100,000 values, the mean's standard error is 0.0018.
    assert noisy.unique().tolist() == pytest.approx([0, 4 / 3])
    assert noisy.mean().item() == pytest.approx(1, abs=0.01)
    assert torch.equal(layer.eval()(ones, NOWHERE), ones)


def test_noise_comes_from_the_generator_of_the_caller() -> None:
    layer, ones = Dropout(Shape(1, "none", 1), probability=0.5).train(), torch.ones(50, 4)
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(layer(ones, NOWHERE))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Convolution(Shape(1, "samples", 50), channels=0, kernel=3), "channels must be at least 1, got 0"),
        (lambda: Convolution(Shape(1, "samples", 50), channels=1, kernel=3, stride=5), "kernel 3 must exceed stride 5"),
        (lambda: Convolution(Shape(1, "samples", 50), channels=1, kernel=6, stride=5), "by an even number"),
        (lambda: Convolution(Shape(1, "samples", 3), channels=1, kernel=5, stride=5), "leave nothing of 3 positions"),
        (
            lambda: Convolution(Shape(1, "bases", 9), channels=1, kernel=3, activation="reul"),
            "activation 'reul' is unknown; known: relu",
        ),
        (lambda: Residual(Shape(4, "bases", 9), kernel=4), "kernel 4 must be odd"),
        (lambda: Residual(Shape(4, "bases", 9), dilation=0), "dilation must be at least 1, got 0"),
        (lambda: Dropout(Shape(4, "bases", 9), probability=1.0), r"dropout 1.0 must lie in \[0, 1\)"),
        (lambda: Lstm(Shape(4, "bases", 9), channels=5), "channels 5 must be even"),
    ],
)
def test_what_cannot_be_is_refused_in_words(make: object, words: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=words):
        make()


def test_a_base_is_encoded_with_four_bases_on_either_side() -> None:
    # Two bases between four of context each. Channel 4 * place + code; code 4 sets none.
    sequence = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3, 0]], dtype=torch.uint8)
    encoded = base_kmers(sequence)
    assert encoded.shape == (1, 36, 2)
    assert encoded.dtype == torch.float32
    # Places 0..8 of the first base: 0 1 2 3 - 0 1 2 3; of the second: 1 2 3 - 0 1 2 3 0.
    assert encoded[0, :, 0].nonzero().flatten().tolist() == [0, 5, 10, 15, 20, 25, 30, 35]
    assert encoded[0, :, 1].nonzero().flatten().tolist() == [1, 6, 11, 16, 21, 26, 31, 32]


def test_a_sample_carries_the_kmer_of_the_base_that_owns_it() -> None:
    # Bases [-2,3) [3,3) [3,6) in a window of 8: samples 0..2 are the first base's, 3..5 the third's, 6 and 7 nobody's.
    kmers = torch.tensor([[[1.0, 2.0, 3.0]]])
    bounds = torch.tensor([[-2, 3, 3, 6]], dtype=torch.int32)
    assert sample_kmers(kmers, bounds, 8).tolist() == [[[1, 1, 1, 3, 3, 3, 0, 0]]]


def test_samples_before_the_first_base_carry_nothing() -> None:
    kmers = torch.tensor([[[1.0, 2.0]]])
    bounds = torch.tensor([[2, 3, 9]], dtype=torch.int32)
    assert sample_kmers(kmers, bounds, 5).tolist() == [[[0, 0, 1, 2, 2]]]
