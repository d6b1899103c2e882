"""Calls of more than two states counted by reference.

Belongs here: counts, which add up; what is written of them is in ``writers.py``. Invariant: reads that stand for no read of
their own on a reference (``NOT_A_LOSS``) are not counted, as in ``prediction/tally.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from leech.data.reasons import NOT_A_LOSS, REASONS
from leech.prediction.multiclass.calls import ClassCall


@dataclass
class StateCounts:
    """Reads of one reference by what became of them.

    :ivar num_by_label: called reads, in the order of the labels.
    """

    num_by_label: list[int]
    no_calls: Counter[str] = field(default_factory=Counter)

    @property
    def num_called(self) -> int:
        """Number of reads with a call."""
        return sum(self.num_by_label)

    @property
    def num_no_call(self) -> int:
        """Number of reads without one."""
        return sum(self.no_calls.values())

    def reasons(self) -> dict[str, int]:
        """Return reads without a call by reason, in the order in which records are examined."""
        return {reason: self.no_calls[reason] for reason in REASONS if self.no_calls[reason]}


class ClassTally:
    """Calls by reference.

    :param num_labels: of the model.
    """

    def __init__(self, num_labels: int) -> None:
        self._num_labels = num_labels
        self._groups: dict[str, StateCounts] = {}

    @classmethod
    def of(cls, num_labels: int, groups: Mapping[str, StateCounts]) -> ClassTally:
        """Return the tally of counts that are known already, by reference."""
        tally = cls(num_labels)
        tally._groups = dict(groups)
        return tally

    def count(self, call: ClassCall) -> None:
        """Count one record's call."""
        if call.reason in NOT_A_LOSS or not call.reference:
            return
        counts = self._groups.get(call.reference)
        if counts is None:
            counts = self._groups[call.reference] = StateCounts([0] * self._num_labels)
        if call.state is None:
            counts.no_calls[call.reason] += 1
        else:
            counts.num_by_label[call.state] += 1

    def by_reference(self) -> dict[str, StateCounts]:
        """Return the counts in the order of the references' names."""
        return dict(sorted(self._groups.items()))

    def total(self) -> StateCounts:
        """Return all references together."""
        whole = StateCounts([0] * self._num_labels)
        for counts in self._groups.values():
            whole.num_by_label = [a + b for a, b in zip(whole.num_by_label, counts.num_by_label, strict=True)]
            whole.no_calls.update(counts.no_calls)
        return whole
