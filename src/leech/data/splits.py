"""Dealing chunks to splits, so that nothing that must stay apart is shared.

Hides: keyed hashes, stratification, and how whole groups are dealt evenly. Belongs here: arrays in, split codes out; which
corpora are joined and what is written is ``compose.py``'s, what groups are ``grouping.py``'s. Invariants: the rows of a
parent read lie in one split or in none; with whole groups the rows of a group do; everything depends on parent ids, labels,
names of groups, options and seed alone, so neither on the order of rows nor on the machine. Rows are parallel arrays of
length num_rows; masks are bool over them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.data.grouping import Groups
from leech.errors import InputError

Mask = NDArray[np.bool_]
Codes = NDArray[np.int64]

NOWHERE = -1
"""The part of a row that was not dealt."""

_DEALS = 32
"""Orders in which groups are dealt; the one that meets the shares best is kept."""

_DEALT_GROUPS = 20000
"""With more groups than this over all orders, fewer orders are tried: each costs microseconds per group."""


class Parents(NamedTuple):
    """The parent reads behind the rows.

    :ivar codes: int64 (num_rows,), positions in the ascending list of parent ids.
    :ivar ranks: uint64 (num_parents,), a hash of id and seed, by which parents are put in order.
    """

    codes: Codes
    ranks: NDArray[np.uint64]


class Deal(NamedTuple):
    """Who is dealt with.

    :ivar labels: label codes of the rows.
    :ivar label_names: by code.
    :ivar groups: what stays whole beside parents; None where parents are all.
    :ivar seed: of all hashes.
    """

    parents: Parents
    labels: Codes
    label_names: Sequence[str]
    groups: Groups | None
    seed: int


def words(ids: NDArray[np.uint8]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return ids of 16 bytes as two numbers whose order is that of the bytes."""
    halves = np.ascontiguousarray(ids).view(">u8").astype(np.uint64)
    return halves[:, 0], halves[:, 1]


def identify_parents(parent_ids: NDArray[np.uint8], seed: int) -> Parents:
    """Number the parent reads and rank them by a keyed hash.

    :param parent_ids: uint8 (num_rows, 16).
    """
    high, low = words(parent_ids)
    order = np.lexsort((low, high))
    first = np.ones(len(order), dtype=bool)
    first[1:] = (np.diff(high[order]) != 0) | (np.diff(low[order]) != 0)
    codes = np.empty(len(order), dtype=np.int64)
    codes[order] = np.cumsum(first) - 1
    unique = parent_ids[order[first]].tobytes()
    ranks = [_hash(unique[start : start + 16], seed) for start in range(0, len(unique), 16)]
    return Parents(codes, np.array(ranks, dtype=np.uint64))


def _hash(name: bytes, seed: int) -> int:
    return int.from_bytes(hashlib.blake2b(name, digest_size=8, key=seed.to_bytes(8, "little")).digest(), "big")


def reshuffled(ranks: NDArray[np.uint64], purpose: int) -> NDArray[np.uint64]:
    """Return other ranks made from these, so that one choice by rank says nothing about the next.

    The finaliser of SplitMix64 (Steele, Lea and Flood 2014), which is a bijection.
    """
    mixed = ranks + np.uint64((purpose * 0x9E3779B97F4A7C15) % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def keep_first(cells: Codes, keys: Sequence[NDArray[np.uint64]], limits: Codes) -> Mask:
    """Keep, of each cell, the rows of lowest keys, as many as its limit allows; equal keys in the order of rows.

    :param cells: cell of each row, from 0.
    :param keys: of each row, the first one first.
    :param limits: by cell.
    """
    order = np.lexsort((*reversed(keys), cells))
    sizes = np.bincount(cells, minlength=len(limits))
    starts = np.cumsum(sizes) - sizes
    keep = np.empty(len(cells), dtype=bool)
    keep[order] = np.arange(len(cells)) - starts[cells[order]] < limits[cells[order]]
    return keep


def deal(who: Deal, chosen: Mask, shares: Sequence[float], purpose: int) -> Codes:
    """Deal the chosen rows to parts of the given shares; rows not dealt get :data:`NOWHERE`.

    Parents are ordered by rank within their label and cut at the cumulative shares, so each share is met to within one read
    per label; a parent of several labels is dealt with those of its lowest label code. Groups are dealt whole, so that the
    share of every label's rows is met as well as groups allow; a parent whose groups lie in different parts is not dealt.

    :param shares: at least one above 0; they are divided by their sum.
    :param purpose: deals of different purpose are independent of each other; 0 is the first.
    :raises InputError: fewer groups, in all or of a label, than parts that get a share.
    """
    scaled = np.asarray(shares, dtype=np.float64) / np.sum(shares)
    parts = np.full(len(chosen), NOWHERE, dtype=np.int64)
    if who.groups is None:
        parts[chosen] = _deal_parents(who, chosen, scaled, purpose)[who.parents.codes[chosen]]
        return parts
    parts[chosen] = _deal_groups(who, chosen, scaled, purpose)[who.groups.codes[chosen]]
    parts[spanning(who.parents, parts)] = NOWHERE
    return parts


def spanning(parents: Parents, parts: Codes) -> Mask:
    """Return which dealt rows belong to a parent whose rows were dealt to more than one part."""
    dealt = parts != NOWHERE
    lowest, highest = extremes(parents, parts, dealt)
    torn: Mask = dealt & (lowest != highest)[parents.codes]
    return torn


def extremes(parents: Parents, values: Codes, chosen: Mask | None = None) -> tuple[Codes, Codes]:
    """Return the lowest and the highest value of each parent's chosen rows; a parent without any has the lowest above."""
    codes = parents.codes if chosen is None else parents.codes[chosen]
    values = values if chosen is None else values[chosen]
    lowest = np.full(len(parents.ranks), np.iinfo(np.int64).max)
    highest = np.full(len(parents.ranks), np.iinfo(np.int64).min)
    np.minimum.at(lowest, codes, values)
    np.maximum.at(highest, codes, values)
    return lowest, highest


def _deal_parents(who: Deal, chosen: Mask, shares: NDArray[np.float64], purpose: int) -> Codes:
    """Return the part of every parent; of parents without chosen rows it means nothing."""
    stratum = np.full(len(who.parents.ranks), len(who.label_names), dtype=np.int64)
    np.minimum.at(stratum, who.parents.codes[chosen], who.labels[chosen])
    ranks = who.parents.ranks if purpose == 0 else reshuffled(who.parents.ranks, purpose)
    result = np.full(len(stratum), NOWHERE, dtype=np.int64)
    for label in range(len(who.label_names)):
        members = np.flatnonzero(stratum == label)
        members = members[np.argsort(ranks[members], kind="stable")]
        edges = np.floor(np.cumsum(shares) * len(members) + 0.5).astype(np.int64)
        result[members] = np.searchsorted(edges[:-1], np.arange(len(members)), side="right")
    return result


def _deal_groups(who: Deal, chosen: Mask, shares: NDArray[np.float64], purpose: int) -> Codes:
    """Return the part of every group; of groups without chosen rows it means nothing."""
    assert who.groups is not None
    names, num_labels = who.groups.names, len(who.label_names)
    cells = who.groups.codes[chosen] * num_labels + who.labels[chosen]
    counts = np.bincount(cells, minlength=len(names) * num_labels).reshape(len(names), num_labels)
    there = np.flatnonzero(counts.sum(axis=1))
    wanted = np.flatnonzero(shares > 0)
    _require_enough_groups(who, counts, len(wanted))
    result = np.full(len(names), NOWHERE, dtype=np.int64)
    totals = np.maximum(counts.sum(axis=0), 1)
    fractions = counts[there] / totals
    best = np.inf
    for attempt in range(min(_DEALS, max(1, _DEALT_GROUPS // len(there)))):
        ranks = [_hash(f"{purpose}/{attempt}/{names[group]}".encode(), who.seed) for group in there]
        order = np.argsort(np.array(ranks, dtype=np.uint64), kind="stable")
        parts, cost = _deal_in_order(fractions[order], shares[wanted])
        if cost < best:
            best = cost
            result[there[order]] = wanted[parts]
    return result


def _deal_in_order(fractions: NDArray[np.float64], shares: NDArray[np.float64]) -> tuple[Codes, float]:
    """Give each group to the part that lacks most of what the group holds.

    :param fractions: share of each label's rows that is in each group, shape (num_groups, num_labels).
    :returns: part of each group; and how far off the shares are, where a part without a label outweighs all else.
    """
    held = fractions > 0
    still = held.sum(axis=0)
    filled = np.zeros((len(shares), fractions.shape[1]))
    parts = np.empty(len(fractions), dtype=np.int64)
    for place, group in enumerate(fractions):
        lack = (shares[:, None] - filled) @ group
        empty = (filled == 0) & held[place]
        # The last groups of a label are for the parts that have none of it.
        urgent = held[place] & (still <= (filled == 0).sum(axis=0))
        needy = (empty & urgent).sum(axis=1)
        candidates = np.flatnonzero(needy == needy.max())
        parts[place] = candidates[np.argmax(lack[candidates])]
        filled[parts[place]] += group
        still -= held[place]
    present = held.any(axis=0)
    holes = (filled == 0) & present
    return parts, float(np.abs(filled - shares[:, None])[:, present].sum() + 100 * holes.sum())


def _require_enough_groups(who: Deal, counts: NDArray[np.int64], num_parts: int) -> None:
    assert who.groups is not None
    num_groups = int((counts.sum(axis=1) > 0).sum())
    by_label = {name: int((counts[:, code] > 0).sum()) for code, name in enumerate(who.label_names)}
    by_label = {name: number for name, number in by_label.items() if number}
    if num_groups >= num_parts and all(number >= num_parts for number in by_label.values()):
        return
    listed = ", ".join(f"{number} hold '{name}'" for name, number in by_label.items())
    raise InputError(
        f"--split-by {who.groups.grouping}: {num_groups} groups cannot be dealt whole to {num_parts} parts so that each has "
        f"every label: {listed or 'none is left'}.",
        hint="Ask for fewer parts (a share of 0 asks for none, --folds for K), or choose another --split-by.",
    )
