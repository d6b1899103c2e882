"""Auxiliary heads: what they are told, and what they do to the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from leech.config import build
from leech.data.batches import Batch, load_batch
from leech.data.corpus import Corpus
from leech.errors import ConfigError, InputError
from leech.models.heads import Head, make_heads, reverse_gradient
from leech.training.auxiliary import Confound, Measurement, choose_auxiliaries, reversal_strength
from leech.training.config import TrainConfig
from numeric_column import add_numeric_column
from planted import write_planted


def batch_of(**columns: Any) -> Batch:
    some = {name: np.asarray(values) for name, values in columns.items()}
    empty = np.zeros(0, np.int64)
    return Batch(None, empty, empty, some)  # type: ignore[arg-type]


def test_the_gradient_comes_back_reversed_and_the_value_as_it_was() -> None:
    values = torch.tensor([1.0, -2.0], requires_grad=True)
    result = reverse_gradient(values, 0.25)
    assert result.tolist() == [1.0, -2.0]
    (result * torch.tensor([3.0, 5.0])).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [-0.75, -1.25]


def test_an_adversary_learns_at_full_strength_while_the_network_is_pushed_the_other_way() -> None:
    gradients = []
    for is_adversary in (False, True):
        head = make_heads(4, {"head": (2, is_adversary)}, seed=1)["head"]
        summary = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
        head(summary, 0.5).square().sum().backward()
        weight = head.layers[0].weight.grad
        assert weight is not None
        assert summary.grad is not None
        gradients.append((weight.clone(), summary.grad.clone()))
    torch.testing.assert_close(gradients[0][0], gradients[1][0])
    torch.testing.assert_close(gradients[0][1] * -0.5, gradients[1][1])


def test_the_strength_rises_from_nothing_to_what_was_asked_for() -> None:
    # 2 / (1 + exp(-10 p)) - 1 at p = 0, 0.1 and 1: 0, 0.46212, 0.99991.
    assert [reversal_strength(p, 2.0) for p in (0, 0.1, 1)] == pytest.approx([0, 0.924234, 1.999818], rel=1e-5)


def test_a_confound_is_judged_by_cross_entropy_of_the_rows_that_have_a_value() -> None:
    goal, batch = Confound("run", 2), batch_of(run=np.array([0, -1, 1], np.int64))
    assert goal.num_targets(batch) == 2
    outputs = torch.tensor([[np.log(3.0), 0.0], [100.0, -100.0], [0.0, 0.0]], dtype=torch.float32, requires_grad=True)
    loss = goal.loss(outputs, batch)
    # P of the right value: 3/4 and 1/2.
    assert loss.item() == pytest.approx(-np.log(0.75) - np.log(0.5), rel=1e-6)
    loss.backward()
    assert outputs.grad is not None
    assert outputs.grad[1].tolist() == [0, 0]


def test_a_measurement_is_judged_in_deviations_where_there_is_one() -> None:
    goal = Measurement("quality", mean=10, deviation=2, factor=0.1)
    batch = batch_of(quality=np.array([12.0, np.nan, 16.0, np.inf], np.float32))
    assert goal.num_targets(batch) == 2
    outputs = torch.tensor([[0.5], [7.0], [1.0], [7.0]], requires_grad=True)
    # Targets 1 and 3: errors 0.5 (0.5 * 0.25) and 2 (2 - 0.5).
    loss = goal.loss(outputs, batch)
    assert loss.item() == pytest.approx(0.125 + 1.5)
    loss.backward()
    assert outputs.grad is not None
    assert outputs.grad[:, 0].tolist() == [-0.5, 0, -1, 0]
    # A batch without any still has a loss with a gradient, so that its rank takes part.
    nothing = goal.loss(outputs, batch_of(quality=np.full(4, np.nan)))
    assert nothing.item() == 0
    assert nothing.requires_grad


def test_an_unknown_mapping_quality_is_no_target() -> None:
    goal = Measurement("mapq", mean=0, deviation=1, factor=0.1)
    assert goal.num_targets(batch_of(mapq=np.array([0, 60, 255], np.uint8))) == 2


def test_columns_are_chosen_or_refused_by_name(tmp_path: Path) -> None:
    path = write_planted(tmp_path, (10, 10))
    values = np.arange(20, dtype=np.float32)
    values[5] = np.nan
    add_numeric_column(path, "quality", values)
    corpus = Corpus.open(path)
    rows = np.arange(10, dtype=np.int64)

    def choose(**asked: Any) -> Any:
        return choose_auxiliaries(build(TrainConfig, asked), corpus, rows)

    assert choose() == []
    confound, measurement = choose(adversary="reference", regress="quality", regress_weight=0.3)
    assert confound == Confound("reference", 2)
    present = values[[0, 1, 2, 3, 4, 6, 7, 8, 9]]
    expected = Measurement("quality", float(present.mean()), float(present.std()), 0.3)
    assert measurement.mean == pytest.approx(expected.mean)
    assert measurement.deviation == pytest.approx(expected.deviation)
    assert load_batch(corpus, rows, [], ["quality"]).columns["quality"].tolist()[:2] == [0, 1]
    for column, kind, words in (
        ("quallity", ConfigError, "no such numeric column"),
        ("reference", ConfigError, "no such numeric column"),
        ("dwell", ConfigError, "21 numbers per chunk"),
        ("scale", InputError, "no two different values"),
    ):
        with pytest.raises(kind, match=words):
            choose(regress=column)
    with pytest.raises(InputError, match="1 value of it"):
        choose(adversary="flow_cell")


def test_a_head_gives_as_many_numbers_as_asked_for() -> None:
    assert Head(7, 3)(torch.zeros(2, 7), 1.0).shape == (2, 3)
