"""What a basecaller and an aligner make of each molecule: sequence, move table, alignment.

Hides: how errors are placed so that sequence, moves and CIGAR agree. Belongs here: everything derived from the bases and
their boundaries; flags and tags of records lie in ``records.py``. Invariants: one move per base of SEQ, moves in time order
on the stride grid; the CIGAR is the true path of the errors, so that it never disagrees with SEQ; a molecule's junction
holds an indel exactly where one was asked for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.data.simulate.config import SimulateConfig
from leech.data.simulate.molecules import FOCUS_IN_MOTIF, JUNCTION_MOTIF
from leech.data.simulate.population import Population
from leech.data.simulate.signal import SimulatedSignal

STRIDE = 6

_MATCH, _INSERTION, _DELETION, _CLIP = 0, 1, 2, 4
_JUNCTION_INSERTION_SHARE = 0.35
_LONGEST_JUNCTION_DELETION, _LONGEST_JUNCTION_INSERTION = 3, 4
_LONGER_DELETION_SHARE = 0.3
_CLEAN_END = 3
"""Aligned bases at either end without indel: an aligner would clip there instead."""

Path = list[tuple[int, int]]


class BaseCalls(NamedTuple):
    """Calls of B molecules.

    :ivar sequences: SEQ, 5'->3'.
    :ivar cigars: operations as (code, length).
    :ivar moves: int8, all move tables one after another, each with its leading stride.
    :ivar move_bounds: int64 (B + 1,), where each begins in ``moves``.
    """

    sequences: list[str]
    cigars: list[Path]
    moves: NDArray[np.int8]
    move_bounds: NDArray[np.int64]


class _Errors(NamedTuple):
    """Where calls differ from molecules, all (B, L): substituted bases, deleted bases, bases inserted 3' of each."""

    is_substituted: NDArray[np.bool_]
    is_deleted: NDArray[np.bool_]
    num_inserted: NDArray[np.int64]


def call_bases(
    config: SimulateConfig,
    population: Population,
    signal: SimulatedSignal,
    has_junction_indel: NDArray[np.bool_],
    rng: np.random.Generator,
) -> BaseCalls:
    """Basecall and align every molecule.

    :param has_junction_indel: bool (B,), which alignments get an indel across the junction motif.
    """
    columns = np.arange(population.codes.shape[1])
    is_called = (columns >= population.called_start[:, np.newaxis]) & (columns < population.called_end[:, np.newaxis])
    num_blocks = signal.dwell.sum(axis=1) // STRIDE
    blocks = _place_moves(config, population, signal, is_called, num_blocks, rng)
    # Blocks between a base's move and that of its 5' neighbour; an inserted base needs one of its 3' neighbour's.
    room = np.zeros_like(blocks)
    room[:, :-1] = blocks[:, :-1] - blocks[:, 1:] - 1
    errors = _draw_errors(config, population, room, rng)
    errors = _add_junction_indels(errors, population, room, has_junction_indel, rng)
    return _assemble(population, errors, is_called, blocks, num_blocks, rng)


def _place_moves(
    config: SimulateConfig,
    population: Population,
    signal: SimulatedSignal,
    is_called: NDArray[np.bool_],
    num_blocks: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Return the stride block in which each called base begins, shifted by one where there is room.

    A base lasts at least a stride, so each has a block of its own. A boundary moves only where three blocks lie between
    it and either neighbour, so that two that move towards each other stay apart.
    """
    rows = np.arange(len(population))
    used_start = signal.molecule_bounds[:-1] + population.leader_samples
    blocks = (signal.base_starts - used_start[:, np.newaxis]) // STRIDE
    after = np.full(blocks.shape, -1)
    after[:, 1:] = blocks[:, :-1]
    after[rows, population.called_start] = num_blocks
    before = np.full(blocks.shape, -1)
    before[:, :-1] = blocks[:, 1:]
    is_free = is_called & (blocks - before >= 3) & (after - blocks >= 3)
    is_free[rows, population.called_end - 1] = False
    step = rng.choice(np.array([-1, 1]), size=blocks.shape) * (rng.random(blocks.shape) < config.move_jitter)
    return blocks + step * is_free


def _draw_errors(
    config: SimulateConfig, population: Population, room: NDArray[np.int64], rng: np.random.Generator
) -> _Errors:
    """Draw errors away from the alignment's ends; no indel near the junction, none beside another."""
    shape = population.codes.shape
    columns = np.arange(shape[1])
    first = (population.aligned_start + _CLEAN_END)[:, np.newaxis]
    last = (population.aligned_end - _CLEAN_END)[:, np.newaxis]
    motif_start = (population.focus - FOCUS_IN_MOTIF)[:, np.newaxis]
    is_junction = (columns >= motif_start - 2) & (columns < motif_start + len(JUNCTION_MOTIF) + 2)
    is_inside = (columns >= first) & (columns < last) & ~is_junction
    is_deleted = rng.random(shape) < config.deletion_rate
    is_deleted[:, 1:] |= is_deleted[:, :-1] & (rng.random((shape[0], shape[1] - 1)) < _LONGER_DELETION_SHARE)
    is_deleted &= is_inside
    touches_deletion = is_deleted.copy()
    touches_deletion[:, :-1] |= is_deleted[:, 1:]
    is_inserted = (rng.random(shape) < config.insertion_rate) & is_inside & ~touches_deletion & (room >= 1)
    is_substituted = rng.random(shape) < config.substitution_rate
    return _Errors(is_substituted, is_deleted, is_inserted.astype(np.int64))


def _add_junction_indels(
    errors: _Errors,
    population: Population,
    room: NDArray[np.int64],
    has_junction_indel: NDArray[np.bool_],
    rng: np.random.Generator,
) -> _Errors:
    """Delete bases of the motif or insert some between two of them, where asked for."""
    number = len(population)
    motif_start = population.focus - FOCUS_IN_MOTIF
    motif_end = motif_start + len(JUNCTION_MOTIF)
    place = motif_start + rng.integers(0, len(JUNCTION_MOTIF) - 1, size=number)
    wanted = rng.integers(1, _LONGEST_JUNCTION_INSERTION + 1, size=number)
    possible = np.minimum(wanted, room[np.arange(number), place])
    inserts = has_junction_indel & (rng.random(number) < _JUNCTION_INSERTION_SHARE) & (possible >= 1)
    num_inserted = errors.num_inserted.copy()
    num_inserted[np.flatnonzero(inserts), place[inserts]] = possible[inserts]
    first = motif_start + rng.integers(0, len(JUNCTION_MOTIF), size=number)
    end = np.minimum(first + rng.integers(1, _LONGEST_JUNCTION_DELETION + 1, size=number), motif_end)
    end = np.where(has_junction_indel & ~inserts, end, first)
    columns = np.arange(population.codes.shape[1])
    is_deleted = errors.is_deleted | ((columns >= first[:, np.newaxis]) & (columns < end[:, np.newaxis]))
    return errors._replace(is_deleted=is_deleted, num_inserted=num_inserted)


def _assemble(
    population: Population,
    errors: _Errors,
    is_called: NDArray[np.bool_],
    blocks: NDArray[np.int64],
    num_blocks: NDArray[np.int64],
    rng: np.random.Generator,
) -> BaseCalls:
    """Line up the elements of all alignments, 5'->3': a base or its gap, then what is inserted after it."""
    number, num_bases = population.codes.shape
    counts = np.where(is_called, 1 + errors.num_inserted, 0).ravel()
    element = np.repeat(np.arange(number * num_bases), counts)
    rank = np.arange(len(element)) - np.repeat(np.cumsum(counts) - counts, counts)
    row, column = np.divmod(element, num_bases)
    is_aligned = (column >= population.aligned_start[row]) & (column < population.aligned_end[row])
    operation = np.where(errors.is_deleted.ravel()[element], _DELETION, _MATCH)
    operation[~is_aligned] = _CLIP
    operation[rank > 0] = _INSERTION
    in_query = operation != _DELETION
    element, rank, row = element[in_query], rank[in_query], row[in_query]
    codes = population.codes.ravel()[element]
    is_wrong = errors.is_substituted.ravel()[element] & (rank == 0)
    codes[is_wrong] = (codes[is_wrong] + rng.integers(1, 4, size=int(is_wrong.sum()))) % 4
    codes[rank > 0] = rng.integers(0, 4, size=int((rank > 0).sum()))
    moves, move_bounds = _write_moves(
        row, _query_blocks(element, rank, errors.num_inserted.ravel(), blocks.ravel()), num_blocks
    )
    query_bounds = np.searchsorted(row, np.arange(number + 1))
    letters = np.frombuffer(b"ACGT", dtype=np.uint8)[codes].tobytes().decode("ascii")
    return BaseCalls(
        sequences=[letters[start:end] for start, end in zip(query_bounds[:-1], query_bounds[1:], strict=True)],
        cigars=_encode_runs(np.repeat(np.arange(number), _per_row(counts, number)), operation, number),
        moves=moves,
        move_bounds=move_bounds,
    )


def _per_row(counts: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    per_row: NDArray[np.int64] = counts.reshape(number, -1).sum(axis=1)
    return per_row


def _query_blocks(
    element: NDArray[np.int64], rank: NDArray[np.int64], num_inserted: NDArray[np.int64], blocks: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the block of each query base.

    Inserted bases share the blocks of their 3' neighbour, which comes before them in time. Of k inserted bases the one
    next to that neighbour comes first, so the m-th from the 5' side lies k - m + 1 steps after it.
    """
    result = blocks[element]
    inserted = np.flatnonzero(rank > 0)
    place = element[inserted]
    number = num_inserted[place]
    step = (blocks[place] - blocks[place + 1]) // (number + 1)
    result[inserted] = blocks[place + 1] + (number - rank[inserted] + 1) * step
    return result


def _write_moves(
    row: NDArray[np.int64], query_blocks: NDArray[np.int64], num_blocks: NDArray[np.int64]
) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    bounds = np.concatenate([[0], np.cumsum(num_blocks + 1)])
    moves = np.zeros(int(bounds[-1]), dtype=np.int8)
    moves[bounds[:-1]] = STRIDE
    moves[bounds[row] + 1 + query_blocks] = 1
    return moves, bounds


def _encode_runs(row: NDArray[np.int64], operation: NDArray[np.int64], number: int) -> list[Path]:
    """Return per row its operations as (code, length)."""
    is_start = np.ones(len(row), dtype=bool)
    is_start[1:] = (row[1:] != row[:-1]) | (operation[1:] != operation[:-1])
    starts = np.flatnonzero(is_start)
    lengths = np.diff(np.append(starts, len(row)))
    runs = list(zip(operation[starts].tolist(), lengths.tolist(), strict=True))
    bounds = np.searchsorted(row[starts], np.arange(number + 1)).tolist()
    return [runs[start:end] for start, end in zip(bounds[:-1], bounds[1:], strict=True)]
