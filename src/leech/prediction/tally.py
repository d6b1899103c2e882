"""Calls counted by reference, and rolled up from references to larger groups.

Hides: whether a table or a name tells what a reference belongs to. Belongs here: counts, which add up; what a name tells is in
``data/grouping.py``, what follows from counts is worked out in ``fractions.py`` and written in ``summary.py``. Invariants:
reads that stand for no read of their own on a reference (``NOT_A_LOSS``) are not counted; a read is counted once at each
level.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leech.console import logger
from leech.data.grouping import LEVELS, groups_in_name
from leech.data.reasons import NOT_A_LOSS, REASONS
from leech.errors import InputError
from leech.prediction.calls import Call
from leech.prediction.tsv import read_tsv

UNASSIGNED = "unassigned"
"""The group of references that neither their names nor a table assigns to one."""


@dataclass
class GroupTally:
    """Reads of one group by what became of them."""

    num_positive: int = 0
    num_negative: int = 0
    no_calls: Counter[str] = field(default_factory=Counter)

    @property
    def num_called(self) -> int:
        """Number of reads with a call."""
        return self.num_positive + self.num_negative

    @property
    def num_no_call(self) -> int:
        """Number of reads without one."""
        return sum(self.no_calls.values())

    def reasons(self) -> dict[str, int]:
        """Return reads without a call by reason, in the order in which records are examined."""
        return {reason: self.no_calls[reason] for reason in REASONS if self.no_calls[reason]}

    def add(self, other: GroupTally) -> None:
        """Add the reads of another group."""
        self.num_positive += other.num_positive
        self.num_negative += other.num_negative
        self.no_calls.update(other.no_calls)


class Tally:
    """Calls by reference."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupTally] = {}

    def count(self, call: Call) -> None:
        """Count one record's call."""
        if call.reason in NOT_A_LOSS or not call.reference:
            return
        group = self._groups.get(call.reference)
        if group is None:
            group = self._groups[call.reference] = GroupTally()
        if call.positive is None:
            group.no_calls[call.reason] += 1
        elif call.positive:
            group.num_positive += 1
        else:
            group.num_negative += 1

    def by_reference(self) -> dict[str, GroupTally]:
        """Return the groups in the order of their names."""
        return dict(sorted(self._groups.items()))

    def num_called(self, reference: str) -> int:
        """Return the number of called reads of one reference, at once however many references there are."""
        return self._groups[reference].num_called

    def total(self) -> GroupTally:
        """Return all references together."""
        return _sum(self._groups.values())

    def rolled_up(self, groups: Mapping[str, Mapping[str, str]], level: str) -> dict[str, GroupTally]:
        """Return larger groups in the order of their names, unassigned references last.

        :param groups: by reference, its group by level; see :func:`assign_groups`.
        """
        members: dict[str, list[GroupTally]] = {}
        for reference, tally in self._groups.items():
            members.setdefault(groups[reference][level] or UNASSIGNED, []).append(tally)
        names = sorted(members, key=lambda name: (name == UNASSIGNED, name))
        return {name: _sum(members[name]) for name in names}

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            name: {"positive": tally.num_positive, "negative": tally.num_negative, "no_calls": tally.reasons()}
            for name, tally in self.by_reference().items()
        }

    @classmethod
    def from_mapping(cls, content: Mapping[str, Any]) -> Tally:
        """Return the tally that :meth:`to_mapping` describes."""
        tally = cls()
        for name, numbers in content.items():
            no_calls = Counter({str(reason): int(number) for reason, number in numbers["no_calls"].items()})
            tally._groups[name] = GroupTally(int(numbers["positive"]), int(numbers["negative"]), no_calls)
        return tally


def _sum(tallies: Iterable[GroupTally]) -> GroupTally:
    total = GroupTally()
    for tally in tallies:
        total.add(tally)
    return total


def assign_groups(references: Iterable[str], table: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Return the groups of every reference by level, empty where there is none: the table's, else the name's.

    :param table: of :func:`read_reference_groups`; empty for none.
    """
    return {
        reference: {**groups_in_name(reference), **{k: v for k, v in table.get(reference, {}).items() if v}}
        for reference in references
    }


def warn_of_unassigned(groups: Mapping[str, Mapping[str, str]]) -> None:
    """Name the references that no amino acid is known of."""
    unknown = sorted(reference for reference, levels in groups.items() if not levels["amino_acid"])
    if unknown:
        logger.warning(
            "The names of %d of %d references tell no amino acid, so they are '%s' in the roll-up: %s%s. "
            "--reference-groups says where they belong.",
            len(unknown),
            len(groups),
            UNASSIGNED,
            ", ".join(unknown[:5]),
            f" and {len(unknown) - 5} more" if len(unknown) > 5 else "",
        )


def read_reference_groups(path: Path) -> dict[str, dict[str, str]]:
    """Read the TSV that says which groups references belong to.

    :raises InputError: unreadable, no column ``reference``, none of the levels, an unknown column, or a reference twice.
    """
    lines = read_tsv(path, "the table of reference groups")
    columns = lines[0][1]
    known = ("reference", *LEVELS)
    unknown = [column for column in columns if column not in known]
    if "reference" not in columns or unknown or len(columns) < 2:
        raise InputError(
            f"'{path}' has the columns {', '.join(columns) or 'none'}; "
            + (f"unknown: {', '.join(unknown)}." if unknown else "reference and one of the levels are needed."),
            hint=f"Its header line names 'reference' and any of {', '.join(LEVELS)}, separated by tabs.",
        )
    groups: dict[str, dict[str, str]] = {}
    for number, cells in lines[1:]:
        row = dict(zip(columns, cells, strict=True))
        reference = row.pop("reference")
        if not reference or reference in groups:
            what = "names no reference" if not reference else f"names reference '{reference}' a second time"
            raise InputError(f"'{path}' line {number} {what}.")
        groups[reference] = row
    return groups
