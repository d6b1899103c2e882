"""What a basecaller and an aligner make of molecules: SEQ, CIGAR and move table.

Hides: the error model. Belongs here: turning molecules and their true base boundaries into alignments; tags and files are
in ``block.py`` and ``write.py``. Invariants: SEQ and CIGAR are consistent with the reference; a move table is in time order,
has one 1 per base of SEQ and covers the used samples up to less than one stride.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leech.data.simulate.molecules import Molecules

STRIDE = 6
"""Samples per block of the move table; no base is shorter, so every base can have a move."""

_SUBSTITUTION, _INSERTION, _DELETION = 0.03, 0.015, 0.02
_KEPT, _SUBSTITUTED, _INSERTED_AFTER, _DELETED = range(4)
_QUIET_ENDS = 3
"""Bases at either end without indels, so that an alignment begins and ends with matches."""

_MATCH, _INSERT, _DELETE, _CLIP = 0, 1, 2, 4
_LETTERS = "MID?S"
_BASES = np.frombuffer(b"ACGT", dtype=np.uint8)


@dataclass(frozen=True)
class Basecalls:
    """Aligned basecalls, one per molecule.

    :ivar cigars: operations as (length, letter).
    :ivar positions: reference position of the first aligned base.
    :ivar moves: 0/1 per stride block in time order.
    """

    sequences: list[str]
    cigars: list[list[tuple[int, str]]]
    positions: NDArray[np.int64]
    moves: list[NDArray[np.int8]]


@dataclass(frozen=True)
class _Bases:
    """What became of each base, in flat arrays.

    :ivar within: its number in its molecule.
    :ivar starts: stride block, in time, in which it begins; ``room`` blocks later its 5' neighbour does.
    """

    lengths: NDArray[np.int64]
    within: NDArray[np.int64]
    starts: NDArray[np.int64]
    room: NDArray[np.int64]
    fate: NDArray[np.int8]


def basecall(
    generator: np.random.Generator,
    molecules: Molecules,
    junctions: NDArray[np.int64],
    has_junction_indel: NDArray[np.bool_],
    aligned_ends: NDArray[np.int64],
) -> Basecalls:
    """Call and align molecules.

    :param junctions: number of the first adapter base in each molecule.
    :param has_junction_indel: whether an indel lies across CCAGGC; there is none otherwise.
    :param aligned_ends: number of the base from which on the molecule does not agree with its reference.
    """
    bases = _draw_fates(generator, molecules, junctions, has_junction_indel)
    deleted, inserted = bases.fate == _DELETED, bases.fate == _INSERTED_AFTER
    cigars, skipped = _align(generator, molecules, bases, junctions, aligned_ends)
    return Basecalls(
        sequences=_spell(generator, molecules, bases, deleted, inserted),
        cigars=cigars,
        positions=molecules.first + skipped,
        moves=_move(molecules, bases, deleted, inserted),
    )


def _draw_fates(
    generator: np.random.Generator,
    molecules: Molecules,
    junctions: NDArray[np.int64],
    has_junction_indel: NDArray[np.bool_],
) -> _Bases:
    lengths, offsets = molecules.lengths, molecules.base_offsets
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    # In time, a base starts where its end lies in sequence direction; starts are one block apart at least.
    starts = (np.repeat(molecules.used, lengths) - molecules.ends) // STRIDE
    before = np.append(0, starts[:-1])
    before[offsets[:-1]] = molecules.used // STRIDE
    room = before - starts
    chance = np.cumsum([_SUBSTITUTION, _INSERTION, _DELETION])
    drawn = np.searchsorted(chance, generator.random(len(within)), side="right")
    fate = np.array([_SUBSTITUTED, _INSERTED_AFTER, _DELETED, _KEPT], dtype=np.int8)[drawn]
    # The base before the motif is kept too: an insertion behind it would lie at the motif's edge.
    from_junction = within - np.repeat(junctions, lengths)
    fate[(from_junction >= -4) & (from_junction < 3) & (fate != _SUBSTITUTED)] = _KEPT
    place = offsets[:-1] + junctions + generator.integers(-2, 2, len(junctions))
    # An insertion needs two blocks to divide; where the base is shorter, it is deleted.
    is_insertion = (room[place] >= 2) & (generator.random(len(place)) < 0.3)
    indel = np.where(is_insertion, _INSERTED_AFTER, _DELETED)
    fate[place[has_junction_indel]] = indel[has_junction_indel]
    at_end = (within < _QUIET_ENDS) | (within >= np.repeat(lengths, lengths) - _QUIET_ENDS)
    fate[at_end & (fate >= _INSERTED_AFTER)] = _KEPT
    fate[(fate == _INSERTED_AFTER) & (room < 2)] = _KEPT
    return _Bases(lengths, within, starts, room, fate)


def _spell(
    generator: np.random.Generator,
    molecules: Molecules,
    bases: _Bases,
    deleted: NDArray[np.bool_],
    inserted: NDArray[np.bool_],
) -> list[str]:
    codes = np.where(
        bases.fate == _SUBSTITUTED, (molecules.codes + generator.integers(1, 4, len(deleted))) % 4, molecules.codes
    )
    place = np.append(0, np.cumsum(1 - deleted.astype(np.int64) + inserted))
    called = np.empty(place[-1], dtype=np.uint8)
    called[place[:-1][~deleted]] = _BASES[codes[~deleted]]
    # Drawn for every base, so that an indel more or less leaves later draws as they are.
    called[place[:-1][inserted] + 1] = _BASES[generator.integers(0, 4, len(inserted))[inserted]]
    text = called.tobytes().decode("ascii")
    borders = place[molecules.base_offsets].tolist()
    return [text[start:end] for start, end in itertools.pairwise(borders)]


def _move(
    molecules: Molecules, bases: _Bases, deleted: NDArray[np.bool_], inserted: NDArray[np.bool_]
) -> list[NDArray[np.int8]]:
    borders = np.append(0, np.cumsum(molecules.used // STRIDE))
    moves = np.zeros(borders[-1], dtype=np.int8)
    starts = bases.starts + np.repeat(borders[:-1], bases.lengths)
    # What is inserted behind a base in sequence comes before it in time.
    moves[starts[inserted]] = 1
    moves[(starts + np.where(inserted, bases.room // 2, 0))[~deleted]] = 1
    return np.split(moves, borders[1:-1])


def _align(
    generator: np.random.Generator,
    molecules: Molecules,
    bases: _Bases,
    junctions: NDArray[np.int64],
    aligned_ends: NDArray[np.int64],
) -> tuple[list[list[tuple[int, str]]], NDArray[np.int64]]:
    """Return CIGARs with some outermost matches clipped, and the reference bases that the front clips took away."""
    number = len(molecules)
    inserted = bases.fate == _INSERTED_AFTER
    is_match = bases.fate != _DELETED
    front = np.where(generator.random(number) < 0.3, generator.integers(0, 6, number), 0)
    widest = np.minimum(20, bases.lengths - junctions - 8)
    back = np.where(generator.random(number) < 0.4, generator.integers(0, widest), 0)
    beyond = is_match & (bases.within >= np.repeat(aligned_ends, bases.lengths))
    back = np.maximum(back, np.add.reduceat(beyond.astype(np.int64), molecules.base_offsets[:-1]))
    place = np.append(0, np.cumsum(1 + inserted))
    operations = np.empty(place[-1], dtype=np.int64)
    operations[place[:-1]] = np.where(is_match, _MATCH, _DELETE)
    operations[place[:-1][inserted] + 1] = _INSERT
    borders = place[molecules.base_offsets]
    owner = np.repeat(np.arange(number), np.diff(borders))
    # Matches up to and including each operation, and all of its molecule.
    total = np.append(0, np.cumsum(operations == _MATCH))
    matches = total[1:] - total[borders[:-1]][owner]
    all_matches = np.diff(total[borders])
    head = matches <= front[owner]
    tail = matches - (operations == _MATCH) >= (all_matches - back)[owner]
    skipped = np.add.reduceat((head & (operations != _INSERT)).astype(np.int64), borders[:-1])
    clipped = head | tail
    kept = ~(clipped & (operations == _DELETE))
    operations, owner = np.where(clipped, _CLIP, operations)[kept], owner[kept]
    # Runs of one operation in one molecule.
    first = np.flatnonzero(np.append(True, (np.diff(operations) != 0) | (np.diff(owner) != 0)))
    lengths = np.diff(np.append(first, len(operations))).tolist()
    letters = [_LETTERS[operation] for operation in operations[first].tolist()]
    runs = list(zip(lengths, letters, strict=True))
    ends = np.cumsum(np.bincount(owner[first], minlength=number)).tolist()
    return [runs[start:end] for start, end in zip([0, *ends], ends, strict=False)], skipped
