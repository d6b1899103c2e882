"""The training loop, the only one.

Hides: the order of a step, when to evaluate, when to stop. Belongs here: what is the same for every objective; what is
learnt, from which rows, and how it is judged is a :class:`Task` (``task.py``), so that no label is known here. Invariants:
batch b of an epoch holds rows that depend on (seed, epoch, batch size) alone; noise on inputs depends on (seed, epoch, row)
and dropout on (seed, step) alone; a loss that is not finite ends the run before it reaches the weights; on the CPU the
same configuration and data give the same bits.
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
from leech.training.augment import add_noise
from leech.training.checkpoints import Judgement, Kept
from leech.training.config import TrainConfig
from leech.training.losses import LossSum
from leech.training.optim import Schedule, WeightAverage, make_optimizer, set_rate

EPOCHS = 30
"""Passes over the rows when no number is given."""

MIN_STEPS = 600
"""A corpus too small for this many steps in :data:`EPOCHS` passes is passed over more often, when no number is given."""

PATIENCE = 10
"""Evaluations without a better one after which a run of :data:`MIN_STEPS` or more stops, when no number is given."""

LARGEST_BATCH, SMALLEST_BATCH = 512, 16
"""Limits of the batch size that is chosen when none is given."""

STEPS_PER_EPOCH = 64
"""A corpus too small for this many of the largest batches an epoch gets smaller ones: many noisy steps learn more than few
exact ones."""

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

    def judge(self, metrics: Mapping[str, float | None]) -> Judgement:
        """Return what evaluations are compared by."""


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
    batch_size = config.batch_size or min(LARGEST_BATCH, max(SMALLEST_BATCH, num_rows // STEPS_PER_EPOCH))
    steps = math.ceil(num_rows / batch_size)
    return Plan(
        batch_size=batch_size,
        epochs=config.epochs or max(EPOCHS, math.ceil(MIN_STEPS / steps)),
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
    """Let torch compute the same bits each time (on the CPU), and leave its settings and generators as they were."""
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
) -> Kept:
    """Train, and return the state that is worth keeping.

    :param on_record: called with each evaluation.
    :param on_step: called after each step with the chunks it took and its mean loss.
    :param clock: seconds that only go forward.
    :raises LeechError: a loss or gradient that is not finite; the message names the rows.
    """
    stepper = _Stepper(task, config, plan, device)
    kept = Kept()
    started = clock()
    tally = _Tally(started)
    for epoch in range(plan.epochs):
        for batch in iterate_batches(task.corpus, task.epoch_rows(epoch), plan.batch_size, task.features):
            loss, weight = stepper.take(batch, epoch)
            tally.add(len(batch.rows), loss, weight)
            on_step(len(batch.rows), loss / weight)
        if epoch + 1 < plan.epochs and (epoch + 1) % plan.epochs_per_evaluation:
            continue
        chunks_per_second = tally.chunks / max(clock() - tally.started, 1e-9)
        state = stepper.average.network
        metrics = dict(task.validate(state, device))
        record = Record(
            epoch=epoch + 1,
            step=stepper.step,
            train_loss=tally.loss / tally.weight,
            metrics=metrics,
            learning_rate=stepper.schedule.rate(stepper.step - 1),
            chunks_per_second=chunks_per_second,
            seconds=clock() - started,
        )
        on_record(record)
        kept.consider(task.judge(metrics), metrics, state.state_dict(), epoch=record.epoch, step=record.step)
        if _is_over(config.patience, kept.num_since, stepper.step):
            break
        tally = _Tally(clock())
    return kept


def _is_over(patience: int | None, num_since: int, step: int) -> bool:
    if patience is None:
        return num_since >= PATIENCE and step >= MIN_STEPS
    return num_since >= patience


@dataclass
class _Tally:
    """What was seen since the last evaluation."""

    started: float
    chunks: int = 0
    loss: float = 0.0
    weight: float = 0.0

    def add(self, chunks: int, loss: float, weight: float) -> None:
        self.chunks += chunks
        self.loss += loss
        self.weight += weight


class _Stepper:
    """Takes optimizer steps."""

    def __init__(self, task: Task, config: TrainConfig, plan: Plan, device: torch.device) -> None:
        self.task, self.device, self.step = task, device, 0
        self._config = config
        self.network = task.network.to(device)
        self.average = WeightAverage(self.network, config.average_decay)
        self.optimizer = make_optimizer(self.network, config.learning_rate, config.weight_decay)
        self.schedule = Schedule(config.learning_rate, plan.num_steps, round(config.warmup * plan.num_steps))

    def take(self, batch: Batch, epoch: int) -> tuple[float, float]:
        """Take one step and return the batch's loss as a sum and the weight that it sums over."""
        set_rate(self.optimizer, self.schedule.rate(self.step))
        # Dropout belongs to the step: whoever starts here, by resuming, draws the same.
        seed = int(np.random.SeedSequence([self._config.seed, self.step]).generate_state(1, np.uint64)[0])
        torch.manual_seed(seed)
        self.network.train()
        inputs = batch.inputs.to(self.device)
        inputs = add_noise(inputs, batch.rows, self._config.noise, seed=self._config.seed, epoch=epoch)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.task.loss(self.network, inputs, batch)
        (loss.total / loss.weight).backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), self._config.clip_norm)
        # One transfer from the device a step: the loss for the log, and the check that must come before the weights move.
        total, weight, gradient = torch.stack([loss.total.detach(), loss.weight.detach(), norm.detach()]).tolist()
        if not (math.isfinite(total) and math.isfinite(gradient)):
            self._refuse(batch, inputs, total, gradient)
        self.optimizer.step()
        self.average.update(self.network, self.step)
        self.step += 1
        return total, weight

    @torch.no_grad()
    def _refuse(self, batch: Batch, inputs: Inputs, loss: float, gradient: float) -> None:
        """Find the rows to blame, and raise."""
        wrong = []
        for place, row in enumerate(batch.rows):
            one = slice(place, place + 1)
            single = Batch(Inputs(*(tensor[one] for tensor in batch.inputs)), batch.rows[one], batch.labels[one])
            total = self.task.loss(self.network, Inputs(*(tensor[one] for tensor in inputs)), single).total
            if not math.isfinite(float(total)):
                wrong.append(int(row))
        some = wrong if 0 < len(wrong) < len(batch.rows) else batch.rows.tolist()
        listed = ", ".join(str(row) for row in some[:10]) + (f" and {len(some) - 10} more" if len(some) > 10 else "")
        raise LeechError(
            f"Step {self.step + 1} gives a loss of {loss:g} and a gradient of norm {gradient:g}; the weights were not changed. "
            f"Corpus '{self.task.corpus.path}', rows {listed}.",
            hint="If it is a few rows, look at them with 'leech data inspect'. If it is all rows of a batch, the run diverged: "
            "lower --learning-rate.",
        )
