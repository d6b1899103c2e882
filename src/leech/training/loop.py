"""The training loop, the only one.

Hides: the order of a step, when to evaluate, when to stop. Belongs here: what is the same for every objective; what is
learnt, from which rows, and how it is judged is a :class:`Task` (``task.py``), so that no label is known here. Invariants:
batch b of an epoch holds rows that depend on (seed, epoch, batch size) alone; randomness inside a step depends on (seed,
step) alone; a loss that is not finite ends the run before it reaches the weights; on the CPU the same configuration and
data give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from leech.data.batches import Batch, Inputs, iterate_batches
from leech.data.corpus import Corpus
from leech.errors import LeechError
from leech.training.checkpoints import Best
from leech.training.config import TrainConfig
from leech.training.losses import LossSum
from leech.training.optim import Schedule, WeightAverage, make_optimizer, set_rate

STEPS_PER_EPOCH = 64
"""A corpus too small for this many full batches an epoch gets smaller ones: many noisy steps learn more than few exact ones."""

SMALLEST_BATCH = 16
"""Batches shrink no further than this."""

STEPS_PER_EVALUATION = 20
"""Evaluations are at least this many steps apart, so that they do not take most of the time of a small corpus."""


class Task(Protocol):
    """What is learnt.

    :ivar corpus: where the rows are.
    :ivar features: feature channels that the network reads.
    :ivar network: what is trained, on the CPU at first.
    """

    corpus: Corpus
    features: Sequence[str]
    network: nn.Module

    @property
    def num_rows(self) -> int:
        """Rows of an epoch."""

    def epoch_rows(self, epoch: int) -> NDArray[np.int64]:
        """Return the rows of an epoch in their order, int64 (num_rows,); a function of the epoch alone."""

    def loss(self, network: nn.Module, inputs: Inputs, batch: Batch) -> LossSum:
        """Return the loss of a batch whose inputs are on the network's device."""

    def validate(self, network: nn.Module, device: torch.device) -> Mapping[str, float | None]:
        """Judge the network on rows that it does not learn from."""

    def rank(self, metrics: Mapping[str, float | None]) -> tuple[float, ...]:
        """Return what evaluations are compared by, entry by entry, larger being better."""


@dataclass(frozen=True)
class Plan:
    """How many steps of what size.

    :ivar epochs_per_evaluation: evaluations come after every so many epochs, and after the last.
    """

    batch_size: int
    epochs: int
    steps_per_epoch: int
    epochs_per_evaluation: int

    @property
    def num_steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.epochs * self.steps_per_epoch


def make_plan(num_rows: int, config: TrainConfig) -> Plan:
    """Lay out a run over ``num_rows`` rows an epoch; the same for any number of ranks."""
    batch_size = min(config.batch_size, max(SMALLEST_BATCH, num_rows // STEPS_PER_EPOCH))
    steps = math.ceil(num_rows / batch_size)
    return Plan(
        batch_size=batch_size,
        epochs=max(config.epochs, math.ceil(config.min_steps / steps)),
        steps_per_epoch=steps,
        epochs_per_evaluation=math.ceil(STEPS_PER_EVALUATION / steps),
    )


@dataclass(frozen=True)
class Record:
    """One line of ``history.jsonl``, written at each evaluation; the training figures are means since the last one.

    :ivar epoch: epochs completed; ``step`` likewise of optimizer steps.
    :ivar metrics: of the validation rows.
    :ivar seconds: since the run began.
    """

    epoch: int
    step: int
    train_loss: float
    metrics: dict[str, float | None]
    learning_rate: float
    chunks_per_second: float
    seconds: float

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, the metrics as keys of their own that begin with ``validation_``."""
        content = asdict(self)
        metrics = content.pop("metrics")
        return {**content, **{f"validation_{name}": value for name, value in metrics.items()}}


@contextmanager
def reproducible(device: torch.device) -> Iterator[None]:
    """Let torch compute the same bits each time (on the CPU), and leave its settings as they were."""
    before = torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        # CUDA kernels without a deterministic form would stop the run for a promise that is made for the CPU only.
        torch.use_deterministic_algorithms(device.type == "cpu")
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before)


def fit(
    task: Task,
    config: TrainConfig,
    plan: Plan,
    device: torch.device,
    *,
    on_record: Callable[[Record], None],
    on_step: Callable[[int, float], None],
    clock: Callable[[], float],
) -> Best:
    """Train, and return the best state.

    :param on_record: called with each evaluation.
    :param on_step: called after each step with the chunks it took and its loss.
    :param clock: seconds that only go forward.
    :raises LeechError: a loss or gradient that is not finite; the message names rows.
    """
    network = task.network.to(device)
    average = WeightAverage(network, config.average_decay)
    optimizer = make_optimizer(network, config.learning_rate, config.weight_decay)
    schedule = Schedule(config.learning_rate, plan.num_steps, round(config.warmup * plan.num_steps))
    best = Best()
    started = clock()
    tally = _Tally(started)
    step = 0
    for epoch in range(plan.epochs):
        network.train()
        for batch in iterate_batches(task.corpus, task.epoch_rows(epoch), plan.batch_size, task.features):
            set_rate(optimizer, schedule.rate(step))
            # A step's noise belongs to the step: whoever starts here, by resuming, draws the same.
            torch.manual_seed(_step_seed(config.seed, step))
            loss = _take_step(task, network, optimizer, batch, device, config.clip_norm, epoch)
            average.update(network, step)
            step += 1
            tally.add(len(batch.rows), loss)
            on_step(len(batch.rows), loss.total / loss.weight)
        last = epoch + 1 == plan.epochs
        if not last and (epoch + 1) % plan.epochs_per_evaluation:
            continue
        rate = tally.rate(clock())
        metrics = dict(task.validate(average.network, device))
        on_record(
            Record(
                epoch=epoch + 1,
                step=step,
                train_loss=tally.loss,
                metrics=metrics,
                learning_rate=schedule.rate(step - 1),
                chunks_per_second=rate,
                seconds=clock() - started,
            )
        )
        best.consider(task.rank(metrics), metrics, average.network.state_dict(), epoch=epoch + 1, step=step)
        if best.num_worse >= config.patience and step >= config.min_steps:
            break
        tally = _Tally(clock())
    return best


class StepLoss(Record if False else object):  # placeholder
    pass
