"""From the options of ``leech data merge`` to the split of every row.

Hides: the order in which options act: what is held out, what is left out and what is dealt. Belongs here: one function per
option over the rows of all corpora; how a deal works is ``splits.py``'s, what is written ``compose.py``'s. Invariants: every
row has one split or one reason to have none; held-out rows, and no others, are the test split; the rows of a parent read lie
in one split or in none.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from leech.config import nearest
from leech.console import logger
from leech.data.config import MergeConfig
from leech.data.corpus import SPLITS, UNUSED_CODE, Corpus
from leech.data.grouping import GROUPINGS, Groups, group_rows
from leech.data.reasons import LEFT_OUT
from leech.data.splits import (
    NOWHERE,
    Codes,
    Deal,
    Mask,
    Parents,
    deal,
    extremes,
    keep_first,
    reshuffled,
    spanning,
    words,
)
from leech.errors import ConfigError, InputError

TEST = SPLITS.index("test")

_REST, _SUBSAMPLE, _BALANCE = 1, 2, 3
"""Purposes of choices by rank, so that each is independent of the others; the first deal has purpose 0."""

_SAME_CHUNK = ("read_id", "focus_raw_sample")
"""Columns that tell one chunk from every other."""


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

    def path_of(self, row: int) -> Path:
        """Return the folder of the corpus that holds a row."""
        ends = np.cumsum([len(corpus) for corpus in self.corpora])
        return self.corpora[int(np.searchsorted(ends, row, side="right"))].path


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
    if config.balance_by is not None and not config.balance and config.subsample is None:
        raise ConfigError(
            f"--balance-by {config.balance_by} says what to count by, but nothing is to be counted.",
            hint="Add --balance, --subsample N or both.",
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
    _drop_repeated(result, rows)
    if config.subsample is not None:
        _subsample(result, rows, config.subsample, config.balance_by)
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
    if config.balance:
        _balance(result, rows, config.balance_by)
    return result


def _drop_repeated(result: Assignment, rows: Rows) -> None:
    """Keep the first of the rows that are of one read at one place of its signal.

    :raises InputError: such rows have different labels.
    """
    columns = {name: np.concatenate([corpus.column(name) for corpus in rows.corpora]) for name in _SAME_CHUNK}
    high, low = words(columns["read_id"])
    place = columns["focus_raw_sample"]
    order = np.lexsort((place, low, high))
    same = np.zeros(len(order), dtype=bool)
    same[1:] = (np.diff(high[order]) == 0) & (np.diff(low[order]) == 0) & (np.diff(place[order]) == 0)
    clash = np.flatnonzero(same[1:] & (np.diff(rows.labels[order]) != 0))
    if len(clash):
        pair = sorted(order[clash[0] : clash[0] + 2].tolist())
        told = " and ".join(f"'{rows.label_names[rows.labels[row]]}' in '{rows.path_of(row)}'" for row in pair)
        raise InputError(
            f"{len(clash)} reads have two labels: read {uuid.UUID(bytes=columns['read_id'][pair[0]].tobytes())} is {told}. "
            "No network can learn from that, and no test can be right.",
            hint="One library was prepared under two labels, or the same BAM twice; prepare the wrong one again.",
        )
    repeated = np.zeros(len(order), dtype=bool)
    repeated[order] = same
    result.leave_out(repeated, "repeated")
    if repeated.any():
        logger.warning("%d chunks are of reads that another corpus holds too, and are left out.", repeated.sum())
    lowest, highest = extremes(rows.parents, rows.labels)
    if (mixed := int((lowest < highest).sum())) and len(rows.corpora) > 1:
        logger.warning("%d parent reads have chunks of different labels; each of them lies in one split.", mixed)


def _subsample(result: Assignment, rows: Rows, limit: int, balance_by: str | None) -> None:
    group, num_groups = _balance_groups(rows, balance_by)
    cells = group * len(rows.label_names) + rows.labels
    limits = np.full(num_groups * len(rows.label_names), limit)
    _limit(result, rows, result.open, cells, limits, _SUBSAMPLE, "subsampled")


def _balance(result: Assignment, rows: Rows, balance_by: str | None) -> None:
    """Leave out, in every split and group, what there is more of one label than of the rarest."""
    group, num_groups = _balance_groups(rows, balance_by)
    num_labels = len(rows.label_names)
    used = result.split != UNUSED_CODE
    cells = (np.where(used, result.split, 0) * num_groups + group) * num_labels + rows.labels
    counts = np.bincount(cells[used], minlength=len(SPLITS) * num_groups * num_labels).reshape(-1, num_labels)
    limits = np.repeat(counts.min(axis=1), num_labels)
    _limit(result, rows, used, cells, limits, _BALANCE, "unbalanced")


def _balance_groups(rows: Rows, balance_by: str | None) -> tuple[Codes, int]:
    if balance_by is None:
        return np.zeros(len(rows), dtype=np.int64), 1
    groups = group_rows(rows.corpora, balance_by)
    return groups.codes, len(groups.names)


def _limit(
    result: Assignment, rows: Rows, chosen: Mask, cells: Codes, limits: Codes, purpose: int, reason: str
) -> None:
    """Leave out what of the chosen rows exceeds the limit of its cell, by rank of the parent read and then by read id."""
    ranks = reshuffled(rows.parents.ranks, purpose)[rows.parents.codes]
    high, low = words(np.concatenate([corpus.column("read_id") for corpus in rows.corpora]))
    surplus = np.zeros(len(rows), dtype=bool)
    surplus[chosen] = ~keep_first(cells[chosen], (ranks[chosen], high[chosen], low[chosen]), limits)
    result.leave_out(surplus, reason)


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
