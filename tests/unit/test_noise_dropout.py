"""Dropout that belongs to a chunk."""

from __future__ import annotations

import pytest
import torch

from leech.models.layers import Dropout, Geometry, Shape
from leech.models.noise import Draw, row_dropout
from leech.models.spec import build_network, load_architecture
from planted import RECIPE

ROWS = torch.tensor([11, 3, 2**40 + 5, 8, 8 + 2**40])


def test_a_chunks_dropout_does_not_depend_on_its_batch_or_the_layout_of_its_values() -> None:
    values = torch.ones(5, 6, 1, 7)
    whole = row_dropout(values, 0.5, Draw(ROWS, 99), 2)
    order = torch.tensor([4, 1])
    assert torch.equal(row_dropout(values[order], 0.5, Draw(ROWS[order], 99), 2), whole[order])
    channels_last = values.contiguous(memory_format=torch.channels_last)
    assert torch.equal(row_dropout(channels_last, 0.5, Draw(ROWS, 99), 2), whole)


def test_dropout_changes_with_row_key_and_layer_and_not_with_torchs_generator() -> None:
    values = torch.ones(1, 400)
    base = row_dropout(values, 0.5, Draw(torch.tensor([7]), 1), 0)
    torch.manual_seed(5)
    assert torch.equal(row_dropout(values, 0.5, Draw(torch.tensor([7]), 1), 0), base)
    for row, key, place in ((8, 1, 0), (7, 2, 0), (7, 1, 1)):
        other = row_dropout(values, 0.5, Draw(torch.tensor([row]), key), place)
        # 400 coins that do not know of each other: 200 agree, give or take 10.
        assert 150 < int((other == base).sum()) < 250


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_the_share_that_is_dropped_and_the_mean_are_right(probability: float) -> None:
    values = torch.ones(300, 1001)
    dropped = row_dropout(values, probability, Draw(torch.arange(300), 12345), 0)
    # 300,300 values: standard error of the share below 0.001.
    assert float((dropped == 0).float().mean()) == pytest.approx(probability, abs=0.004)
    assert float(dropped.mean()) == pytest.approx(1, abs=0.03)
    # Neither neighbours in a row nor neighbouring rows follow each other.
    kept = (dropped > 0).float() - (dropped > 0).float().mean()
    variance = float((kept**2).mean())
    for first, second in ((kept[:, :-1], kept[:, 1:]), (kept[:-1], kept[1:]), (kept[:, :-4], kept[:, 4:])):
        assert abs(float((first * second).mean())) / variance < 0.01


def test_a_layer_is_quiet_in_evaluation_and_without_probability() -> None:
    draw, values = Draw(torch.tensor([1]), 1), torch.ones(1, 50)
    layer = Dropout(Shape(50, "none", 1), probability=0.5)
    geometry = Geometry(torch.zeros(1, 2), draw)
    assert torch.equal(layer.eval()(values, geometry), values)
    assert (layer.train()(values, geometry) == 0).any()
    assert torch.equal(Dropout(Shape(50, "none", 1), probability=0.0).train()(values, geometry), values)


def test_each_noisy_layer_of_a_network_draws_numbers_of_its_own() -> None:
    from leech.models.layers import Noise

    network = build_network(load_architecture("tcn"), RECIPE)
    places = [module.place for module in network.modules() if isinstance(module, Noise)]
    assert len(places) > 1
    assert places == list(range(len(places)))
