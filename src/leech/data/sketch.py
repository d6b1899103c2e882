"""Which reads a set holds, told from a fixed number of them however large the set is.

Hides: the hash that chooses them, and the file. Belongs here: ids in, yes or no out; whose set it is and what follows from
finding a read in it is ``models/learnt.py``'s. Invariants: depends on the ids alone, neither on their order nor on how often
one comes; which ids are kept has nothing to do with what the reads are, so a share among those compared is the share among
all; of a set up to :data:`MOST_KEPT` reads all are kept.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from leech.data.splits import reshuffled, words
from leech.errors import InputError

MOST_KEPT = 32768
"""Reads kept; a quarter of a megabyte."""

_DAMAGED = "The folder was edited or damaged; use the original."


@dataclass(frozen=True, eq=False)
class ReadSketch:
    """The reads of a set whose hashes are the lowest.

    :ivar hashes: uint64, ascending.
    :ivar num_reads: of the whole set.
    """

    FILE_NAME: ClassVar[str] = "learnt_reads.npy"

    hashes: NDArray[np.uint64]
    num_reads: int

    @classmethod
    def of(cls, read_ids: NDArray[np.uint8]) -> ReadSketch:
        """Return the sketch of a set of ids.

        :param read_ids: uint8 (n, 16).
        """
        found = np.unique(_hashes(read_ids))
        return cls(found[:MOST_KEPT], len(found))

    @property
    def is_complete(self) -> bool:
        """Whether every read of the set is kept."""
        return len(self.hashes) == self.num_reads

    def look_up(self, read_ids: NDArray[np.uint8]) -> tuple[int, int]:
        """Return how many of these reads can be told to be in the set or not, and how many are in it.

        :param read_ids: uint8 (n, 16).
        """
        hashes = _hashes(read_ids)
        if not self.is_complete:
            hashes = hashes[hashes <= self.hashes[-1]]
        # Much faster than isin, which would sort all that is kept again and again.
        places = np.searchsorted(self.hashes, hashes)
        known = places < len(self.hashes)
        return len(hashes), int((self.hashes[places[known]] == hashes[known]).sum())

    @cached_property
    def _bytes(self) -> bytes:
        buffer = io.BytesIO()
        np.save(buffer, self.hashes.astype("<u8"), allow_pickle=False)
        return buffer.getvalue()

    @property
    def sha256(self) -> str:
        """Digest of the file."""
        return hashlib.sha256(self._bytes).hexdigest()

    def save(self, folder: Path) -> None:
        """Write the hashes into an artefact's folder under :data:`FILE_NAME`."""
        (folder / self.FILE_NAME).write_bytes(self._bytes)

    @classmethod
    def load(cls, folder: Path, num_reads: int, sha256: str) -> ReadSketch | None:
        """Return what :meth:`save` wrote; None where the folder came without the file.

        :param num_reads: and its digest, as the folder's description says.
        :raises InputError: the file is not the one described.
        """
        path = folder / cls.FILE_NAME
        if not path.is_file():
            return None
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InputError(f"Cannot read '{path}': {error.strerror or error}.") from error
        if hashlib.sha256(content).hexdigest() != sha256:
            raise InputError(f"'{path}' is not as it was written.", hint=_DAMAGED)
        return cls(np.load(io.BytesIO(content), allow_pickle=False), num_reads)


def _hashes(read_ids: NDArray[np.uint8]) -> NDArray[np.uint64]:
    high, low = words(read_ids)
    return reshuffled(reshuffled(high, 1) ^ low, 2)
