"""One run called by a model of more than two states.

Belongs here: what is counted of such calls; the loop is ``prediction/run.py``'s. Invariant: as there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pysam

from leech.data.stream import ReadStream
from leech.models.bundle import LoadedModel
from leech.prediction.multiclass.calls import ClassCall, ClassRules, judge
from leech.prediction.multiclass.tally import ClassTally
from leech.prediction.run import CallLoop
from leech.prediction.scoring import ScoredBatch


class ClassRun(CallLoop[ClassCall]):
    """The calls of a run by a model of more than two states.

    :ivar tally: calls by reference.
    """

    def __init__(self, model: Path, loaded: LoadedModel, rules: ClassRules, stream: ReadStream) -> None:
        super().__init__(model, loaded, stream)
        self._rules, self._num_labels = rules, len(loaded.bundle.labels)
        self.tally = ClassTally(self._num_labels)
        self._num_called = 0

    def _judge(self, scored: ScoredBatch) -> Iterator[tuple[pysam.AlignedSegment, ClassCall]]:
        return judge(scored.batch, scored.probabilities.reshape(-1, self._num_labels), self._rules)

    def _count(self, call: ClassCall) -> None:
        self.tally.count(call)
        self._num_called += call.is_called

    @property
    def num_called(self) -> int:
        """Number of called reads."""
        return self._num_called

    @property
    def called(self) -> set[str]:
        """References with a called read."""
        return {name for name, counts in self.tally.by_reference().items() if counts.num_called}
