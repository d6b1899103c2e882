"""POD5 files: finding them, knowing which read lies where, decoding signal.

Hides: escapepod, the file format and the number of files. Belongs here: raw signal by parent read id; slicing it to the
used interval happens in ``chunks.py``. Invariants: read ids are 16 bytes; signal is int16 ADC in time order; files are
in sorted order of their paths, so that equal folders give equal results; one open reader per file and process.
"""

from __future__ import annotations

import os
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import escapepod
import numpy as np
from numpy.typing import NDArray

from leech.errors import InputError

_POD5_SIGNATURE = b"\x8bPOD\r\n\x1a\n"


class RunInfo(NamedTuple):
    """What a read inherits from its run."""

    flow_cell: str
    run: str
    sample: str
    sample_rate: int


class Calibration(NamedTuple):
    """How ADC units become current: ``pA = (adc + offset) * scale``."""

    offset: float
    scale: float


class RawRead(NamedTuple):
    """One decoded read: int16 ADC samples in time order, its run and its calibration."""

    signal: NDArray[np.int16]
    run: RunInfo
    calibration: Calibration


def find_pod5(paths: Iterable[Path]) -> list[Path]:
    """Return all POD5 files under the given files and directory trees, sorted, each once.

    Directories are searched recursively through symbolic links, each real directory once; hidden files are skipped.

    :raises InputError: a path that does not exist, a directory without POD5 files, or a file that is not POD5.
    """
    found: set[Path] = set()
    for path in paths:
        if path.is_dir():
            inside = _search(path)
            if not inside:
                raise InputError(
                    f"No .pod5 file under '{path}'.",
                    hint="Give the folder that holds the run's POD5 files; fast5 must be converted first.",
                )
            found.update(inside)
        elif path.exists():
            found.add(path)
        else:
            raise InputError(f"POD5 path '{path}' does not exist.")
    unique = {file.resolve(): file for file in sorted(found, reverse=True)}
    files = sorted(unique.values())
    for file in files:
        _check_signature(file)
    return files


def _search(root: Path) -> list[Path]:
    files: list[Path] = []
    visited: set[Path] = set()
    for folder, subfolders, names in os.walk(root, followlinks=True):
        real = Path(folder).resolve()
        if real in visited:
            subfolders.clear()
            continue
        visited.add(real)
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        files.extend(Path(folder, name) for name in names if name.endswith(".pod5") and not name.startswith("."))
    return files


def _check_signature(file: Path) -> None:
    try:
        with file.open("rb") as handle:
            head = handle.read(8)
    except OSError as error:
        raise InputError(f"Cannot read POD5 file '{file}': {error.strerror}.") from error
    if head != _POD5_SIGNATURE:
        what = "is empty" if not head else "does not start with the POD5 signature"
        raise InputError(
            f"'{file}' {what}, so it is not a POD5 file (a placeholder, a truncated copy, or another format).",
            hint="Copy the file again, or leave it out.",
        )


def _open(file: Path, *, for_lookups: bool) -> escapepod.Reader:
    try:
        reader = escapepod.Reader(str(file))
        if for_lookups:
            # Entering warms the read-id index, which makes each later lookup independent of the file's size.
            reader.__enter__()
    except (OSError, ValueError, RuntimeError, escapepod.Pod5Error) as error:
        raise InputError(
            f"Cannot open POD5 file '{file}': {error}.", hint="The file is truncated or damaged; copy it again."
        ) from error
    return reader


def pack_read_id(text: str) -> bytes | None:
    """Return the 16 bytes of a read id, in either case; None when it is not a UUID."""
    try:
        return uuid.UUID(text).bytes
    except ValueError:
        return None


@dataclass(frozen=True)
class Pod5Index:
    """Which file holds which read.

    :ivar files: paths by file number.
    :ivar high: uint64, first eight bytes of each read id (big-endian), ascending.
    :ivar low: uint64, last eight bytes.
    :ivar file_numbers: int32, file number of each id; of a read that lies in several files, the first.
    """

    files: tuple[Path, ...]
    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    file_numbers: NDArray[np.int32]

    @classmethod
    def build(cls, files: Sequence[Path]) -> Pod5Index:
        """Read the ids of all files.

        :raises InputError: a file that cannot be opened.
        """
        halves: list[NDArray[np.uint64]] = [np.zeros((0, 2), dtype=np.uint64)]
        numbers: list[NDArray[np.int32]] = [np.zeros(0, dtype=np.int32)]
        for number, file in enumerate(files):
            names = _open(file, for_lookups=False).read_ids()
            halves.append(_halves(bytes.fromhex("".join(names).replace("-", ""))))
            numbers.append(np.full(len(names), number, dtype=np.int32))
        ids, file_numbers = np.concatenate(halves), np.concatenate(numbers)
        order = np.lexsort((file_numbers, ids[:, 1], ids[:, 0]))
        ids, file_numbers = ids[order], file_numbers[order]
        first = np.ones(len(ids), dtype=bool)
        first[1:] = (ids[1:] != ids[:-1]).any(axis=1)
        return cls(tuple(files), ids[first, 0].copy(), ids[first, 1].copy(), file_numbers[first])

    def __len__(self) -> int:
        return len(self.high)

    def positions(self, read_ids: Sequence[bytes]) -> NDArray[np.int64]:
        """Return the position of each read id in the index, -1 where no file holds it."""
        if not read_ids:
            return np.zeros(0, dtype=np.int64)
        wanted = _halves(b"".join(read_ids))
        result = np.searchsorted(self.high, wanted[:, 0]).astype(np.int64)
        for index, (high, low) in enumerate(wanted.tolist()):
            position = int(result[index])
            # Ids that share their first half follow one another; random UUIDs practically never do.
            while position < len(self) and self.high[position] == high and self.low[position] != low:
                position += 1
            found = position < len(self) and self.high[position] == high
            result[index] = position if found else -1
        return result


def _halves(packed: bytes) -> NDArray[np.uint64]:
    return np.frombuffer(packed, dtype=">u8").reshape(-1, 2).astype(np.uint64)


class SignalSource:
    """Decodes reads; opens each file once, when it is first needed. Not for sharing between processes."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._readers: dict[int, escapepod.Reader] = {}
        self._runs: dict[int, list[RunInfo]] = {}

    def fetch(self, wanted: Iterable[tuple[int, bytes]]) -> dict[bytes, RawRead | None]:
        """Decode reads given as (file number, read id), each once; None for a read that cannot be decoded."""
        by_file: dict[int, set[str]] = defaultdict(set)
        for number, read_id in wanted:
            by_file[number].add(str(uuid.UUID(bytes=read_id)))
        decoded: dict[bytes, RawRead | None] = {}
        for number in sorted(by_file):
            reader = self._reader(number)
            reads = reader.reads(selection=sorted(by_file[number]), missing_ok=True)
            # Storage order: signal of neighbouring reads shares pages and compression blocks.
            reads.sort(key=lambda read: read.signal_rows[:1])
            for read in reads:
                signal = _decode(reader, read)
                run = self._runs[number][read.run_info_index]
                calibration = Calibration(read.calibration_offset, read.calibration_scale)
                decoded[uuid.UUID(read.read_id).bytes] = None if signal is None else RawRead(signal, run, calibration)
        return decoded

    def _reader(self, number: int) -> escapepod.Reader:
        if number not in self._readers:
            reader = _open(self._files[number], for_lookups=True)
            self._readers[number] = reader
            self._runs[number] = [
                RunInfo(info.flow_cell_id, info.acquisition_id, info.sample_id, info.sample_rate)
                for info in reader.run_infos
            ]
        return self._readers[number]


def _decode(reader: escapepod.Reader, read: escapepod.ReadData) -> NDArray[np.int16] | None:
    try:
        signal: NDArray[np.int16] = reader.get_signal(read)
    except (OSError, ValueError, RuntimeError, escapepod.Pod5Error):
        return None
    return signal
