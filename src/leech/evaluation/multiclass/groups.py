"""Metrics of more than two states group by group: references, isoacceptors, flow cells, samples and the others.

Hides: how the worst group is found. Belongs here: groups of scored reads and their rows; how reads come into groups is in
``evaluation/groups.py``. Invariants: groups come in the order of their names; a cell that a group's reads do not define, such
as the AUROC where a class is missing, is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from leech.console import Table
from leech.data.grouping import Groups
from leech.evaluation.groups import MIN_GROUP_READS, rows_by_group
from leech.evaluation.intervals import Estimate, cell, wilson
from leech.evaluation.metrics import Floats, auroc
from leech.evaluation.multiclass.metrics import Classes, OneVersusRest, confusion_matrix, mean_of


@dataclass(frozen=True)
class ClassGroup:
    """Metrics of the reads of one group.

    :ivar accuracy: with Wilson's interval.
    :ivar auroc: of each class against the rest, averaged; None where the group lacks a class.
    """

    name: str
    num_by_label: dict[str, int]
    accuracy: Estimate
    balanced_accuracy: float | None
    auroc: float | None

    @property
    def num_reads(self) -> int:
        """Reads of all labels."""
        return sum(self.num_by_label.values())

    @property
    def can_be_worst(self) -> bool:
        """Whether it has enough reads of every class."""
        return min(self.num_by_label.values()) >= MIN_GROUP_READS

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "name": self.name,
            "num_reads": self.num_reads,
            "num_by_label": self.num_by_label,
            "accuracy": self.accuracy.to_mapping(),
            "balanced_accuracy": self.balanced_accuracy,
            "macro_auroc": self.auroc,
        }


@dataclass(frozen=True)
class ClassGrouping:
    """All groups of one kind.

    :ivar name: as of :class:`leech.evaluation.groups.Grouping`.
    :ivar num_ungrouped: reads that belong to none, because their reference's name does not tell.
    """

    name: str
    groups: tuple[ClassGroup, ...]
    num_ungrouped: int

    @property
    def worst(self) -> ClassGroup | None:
        """The group of lowest AUROC among those with enough reads of every class; None where there is none."""
        judged = [group for group in self.groups if group.auroc is not None and group.can_be_worst]
        return min(judged, key=lambda group: (group.auroc or 0.0, group.name), default=None)

    def table(self) -> Table:
        """Return one row per group."""
        # A group that stands alone is the worst of nothing.
        worst = self.worst if sum(group.can_be_worst for group in self.groups) > 1 else None
        rows = tuple(
            (
                group.name,
                str(group.num_reads),
                *group.accuracy.cells(),
                cell(group.balanced_accuracy),
                cell(group.auroc),
                "worst" if group is worst else "",
            )
            for group in self.groups
        )
        name = self.name.replace("_", " ")
        rest = f" ({self.num_ungrouped} reads belong to none)" if self.num_ungrouped else ""
        columns = (name, "reads", "accuracy", "95 % interval", "balanced accuracy", "macro AUROC", "")
        return Table(title=f"By {name}{rest}", columns=columns, rows=rows)


def measure_groups(truth: Classes, p: Floats, called: Classes, groups: Groups, labels: Sequence[str]) -> ClassGrouping:
    """Measure every group of one kind.

    :param groups: codes of the scored reads, int64 (n,); -1 for none.
    """
    found, num_ungrouped = rows_by_group(groups)
    measured = [_measure_group(name, truth[rows], p[rows], called[rows], labels) for name, rows in found]
    return ClassGrouping(groups.grouping, tuple(sorted(measured, key=lambda group: group.name)), num_ungrouped)


def _measure_group(name: str, truth: Classes, p: Floats, called: Classes, labels: Sequence[str]) -> ClassGroup:
    counts = confusion_matrix(truth, called, len(labels))
    return ClassGroup(
        name=name,
        num_by_label=dict(zip(labels, counts.truths.astype(np.int64).tolist(), strict=True)),
        accuracy=Estimate(counts.accuracy, wilson(float(np.trace(counts.counts)), len(p))),
        balanced_accuracy=counts.balanced_accuracy,
        auroc=mean_of([auroc(curve) for curve in OneVersusRest(truth, p).curves()]),
    )
