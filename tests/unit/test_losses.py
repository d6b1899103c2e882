"""Losses as sums: values by hand, and pieces that add up to the whole."""

from __future__ import annotations

import math

import pytest
import torch

from leech.training.losses import binary_cross_entropy, class_weights, softmax_cross_entropy


def test_cross_entropy_of_two_reads_by_hand() -> None:
    # Logit 0: ln 2 whatever the truth. Logit ln 3 (p = 3/4), truth negative: -ln(1/4) = ln 4. Weights 2 and 1.
    logits = torch.tensor([[0.0], [math.log(3)]])
    loss = binary_cross_entropy(logits, torch.tensor([True, False]), torch.tensor([2.0, 1.0]))
    assert float(loss.total) == pytest.approx(2 * math.log(2) + math.log(4), rel=1e-6)
    assert float(loss.weight) == 3.0


def test_smoothing_moves_the_target_by_half_its_share() -> None:
    # Smoothing 0.2: target 0.9 for a positive read. p = 3/4: -(0.9 ln 3/4 + 0.1 ln 1/4).
    loss = binary_cross_entropy(torch.tensor([math.log(3)]), torch.tensor([True]), torch.ones(1), smoothing=0.2)
    assert float(loss.total) == pytest.approx(-(0.9 * math.log(0.75) + 0.1 * math.log(0.25)), rel=1e-6)


def test_pieces_of_unequal_weight_add_up_to_the_whole() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, weights = torch.randn(7, 1, generator=generator), torch.rand(7, generator=generator)
    positive = torch.arange(7) % 2 == 0
    whole = binary_cross_entropy(logits, positive, weights)
    first = binary_cross_entropy(logits[:2], positive[:2], weights[:2])
    rest = binary_cross_entropy(logits[2:], positive[2:], weights[2:])
    assert float(first.total + rest.total) == pytest.approx(float(whole.total), rel=1e-6)
    assert float(first.weight + rest.weight) == pytest.approx(float(whole.weight), rel=1e-6)
    # The mean of the pieces' means, which a naive average over pieces would give, is another number.
    naive = (first.total / first.weight + rest.total / rest.weight) / 2
    assert abs(float(naive) - float(whole.total / whole.weight)) > 1e-3


def test_balanced_weights_give_both_classes_the_same_total() -> None:
    # 30 negative and 10 positive: 40 / 60 and 40 / 20.
    negative, positive = class_weights((30, 10), "balanced")
    assert (negative, positive) == (pytest.approx(2 / 3), pytest.approx(2.0))
    assert 30 * negative == pytest.approx(10 * positive)
    assert class_weights((30, 10), "none") == (1.0, 1.0)


def test_the_cross_entropy_of_three_classes_is_that_of_the_target_and_is_a_sum() -> None:
    # Probabilities 0.1, 0.2, 0.7 for either read; their classes are 2 and 0, their weights 1 and 3.
    logits = torch.log(torch.tensor([[0.1, 0.2, 0.7], [0.1, 0.2, 0.7]]))
    classes, weights = torch.tensor([2, 0]), torch.tensor([1.0, 3.0])
    found = softmax_cross_entropy(logits, classes, weights)
    assert float(found.total) == pytest.approx(-math.log(0.7) - 3 * math.log(0.1), rel=1e-6)
    assert float(found.weight) == 4
    parts = [softmax_cross_entropy(logits[i : i + 1], classes[i : i + 1], weights[i : i + 1]) for i in (0, 1)]
    assert sum(float(part.total) for part in parts) == pytest.approx(float(found.total), rel=1e-6)
    # A smoothing of 0.3 leaves 0.7 + 0.1 for the class and 0.1 for each of the others.
    smooth = softmax_cross_entropy(logits[:1], classes[:1], weights[:1], 0.3)
    expected = -(0.8 * math.log(0.7) + 0.1 * math.log(0.1) + 0.1 * math.log(0.2))
    assert float(smooth.total) == pytest.approx(expected, rel=1e-6)


def test_balanced_weights_of_three_classes_give_each_a_third() -> None:
    # 60 / (3 x 10), 60 / (3 x 20) and 60 / (3 x 30).
    assert class_weights((10, 20, 30), "balanced") == (pytest.approx(2.0), pytest.approx(1.0), pytest.approx(2 / 3))
