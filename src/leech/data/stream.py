"""An opened run: records in order, the reads among them located, and the cutter that turns reads into chunks.

Hides: what must be known before the first chunk can be cut (files, ids, sites, frame, k-mer centre). Belongs here: what
``prepare`` and ``predict`` share; what they do with chunks is theirs, spreading work is ``workers.py``'s. Invariants:
results come in the order of the records, at any number of workers; a few batches are in flight at most, so memory does
not grow with the run; each process opens its own files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import pysam

from leech.console import logger
from leech.data.accounts import settle
from leech.data.alignments import AlignmentReader, open_alignments
from leech.data.anchors import Sites, find_sites, read_fasta
from leech.data.chunks import CutResult, cut
from leech.data.config import ReadSources
from leech.data.frame import MIN_CORRELATION, MIN_VOTES, FrameVerdict, gather_evidence, judge_frame
from leech.data.levels import KmerTable
from leech.data.pod5 import BadFile, Pod5Index, SignalSource, find_pod5
from leech.data.reads import AlignedReads, Description, Examined, Examiner, describe_record
from leech.data.reasons import Counts
from leech.data.recipe import Recipe
from leech.data.sites import SiteFile
from leech.data.workers import WorkerDiedError, collecting_rarely, spread
from leech.errors import ConfigError, LeechError, MismatchError

T = TypeVar("T")

GUARD_READS = 200
"""Reads that vote on the frame before anything is cut."""

_GUARD_RECORDS = 2000
"""Records among which those reads are looked for."""

_BATCHES_AHEAD = 3
"""Batches per worker that are read before their results are awaited."""


@dataclass(frozen=True)
class Cutter:
    """Everything a process needs to cut chunks; travels to a worker once.

    :ivar sites: by reference number of the BAM header.
    :ivar references: names by reference number.
    :ivar label: state of all reads; None for unknown.
    :ivar sample: overrides the sample name of the POD5.
    """

    files: tuple[Path, ...]
    sites: Sites
    references: tuple[str, ...]
    recipe: Recipe
    label: str | None
    sample: str | None

    def cut(self, reads: AlignedReads, source: SignalSource) -> CutResult:
        """Decode the reads' signal and cut them."""
        signals = source.fetch(zip(reads.file_number.tolist(), reads.parent_ids, strict=True))
        return cut(reads, signals, self.sites, self.references, self.recipe, label=self.label, sample=self.sample)


class RecordBatch(NamedTuple):
    """Some consecutive records and what became of them.

    :ivar records: the records, in file order.
    :ivar outcomes: one per record, "used" or a reason.
    :ivar cut: the chunks of the used ones, in order.
    """

    records: list[pysam.AlignedSegment]
    outcomes: list[str]
    cut: CutResult


@dataclass(frozen=True)
class ReadStream:
    """A run whose frame is checked and whose sites are known.

    :ivar recipe: with the k-mer centre filled in.
    :ivar frame: what the first reads said.
    :ivar bad_files: POD5 files that could not be read.
    """

    recipe: Recipe
    frame: FrameVerdict
    bad_files: tuple[BadFile, ...]
    _sources: ReadSources
    _alignments: AlignmentReader
    _records: Iterator[pysam.AlignedSegment]
    _examiner: Examiner
    _cutter: Cutter

    @property
    def header(self) -> pysam.AlignmentHeader:
        """Header of the alignment file."""
        return self._alignments.header

    @property
    def num_files(self) -> int:
        """Number of POD5 files, the unreadable ones too."""
        return len(self._cutter.files) + len(self.bad_files)

    @property
    def share_read(self) -> float | None:
        """About how much of the alignment file has been read, a few batches ahead; None where that cannot be told."""
        return self._alignments.share_read

    def batches(self, size: int, workers: int) -> Iterator[RecordBatch]:
        """Yield all records, ``size`` at a time, with the chunks cut from them.

        :raises LeechError: a worker died; what was yielded before is right but incomplete.
        """
        jobs = ((records, self._examiner.examine(records)) for records in _in_batches(self._records, size))
        with collecting_rarely():
            if workers == 1:
                source = SignalSource(self._cutter.files)
                for records, examined in jobs:
                    yield _join(records, examined.reasons, self._cutter.cut(examined.reads, source))
            else:
                yield from self._spread(jobs, workers)

    def settle(self, counts: Counts, num_results: int) -> None:
        """Judge the run once all batches were taken; see ``accounts.settle``.

        :param num_results: chunks or calls that go into the output.
        :raises LeechError: records are not accounted for, or too few could be used.
        """
        settle(
            counts,
            self._sources,
            num_records=self._alignments.num_records,
            num_results=num_results,
            overlap=self._examiner.overlap,
        )

    def _spread(
        self, jobs: Iterator[tuple[list[pysam.AlignedSegment], Examined]], workers: int
    ) -> Iterator[RecordBatch]:
        tasks = (((records, examined.reasons), examined.reads) for records, examined in jobs)
        try:
            for (records, reasons), result in spread(
                _cut_in_worker, tasks, workers, ahead=_BATCHES_AHEAD, start=_start_worker, arguments=(self._cutter,)
            ):
                yield _join(records, reasons, result)
        except WorkerDiedError as error:
            raise LeechError(
                "A worker process died before its reads were cut, so the result would be incomplete; nothing was kept.",
                hint="It was killed, most often for want of memory (then give fewer --workers), or a POD5 file is damaged "
                "or changed while it was read.",
            ) from error


@contextmanager
def open_stream(
    sources: ReadSources,
    recipe: Recipe,
    table: KmerTable | None,
    sites: SiteFile | None = None,
    *,
    label: str | None = None,
    sample: str | None = None,
    keep: Callable[[pysam.AlignedSegment], bool] | None = None,
) -> Iterator[ReadStream]:
    """Open a run: find POD5, index ids, read references, let the first reads vote on the frame.

    :param sites: the file of sites that the recipe's anchor means, see ``sites.py``.
    :param keep: which records are looked at; None for all.
    :raises ConfigError: refinement is asked for without a k-mer table.
    :raises InputError: files that cannot be used.
    :raises MismatchError: the reads favour the other frame, or the FASTA is not what they were aligned to.
    """
    if recipe.refinement == "kmer" and table is None:
        raise ConfigError(
            "Boundary refinement needs the levels of a k-mer table, and none is given.",
            hint="Add --kmer-table, or leave out --refinement.",
        )
    index = _index_pod5(sources)
    sequences = read_fasta(sources.reference)
    with open_alignments(sources.bam, sources.reference) as alignments:
        records = alignments.records() if keep is None else filter(keep, alignments.records())
        first = list(islice(records, _GUARD_RECORDS))
        frame = _check_frame(first, index, recipe, table)
        if table is not None:
            recipe = replace(recipe, kmer_centre=frame.kmer_centre)
        _refuse_other_reference(alignments, sequences, sources.reference)
        references = tuple(alignments.header.references)
        known, anchor = find_sites(references, sequences, recipe, table, sites)
        yield ReadStream(
            recipe=recipe,
            frame=frame,
            bad_files=index.bad_files,
            _sources=sources,
            _alignments=alignments,
            _records=_chain(first, records),
            _examiner=Examiner(known, index, sources.min_mapq, anchor),
            _cutter=Cutter(index.files, known, references, recipe, label, sample),
        )


def _refuse_other_reference(alignments: AlignmentReader, sequences: Mapping[str, str], fasta: Path) -> None:
    """Refuse a FASTA in which a reference is not as long as the BAM says, or has another checksum.

    Positions on one are none on the other, and nothing later on would notice: sites would be looked for elsewhere.
    """
    header = alignments.header
    other = [
        f"'{name}' has {len(sequences[name])} bases there and {length} in the header"
        for name, length in zip(header.references, header.lengths, strict=True)
        if name in sequences and len(sequences[name]) != length
    ]
    if not other:
        other = [
            f"'{name}' has another checksum (M5) in the header"
            for name, checksum in _stated_checksums(header)
            if name in sequences and checksum.lower() not in _checksums(sequences[name])
        ]
    if other:
        raise MismatchError(
            f"'{fasta}' is not the FASTA that '{alignments.name}' was aligned to: {other[0]}"
            + (f", and {len(other) - 1} more differ." if len(other) > 1 else "."),
            hint="Give the FASTA of the alignment with --reference, or align again.",
        )


def _stated_checksums(header: pysam.AlignmentHeader) -> Iterator[tuple[str, str]]:
    try:
        lines = header.to_dict().get("SQ", [])
    except UnicodeDecodeError:
        # Whether that matters is for whoever writes the header again.
        return
    for line in lines:
        if "M5" in line:
            yield line["SN"], line["M5"]


def _checksums(sequence: str) -> set[str]:
    # FASTA are read with T, and the sum may be one of U.
    forms = (sequence, sequence.replace("T", "U"))
    return {hashlib.md5(form.encode(), usedforsecurity=False).hexdigest() for form in forms}


def _index_pod5(sources: ReadSources) -> Pod5Index:
    index = Pod5Index.build(find_pod5(sources.pod5), strict=sources.strict)
    for file in index.bad_files:
        logger.warning("POD5 file %s; going on without it.", file)
    if index.num_repeated:
        logger.warning(
            "%d read ids lie in the POD5 files more than once; of each, the first file's signal is used.",
            index.num_repeated,
        )
    return index


_worker: tuple[Cutter, SignalSource] | None = None
"""A worker process's own cutter; set once when the process starts, and None everywhere else."""


def _start_worker(cutter: Cutter) -> None:
    global _worker
    # One decoding thread per process: the processes are the parallelism.
    os.environ["RAYON_NUM_THREADS"] = "1"
    _worker = (cutter, SignalSource(cutter.files))


def _cut_in_worker(reads: AlignedReads) -> CutResult:
    assert _worker is not None
    cutter, source = _worker
    return cutter.cut(reads, source)


def _join(records: list[pysam.AlignedSegment], reasons: list[str | None], result: CutResult) -> RecordBatch:
    cut_outcomes = iter(result.outcomes)
    return RecordBatch(records, [reason or next(cut_outcomes) for reason in reasons], result)


def _in_batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def _chain(first: list[T], rest: Iterator[T]) -> Iterator[T]:
    first.reverse()
    while first:
        # Let go of each record once it is handed on.
        yield first.pop()
    yield from rest


def _first_located(records: Sequence[pysam.AlignedSegment], index: Pod5Index) -> tuple[AlignedReads, list[str]]:
    """Return the first reads that have signal, :data:`GUARD_READS` at most, and their basecalled sequences."""
    found: list[tuple[Description, str, int]] = []
    for block in _in_batches(records, GUARD_READS):
        described = [(describe_record(record), record) for record in block]
        usable = [(read, record.query_sequence or "") for read, record in described if not isinstance(read, str)]
        positions = index.positions([read.parent_id for read, _ in usable]).tolist()
        found += [(*read, position) for read, position in zip(usable, positions, strict=True) if position >= 0]
        if len(found) >= GUARD_READS:
            break
    del found[GUARD_READS:]
    file_number = index.file_numbers[np.array([position for _, _, position in found], dtype=np.int64)]
    return AlignedReads.of([read for read, _, _ in found], file_number.astype(np.int64)), [text for _, text, _ in found]


def _check_frame(
    records: Sequence[pysam.AlignedSegment], index: Pod5Index, recipe: Recipe, table: KmerTable | None
) -> FrameVerdict:
    reads, sequences = _first_located(records, index)
    signals = SignalSource(index.files).fetch(zip(reads.file_number.tolist(), reads.parent_ids, strict=True))
    evidence = gather_evidence(reads, sequences, signals)
    verdict = judge_frame(evidence, recipe.reverse_signal, table, recipe.kmer_centre)
    if verdict.is_decided:
        logger.info(
            "Signal frame: %d of %d reads confirm it (median correlation with %s %.2f; other frame %.2f).",
            verdict.votes_for,
            verdict.num_reads,
            "built-in levels of single bases" if table is None else "the levels of the k-mer table",
            verdict.correlation,
            verdict.other_correlation,
        )
    else:
        logger.warning(
            "Signal frame not verified: of %d reads with signal %d voted, and it takes %d.",
            verdict.num_reads,
            verdict.votes_for + verdict.votes_against,
            MIN_VOTES,
        )
    if table is not None:
        logger.info("K-mer centre: position %s of 0..%d.", verdict.kmer_centre, table.size - 1)
        if verdict.is_decided and (verdict.correlation or 0.0) < MIN_CORRELATION:
            logger.warning(
                "The reads fit the levels of the k-mer table badly (median correlation %.2f), so expected levels mean little; "
                "check that --kmer-table is of this pore, and leave out --kmer-centre.",
                verdict.correlation,
            )
    return verdict
