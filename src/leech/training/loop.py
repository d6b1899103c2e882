"""The training loop, the only one.

Hides: when to evaluate, when to stop, what it takes to go on. Belongs here: what is the same for every objective; what is
learnt, from which rows, and how it is judged is a :class:`leech.training.step.Task` (``task.py``), so that no label is known
here, and one step is ``step.py``'s. Invariants: all ranks take the same decisions, since they take them from the same numbers;
a run that was interrupted and resumed at any number of ranks is the run that was not; on the CPU the same configuration, data
and number of ranks give the same bits.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import InitVar, asdict, dataclass, field
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leech.console import logger
from leech.data.batches import prefetched
from leech.errors import InterruptedRunError
from leech.training.checkpoints import Judgement, Kept
from leech.training.config import TrainConfig
from leech.training.resume import ResumeFile, State
from leech.training.step import Stepper, Task, epoch_shares
from leech.training.stopping import StopRequest
from leech.training.world import World

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
    :ivar head_losses: of auxiliary heads.
    """

    epoch: int
    step: int
    train_loss: float
    metrics: dict[str, float | None]
    learning_rate: float
    chunks_per_second: float
    seconds: float
    head_losses: dict[str, float] = field(default_factory=dict)

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types; metrics and losses of heads as keys of their own, ``validation_...`` and ``train_loss_...``."""
        content = asdict(self)
        metrics, heads = content.pop("metrics"), content.pop("head_losses")
        return {
            **content,
            **{f"train_loss_{name}": value for name, value in heads.items()},
            **{f"validation_{name}": value for name, value in metrics.items()},
        }


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


class Fitted(NamedTuple):
    """A finished run: the state worth keeping, and all evaluations in their order."""

    kept: Kept
    records: list[Record]


class Hooks(NamedTuple):
    """What a run tells, and what it is told.

    :ivar on_record: called with each evaluation.
    :ivar on_restored: called with the chunks that a run which goes on has taken before.
    :ivar on_step: called after each step with the chunks it took, over all ranks, and its mean loss.
    :ivar clock: seconds that only go forward.
    :ivar stop: asked with each step and between the batches of an evaluation whether to end.
    """

    on_record: Callable[[Record], None]
    on_restored: Callable[[int], None]
    on_step: Callable[[int, float], None]
    clock: Callable[[], float]
    stop: StopRequest


def fit(
    task: Task, config: TrainConfig, plan: Plan, world: World, hooks: Hooks, resume: ResumeFile | None = None
) -> Fitted:
    """Train, and return the state that is worth keeping; all ranks return the same.

    :param resume: where the state of the run is saved, and read from if it is there; None saves nothing.
    :raises InterruptedRunError: the run was asked to end, and has saved its state.
    :raises LeechError: a loss or gradient that is not finite; the message names the rows.
    """
    run = _Run(task, config, plan, world, hooks, resume)
    while run.epoch < plan.epochs:
        run.train_epoch()
        is_due = run.epoch + 1 == plan.epochs or (run.epoch + 1) % plan.epochs_per_evaluation == 0
        if is_due:
            run.evaluate()
        run.epoch, run.batch = run.epoch + 1, 0
        if is_due and _is_over(config.patience, run.kept.num_since, run.stepper.step):
            break
        run.save_if_due()
    return Fitted(run.kept, run.records)


def _is_over(patience: int | None, num_since: int, step: int) -> bool:
    if patience is None:
        return num_since >= PATIENCE and step >= MIN_STEPS
    return num_since >= patience


@dataclass
class _Tally:
    """What was seen since the last evaluation.

    :ivar seconds: that it took, up to the last saving.
    :ivar losses: sums by term; ``weights`` are what they sum over.
    """

    num_terms: InitVar[int]
    chunks: int = 0
    seconds: float = 0.0
    losses: NDArray[np.float64] = field(init=False)
    weights: NDArray[np.float64] = field(init=False)

    def __post_init__(self, num_terms: int) -> None:
        self.losses, self.weights = np.zeros(num_terms), np.zeros(num_terms)

    def means(self) -> list[float]:
        """Return the mean loss of each term; 0 where no row had a target."""
        return [float(value) for value in self.losses / np.maximum(self.weights, 1e-30)]


class _Run:
    """Where a run stands.

    :ivar epoch: the epoch that it is in; ``batch`` is the number of its batches that are done.
    """

    def __init__(
        self, task: Task, config: TrainConfig, plan: Plan, world: World, hooks: Hooks, resume: ResumeFile | None
    ) -> None:
        self.task, self.config, self.plan, self.world, self.hooks, self.resume = (
            task,
            config,
            plan,
            world,
            hooks,
            resume,
        )
        self.stepper = Stepper(task, config, plan.num_steps, world)
        self.kept, self.records = Kept(), list[Record]()
        self.epoch = self.batch = 0
        self.tally = _Tally(len(task.terms))
        self._seconds_before = 0.0
        if resume is not None and resume.path.exists():
            self._restore(resume.read())
        self._started = self._tally_started = self._saved = hooks.clock()

    @property
    def seconds(self) -> float:
        """Since the run began, without the time that it lay still."""
        return self._seconds_before + self.hooks.clock() - self._started

    def train_epoch(self) -> None:
        """Take the remaining steps of the epoch."""
        shares = epoch_shares(
            self.task,
            self.epoch,
            batch_size=self.plan.batch_size,
            num_parts=self.config.grad_accum,
            world=self.world,
            first_batch=self.batch,
        )
        for share in prefetched(shares):
            self.stepper.mark("data")
            result = self.stepper.take(share, self.epoch, bool(self.hooks.stop.signal))
            self.batch += 1
            self.tally.chunks += len(share.rows)
            self.tally.losses += result.losses
            self.tally.weights += result.weights
            self.hooks.on_step(len(share.rows), float(result.losses[0] / result.weights[0]))
            if result.is_last:
                self._end()
            self.save_if_due()

    def evaluate(self) -> None:
        """Judge the averaged weights; a run that is asked to end meanwhile is saved as it was before."""
        seconds = self.tally.seconds + self.hooks.clock() - self._tally_started
        network = self.stepper.average.network
        found = self.task.validate(network, self.world, lambda: bool(self.hooks.stop.signal))
        if found is None:
            self._end()
        metrics = dict(found.metrics)
        loss, *others = self.tally.means()
        record = Record(
            epoch=self.epoch + 1,
            step=self.stepper.step,
            train_loss=loss,
            metrics=metrics,
            learning_rate=self.stepper.schedule.rate(self.stepper.step - 1),
            chunks_per_second=self.tally.chunks / max(seconds, 1e-9),
            seconds=self.seconds,
            head_losses=dict(zip(self.task.terms[1:], others, strict=True)),
        )
        self.records.append(record)
        self.hooks.on_record(record)
        state = network.state_dict()
        self.kept.consider(found.judgement, metrics, state, epoch=record.epoch, step=record.step)
        self.tally, self._tally_started = _Tally(len(self.task.terms)), self.hooks.clock()

    def save_if_due(self) -> None:
        """Save the state if the last saving is long ago; the first rank alone decides that, and writes."""
        if self.resume is None or not self.world.is_first:
            return
        if self.hooks.clock() - self._saved >= 60 * self.config.save_minutes:
            self.resume.write(self._state())
            self._saved = self.hooks.clock()

    def _end(self) -> NoReturn:
        where = f"after step {self.stepper.step} of {self.plan.num_steps} at most"
        # Of several ranks none hears an interrupt; whoever started them knows of it.
        code = 128 + signal.SIGINT if self.hooks.stop.signal == signal.SIGINT else InterruptedRunError.exit_code
        if self.resume is None:
            raise _interrupted(f"Training was asked to end {where}; nothing was saved.", code)
        if self.world.is_first:
            self.resume.write(self._state())
        # No rank may end before the file is there: whoever started them might end the first one too.
        self.world.wait()
        raise _interrupted(
            f"Training was asked to end {where}; its state is saved in '{self.resume.path}'.",
            code,
            hint="Give the same command with --resume to go on from there, with any number of --gpus.",
        )

    def _state(self) -> State:
        tensors, kept = _tensors_of(self.stepper), self.kept
        tensors.update({f"kept.{name}": tensor for name, tensor in kept.state.items()})
        if kept.highest is not None:
            tensors["highest.influences"] = torch.from_numpy(kept.highest.influences)
        now = self.hooks.clock()
        content = {
            "step": self.stepper.step,
            "epoch": self.epoch,
            "batch": self.batch,
            "seconds": self.seconds,
            "tally": {
                "chunks": self.tally.chunks,
                "seconds": self.tally.seconds + now - self._tally_started,
                "losses": self.tally.losses.tolist(),
                "weights": self.tally.weights.tolist(),
            },
            "kept": {name: value for name, value in vars(kept).items() if name not in ("state", "highest")},
            "highest": None if kept.highest is None else kept.highest.value,
            "records": [asdict(record) for record in self.records],
        }
        return State(tensors, content)

    def _restore(self, state: State) -> None:
        content = state.content
        self.epoch, self.batch, self.stepper.step = content["epoch"], content["batch"], content["step"]
        self._seconds_before = content["seconds"]
        self.records = [Record(**record) for record in content["records"]]
        tally = content["tally"]
        self.tally.chunks, self.tally.seconds = tally["chunks"], tally["seconds"]
        self.tally.losses, self.tally.weights = np.array(tally["losses"]), np.array(tally["weights"])
        highest = None
        if content["highest"] is not None:
            highest = Judgement(content["highest"], state.tensors["highest.influences"].numpy())
        self.kept = Kept(highest=highest, **content["kept"], state=_under(state.tensors, "kept."))
        _restore_tensors(self.stepper, state.tensors)
        in_epoch = min(self.batch * self.plan.batch_size, self.task.num_rows)
        self.hooks.on_restored(self.epoch * self.task.num_rows + in_epoch)
        if self.world.is_first:
            logger.info(
                "Going on after step %d, in epoch %d of %d.", self.stepper.step, self.epoch + 1, self.plan.epochs
            )


def _interrupted(message: str, code: int, hint: str | None = None) -> InterruptedRunError:
    error = InterruptedRunError(message, hint=hint)
    error.exit_code = code
    return error


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _tensors_of(stepper: Stepper) -> dict[str, Tensor]:
    """Return everything that the next step depends on, copied to the CPU."""
    found = {f"trained.{name}": tensor for name, tensor in stepper.module.state_dict().items()}
    found.update({f"average.{name}": tensor for name, tensor in stepper.average.network.state_dict().items()})
    for name, parameter in stepper.module.named_parameters():
        for key, value in stepper.optimizer.state[parameter].items():
            found[f"optimizer.{key}.{name}"] = value
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in found.items()}


@torch.no_grad()
def _restore_tensors(stepper: Stepper, tensors: Mapping[str, Tensor]) -> None:
    stepper.module.load_state_dict(_under(tensors, "trained."))
    stepper.average.network.load_state_dict(_under(tensors, "average."))
    of_optimizer = _under(tensors, "optimizer.")
    for name, parameter in stepper.module.named_parameters():
        moments = {
            full.removesuffix(f".{name}"): tensor
            for full, tensor in of_optimizer.items()
            if full.endswith(f".{name}") and "." not in full.removesuffix(f".{name}")
        }
        # The count of steps stays on the CPU, where the optimizer keeps it.
        stepper.optimizer.state[parameter] = {
            key: tensor if key == "step" else torch.empty_like(parameter).copy_(tensor)
            for key, tensor in moments.items()
        }
