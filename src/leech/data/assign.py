"""From the options of ``leech data merge`` to the split of every row.

Hides: the order in which options act: what is held out, what is left out and what is dealt. Belongs here: one function per
option over the rows of all corpora; how a deal works is ``splits.py``'s, what is written ``compose.py``'s. Invariants: every
row has one split or one reason to have none; held-out rows, and no others, are the test split; the rows of a parent read lie
in one split or in none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leech.config import nearest
from leech.data.config import MergeConfig
from leech.data.corpus import SPLITS, UNUSED_CODE, Corpus
from leech.data.grouping import GROUPINGS, Groups, group_rows
from leech.data.reasons import LEFT_OUT
from leech.data.splits import NOWHERE, Codes, Deal, Mask, Parents, deal, spanning
from leech.errors import ConfigError, InputError

TEST = SPLITS.index("test")

_REST = 1
"""Purpose of the deal of what is not the test split; the first deal has purpose 0."""


@dataclass(frozen=True)
class Rows:
    """The rows of all corpora that are merged.

    :ivar corpora: in the order of their rows.
    :ivar labels: int64 codes into ``label_names``.
    """

    corpora: Sequence[Corpus]
    parents: Parents
    labels: Codes
    label_names: Sequence[str]

    def __len__(self) -> int:
        return len(self.labels)


class Assignment:
    """The split of every row, filled step by step.

    :ivar split: uint8, codes of ``corpus.SPLITS`` or ``UNUSED_CODE``.
    :ivar left_out: rows by reason.
    """

    def __init__(self, num_rows: int) -> None:
        self.split = np.full(num_rows, UNUSED_CODE, dtype=np.uint8)
        self.open = np.ones(num_rows, dtype=bool)
        self.left_out: dict[str, int] = {}

    def leave_out(self, rows: Mask, reason: str) -> None:
        """Leave out those of the rows that are not left out yet."""
        assert reason in LEFT_OUT
        fresh = rows & (self.open | (self.split != UNUSED_CODE))
        self.split[fresh] = UNUSED_CODE
        self.open &= ~fresh
        if fresh.any():
            self.left_out[reason] = self.left_out.get(reason, 0) + int(fresh.sum())

    def place(self, rows: Mask, split: int) -> None:
        """Give the rows a split."""
        self.split[rows] = split
        self.open &= ~rows


def check_choices(config: MergeConfig) -> None:
    """Refuse options that contradict each other, before any data are looked at.

    :raises ConfigError: naming the options.
    """
    if (config.folds is None) != (config.fold is None):
        raise ConfigError(
            "--folds and --fold belong together: how many folds there are, and which one is the test split.",
            hint="For the first of five: --folds 5 --fold 1.",
        )
    if config.folds is not None and config.fold is not None and config.fold > config.folds:
        raise ConfigError(f"--fold {config.fold} is not among the folds 1 to {config.folds}.")
    rest = [share for place, share in enumerate(config.split) if place != TEST]
    if (config.folds is not None or config.hold_out) and sum(rest) == 0:
        raise ConfigError(
            "The test split is settled by --hold-out or --fold, and --split has no share for what is left.",
            hint="Give a share for train and validation, for example --split 0.8 0.2 0.",
        )


def assign(rows: Rows, config: MergeConfig) -> Assignment:
    """Give every row its split, or leave it out.

    :raises ConfigError: a column or value to hold out that there is not.
    :raises InputError: too few reads or groups for what is asked for.
    """
    result = Assignment(len(rows))
    groups = None if config.split_by == "read" else group_rows(rows.corpora, config.split_by)
    who = Deal(rows.parents, rows.labels, rows.label_names, groups, config.seed)
    held = _held_out(rows, config.hold_out)
    _keep_apart(result, rows.parents, held)
    if config.folds is not None and config.fold is not None:
        # The held-out rows belong to no fold: they are for one last test, when the cross-validation is done.
        result.leave_out(held, "held_out")
        _deal_folds(result, who, config.split, config.folds, config.fold - 1)
    elif config.hold_out:
        result.place(held & result.open, TEST)
        _deal_rest(result, who, config.split)
    else:
        _deal_open(result, who, config.split, purpose=0)
    return result


def _keep_apart(result: Assignment, parents: Parents, held: Mask) -> None:
    """Leave out what is of the same parent read as a held-out row, without being held out."""
    of_held = np.zeros(len(parents.ranks), dtype=bool)
    of_held[parents.codes[held & result.open]] = True
    result.leave_out(of_held[parents.codes] & ~held, "held_out_parent")


def _deal_folds(result: Assignment, who: Deal, shares: Sequence[float], num_folds: int, fold: int) -> None:
    folds = deal(who, result.open, [1.0] * num_folds, purpose=0)
    # Decided by all folds, so that the same reads are left out whichever fold is tested.
    result.leave_out(folds == NOWHERE, "several_groups")
    result.place(folds == fold, TEST)
    _deal_rest(result, who, shares)


def _deal_rest(result: Assignment, who: Deal, shares: Sequence[float]) -> None:
    _deal_open(result, who, [0.0 if place == TEST else share for place, share in enumerate(shares)], purpose=_REST)


def _deal_open(result: Assignment, who: Deal, shares: Sequence[float], *, purpose: int) -> None:
    parts = deal(who, result.open, shares, purpose)
    for split in range(len(shares)):
        result.place(parts == split, split)
    result.leave_out(result.open, "several_groups")
    # A parent may lie both in a group that is tested and in one that is not.
    splits = np.where(result.split == UNUSED_CODE, NOWHERE, result.split.astype(np.int64))
    result.leave_out(spanning(who.parents, splits), "several_groups")


def _held_out(rows: Rows, wanted: Sequence[str]) -> Mask:
    """Return which rows have one of the values that ``--hold-out`` names."""
    held = np.zeros(len(rows), dtype=bool)
    for text in wanted:
        column, equals, values = text.partition("=")
        if not equals or column not in GROUPINGS:
            close = nearest(column, list(GROUPINGS))
            raise ConfigError(
                f"--hold-out '{text}' is not COLUMN=VALUE[,VALUE] with one of the columns {', '.join(GROUPINGS)}.",
                hint=f"Did you mean '{close}'?" if close and equals else "For example: --hold-out flow_cell=FAX12345.",
            )
        groups = group_rows(rows.corpora, column)
        # A name with a comma in it is taken whole.
        for value in [values] if values in groups.names else values.split(","):
            held |= groups.codes == _code(groups, column, value)
    if len(wanted) and held.all():
        raise InputError(
            f"--hold-out takes all {len(rows)} chunks for the test split, so nothing is left to train on.",
            hint="Hold out fewer values.",
        )
    return held


def _code(groups: Groups, column: str, value: str) -> int:
    if value in groups.names:
        return groups.names.index(value)
    close = nearest(value, groups.names)
    shown = ", ".join(groups.names[:10]) + (f" and {len(groups.names) - 10} more" if len(groups.names) > 10 else "")
    raise ConfigError(
        f"--hold-out: no chunk has {column} '{value}'; there are: {shown}.",
        hint=f"Did you mean '{close}'?" if close else "Values are written as 'leech data inspect' shows them.",
    )
