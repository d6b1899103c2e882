"""One optimizer step, by all ranks together.

Hides: how a step's loss is put together from parts and ranks. Belongs here: everything between a batch and moved weights;
which batch comes when is the loop's, what its loss is the task's. Invariants: a step depends on the rows of its batch, not on
how many ranks or parts they were divided among, but for the order in which numbers are added up; a loss that is not finite
ends the run on all ranks before it reaches the weights of any.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from leech.data.batches import Batch, Inputs, load_batch
from leech.data.corpus import Corpus
from leech.errors import LeechError
from leech.models.noise import Draw
from leech.training.augment import add_noise
from leech.training.checkpoints import Validation
from leech.training.config import TrainConfig
from leech.training.optim import Schedule, WeightAverage, make_optimizer, set_rate
from leech.training.samplers import noise_owners, parts_of_batch
from leech.training.world import World


class Task(Protocol):
    """What is learnt.

    :ivar corpus: where the rows are.
    :ivar features: feature channels that the network reads.
    :ivar columns: columns of the corpus that a loss needs, beside the label.
    :ivar network: what is judged and kept.
    :ivar module: all that is trained, ``network`` and what hangs on it; on the CPU at first.
    :ivar terms: names of the losses that are added up; the first is the goal's.
    :ivar factors: how much each of them counts.
    """

    corpus: Corpus
    features: Sequence[str]
    columns: Sequence[str]
    network: nn.Module
    module: nn.Module
    terms: Sequence[str]
    factors: Sequence[float]

    @property
    def num_rows(self) -> int:
        """Rows of an epoch."""

    def epoch_rows(self, epoch: int) -> NDArray[np.int64]:
        """Return the rows of an epoch in their order, int64 (num_rows,); a function of the epoch alone."""

    def weights(self, batch: Batch) -> NDArray[np.float64]:
        """Return the weight that each loss of a batch sums over, float64 (num_terms,)."""

    def losses(self, module: nn.Module, inputs: Inputs, batch: Batch, draw: Draw, progress: float) -> Tensor:
        """Return each loss of a batch as a weighted sum over its rows, float32 (num_terms,).

        :param module: ``module``, or the form of it that ranks share; all of its parameters take part.
        :param inputs: those of the batch, disturbed, on the module's device.
        :param progress: share of the run that is over, 0 to 1.
        """

    def validate(self, network: nn.Module, world: World, is_asked_to_end: Callable[[], bool]) -> Validation | None:
        """Judge the network on rows that it does not learn from, all ranks together; each gets the same figures.

        :return: None, on all ranks, as soon as one of them was asked to end.
        """


class SharePart(NamedTuple):
    """Loaded rows that one forward pass takes; see :class:`leech.training.samplers.Part`."""

    batch: Batch
    owners: NDArray[np.int64]
    counts: bool


class Share(NamedTuple):
    """What a rank takes of a batch.

    :ivar rows: corpus rows of the whole batch.
    :ivar parts: its own rows; together they are every ``size``-th of ``rows``.
    """

    rows: NDArray[np.int64]
    parts: list[SharePart]


def epoch_shares(
    task: Task, epoch: int, *, batch_size: int, num_parts: int, world: World, first_batch: int = 0
) -> Iterator[Share]:
    """Yield this rank's share of each batch of an epoch, from the batch ``first_batch`` on."""
    rows = task.epoch_rows(epoch)
    owners = noise_owners(rows)
    for start in range(first_batch * batch_size, len(rows), batch_size):
        of_batch = slice(start, start + batch_size)
        parts = parts_of_batch(rows[of_batch], owners[of_batch], rank=world.rank, size=world.size, num_parts=num_parts)
        loaded = [
            SharePart(load_batch(task.corpus, part.rows, task.features, task.columns), part.owners, part.counts)
            for part in parts
        ]
        yield Share(rows[of_batch], loaded)


class StepResult(NamedTuple):
    """What came of a step, over all ranks.

    :ivar losses: weighted sums by term; ``weights`` are what they sum over.
    :ivar is_last: whether some rank was asked to end.
    """

    losses: NDArray[np.float64]
    weights: NDArray[np.float64]
    is_last: bool


class Stepper:
    """Takes optimizer steps.

    :ivar step: steps taken.
    :ivar exchanges: False leaves each rank with its own gradients, which is of use only to whoever measures.
    :ivar mark: called with the name of each phase of a step when it is over; for whoever measures.
    """

    def __init__(self, task: Task, config: TrainConfig, num_steps: int, world: World) -> None:
        self.task, self.world, self.step = task, world, 0
        self._config, self._num_steps = config, num_steps
        # As the gradients of channels-last values come: with other strides they would be copied at each exchange.
        module = task.module.to(world.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.module = world.synchronised(module)
        self._shared = world.parallel(self.module)
        self.average = WeightAverage(task.network, config.average_decay)
        # Made from the module that ranks share: a parameter outside it would drift apart unnoticed.
        self.optimizer = make_optimizer(self.module, config.learning_rate, config.weight_decay)
        self.schedule = Schedule(config.learning_rate, num_steps, round(config.warmup * num_steps))
        self._factors = torch.tensor(task.factors, dtype=torch.float32, device=world.device)
        self.exchanges = True
        self.mark: Callable[[str], None] = _unmarked

    def take(self, share: Share, epoch: int, stop: bool = False) -> StepResult:
        """Take one step.

        :param stop: whether this rank was asked to end; then all of them learn it.
        :raises LeechError: a loss or gradient that is not finite; the message names the rows.
        """
        set_rate(self.optimizer, self.schedule.rate(self.step))
        # Noise of layers that are not leech's belongs to the step: whoever starts here, by resuming, draws the same.
        torch.manual_seed(_seed(self._config.seed, self.step))
        self.module.train()
        self.optimizer.zero_grad(set_to_none=True)
        own = sum(
            (self.task.weights(part.batch) for part in share.parts if part.counts), np.zeros(len(self.task.terms))
        )
        agreed = self.world.sum(torch.tensor([*own, float(stop)], dtype=torch.float64, device=self.world.device))
        self.mark("reduce")
        totals = torch.zeros(len(self.task.terms), dtype=torch.float64, device=self.world.device)
        with self.world.contact():
            for place, part in enumerate(share.parts):
                totals += self._backward(part, epoch, agreed[:-1], is_last=place == len(share.parts) - 1)
        norm = nn.utils.clip_grad_norm_(self.module.parameters(), self._config.clip_norm)
        self.mark("step")
        summed = self.world.sum(torch.cat([totals, norm.detach().double()[None] / self.world.size]))
        # One transfer from the device a step: the losses for the log, and the check that must come before the weights move.
        numbers = torch.cat([agreed, summed]).cpu().numpy()
        self.mark("reduce")
        weights, losses, gradient = numbers[: len(own)], numbers[len(own) + 1 : -1], float(numbers[-1])
        if not (np.isfinite(losses).all() and math.isfinite(gradient)):
            self._refuse(share, epoch, losses, gradient)
        self.optimizer.step()
        self.average.update(self.task.network, self.step)
        self.step += 1
        self.mark("step")
        return StepResult(losses, weights, bool(numbers[len(own)]))

    def _inputs(self, part: SharePart, epoch: int) -> tuple[Inputs, Draw]:
        inputs = part.batch.inputs.to(self.world.device)
        inputs = add_noise(inputs, part.owners, self._config.noise, seed=self._config.seed, epoch=epoch)
        owners = torch.from_numpy(part.owners).to(self.world.device)
        return inputs, Draw(owners, _seed(self._config.seed, epoch, 1))

    def _backward(self, part: SharePart, epoch: int, weights: Tensor, *, is_last: bool) -> Tensor:
        """Add the gradient of a part to that of the step, and return its losses as sums."""
        inputs, draw = self._inputs(part, epoch)
        waits = not (is_last and self.exchanges) and isinstance(self._shared, DistributedDataParallel)
        with self._shared.no_sync() if waits else nullcontext():  # type: ignore[operator]
            sums = self.task.losses(self._shared, inputs, part.batch, draw, self.step / self._num_steps)
            # Gradients are averaged over the ranks, and are to be sums.
            scaled = sums / weights.float().clamp(min=1e-30) * (self._factors * (self.world.size * part.counts))
            self.mark("forward")
            scaled.sum().backward()  # type: ignore[no-untyped-call]
            self.mark("backward")
        return sums.detach().double() * part.counts

    @torch.no_grad()
    def _refuse(self, share: Share, epoch: int, losses: NDArray[np.float64], gradient: float) -> None:
        """Find the rows to blame, all ranks together, and raise the same on each."""
        wrong = np.zeros(len(share.rows))
        places = iter(range(self.world.rank, len(share.rows), self.world.size))
        for part in share.parts if share.parts[0].counts else ():
            inputs, draw = self._inputs(part, epoch)
            for number in range(len(part.owners)):
                one = slice(number, number + 1)
                sums = self.task.losses(
                    self.module,
                    Inputs(*(tensor[one] for tensor in inputs)),
                    _rows_of(part.batch, one),
                    Draw(draw.rows[one], draw.key),
                    self.step / self._num_steps,
                )
                wrong[next(places)] = not bool(torch.isfinite(sums).all())
        bad = share.rows[self.world.sum_array(wrong) > 0].tolist()
        some = bad if 0 < len(bad) < len(share.rows) else share.rows.tolist()
        listed = ", ".join(str(row) for row in some[:10]) + (f" and {len(some) - 10} more" if len(some) > 10 else "")
        raise LeechError(
            f"Step {self.step + 1} gives a loss of {losses[0]:g} and a gradient of norm {gradient:g}; the weights were not "
            f"changed. Corpus '{self.task.corpus.path}', rows {listed}.",
            hint="If it is a few rows, look at them with 'leech data inspect'. If it is all rows of a batch, the run diverged: "
            "lower --learning-rate.",
        )


def _rows_of(batch: Batch, chosen: slice) -> Batch:
    return Batch(
        Inputs(*(tensor[chosen] for tensor in batch.inputs)),
        batch.rows[chosen],
        batch.labels[chosen],
        {name: values[chosen] for name, values in batch.columns.items()},
    )


def _seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


def _unmarked(phase: str) -> None:
    """Measure nothing."""
