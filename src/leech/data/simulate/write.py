"""The files of a simulated run: POD5, BAM, FASTA, k-mer table and truth.

Hides: file formats, processes and the order of writing. Belongs here: writing blocks as they come; what is in them is
``block.py``'s. Invariants: equal settings give equal records, signal and truth at any number of workers; blocks are written in
order as they are made, one POD5 file of the run is open at a time and the BAM is sorted on disk, so memory does not grow with
the run; the folder appears when it is complete.
"""

from __future__ import annotations

import json
import mmap
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import escapepod
import numpy as np
import pysam

from leech.console import Progress, Table, logger
from leech.data.reasons import REASONS
from leech.data.simulate.block import BLOCK_MOLECULES, TRUTH_COLUMNS, Block, BlockMaker, Pod5Read
from leech.data.simulate.config import SimulateConfig
from leech.data.simulate.design import Design, make_design
from leech.data.simulate.layout import Layout, Run
from leech.data.simulate.molecules import CALIBRATION_OFFSET, CALIBRATION_SCALE, SAMPLE_RATE, IndelModel, Pore
from leech.data.simulate.nuisances import USED
from leech.data.simulate.oracle import ScoreHistogram
from leech.data.simulate.tally import Tally
from leech.data.workers import WorkerDiedError, spread
from leech.errors import LeechError
from leech.provenance import Stamp, atomic_folder

_BLOCKS_AHEAD = 2
"""Blocks per worker that are made before the first of them is awaited."""

_SORT_MEMORY = "16M"
_NOTABLE_MISS = 0.02
"""Difference between a share of indels asked for and what the signal allows, above which a warning says so."""

_STRAY_SAMPLES = 4000
_ZSTD_FRAME = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True)
class SimulatedLibrary:
    """What ``simulate`` made.

    :ivar pod5: file or folder of the signal.
    :ivar outcomes: records by what ``prepare`` should count them as, in the order of its own ladder.
    :ivar nuisances: molecules by nuisance.
    :ivar indel_shares: share of reads with an indel across the junction, by state; None for a state without reads.
    :ivar oracle_auroc: of a classifier that knows every parameter of the simulation; None when all reads are of one state.
    """

    path: Path
    pod5: Path
    num_reads: int
    num_charged: int
    num_in_pod5: int
    num_records: int
    outcomes: dict[str, int]
    nuisances: dict[str, int]
    indel_shares: dict[str, float | None]
    oracle_auroc: float | None

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {**vars(self), "path": str(self.path), "pod5": str(self.pod5)}

    def tables(self) -> list[Table]:
        """Return counts and files, and what was done to reads."""
        best = "" if self.oracle_auroc is None else f"{self.oracle_auroc:.4f}"
        rows = [
            ("reads", str(self.num_reads)),
            ("charged", str(self.num_charged)),
            ("with signal in POD5", str(self.num_in_pod5)),
            ("BAM records", str(self.num_records)),
            *(
                (f"junction indels, {state}", "" if share is None else f"{share:.3f}")
                for state, share in self.indel_shares.items()
            ),
            ("oracle AUROC", best),
            ("POD5", str(self.pod5)),
            *((name, str(self.path / name)) for name in ("mappings.bam", "reference.fa", "truth.tsv", "fractions.tsv")),
        ]
        tables = [Table(title="Simulated library", columns=("what", "value"), rows=rows)]
        if self.nuisances:
            hit = [(name, str(number)) for name, number in self.nuisances.items()]
            tables.append(Table(title="Nuisances", columns=("nuisance", "reads"), rows=hit))
        return tables


def simulate(
    config: SimulateConfig, output: Path, *, force: bool, stamp: Stamp, progress: Progress
) -> SimulatedLibrary:
    """Simulate a library and write it into the folder ``output``.

    Writes reads.pod5 (or several files below pod5/), mappings.bam (with index where it is sorted), reference.fa,
    kmer_levels.tsv, truth.tsv, fractions.tsv, outcomes.json and oracle.json.

    :raises ConfigError: an adapter, a k-mer centre or a nuisance that cannot be.
    :raises InputError: ``output`` exists, or a table cannot be read.
    :raises LeechError: a worker died, or a file cannot be written.
    """
    design, layout = make_design(config), Layout.plan(config)
    with atomic_folder(output, force=force) as folder:
        (folder / "reference.fa").write_text("".join(f">{name}\n{text}\n" for name, text in design.references.items()))
        (folder / "kmer_levels.tsv").write_bytes(design.table.text)
        indels = IndelModel.fit(Pore(design), config.indel_charged, config.indel_uncharged)
        _warn_about_indels(config, indels)
        tally, scores = Tally.of(len(design.references)), ScoreHistogram()
        records = folder / "records.sam"
        with (
            progress.task("simulate", unit="reads", total=config.reads) as task,
            Pod5Files(folder, layout, config) as pod5,
            records.open("wb") as sam,
            (folder / "truth.tsv").open("wb") as truth,
        ):
            sam.write(_header(design))
            truth.write(("\t".join(TRUTH_COLUMNS) + "\n").encode())
            for block in _blocks(config, design, indels):
                pod5.write(block)
                sam.write(block.records)
                truth.write(block.truth)
                tally.add(block.tally)
                scores.add(block.charged, block.logits)
                task.advance(len(block.charged))
        _write_bam(config, records, folder / "mappings.bam")
        best = scores.auroc()
        outcomes = {reason: tally.expected[reason] for reason in (*REASONS, USED) if tally.expected[reason]}
        _write_json(folder / "oracle.json", {"auroc": best, "num_reads": config.reads})
        _write_json(folder / "outcomes.json", outcomes)
        _write_fractions(folder / "fractions.tsv", design, tally)
        stamp.write(folder)
    return SimulatedLibrary(
        path=output,
        pod5=output / layout.pod5,
        num_reads=tally.num_reads,
        num_charged=tally.num_charged,
        num_in_pod5=tally.num_in_pod5,
        num_records=tally.num_records,
        outcomes=outcomes,
        nuisances={name: number for name, number in sorted(tally.nuisances.items()) if number},
        indel_shares=tally.indel_shares(),
        oracle_auroc=best,
    )


def _warn_about_indels(config: SimulateConfig, indels: IndelModel) -> None:
    asked, got = (config.indel_charged, config.indel_uncharged), (indels.rate_charged, indels.rate_uncharged)
    if max(abs(one - other) for one, other in zip(asked, got, strict=True)) > _NOTABLE_MISS:
        logger.warning(
            "Indels across the junction come from the signal, and it does not tell the states apart well enough for shares "
            "of %.3f in charged and %.3f in uncharged reads; they will be near %.3f and %.3f.",
            *asked,
            *got,
        )


def _header(design: Design) -> bytes:
    lines = ["@HD\tVN:1.6\tSO:unsorted"]
    lines += [f"@SQ\tSN:{name}\tLN:{len(text)}" for name, text in design.references.items()]
    return "\n".join([*lines, "@PG\tID:simulator\tPN:leech data simulate\n"]).encode()


def _write_bam(config: SimulateConfig, records: Path, bam: Path) -> None:
    """Turn SAM into BAM and delete it.

    :raises LeechError: samtools gave up.
    """
    try:
        if config.bam_order == "coordinate":
            parts = str(bam.with_name("sort"))
            pysam.sort("--no-PG", "-m", _SORT_MEMORY, "-T", parts, "-o", str(bam), str(records))
            pysam.index(str(bam))
        else:
            pysam.view("--no-PG", "-b", "-o", str(bam), str(records), catch_stdout=False)
    except pysam.utils.SamtoolsError as error:
        raise LeechError(f"samtools cannot write '{bam}': {error}.", hint="Is the disk full?") from error
    records.unlink()


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _write_fractions(path: Path, design: Design, tally: Tally) -> None:
    """Write the charged share of every tRNA: what was asked for, and what came of it in all and in usable reads."""
    lines = ["reference\tcharged_fraction\treads\treads_charged\tusable\tusable_charged"]
    for (name, share), counts in zip(design.charged_fractions.items(), tally.by_reference.tolist(), strict=True):
        lines.append("\t".join(map(str, (name, share, *counts))))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


class Pod5Files:
    """The POD5 files of a library while they are written.

    Opens one file of the run at a time, and those of corrupt, truncated and repeated reads when they are needed.
    """

    def __init__(self, folder: Path, layout: Layout, config: SimulateConfig) -> None:
        self._folder, self._layout, self._config = folder, layout, config
        self._run_writer: tuple[int, escapepod.Writer] | None = None
        self._side_writers: dict[str, escapepod.Writer] = {}
        self._number = 0

    def __enter__(self) -> Pod5Files:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for writer in self._open_writers():
                writer.abort()
            return
        if not self._number:
            # A POD5 without reads cannot be opened; a read that no record names makes it one of another run.
            generator = np.random.default_rng(self._config.seed)
            signal = generator.integers(300, 500, _STRAY_SAMPLES).astype(np.int16)
            name = str(uuid.UUID(bytes=generator.bytes(16), version=4))
            self._add(Pod5Read(name, 0, len(signal), "run", False, None), signal)
        with _write_errors(self._folder):
            for writer in self._open_writers():
                writer.close()
        if "corrupt" in self._side_writers:
            _spoil_signal(self._folder / self._layout.side_path("corrupt"))
        if "truncated" in self._side_writers:
            path = self._folder / self._layout.side_path("truncated")
            os.truncate(path, path.stat().st_size // 2)

    def write(self, block: Block) -> None:
        """Write the reads of a block.

        :raises LeechError: a file cannot be written.
        """
        start = 0
        for read in block.reads:
            self._add(read, block.signal[start : start + read.num_samples])
            start += read.num_samples

    def _open_writers(self) -> list[escapepod.Writer]:
        return [*([] if self._run_writer is None else [self._run_writer[1]]), *self._side_writers.values()]

    def _add(self, read: Pod5Read, signal: np.ndarray[Any, np.dtype[np.int16]]) -> None:
        self._number += 1
        with _write_errors(self._folder):
            self._add_to(self._writer_of(read), read, signal)
            if read.is_repeated:
                self._add_to(self._side_writer("repeated"), read, signal)

    def _add_to(self, writer: escapepod.Writer, read: Pod5Read, signal: np.ndarray[Any, np.dtype[np.int16]]) -> None:
        number = self._number
        run = self._layout.run_of(read.molecule)
        writer.add_read(
            read_id=read.read_id,
            read_number=number,
            start_sample=number * 20000,
            channel=number % 2675 + 1,
            well=number % 4 + 1,
            pore_type="not_set",
            calibration_offset=CALIBRATION_OFFSET,
            calibration_scale=CALIBRATION_SCALE if read.calibration_scale is None else read.calibration_scale,
            median_before=200.0,
            end_reason="signal_positive",
            end_reason_forced=False,
            # A file of the run knows its own run only, the others know all of them.
            run_info_index=0 if self._is_of_run(writer) else self._layout.runs.index(run),
            num_minknow_events=len(signal) // 36,
            signal=signal,
        )

    def _is_of_run(self, writer: escapepod.Writer) -> bool:
        return self._run_writer is not None and writer is self._run_writer[1]

    def _writer_of(self, read: Pod5Read) -> escapepod.Writer:
        if read.place != "run":
            return self._side_writer(read.place)
        file = self._layout.file_of(read.molecule)
        if self._run_writer is None or self._run_writer[0] != file:
            if self._run_writer is not None:
                self._run_writer[1].close()
            writer = self._open(self._layout.path(file), [self._layout.run_of(read.molecule)])
            self._run_writer = file, writer
        return self._run_writer[1]

    def _side_writer(self, place: str) -> escapepod.Writer:
        if place not in self._side_writers:
            self._side_writers[place] = self._open(self._layout.side_path(place), list(self._layout.runs))
        return self._side_writers[place]

    def _open(self, path: Path, runs: list[Run]) -> escapepod.Writer:
        place = self._folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        writer = escapepod.Writer(str(place), software="leech")
        for run in runs:
            writer.add_run_info(
                escapepod.create_run_info(
                    acquisition_id=run.acquisition_id,
                    protocol_run_id=run.acquisition_id,
                    flow_cell_id=run.flow_cell,
                    sample_id=self._config.sample,
                    sample_rate=SAMPLE_RATE,
                    sequencing_kit="sqk-rna004",
                    experiment_name="simulated",
                    software="leech",
                )
            )
        return writer


@contextmanager
def _write_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except escapepod.Pod5Error as error:
        raise LeechError(f"Cannot write POD5 below '{folder}': {error}.", hint="Is the disk full?") from error


def _spoil_signal(path: Path) -> None:
    """Overwrite the beginning of every compressed piece of signal in a POD5 file, so that none can be decoded."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        place = content.find(_ZSTD_FRAME)
        while place >= 0:
            content[place : place + len(_ZSTD_FRAME)] = bytes(len(_ZSTD_FRAME))
            place = content.find(_ZSTD_FRAME, place)


_maker: BlockMaker | None = None
"""A worker process's own maker of blocks; set once when the process starts, and None everywhere else."""


def _start_worker(config: SimulateConfig, design: Design, indels: IndelModel) -> None:
    global _maker
    _maker = BlockMaker(config, design, indels)


def _make_in_worker(number: int) -> Block:
    assert _maker is not None
    return _maker.make(number)


def _blocks(config: SimulateConfig, design: Design, indels: IndelModel) -> Iterator[Block]:
    """Yield all blocks in order.

    :raises LeechError: a worker died.
    """
    numbers = range(-(-config.reads // BLOCK_MOLECULES))
    workers = min(config.workers, len(numbers))
    if workers == 1:
        maker = BlockMaker(config, design, indels)
        yield from map(maker.make, numbers)
        return
    tasks = ((None, number) for number in numbers)
    try:
        for _, block in spread(
            _make_in_worker,
            tasks,
            workers,
            ahead=_BLOCKS_AHEAD,
            start=_start_worker,
            arguments=(config, design, indels),
        ):
            yield block
    except WorkerDiedError as error:
        raise LeechError(
            "A worker process died before its reads were made, so the library would be incomplete; nothing was kept.",
            hint="It was killed, most often for want of memory; run again with fewer --workers.",
        ) from error
