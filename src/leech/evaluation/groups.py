"""Metrics group by group: references, isoacceptors, amino acids, flow cells, samples and junction strata.

Hides: how rows are put into groups and how the worst group is found. Belongs here: groups of scored reads and their rows;
metrics of all reads together are in ``summary.py``. Invariants: groups come in the order of their names; a cell that a
group's reads do not define is None; intervals are closed forms, because groups are too many or too small to resample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.console import Table
from leech.data.corpus import Corpus
from leech.data.grouping import Groups, groups_in_name
from leech.evaluation import metrics
from leech.evaluation.intervals import Estimate, auroc_interval, cell, wilson
from leech.evaluation.metrics import Bools, Confusion, Floats, Ranking

MIN_GROUP_READS = 20
"""Reads of either class that a group needs before it can be named the worst: below, chance names it."""

_LEVELS = ("isoacceptor", "amino_acid")
"""What references are put together to; of isodecoders there are as many, or nearly."""

JUNCTION_STRATA = ["exact", "disrupted", "unmapped"]
"""Names of the corpus column ``junction_indel``: motif covered without an indel, with one, not wholly covered."""


@dataclass(frozen=True)
class GroupMetrics:
    """Metrics of the reads of one group.

    :ivar auroc: with DeLong's interval.
    :ivar accuracy: at the operating point, with Wilson's interval; ``tpr`` and ``fpr`` likewise.
    :ivar balanced_accuracy: at the operating point.
    """

    name: str
    num_reads: int
    num_positive: int
    auroc: Estimate
    accuracy: Estimate
    balanced_accuracy: float | None
    tpr: Estimate
    fpr: Estimate

    @property
    def can_be_worst(self) -> bool:
        """Whether it has enough reads of both classes."""
        return min(self.num_positive, self.num_reads - self.num_positive) >= MIN_GROUP_READS

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "name": self.name,
            "num_reads": self.num_reads,
            "num_positive": self.num_positive,
            "auroc": self.auroc.to_mapping(),
            "accuracy": self.accuracy.to_mapping(),
            "balanced_accuracy": self.balanced_accuracy,
            "tpr": self.tpr.to_mapping(),
            "fpr": self.fpr.to_mapping(),
        }


@dataclass(frozen=True)
class Grouping:
    """All groups of one kind.

    :ivar name: ``reference``, ``isoacceptor``, ``amino_acid``, ``flow_cell``, ``sample`` or ``junction``.
    :ivar num_ungrouped: reads that belong to none, because their reference's name does not tell.
    """

    name: str
    groups: tuple[GroupMetrics, ...]
    num_ungrouped: int

    @property
    def worst(self) -> GroupMetrics | None:
        """The group of lowest AUROC among those with enough reads of both classes; None where there is none."""
        judged = [group for group in self.groups if group.auroc.value is not None and group.can_be_worst]
        return min(judged, key=lambda group: (group.auroc.value or 0.0, group.name), default=None)

    def table(self, positive_label: str) -> Table:
        """Return one row per group."""
        # A group that stands alone is the worst of nothing.
        worst = self.worst if sum(group.can_be_worst for group in self.groups) > 1 else None
        rows = tuple(
            (
                group.name,
                str(group.num_reads),
                str(group.num_positive),
                *group.auroc.cells(),
                *group.accuracy.cells(),
                cell(group.balanced_accuracy),
                cell(group.tpr.value),
                cell(group.fpr.value),
                "worst" if group is worst else "",
            )
            for group in self.groups
        )
        columns = (
            self.name.replace("_", " "),
            "reads",
            positive_label,
            "AUROC",
            "95 % interval",
            "accuracy",
            "95 % interval",
            "balanced accuracy",
            "TPR",
            "FPR",
            "",
        )
        rest = f" ({self.num_ungrouped} reads belong to none)" if self.num_ungrouped else ""
        return Table(title=f"By {columns[0]}{rest}", columns=columns, rows=rows)


class Control(NamedTuple):
    """Reads of all samples that hold one label only.

    :ivar samples: their names.
    :ivar called_positive: share called positive: the FPR of the 0 % control, the TPR of the 100 % control.
    """

    samples: tuple[str, ...]
    num_reads: int
    called_positive: Estimate

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "samples": list(self.samples),
            "num_reads": self.num_reads,
            "called_positive": self.called_positive.to_mapping(),
        }


def corpus_groups(corpus: Corpus, rows: NDArray[np.int64]) -> list[Groups]:
    """Return the groups that rows of a corpus are in; code -1 stands for none."""
    columns = corpus.gather(rows, ["reference", "flow_cell", "sample", "junction_indel"])
    codes = {name: values.astype(np.int64) for name, values in columns.items()}
    named = [
        Groups("reference", codes["reference"], corpus.categories["reference"]),
        *(_told_by_name(level, codes["reference"], corpus.categories["reference"]) for level in _LEVELS),
        *(Groups(name, codes[name], corpus.categories[name]) for name in ("flow_cell", "sample")),
    ]
    return [*named, Groups("junction", codes["junction_indel"], JUNCTION_STRATA)]


def _told_by_name(level: str, references: NDArray[np.int64], names: Sequence[str]) -> Groups:
    """Return groups by what the names of references tell, as predict's roll-up has them."""
    told = [groups_in_name(name)[level] for name in names]
    groups = sorted(set(told) - {""})
    codes = np.array([groups.index(name) if name else -1 for name in told], dtype=np.int64)
    return Groups(level, codes[references], groups)


def measure_groups(positive: Bools, p: Floats, called: Bools, groups: Groups) -> Grouping:
    """Measure every group of one kind.

    :param groups: codes of the scored reads, int64 (n,); -1 for none.
    """
    found, num_ungrouped = rows_by_group(groups)
    measured = [_measure_group(name, positive[rows], p[rows], called[rows]) for name, rows in found]
    return Grouping(groups.grouping, tuple(sorted(measured, key=lambda group: group.name)), num_ungrouped)


def rows_by_group(groups: Groups) -> tuple[list[tuple[str, NDArray[np.int64]]], int]:
    """Return name and rows of every group that has some, and how many rows belong to none."""
    # Sorted once: a mask per group would cost reads x groups.
    order = np.argsort(groups.codes, kind="stable")
    starts = np.flatnonzero(np.diff(groups.codes[order], prepend=-2))
    found: list[tuple[str, NDArray[np.int64]]] = []
    num_ungrouped = 0
    for rows in np.split(order, starts[1:]) if len(order) else []:
        code = int(groups.codes[rows[0]])
        if code < 0:
            num_ungrouped = len(rows)
        else:
            found.append((groups.names[code], rows))
    return found, num_ungrouped


def _measure_group(name: str, positive: Bools, p: Floats, called: Bools) -> GroupMetrics:
    counts = metrics.confusion(positive, called)
    return GroupMetrics(
        name=name,
        num_reads=len(p),
        num_positive=int(positive.sum()),
        auroc=Estimate(metrics.auroc(Ranking(positive, p).curve()), auroc_interval(positive, p)),
        accuracy=Estimate(counts.accuracy, wilson(counts.tp + counts.tn, len(p))),
        balanced_accuracy=counts.balanced_accuracy,
        tpr=true_positive_rate(counts),
        fpr=false_positive_rate(counts),
    )


def true_positive_rate(counts: Confusion) -> Estimate:
    """Return the TPR with Wilson's interval."""
    return Estimate(counts.tpr, wilson(counts.tp, counts.tp + counts.fn))


def false_positive_rate(counts: Confusion) -> Estimate:
    """Return the FPR with Wilson's interval."""
    return Estimate(counts.fpr, wilson(counts.fp, counts.fp + counts.tn))


def controls(samples: Grouping) -> tuple[Control | None, Control | None]:
    """Return the 0 % and the 100 % control: the samples of one label only; None where there is no such sample."""
    empty = [group for group in samples.groups if group.num_positive == 0]
    full = [group for group in samples.groups if group.num_positive == group.num_reads]
    return _control(empty, "fpr"), _control(full, "tpr")


def _control(groups: Sequence[GroupMetrics], rate: str) -> Control | None:
    if not groups:
        return None
    num_reads = sum(group.num_reads for group in groups)
    called = sum(round((getattr(group, rate).value or 0.0) * group.num_reads) for group in groups)
    share = Estimate(called / num_reads, wilson(called, num_reads))
    return Control(tuple(group.name for group in groups), num_reads, share)
