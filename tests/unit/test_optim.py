"""How weights move: schedule, decay groups, averaging."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from leech.training.optim import Schedule, WeightAverage, make_optimizer, set_rate


def test_the_rate_rises_linearly_and_falls_along_half_a_cosine() -> None:
    schedule = Schedule(peak=1.0, num_steps=14, warmup_steps=4)
    # Rise in fifths, then 10 steps of cosine: 1 at step 4, a half at step 9, and 0 only after the last step.
    assert [schedule.rate(step) for step in range(4)] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert schedule.rate(4) == 1.0
    assert schedule.rate(9) == pytest.approx(0.5)
    assert schedule.rate(13) == pytest.approx(0.5 * (1 + math.cos(math.pi * 0.9)))
    assert schedule.rate(13) > 0
    assert schedule.rate(14) == pytest.approx(0.0)


def test_without_warm_up_the_first_step_has_the_peak_rate() -> None:
    assert Schedule(peak=0.1, num_steps=3, warmup_steps=0).rate(0) == 0.1


def test_weights_decay_but_biases_and_norms_do_not() -> None:
    network = nn.Sequential(nn.Conv1d(1, 2, 3), nn.GroupNorm(1, 2), nn.Linear(2, 1))
    optimizer = make_optimizer(network, 0.1, 0.5)
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert len(decay) == 6
    for name, parameter in network.named_parameters():
        expected = 0.5 if name in {"0.weight", "2.weight"} else 0.0
        assert decay[id(parameter)] == expected
    set_rate(optimizer, 0.25)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]


def test_frozen_parameters_are_left_out() -> None:
    network = nn.Linear(2, 1)
    network.bias.requires_grad_(False)
    assert [len(group["params"]) for group in make_optimizer(network, 0.1, 0.5).param_groups] == [1]


def test_the_average_follows_the_weights_by_hand() -> None:
    network = nn.Linear(1, 1, bias=False)
    nn.init.constant_(network.weight, 0.0)
    average = WeightAverage(network, decay=0.5)
    nn.init.constant_(network.weight, 1.0)
    # Step 0 keeps min(0.5, 1/10) of the old: 0.1 * 0 + 0.9 * 1. Step 8 keeps min(0.5, 9/18).
    average.update(network, 0)
    assert float(average.network.weight) == pytest.approx(0.9)
    nn.init.constant_(network.weight, 0.0)
    average.update(network, 8)
    assert float(average.network.weight) == pytest.approx(0.45)
    assert not average.network.training
    assert not average.network.weight.requires_grad
    assert float(network.weight.detach()) == 0.0


def test_no_decay_is_no_averaging_and_counters_are_copied() -> None:
    network = nn.BatchNorm1d(2)
    average = WeightAverage(network, decay=0.0)
    network(torch.randn(4, 2))
    average.update(network, 5)
    for name, value in network.state_dict().items():
        assert torch.equal(average.network.state_dict()[name], value)
    assert int(average.network.state_dict()["num_batches_tracked"]) == 1
