"""POD5 files: finding them, knowing which read lies where, decoding signal.

Hides: escapepod, the file format, the number of files and what can be wrong with them. Belongs here: raw signal by parent
read id; slicing it to the used interval happens in ``chunks.py``. Invariants: read ids are 16 bytes; signal is int16 ADC in
time order; files are in sorted order of their paths, so that equal folders give equal results; at most one open reader
per file and process, and few at a time; a damaged file is named and costs only its own reads.
"""

from __future__ import annotations

import os
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import escapepod
import numpy as np
from numpy.typing import NDArray

from leech.errors import InputError

_POD5_SIGNATURE = b"\x8bPOD\r\n\x1a\n"
"""First and last bytes of a complete file."""

_MARKER_BYTES = 16
"""Length of a file's own random marker, which follows the first signature and precedes the last."""

_TAIL_BYTES = 8 + _MARKER_BYTES + len(_POD5_SIGNATURE)
"""Length of a file's end: footer length, marker, signature."""

_OTHER_FORMATS = {
    b"version https://git-lfs": "is a git-LFS pointer, not the data it stands for; fetch it with 'git lfs pull'",
    b"\x89HDF\r\n\x1a\n": "is HDF5, probably fast5; convert it to POD5",
    b"\x1f\x8b": "is compressed with gzip; unpack it",
}

_OPEN_FILES = 32
"""Readers kept open at a time; each maps its file and holds an index of its ids. Opening one takes less than a millisecond."""

_DECODED_BYTES = 1 << 29
"""Signal decoded before all files are closed. What was read of a mapped file counts as memory of the process until then, and
of a large run that would be more than a job is given."""

_DECODE_AT_ONCE = 100
"""Reads given to the decoder in one call; more at once are slower."""

_READ_ERRORS = (OSError, ValueError, RuntimeError, OverflowError, MemoryError, escapepod.Pod5Error)


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


class BadFile(NamedTuple):
    """A file that cannot be used, and why, in words that follow its name."""

    path: Path
    why: str

    def __str__(self) -> str:
        return f"'{self.path}' {self.why}"


def find_pod5(paths: Iterable[Path]) -> list[Path]:
    """Return all POD5 files under the given files and directory trees, sorted, each once.

    Directories are searched recursively through symbolic links, each real directory once; hidden files and folders are
    skipped. What is in the files is looked at by ``Pod5Index.build``.

    :raises InputError: a path that does not exist, or a directory without POD5 files.
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
        elif path.exists() or path.is_symlink():
            found.add(path)
        else:
            raise InputError(f"POD5 path '{path}' does not exist.")
    unique = {file.resolve(): file for file in sorted(found, reverse=True)}
    return sorted(unique.values())


def _search(root: Path) -> list[Path]:
    files: list[Path] = []
    visited: set[Path] = set()

    def keep_unlistable(error: OSError) -> None:
        # A folder that cannot be listed may hold reads: it is named among the bad files, not passed over.
        files.append(Path(error.filename))

    for folder, subfolders, names in os.walk(root, followlinks=True, onerror=keep_unlistable):
        real = Path(folder).resolve()
        if real in visited:
            subfolders.clear()
            continue
        visited.add(real)
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        files.extend(Path(folder, name) for name in names if name.endswith(".pod5") and not name.startswith("."))
    return files


def _outside_fault(file: Path) -> str | None:
    """Say what is wrong with a file as far as its first and last bytes tell; None when they are as they should be."""
    try:
        if file.is_dir():
            return "is a folder that cannot be listed"
        if file.exists() and not file.is_file():
            return "is not a regular file"
        with file.open("rb") as handle:
            head = handle.read(32)
            size = handle.seek(0, os.SEEK_END)
            handle.seek(max(0, size - _TAIL_BYTES))
            tail = handle.read()
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if not head:
        return "is empty (0 bytes)"
    for start, what in _OTHER_FORMATS.items():
        if head.startswith(start):
            return what
    if not head.startswith(_POD5_SIGNATURE):
        return "does not start with the POD5 signature, so it is another format or a failed copy"
    if not tail.endswith(_POD5_SIGNATURE):
        return "is truncated: the signature that closes a POD5 file is missing; copy it again"
    # escapepod does not survive a footer that is longer than its file.
    if size < 2 * _TAIL_BYTES or not 0 < int.from_bytes(tail[:8], "little") <= size - 2 * _TAIL_BYTES:
        return "is damaged (the length of its footer is impossible); copy it again"
    return None


def _inside_fault(file: Path, error: BaseException) -> str:
    """Put into words why a file with both signatures could not be opened."""
    reach = len(_POD5_SIGNATURE) + _MARKER_BYTES
    with file.open("rb") as handle:
        first = handle.read(reach)[-_MARKER_BYTES:]
        handle.seek(-reach, os.SEEK_END)
        last = handle.read(_MARKER_BYTES)
    if first != last:
        return "holds several POD5 files one after the other (made with cat?); merge them with a POD5 tool instead"
    return f"is damaged ({error}); copy it again"


def pack_read_id(text: str) -> bytes | None:
    """Return the 16 bytes of a read id, in either case; None when it is not a UUID."""
    digits = text.replace("-", "")
    if len(digits) != 32:
        return None
    try:
        packed = bytes.fromhex(digits)
    except ValueError:
        return None
    # White space among the digits is skipped without a word.
    return packed if len(packed) == 16 else None


def unpack_read_id(read_id: bytes) -> str:
    """Return the text of a 16-byte read id."""
    digits = read_id.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def unpack_read_ids(packed: NDArray[np.uint8]) -> list[str]:
    """Return the texts of read ids, uint8 (n, 16), as columns of a corpus hold them."""
    return [unpack_read_id(row.tobytes()) for row in packed]


@dataclass(frozen=True)
class Pod5Index:
    """Which file holds which read.

    :ivar files: paths by file number; those that can be read.
    :ivar high: uint64, first eight bytes of each read id (big-endian), ascending.
    :ivar low: uint64, last eight bytes.
    :ivar file_numbers: int32, file number of each id; of a read that lies in several files, the first.
    :ivar bad_files: those that cannot be read; their reads are in no file.
    :ivar num_repeated: how many reads lie in more than one file, or twice in one.
    """

    files: tuple[Path, ...]
    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    file_numbers: NDArray[np.int32]
    bad_files: tuple[BadFile, ...] = ()
    num_repeated: int = 0

    @classmethod
    def build(cls, files: Sequence[Path], *, strict: bool = False) -> Pod5Index:
        """Read the ids of all files.

        :param strict: refuse to go on without a file that cannot be read.
        :raises InputError: no file can be read, or not all of them and ``strict``.
        """
        good: list[Path] = []
        bad: list[BadFile] = []
        halves: list[NDArray[np.uint64]] = [np.zeros((0, 2), dtype=np.uint64)]
        numbers: list[NDArray[np.int32]] = [np.zeros(0, dtype=np.int32)]
        for file in files:
            names = _ids_in(file)
            if isinstance(names, BadFile):
                bad.append(names)
                continue
            halves.append(_halves(bytes.fromhex("".join(names).replace("-", ""))))
            numbers.append(np.full(len(names), len(good), dtype=np.int32))
            good.append(file)
        if bad and (strict or not good):
            raise unreadable_files(bad, len(files), "Nothing was done." if good else "No other file was given.")
        ids, file_numbers = np.concatenate(halves), np.concatenate(numbers)
        order = np.lexsort((file_numbers, ids[:, 1], ids[:, 0]))
        ids, file_numbers = ids[order], file_numbers[order]
        first = np.ones(len(ids), dtype=bool)
        first[1:] = (ids[1:] != ids[:-1]).any(axis=1)
        return cls(
            tuple(good),
            ids[first, 0].copy(),
            ids[first, 1].copy(),
            file_numbers[first],
            tuple(bad),
            int((first[:-1] & ~first[1:]).sum()),
        )

    def __len__(self) -> int:
        return len(self.high)

    def example(self) -> bytes | None:
        """Return one of the ids, or None where there are none."""
        return int(self.high[0]).to_bytes(8, "big") + int(self.low[0]).to_bytes(8, "big") if len(self) else None

    def positions(self, read_ids: Sequence[bytes]) -> NDArray[np.int64]:
        """Return the position of each read id in the index, -1 where no file holds it."""
        if not read_ids or not len(self):
            return np.full(len(read_ids), -1, dtype=np.int64)
        wanted = _halves(b"".join(read_ids))
        result = np.searchsorted(self.high, wanted[:, 0]).astype(np.int64)
        inside = np.minimum(result, len(self) - 1)
        result[self.high[inside] != wanted[:, 0]] = -1
        # Ids that share their first half follow one another; random UUIDs practically never do.
        for index in np.flatnonzero((result >= 0) & (self.low[inside] != wanted[:, 1])).tolist():
            last = np.searchsorted(self.high, wanted[index, 0], side="right")
            found = np.flatnonzero(self.low[result[index] : last] == wanted[index, 1])
            result[index] = result[index] + found[0] if len(found) else -1
        return result


def unreadable_files(bad: Sequence[BadFile], num_files: int, consequence: str) -> InputError:
    """Return the error that names the files that could not be read.

    :param consequence: what that means for the result.
    """
    return InputError(
        f"{len(bad)} of {num_files} POD5 files cannot be read: {'; '.join(map(str, bad))}. {consequence}",
        hint="Copy them again, or leave them out of --pod5.",
    )


def _ids_in(file: Path) -> list[str] | BadFile:
    fault = _outside_fault(file)
    if fault is not None:
        return BadFile(file, fault)
    try:
        return escapepod.Reader(str(file)).read_ids()
    except _READ_ERRORS as error:
        return BadFile(file, _inside_fault(file, error))


def _halves(packed: bytes) -> NDArray[np.uint64]:
    return np.frombuffer(packed, dtype=">u8").reshape(-1, 2).astype(np.uint64)


class _OpenFile(NamedTuple):
    reader: escapepod.Reader
    runs: list[RunInfo]


class SignalSource:
    """Decodes reads. Opens a file when it is first needed and keeps the few used last; not for sharing between processes.

    Memory does not grow with what was read: now and then all files are closed, and opened again when they are needed.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._open: OrderedDict[int, _OpenFile] = OrderedDict()
        self._decoded_bytes = 0

    def fetch(self, wanted: Iterable[tuple[int, bytes]]) -> dict[bytes, RawRead | None]:
        """Decode reads given as (file number, read id), each once; None for a read that cannot be decoded.

        Files are visited one after the other, and the reads of each in the order in which they are stored.

        :raises InputError: a file that could be read before cannot be opened any more.
        """
        if self._decoded_bytes >= _DECODED_BYTES:
            self._open.clear()
            self._decoded_bytes = 0
        by_file: dict[int, set[bytes]] = defaultdict(set)
        for number, read_id in wanted:
            by_file[number].add(read_id)
        decoded: dict[bytes, RawRead | None] = {}
        for number in sorted(by_file):
            decoded.update(self._fetch_from(number, by_file[number]))
        self._decoded_bytes += sum(read.signal.nbytes for read in decoded.values() if read is not None)
        return decoded

    def _fetch_from(self, number: int, wanted: set[bytes]) -> dict[bytes, RawRead | None]:
        reader, runs = self._opened(number)
        names = {unpack_read_id(read_id): read_id for read_id in wanted}
        try:
            reads = reader.get_reads(list(names), missing_ok=True)
        except _READ_ERRORS:
            return dict.fromkeys(wanted)
        # Storage order: signal of neighbouring reads shares pages and compression blocks.
        reads.sort(key=lambda read: read.signal_rows[:1])
        decoded: dict[bytes, RawRead | None] = {}
        for start in range(0, len(reads), _DECODE_AT_ONCE):
            part = reads[start : start + _DECODE_AT_ONCE]
            for read, signal in zip(part, _decode(reader, part), strict=True):
                read_id = names[read.read_id]
                if signal is None or read.run_info_index >= len(runs):
                    decoded[read_id] = None
                else:
                    calibration = Calibration(read.calibration_offset, read.calibration_scale)
                    decoded[read_id] = RawRead(signal, runs[read.run_info_index], calibration)
        return decoded

    def _opened(self, number: int) -> _OpenFile:
        if number in self._open:
            self._open.move_to_end(number)
            return self._open[number]
        while len(self._open) >= _OPEN_FILES:
            self._open.popitem(last=False)
        file = self._files[number]
        try:
            reader = escapepod.Reader(str(file))
            # Entering warms the read-id index, which makes each later lookup independent of the file's size.
            reader.__enter__()
            runs = [
                RunInfo(info.flow_cell_id, info.acquisition_id, info.sample_id, info.sample_rate)
                for info in reader.run_infos
            ]
        except _READ_ERRORS as error:
            raise InputError(
                f"POD5 file '{file}' cannot be opened any more: {error}.",
                hint="It changed or went away during the run; start again.",
            ) from error
        self._open[number] = _OpenFile(reader, runs)
        return self._open[number]


def _decode(reader: escapepod.Reader, reads: list[escapepod.ReadData]) -> list[NDArray[np.int16] | None]:
    """Return the signal of each read; None where it cannot be decoded or is not as long as the file says."""
    signals: Sequence[NDArray[np.int16] | None]
    try:
        signals = [signal for _, signal in reader.get_signals(reads)]
    except _READ_ERRORS:
        # One of them is damaged; the others must not suffer for it.
        signals = [_decode_one(reader, read) for read in reads]
    return [
        None if signal is None or (read.num_samples and len(signal) != read.num_samples) else signal
        for read, signal in zip(reads, signals, strict=True)
    ]


def _decode_one(reader: escapepod.Reader, read: escapepod.ReadData) -> NDArray[np.int16] | None:
    try:
        signal: NDArray[np.int16] = reader.get_signal(read)
    except _READ_ERRORS:
        return None
    return signal
