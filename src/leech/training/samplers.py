"""Which rows an epoch holds, in which order, and which of them a rank takes.

Hides: the draw. Belongs here: functions of (rows, seed, epoch) that every rank computes alike, so that ranks need not tell
each other; reading rows is ``leech.data.batches``'s. Invariants: an epoch is drawn as a whole, and the shares of all ranks
are exactly that epoch; a draw with weights takes each row the expected number of times, rounded down or up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK_ROWS = 256
"""Neighbouring rows that ``blocks`` keeps together."""

POOL_BLOCKS = 64
"""Blocks whose rows ``blocks`` mixes: about as many rows as must be in memory at a time."""


class Part(NamedTuple):
    """Rows that one forward pass takes.

    :ivar rows: corpus rows, int64 (n,), at least one.
    :ivar owners: the numbers that their noise belongs to, int64 (n,); see :func:`noise_owners`.
    :ivar counts: False for a row that stands in for none, so that a rank without rows takes part in the step.
    """

    rows: NDArray[np.int64]
    owners: NDArray[np.int64]
    counts: bool


class Weights(NamedTuple):
    """How often each row is drawn.

    :ivar share: of the draws that a row is expected to get, float64 (n,), summing to 1.
    :ivar cell: the combination of groups that a row belongs to, int64 (n,).
    """

    share: NDArray[np.float64]
    cell: NDArray[np.int64]


def balanced_weights(groups: Sequence[NDArray[np.int64]], base: NDArray[np.float64] | None = None) -> Weights:
    """Return weights by which each combination of groups that occurs is drawn equally often.

    :param groups: arrays of group codes, each int64 (n,).
    :param base: weights of the rows within a combination; None for all alike.
    """
    # One number per combination: rows of several are sorted twenty times as slowly.
    combined = np.zeros(len(groups[0]), dtype=np.int64)
    for group in groups:
        lowest = group.min(initial=0)
        combined = combined * (int(group.max(initial=0)) - int(lowest) + 1) + (group - lowest)
    cell = np.unique(combined, return_inverse=True)[1].reshape(-1)
    within = np.ones(len(cell)) if base is None else base
    totals = np.bincount(cell, weights=within)
    return Weights(np.asarray(within / totals[cell] / len(totals)), cell)


def draw_weighted(rows: NDArray[np.int64], weights: Weights, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return as many rows as there are, ascending, each in proportion to its share.

    Systematic sampling: a comb of n equal steps is laid over the running sum of the shares at a random offset, so a row is
    taken floor or ceil of ``n * share`` times, and, cells lying side by side, a cell within one of what is expected of it.
    Rows are shuffled within their cell, since otherwise neighbours would be taken or left out together.
    """
    order = generator.permutation(len(rows))
    order = order[np.argsort(weights.cell[order], kind="stable")]
    edges = np.cumsum(weights.share[order])
    edges *= len(rows) / edges[-1]
    # Rounding must not leave the last tooth beyond the last edge.
    edges[-1] = len(rows)
    teeth = np.arange(len(rows)) + generator.random()
    return np.sort(rows[order[np.searchsorted(edges, teeth, side="right")]])


def epoch_rows(
    rows: NDArray[np.int64],
    *,
    seed: int,
    epoch: int,
    weights: Weights | None = None,
    shuffle: Literal["exact", "blocks"] = "exact",
) -> NDArray[np.int64]:
    """Return the rows of one epoch in their order: a function of what is given alone.

    :param rows: ascending.
    :param weights: how often each is drawn; None takes each once.
    :param shuffle: "exact" is a permutation; "blocks" mixes the rows of ``POOL_BLOCKS`` blocks of neighbours at a time, so that
        a corpus larger than memory is read in long runs.
    """
    generator = np.random.default_rng([seed, epoch])
    chosen = rows if weights is None else draw_weighted(rows, weights, generator)
    if shuffle == "exact":
        return generator.permutation(chosen)
    starts = generator.permutation(np.arange(0, len(chosen), BLOCK_ROWS))
    pools = []
    for first in range(0, len(starts), POOL_BLOCKS):
        blocks = [chosen[start : start + BLOCK_ROWS] for start in starts[first : first + POOL_BLOCKS]]
        pools.append(generator.permutation(np.concatenate(blocks)))
    return np.concatenate(pools) if pools else chosen


def noise_owners(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number that the noise of each place of an epoch belongs to, int64 (n,).

    It is the row; from the second time on that an epoch holds a row, one that nothing else has, so that a row drawn often is
    disturbed in a new way each time.
    """
    seen = np.zeros(int(rows.max(initial=0)) + 1, dtype=np.bool_)
    seen[rows] = True
    if np.count_nonzero(seen) == len(rows):
        # The usual epoch, which is thus spared a sort and another array of its length on every rank.
        return rows
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    first = np.searchsorted(ordered, ordered, side="left")
    owners = np.empty(len(rows), dtype=np.int64)
    # No corpus has 2**40 rows.
    owners[order] = ordered + ((np.arange(len(rows)) - first) << 40)
    return owners


def parts_of_batch(
    rows: NDArray[np.int64], owners: NDArray[np.int64], *, rank: int, size: int, num_parts: int
) -> list[Part]:
    """Return what a rank takes of a batch: every ``size``-th row from the ``rank``-th on, in up to ``num_parts`` parts.

    A rank for which no row is left is given the batch's first, which counts for nothing.
    """
    own_rows, own_owners = rows[rank::size], owners[rank::size]
    if not len(own_rows):
        return [Part(rows[:1], owners[:1], counts=False)]
    num_parts = min(num_parts, len(own_rows))
    pieces = zip(np.array_split(own_rows, num_parts), np.array_split(own_owners, num_parts), strict=True)
    return [Part(some, their, counts=True) for some, their in pieces]
