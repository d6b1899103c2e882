"""Alignment files: BAM, SAM and CRAM from a path or a pipe, read once from start to end.

Hides: pysam's way of opening files, what tells a whole file from one that was cut off, and the reference that CRAM is
decoded with. Belongs here: getting records out of a file; what a record means is decided in ``reads.py``. Invariants:
records come in file order and all of them, or an error is raised; no index is needed or written, neither of the
alignments nor of the reference; nothing is held but the record at hand.
"""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import tempfile
import threading
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pysam

from leech.data.packed import GZIP
from leech.errors import InputError

_BGZF_END = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
"""The empty block that closes every complete BAM and bgzipped SAM."""

_GZIP = b"\x1f\x8b\x08"

_CRAM_END = b"\xe0EOF"
"""Part of the empty container that closes every complete CRAM from version 2.1 on."""

_TAIL_BYTES = 64

_POSITION_EVERY = 500
"""Records between two looks at how far the file has been read."""

_PIPE_READ = 1 << 20


@dataclass
class AlignmentReader:
    """An opened alignment file.

    :ivar header: with all reference names.
    :ivar name: of the file, for messages.
    :ivar num_records: records handed out so far.
    """

    header: pysam.AlignmentHeader
    name: str
    _file: pysam.AlignmentFile
    _pipe: _Pipe | None
    num_records: int = 0
    _num_bytes: int = 0
    _num_bytes_read: int = 0

    @property
    def share_read(self) -> float | None:
        """About how much of the file has been read, from 0 to 1; None where that cannot be told (a pipe, SAM, CRAM)."""
        return min(self._num_bytes_read / self._num_bytes, 1.0) if self._num_bytes else None

    def records(self) -> Iterator[pysam.AlignedSegment]:
        """Yield all records in file order.

        :raises InputError: the file is damaged, or ends before its end.
        """
        try:
            for record in self._file.fetch(until_eof=True):
                self.num_records += 1
                if self._num_bytes and self.num_records % _POSITION_EVERY == 0:
                    # A virtual offset: the place of the compressed block, and 16 bits of place within it.
                    self._num_bytes_read = self._file.tell() >> 16
                yield record
        except (OSError, ValueError) as error:
            cause = "it is truncated or damaged"
            if self._file.is_cram:
                cause += ", or --reference is not what it was compressed with"
            raise InputError(
                f"'{self.name}' cannot be read to its end, record {self.num_records + 1} failed: {cause}.",
                hint="Make or copy the file again; a part of the reads is not used in place of all.",
            ) from error
        if self._pipe is not None:
            self._pipe.check_end(self.name)


@contextmanager
def open_alignments(path: Path, reference: Path) -> Iterator[AlignmentReader]:
    """Open BAM, SAM or CRAM; ``-`` is standard input, and a named pipe is read like it.

    :param reference: FASTA that a CRAM is decoded with; not touched otherwise.
    :raises InputError: not there, not an alignment file, or cut off.
    """
    # htslib would otherwise write its own lines about a missing index between ours.
    verbosity = pysam.set_verbosity(0)
    try:
        with ExitStack() as stack:
            pipe, start = None, b""
            if str(path) == "-" or _is_pipe(path):
                pipe = stack.enter_context(_Pipe.attach(path))
                start = pipe.start
            elif not path.is_file():
                raise InputError(f"BAM '{path}' does not exist.")
            else:
                start = _check_ends(path)
                if start.startswith(_GZIP) and start[3:4] != _BGZF_END[3:4]:
                    # htslib cannot seek in plain gzip, which it wants of a file and not of a pipe.
                    pipe = stack.enter_context(_Pipe.attach(path))
            file = _open(path, pipe, _decoding_reference(start, reference, stack))
            # Closing repeats an error that reading has reported already.
            stack.callback(_close, file)
            num_bytes = path.stat().st_size if pipe is None and file.is_bam else 0
            yield AlignmentReader(file.header, _name(path), file, pipe, _num_bytes=num_bytes)
    finally:
        pysam.set_verbosity(verbosity)


def _name(path: Path) -> str:
    return "standard input" if str(path) == "-" else str(path)


def _is_pipe(path: Path) -> bool:
    return path.exists() and not stat.S_ISREG(path.stat().st_mode) and not path.is_dir()


def _open(path: Path, pipe: _Pipe | None, reference: Path | None) -> pysam.AlignmentFile:
    name = None if reference is None else str(reference)
    try:
        file = pysam.AlignmentFile(
            str(path) if pipe is None else pipe.output, "r", check_sq=False, reference_filename=name
        )
    except (OSError, ValueError) as error:
        raise InputError(
            f"Cannot read '{_name(path)}' as BAM, SAM or CRAM: {error}.", hint="--bam takes aligned reads with mv tags."
        ) from error
    if not (file.is_bam or file.is_sam or file.is_cram):
        # pysam takes FASTA and FASTQ for unaligned reads.
        _close(file)
        raise InputError(
            f"'{_name(path)}' is FASTA or FASTQ, not BAM, SAM or CRAM.", hint="--bam takes aligned reads with mv tags."
        )
    return file


def _close(file: pysam.AlignmentFile) -> None:
    with suppress(OSError):
        file.close()


def _decoding_reference(start: bytes, reference: Path, stack: ExitStack) -> Path | None:
    """Return a FASTA for CRAM beside which htslib may write its index; None for the other formats."""
    if not start.startswith(b"CRAM"):
        return None
    # htslib insists on an index file beside the FASTA, whose folder may be read-only or shared with other runs.
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leech-")))
    copy = folder / "reference.fa"
    try:
        with reference.open("rb") as handle:
            is_gzip = handle.read(len(GZIP)) == GZIP
        if is_gzip:
            with gzip.open(reference) as packed, copy.open("wb") as plain:
                shutil.copyfileobj(packed, plain)
        else:
            copy.symlink_to(reference.resolve())
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"Cannot read reference '{reference}': {getattr(error, 'strerror', None) or error}."
        ) from error
    return copy


def _check_ends(path: Path) -> bytes:
    """Return the first bytes of a file; raise where its last ones show that it was cut off."""
    try:
        with path.open("rb") as handle:
            start = handle.read(_TAIL_BYTES)
            handle.seek(max(0, handle.seek(0, os.SEEK_END) - _TAIL_BYTES))
            end = handle.read()
    except OSError as error:
        raise InputError(f"Cannot read '{path}': {error.strerror or error}.") from error
    if not start:
        raise InputError(f"'{path}' is empty (0 bytes), so it is not BAM, SAM or CRAM.", hint="Make the file again.")
    _refuse_cut_off(start, end, str(path))
    return start


def _refuse_cut_off(start: bytes, end: bytes, name: str) -> None:
    if start.startswith(_BGZF_END[:4]):
        missing = "" if end.endswith(_BGZF_END) else "the empty block that closes it is missing"
    elif start.startswith(b"CRAM"):
        missing = "" if _CRAM_END in end else "the container that closes it is missing"
    elif start.startswith(b"@"):
        missing = "" if end.endswith(b"\n") else "its last line does not end"
    else:
        missing = ""
    if missing:
        raise InputError(
            f"'{name}' is truncated: {missing}. Reads would be lost without a word.",
            hint="Whatever wrote it failed or is still writing; make or copy the file again.",
        )


@dataclass
class _Pipe:
    """Bytes on their way from a pipe to pysam, watched for how they begin and end.

    A BAM that is cut off between two blocks reads like a whole one, and on a pipe nobody can look at its end beforehand.
    """

    start: bytes
    output: BinaryIO
    _end: bytes = field(default=b"", init=False)
    _done: threading.Event = field(default_factory=threading.Event, init=False)

    @classmethod
    @contextmanager
    def attach(cls, path: Path) -> Iterator[_Pipe]:
        source = os.dup(0) if str(path) == "-" else os.open(path, os.O_RDONLY)
        start = b""
        while len(start) < 4 and (more := os.read(source, _PIPE_READ)):
            start += more
        if not start:
            os.close(source)
            raise InputError(
                f"'{_name(path)}' gave no data, so there is nothing to read.", hint="The command before it failed."
            )
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as output:
            pipe = cls(start[:_TAIL_BYTES], output)
            threading.Thread(target=pipe._copy, args=(source, writing, start), daemon=True).start()
            yield pipe

    def _copy(self, source: int, writing: int, data: bytes) -> None:
        # The other side may stop reading early, after an error of its own.
        with suppress(BrokenPipeError), os.fdopen(writing, "wb", buffering=0) as sink, os.fdopen(source, "rb", 0):
            while data:
                self._end = (self._end + data)[-_TAIL_BYTES:]
                rest = memoryview(data)
                while rest:
                    rest = rest[sink.write(rest) :]
                data = os.read(source, _PIPE_READ)
        self._done.set()

    def check_end(self, name: str) -> None:
        """Raise where the bytes that came do not end as a complete file does."""
        # pysam stops at the closing block; what a writer sends after it is no part of the file.
        if self._done.wait(timeout=10):
            _refuse_cut_off(self.start, self._end, name)
