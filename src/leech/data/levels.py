"""Expected current levels of sequences: k-mer tables and what is known without one.

Hides: the table's file format and the arithmetic of k-mer codes. Belongs here: expected levels per base; refining
boundaries against them is ``refine.py``'s. Invariants: base codes are A C G T = 0 1 2 3 and 4 for anything else;
sequences run 5'->3'; a base whose k-mer is not wholly known has the level NaN.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from leech.data.packed import read_unpacked
from leech.errors import InputError

UNKNOWN_BASE = 4

_CODES = np.full(256, UNKNOWN_BASE, dtype=np.uint8)
for _code, _letters in enumerate((b"Aa", b"Cc", b"Gg", b"TtUu")):
    for _letter in _letters:
        _CODES[_letter] = _code

# Effect of each base (A C G T) at offsets 0..+4 from a base, 5'->3', on that base's median normalised current. Least
# squares over the per-base medians of 290 RNA004 tRNA reads with unrefined move-table boundaries; held out, it
# correlates with a read's medians at 0.78 (median over reads) in the right frame and 0.02 in the other. Enough to tell
# the frame of a move table where no k-mer table is given, and the skeleton of the simulator's synthetic pore.
BASE_EFFECTS = np.array(
    [
        [0.12, -0.03, -0.05, -0.04],
        [0.28, -0.47, 0.56, -0.37],
        [0.26, -0.47, 0.50, -0.29],
        [0.12, -0.33, 0.23, -0.03],
        [0.07, -0.10, -0.01, 0.04],
    ],
    dtype=np.float32,
)


def encode_bases(sequence: str | bytes) -> NDArray[np.uint8]:
    """Return base codes of a sequence: A C G T/U (either case) as 0 1 2 3, everything else as 4."""
    raw = sequence.encode("ascii", "replace") if isinstance(sequence, str) else sequence
    codes: NDArray[np.uint8] = _CODES[np.frombuffer(raw, dtype=np.uint8)]
    return codes


def additive_levels(codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the level of each base by :data:`BASE_EFFECTS` alone; shape and order of ``codes``, unit: read MADs.

    Unknown bases and those beyond the end add nothing.
    """
    table = np.concatenate([BASE_EFFECTS, np.zeros((len(BASE_EFFECTS), 1), dtype=np.float32)], axis=1)
    padded = np.concatenate([codes, np.full(len(BASE_EFFECTS) - 1, UNKNOWN_BASE, dtype=np.uint8)])
    levels = [table[offset, padded[offset : offset + len(codes)]] for offset in range(len(BASE_EFFECTS))]
    total: NDArray[np.float32] = np.sum(levels, axis=0, dtype=np.float32)
    return total


@dataclass(frozen=True)
class KmerTable:
    """Levels of all k-mers.

    :ivar levels: float32, shape (4**k,), indexed by the k-mer read as a base-4 number, first base most significant.
    :ivar size: k.
    :ivar sha256: digest of the table's text (after decompression).
    :ivar text: that text, which travels with corpora and models so that they alone are enough.
    """

    FILE_NAME: ClassVar[str] = "kmer_table.tsv.gz"

    levels: NDArray[np.float32]
    size: int
    sha256: str
    text: bytes = field(repr=False)

    @classmethod
    def load(cls, path: Path) -> KmerTable:
        """Read ``KMER<TAB>level`` lines: 5'->3', T or U, optional header, optional gzip, any line ending.

        :raises InputError: unreadable, not 4**k distinct rows, or a level that is not a finite number.
        """
        return cls.parse(read_unpacked(path, "k-mer table"), name=str(path))

    @classmethod
    def parse(cls, text: bytes, name: str = "k-mer table") -> KmerTable:
        """Read a table's text; see :meth:`load`."""
        try:
            lines = [line for line in text.decode("ascii").splitlines() if line.strip()]
        except UnicodeDecodeError as error:
            raise InputError(f"K-mer table '{name}' is not text: {error}.") from error
        # Texts alone are kept, not lists of fields: hundreds of thousands of those take longer to watch than to make.
        kmers = [line.split(maxsplit=1)[0] for line in lines]
        if kmers and encode_bases(kmers[0]).max() == UNKNOWN_BASE:
            del lines[0], kmers[0]
        size = len(kmers[0]) if kmers else 0
        fields = [line.split(maxsplit=2)[1] for line in lines if len(line.split(maxsplit=1)) > 1]
        if not 1 <= size <= 12 or not len(kmers) == len(fields) == 4**size or any(len(kmer) != size for kmer in kmers):
            raise InputError(
                f"K-mer table '{name}' has {len(fields)} rows with a level; a table of k-mers needs exactly 4^k rows "
                "'KMER<TAB>level'.",
                hint="Give the complete level table of the pore, for example Oxford Nanopore's 9-mer table.",
            )
        try:
            # A level beyond float32 is infinite there, which is refused below.
            with np.errstate(over="ignore"):
                values = np.array([float(field) for field in fields], dtype=np.float32)
        except ValueError as error:
            raise InputError(f"K-mer table '{name}' holds a level that is not a number: {error}.") from error
        codes = encode_bases("".join(kmers)).reshape(-1, size).astype(np.int64)
        index = np.minimum(codes, UNKNOWN_BASE - 1) @ _powers(size)
        levels, found = np.empty(len(kmers), dtype=np.float32), np.zeros(len(kmers), dtype=bool)
        levels[index], found[index] = values, True
        if codes.max() == UNKNOWN_BASE or not found.all() or not np.isfinite(values).all():
            raise InputError(
                f"K-mer table '{name}' has unknown letters, repeated k-mers or levels that are not finite."
            )
        return cls(levels=levels, size=size, sha256=hashlib.sha256(text).hexdigest(), text=text)

    def save(self, folder: Path) -> None:
        """Write the table into an artefact's folder under :data:`FILE_NAME`; the same text gives the same bytes."""
        # A 9-mer table takes a second at gzip's highest level, and is then 1 % smaller.
        (folder / self.FILE_NAME).write_bytes(gzip.compress(self.text, compresslevel=4, mtime=0))

    def expected(self, codes: NDArray[np.uint8], centre: int) -> NDArray[np.float32]:
        """Return the level of each base, with the base at position ``centre`` (0-based) of its k-mer.

        :param codes: base codes, shape (..., num_bases).
        :returns: float32 of the same shape; NaN where the k-mer overhangs the sequence or holds an unknown base.
        """
        if not 0 <= centre < self.size:
            raise ValueError(f"centre {centre} lies outside a {self.size}-mer")
        return self.expected_by_centre(codes)[centre]

    def expected_by_centre(self, codes: NDArray[np.uint8]) -> list[NDArray[np.float32]]:
        """Return :meth:`expected` for each centre: the k-mers are the same, and each base has another of them."""
        num_bases, reach = codes.shape[-1], self.size - 1
        padded = np.full((*codes.shape[:-1], num_bases + 2 * reach), UNKNOWN_BASE, dtype=np.uint8)
        padded[..., reach : reach + num_bases] = codes
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.size, axis=-1)
        known = (windows < UNKNOWN_BASE).all(axis=-1)
        index = np.where(known, np.minimum(windows, 3).astype(np.int64) @ _powers(self.size), 0)
        # By the position of the k-mer's first base, which the earliest has ``reach`` bases before the sequence.
        levels = np.where(known, self.levels[index], np.float32(np.nan)).astype(np.float32)
        return [levels[..., reach - centre : reach - centre + num_bases] for centre in range(self.size)]


def _powers(size: int) -> NDArray[np.int64]:
    return 4 ** np.arange(size - 1, -1, -1, dtype=np.int64)
