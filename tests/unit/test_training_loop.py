"""The loop on its own: plans, stopping, refusals, and that it knows nothing of labels."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from leech.config import build
from leech.data.batches import Batch, Inputs
from leech.data.corpus import Corpus
from leech.errors import LeechError
from leech.models.noise import Draw
from leech.training.checkpoints import Judgement, Kept, Validation
from leech.training.config import TrainConfig
from leech.training.loop import Hooks, Plan, Record, fit, make_plan, reproducible
from leech.training.samplers import epoch_rows
from leech.training.stopping import StopRequest
from leech.training.world import World
from planted import write_planted

CPU = torch.device("cpu")


def config(**values: object) -> TrainConfig:
    return build(TrainConfig, {"epochs": 3, "learning_rate": 0.01, **values})


@pytest.mark.parametrize(
    ("rows", "values", "expected"),
    [
        # 2 million rows: full batches, 3907 steps an epoch, no more epochs than usual.
        (2_000_000, {}, Plan(512, 30, 3907, 1)),
        # 190 rows: batches of 16, 12 steps an epoch; 600 steps need 50 epochs; evaluations every 2 epochs (24 steps).
        (190, {}, Plan(16, 50, 12, 2)),
        # 6400 rows: a 64th of them is 100.
        (6400, {}, Plan(100, 30, 64, 1)),
        (5, {}, Plan(16, 600, 1, 20)),
        # What is given holds, however small or large the corpus.
        (6400, {"epochs": 10, "batch_size": 20}, Plan(20, 10, 320, 1)),
        (190, {"epochs": 2}, Plan(16, 2, 12, 2)),
        (190, {"batch_size": 512}, Plan(512, 600, 1, 20)),
    ],
)
def test_plans_for_corpora_of_any_size(rows: int, values: dict[str, object], expected: Plan) -> None:
    assert make_plan(rows, build(TrainConfig, values)) == expected


class Level(nn.Module):
    """The smallest network that reads something: a line through the mean signal."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(1, 1)
        nn.init.constant_(self.line.weight, 0.5)
        nn.init.zeros_(self.line.bias)
        self.dropout = nn.Dropout(0.5)

    def forward(self, inputs: Inputs) -> torch.Tensor:
        output: torch.Tensor = self.line(self.dropout(inputs.signal.mean(dim=1, keepdim=True)))
        return output


class Regression:
    """A task without labels: predict the number of the row; judged by scripted figures."""

    features: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    terms = ("loss",)
    factors = (1.0,)

    def __init__(self, corpus: Corpus, script: list[float]) -> None:
        self.corpus, self.network, self.seen = corpus, Level(), []
        self.module = self.network
        self._script = iter(script)

    @property
    def num_rows(self) -> int:
        return len(self.corpus)

    def epoch_rows(self, epoch: int) -> np.ndarray:
        return epoch_rows(np.arange(len(self.corpus), dtype=np.int64), seed=0, epoch=epoch)

    def weights(self, batch: Batch) -> np.ndarray:
        return np.array([float(len(batch.rows))])

    def losses(self, module: nn.Module, inputs: Inputs, batch: Batch, draw: Draw, progress: float) -> torch.Tensor:
        self.seen.append(batch.rows)
        target = torch.from_numpy(batch.rows / 100).float()
        errors = (module(inputs).reshape(-1) - target) ** 2
        return errors.sum()[None]

    def validate(self, network: nn.Module, world: World, is_asked_to_end: Callable[[], bool]) -> Validation | None:
        assert not network.training
        assert not is_asked_to_end()
        quality = next(self._script)
        return Validation({"quality": quality}, Judgement(quality, np.array([quality / 2])))


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus.open(write_planted(tmp_path, (40, 40)))


def run(task: Regression, settings: TrainConfig, plan: Plan) -> tuple[Kept, list[Record]]:
    ticks = itertools.count()
    hooks = Hooks(
        on_record=lambda record: None,
        on_restored=lambda chunks: None,
        on_step=lambda chunks, loss: None,
        clock=lambda: float(next(ticks)),
        stop=StopRequest(),
    )
    with reproducible(CPU):
        torch.manual_seed(0)
        return fit(task, settings, plan, World(), hooks)


def test_every_row_is_seen_once_an_epoch_and_the_best_evaluation_is_kept(corpus: Corpus) -> None:
    task = Regression(corpus, [0.5, 0.9, 0.7])
    best, records = run(task, config(), Plan(32, 3, 3, 1))
    assert [len(rows) for rows in task.seen] == [32, 32, 16] * 3
    for start in (0, 3, 6):
        assert sorted(np.concatenate(task.seen[start : start + 3])) == list(range(80))
    assert (best.epoch, best.step, best.metrics) == (2, 6, {"quality": 0.9})
    assert [record.step for record in records] == [3, 6, 9]
    line = records[1].to_mapping()
    assert line["validation_quality"] == 0.9
    assert {"epoch", "step", "train_loss", "learning_rate", "chunks_per_second", "seconds"} <= set(line)


def test_patience_that_is_given_counts_evaluations(corpus: Corpus) -> None:
    _, records = run(Regression(corpus, [0.9] + [0.1] * 20), config(epochs=10, patience=2), Plan(32, 10, 3, 1))
    assert [record.epoch for record in records] == [1, 2, 3]


def test_patience_by_default_is_ten_evaluations_but_not_before_step_600(corpus: Corpus) -> None:
    # 3 steps an epoch, an evaluation every 25 epochs: the eighth comes at step 600, the eleventh at 825.
    falling, late = [0.9] + [0.1] * 20, [0.1, 0.1, 0.1, 0.9] + [0.1] * 20
    assert run(Regression(corpus, falling), config(), Plan(32, 500, 3, 25))[1][-1].step == 825
    # The best is the fourth: 10 more evaluations end at the fourteenth.
    assert run(Regression(corpus, late), config(), Plan(32, 500, 3, 25))[1][-1].step == 1050
    # One evaluation a step: ten are over long before step 600.
    assert run(Regression(corpus, [0.9] + [0.1] * 700), config(), Plan(80, 700, 1, 1))[1][-1].step == 600


def test_evaluations_come_every_so_many_epochs_and_at_the_end(corpus: Corpus) -> None:
    _, records = run(Regression(corpus, [0.1, 0.2, 0.3]), config(), Plan(32, 5, 3, 2))
    assert [record.epoch for record in records] == [2, 4, 5]


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(corpus: Corpus) -> None:
    states = [run(Regression(corpus, [0.1] * 3), config(seed=seed), Plan(32, 3, 3, 1))[0].state for seed in (4, 4, 5)]
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name])
    assert any(not torch.equal(value, states[2][name]) for name, value in states[0].items())


def test_torch_is_left_as_it_was(corpus: Corpus) -> None:
    task = Regression(corpus, [0.1] * 3)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    run(task, config(), Plan(32, 3, 3, 1))
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.equal(torch.rand(1), expected)


def test_a_loss_that_is_not_finite_stops_before_the_weights_move_and_names_the_row(corpus: Corpus) -> None:
    task = Regression(corpus, [0.1] * 3)
    before = {name: value.clone() for name, value in task.network.state_dict().items()}
    usual = task.losses

    def poisoned(module: nn.Module, inputs: Inputs, batch: Batch, *others: object) -> torch.Tensor:
        return usual(module, inputs, batch, *others) * (float("nan") if 17 in batch.rows else 1.0)  # type: ignore[arg-type]

    task.losses = poisoned  # type: ignore[method-assign]
    # One batch an epoch: row 17 is in the first.
    with pytest.raises(LeechError, match=r"rows 17\.") as caught:
        run(task, config(), Plan(80, 3, 1, 1))
    assert "Step 1 " in caught.value.message
    for name, value in before.items():
        assert torch.equal(task.network.state_dict()[name], value)


def test_the_latest_evaluation_within_an_error_of_the_highest_is_kept_as_a_copy() -> None:
    kept, weight = Kept(), torch.zeros(1)
    # Each row: value, influences of two rows, whether it is kept, evaluations since the highest.
    script = [
        (0.80, (0.00, 0.00), True, 0),
        # Lower by 0.04; the difference has an error of 0.05 (of 0.03 and 0.04): cannot be told apart, so the later is kept.
        (0.76, (0.03, 0.04), True, 1),
        # Lower by 0.06.
        (0.74, (0.03, 0.04), False, 2),
        (0.90, (0.30, 0.40), True, 0),
        # Whatever the error of either, these rows move both alike: the difference is sure.
        (0.86, (0.30, 0.40), False, 1),
        (0.88, (0.30, 0.43), True, 2),
        (0.70, (0.30, 0.40), False, 3),
    ]
    for number, (value, influences, is_kept, since) in enumerate(script):
        weight.fill_(number)
        judgement = Judgement(value, np.array(influences))
        assert kept.consider(judgement, {"auroc": value}, {"w": weight}, epoch=number, step=10 * number) == is_kept
        assert kept.num_since == since
    assert (kept.epoch, kept.step, kept.metrics, float(kept.state["w"])) == (5, 50, {"auroc": 0.88}, 5.0)
