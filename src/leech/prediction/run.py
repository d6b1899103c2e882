"""One run on its way through: from an opened run to a call of every record, counted and judged.

Hides: how records, chunks and probabilities are kept in step, and what a run has to stand up to before its calls may be
believed. Belongs here: the one loop that calls reads, whoever wants them; files are written in ``predict.py``, arrays made in
``leech.api``. Invariants: every record is handed on once, in order, with one call or one reason; nothing of a record is kept,
so memory does not grow with the run; where :meth:`Run.go` returns, every record is accounted for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np
import pysam
from numpy.typing import NDArray

from leech.console import Task, format_duration
from leech.data.config import ReadSources
from leech.data.corpus import stored_table
from leech.data.reasons import USED, Counts
from leech.data.recipe import Recipe
from leech.data.refine import RefinementTally
from leech.data.sites import sites_for_model
from leech.data.stream import ReadStream, open_stream
from leech.models.bundle import LoadedModel
from leech.models.device import choose_devices
from leech.models.learnt import Comparison, Overlap, warn_if_learnt
from leech.prediction.agreement import Agreement, warn_about_new_references
from leech.prediction.calls import Call, CallRules, judge
from leech.prediction.config import PredictConfig
from leech.prediction.scoring import ScoredBatch, replicas, scored_batches
from leech.prediction.tally import Tally

_ETA_AFTER_S = 2.0
"""Seconds before the time left is told; the first batches say little of it."""


def open_run(model: Path, recipe: Recipe, sources: ReadSources) -> AbstractContextManager[ReadStream]:
    """Open a run to be cut as the model's chunks were: by its recipe, its k-mer table and its sites.

    :param model: folder in which table and sites lie.
    """
    sites = sites_for_model(model, recipe, sources.read_sites)
    return open_stream(sources, recipe, stored_table(model, recipe), sites)


class AnyCall(Protocol):
    """What became of one record."""

    @property
    def reason(self) -> str:
        """Why there is no call; empty for a call."""


C = TypeVar("C", bound=AnyCall)


class CallLoop(ABC, Generic[C]):
    """The calls of a run, and what was counted of them so far; what a call is, is left to the classes below.

    :param model: folder of the loaded model, for messages.
    :ivar counts: records by outcome.
    :ivar refinement: what became of the boundaries; None where they are not refined.
    """

    def __init__(self, model: Path, loaded: LoadedModel, stream: ReadStream) -> None:
        self._model, self._loaded, self._stream = model, loaded, stream
        self._agreement, self._comparison = Agreement(loaded.bundle, stream), Comparison(loaded.learnt)
        self.counts = Counts()
        self.refinement = None if loaded.bundle.recipe.refinement == "none" else RefinementTally()

    @abstractmethod
    def _judge(self, scored: ScoredBatch) -> Iterator[tuple[pysam.AlignedSegment, C]]:
        """Pair each record with its call."""

    @abstractmethod
    def _count(self, call: C) -> None:
        """Count one call."""

    @property
    @abstractmethod
    def num_called(self) -> int:
        """Number of called reads."""

    @property
    @abstractmethod
    def called(self) -> set[str]:
        """References with a called read."""

    @property
    def learnt(self) -> Overlap:
        """Whether the model learnt from the reads that it was asked about."""
        return self._comparison.result()

    def go(
        self,
        config: PredictConfig,
        take: Callable[[pysam.AlignedSegment, C], None],
        task: Task,
        clock: Callable[[], float],
    ) -> None:
        """Read and call everything, and judge whether it is complete and to be believed.

        :param take: asked with every record, in order.
        :param clock: seconds, for the time that is left.
        :raises LeechError: records are not accounted for, or the network failed.
        :raises InputError: no read could be called, or more failed than is allowed.
        :raises MismatchError: refinement lowers the reads' correlation with the levels.
        """
        batches = scored_batches(
            self._stream,
            self._loaded,
            replicas(self._loaded.network, choose_devices(config.device, config.gpus)),
            batch_records=config.batch_records,
            workers=config.workers,
            batch_size=config.batch_size,
        )
        start = clock()
        with closing(batches):
            for scored in batches:
                self._hand_on(scored, take)
                task.advance(len(scored.batch.records))
                left = _time_left(self._stream.share_read, clock() - start)
                if left is not None:
                    task.describe(left)
        task.describe("")
        self._stream.settle(self.counts, self.num_called)
        if self.refinement is not None:
            self.refinement.refuse_harm()
        warn_about_new_references(self.called, self._loaded.bundle)
        warn_if_learnt(self.learnt, self._model)

    def _hand_on(self, scored: ScoredBatch, take: Callable[[pysam.AlignedSegment, C], None]) -> None:
        outcomes = []
        for record, call in self._judge(scored):
            take(record, call)
            self._count(call)
            outcomes.append(call.reason or USED)
        self.counts.add_all(outcomes)
        self._agreement.see(scored.batch)
        self._comparison.see(scored.batch.cut.chunks.columns["parent_id"], scored.batch.cut.sample_rates)
        if self.refinement is not None:
            self.refinement.merge(scored.batch.cut.refinement)


class Run(CallLoop[Call]):
    """The calls of a run by a model of two states.

    :ivar tally: calls by reference.
    :ivar histogram: called reads by ``cl``, int64 (256,).
    """

    def __init__(self, model: Path, loaded: LoadedModel, rules: CallRules, stream: ReadStream) -> None:
        super().__init__(model, loaded, stream)
        self._rules = rules
        self.tally = Tally()
        self.histogram: NDArray[np.int64] = np.zeros(256, dtype=np.int64)

    def _judge(self, scored: ScoredBatch) -> Iterator[tuple[pysam.AlignedSegment, Call]]:
        return judge(scored.batch, scored.probabilities, self._rules)

    def _count(self, call: Call) -> None:
        self.tally.count(call)
        if call.likelihood is not None:
            self.histogram[call.likelihood] += 1

    @property
    def num_called(self) -> int:
        """Number of called reads."""
        return int(self.histogram.sum())

    @property
    def called(self) -> set[str]:
        """References with a called read."""
        return {name for name, tally in self.tally.by_reference().items() if tally.num_called}


def _time_left(share: float | None, seconds: float) -> str | None:
    """Return how much of the alignments is read and how long the rest will take, in words."""
    if not share or seconds < _ETA_AFTER_S:
        return None
    return f"{share:.0%} of the BAM, about {format_duration(seconds * (1 - share) / share)} left"
