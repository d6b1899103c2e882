"""What a basecaller and an aligner make of a molecule: SEQ, CIGAR and move table.

Hides: the error model. Belongs here: turning a molecule and its true base boundaries into one alignment; tags and files are
in ``write.py``. Invariants: SEQ and CIGAR are consistent with the reference; the move table is in time order, has one 1 per
base of SEQ and covers the used samples up to less than one stride.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leech.data.simulate.molecules import Molecule

STRIDE = 6
"""Samples per block of the move table; no base is shorter, so every base can have a move."""

_SUBSTITUTION, _INSERTION, _DELETION = 0.03, 0.015, 0.02
_KEPT, _SUBSTITUTED, _INSERTED_AFTER, _DELETED = range(4)
_QUIET_ENDS = 3
"""Bases at either end without indels, so that an alignment begins and ends with matches."""


@dataclass(frozen=True)
class Basecall:
    """One aligned basecall.

    :ivar cigar: operations as (code, length).
    :ivar moves: 0/1 per stride block in time order.
    """

    sequence: str
    cigar: list[tuple[int, int]]
    position: int
    moves: NDArray[np.int8]


def basecall(generator: np.random.Generator, molecule: Molecule, junction: int, has_junction_indel: bool) -> Basecall:
    """Call and align one molecule.

    :param junction: index in the molecule of the first adapter base.
    :param has_junction_indel: whether an indel lies across CCAGGC; there is none otherwise.
    """
    length = len(molecule.sequence)
    fate = generator.choice(
        4, length, p=[1 - _SUBSTITUTION - _INSERTION - _DELETION, _SUBSTITUTION, _INSERTION, _DELETION]
    )
    # The base before the motif is kept too: an insertion behind it would lie at the motif's edge.
    around = np.arange(junction - 4, junction + 3)
    fate[around] = np.where(fate[around] == _SUBSTITUTED, _SUBSTITUTED, _KEPT)
    if has_junction_indel:
        starts = (int(molecule.edges[-1]) - molecule.edges[1:]) // STRIDE
        place = int(generator.integers(junction - 2, junction + 2))
        # An insertion needs two blocks to divide; where the base is shorter, it is deleted.
        divisible = starts[place - 1] - starts[place] >= 2
        fate[place] = _INSERTED_AFTER if divisible and generator.random() < 0.3 else _DELETED
    for end in (slice(0, _QUIET_ENDS), slice(length - _QUIET_ENDS, length)):
        fate[end] = np.where(fate[end] >= _INSERTED_AFTER, _KEPT, fate[end])
    return _align(generator, molecule, fate, junction)


def _align(generator: np.random.Generator, molecule: Molecule, fate: NDArray[np.int64], junction: int) -> Basecall:
    length = len(molecule.sequence)
    used = int(molecule.edges[-1])
    # In time, a base starts where its end lies in sequence direction; starts are one block apart at least.
    starts = (used - molecule.edges[1:]) // STRIDE
    blocks = np.diff(np.append(starts[::-1], used // STRIDE))[::-1]
    moves = np.zeros(used // STRIDE, dtype=np.int8)
    called: list[str] = []
    operations: list[int] = []
    for base, kind, start, room in zip(molecule.sequence, fate.tolist(), starts.tolist(), blocks.tolist(), strict=True):
        if kind == _DELETED:
            operations.append(2)
            continue
        called.append("ACGT".replace(base, "")[generator.integers(3)] if kind == _SUBSTITUTED else base)
        operations.append(0)
        first = start
        if kind == _INSERTED_AFTER and room >= 2:
            # What is inserted behind the base in sequence comes before it in time.
            moves[start] = 1
            first = start + room // 2
            called.append("ACGT"[generator.integers(4)])
            operations.append(1)
        moves[first] = 1
    clip_front = int(generator.integers(0, 6)) if generator.random() < 0.3 else 0
    clip_back = int(generator.integers(0, min(20, length - junction - 8))) if generator.random() < 0.4 else 0
    cigar, skipped = _clip(operations, clip_front, clip_back)
    return Basecall("".join(called), cigar, molecule.first + skipped, moves)


def _clip(operations: list[int], front: int, back: int) -> tuple[list[tuple[int, int]], int]:
    """Turn the outermost ``front`` and ``back`` matches into soft clips and count runs.

    :returns: the CIGAR, and the reference bases that the front clip took away.
    """
    matches = [place for place, operation in enumerate(operations) if operation == 0]
    first, last = matches[front], matches[len(matches) - 1 - back]
    head, tail = operations[:first], operations[last + 1 :]
    clipped_front, clipped_back = (sum(operation != 2 for operation in part) for part in (head, tail))
    cigar: list[tuple[int, int]] = [(4, clipped_front)] if clipped_front else []
    for operation in operations[first : last + 1]:
        if cigar and cigar[-1][0] == operation:
            cigar[-1] = (operation, cigar[-1][1] + 1)
        else:
            cigar.append((operation, 1))
    if clipped_back:
        cigar.append((4, clipped_back))
    return cigar, sum(operation != 1 for operation in head)
