"""The files of a simulated run: POD5, BAM, FASTA, k-mer table and truth.

Hides: tags, ids, split reads and the other nuisances of real files. Belongs here: turning molecules into records; how
molecules come about is in ``molecules.py``. Invariants: equal settings give equal records, signal and truth; molecules are
drawn and written in batches, so memory does not grow with the run; the folder appears when it is complete.
"""

from __future__ import annotations

import array
import json
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import escapepod
import numpy as np
import pysam

from leech.console import Progress, Table
from leech.data.simulate.basecall import STRIDE, Basecall, basecall
from leech.data.simulate.config import SimulateConfig
from leech.data.simulate.design import Design, make_design
from leech.data.simulate.molecules import (
    CALIBRATION_OFFSET,
    CALIBRATION_SCALE,
    SAMPLE_RATE,
    IndelModel,
    Molecule,
    draw_molecules,
)
from leech.data.simulate.oracle import oracle_auroc
from leech.provenance import Stamp, atomic_folder

_BATCH = 500
TRUTH_COLUMNS = (
    "read_id",
    "parent_id",
    "reference",
    "charged",
    "in_pod5",
    "junction_indel",
    "oracle_logit",
    "speed",
    "focus_start_sample",
    "focus_end_sample",
)
"""Focus: the A of CCA; its samples as a half-open range of the POD5 read's raw signal in time order."""


@dataclass(frozen=True)
class SimulatedLibrary:
    """What ``simulate`` made.

    :ivar oracle_auroc: of a classifier that knows every parameter of the simulation; None when all reads are of one state.
    """

    path: Path
    num_reads: int
    num_charged: int
    num_in_pod5: int
    num_records: int
    oracle_auroc: float | None

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {**vars(self), "path": str(self.path)}

    def tables(self) -> list[Table]:
        """Return counts and files."""
        best = "" if self.oracle_auroc is None else f"{self.oracle_auroc:.4f}"
        rows = [
            ("reads", str(self.num_reads)),
            ("charged", str(self.num_charged)),
            ("with signal in POD5", str(self.num_in_pod5)),
            ("BAM records", str(self.num_records)),
            ("oracle AUROC", best),
            *((name, str(self.path / name)) for name in ("reads.pod5", "mappings.bam", "reference.fa", "truth.tsv")),
        ]
        return [Table(title="Simulated library", columns=("what", "value"), rows=rows)]


def simulate(
    config: SimulateConfig, output: Path, *, force: bool, stamp: Stamp, progress: Progress
) -> SimulatedLibrary:
    """Simulate a library and write it into the folder ``output``.

    Writes reads.pod5, mappings.bam with index (coordinate-sorted), reference.fa, kmer_levels.tsv, truth.tsv and oracle.json.

    :raises InputError: ``output`` exists, or a k-mer table cannot be read.
    """
    design = make_design(config)
    with atomic_folder(output, force=force) as folder:
        (folder / "reference.fa").write_text("".join(f">{name}\n{text}\n" for name, text in design.references.items()))
        (folder / "kmer_levels.tsv").write_bytes(design.table.text)
        unsorted = folder / "unsorted.bam"
        with ExitStack() as stack:
            library = _Library(config, design, folder, unsorted, stack)
            task = stack.enter_context(progress.task("simulate", unit="reads", total=config.reads))
            for start in range(0, config.reads, _BATCH):
                number = min(_BATCH, config.reads - start)
                library.add(number)
                task.advance(number)
        pysam.sort("--no-PG", "-o", str(folder / "mappings.bam"), str(unsorted))
        pysam.index(str(folder / "mappings.bam"))
        unsorted.unlink()
        both = 0 < library.num_charged < config.reads
        best = oracle_auroc([folder / "truth.tsv"]) if both else None
        (folder / "oracle.json").write_text(json.dumps({"auroc": best, "num_reads": config.reads}, indent=2) + "\n")
        stamp.write(folder)
    return SimulatedLibrary(
        path=output,
        num_reads=config.reads,
        num_charged=library.num_charged,
        num_in_pod5=library.num_in_pod5,
        num_records=library.num_records,
        oracle_auroc=best,
    )


@dataclass
class _Library:
    """The files being written."""

    config: SimulateConfig
    design: Design
    folder: Path
    bam_path: Path
    stack: ExitStack
    num_charged: int = 0
    num_in_pod5: int = 0
    num_records: int = 0
    _number: int = 0
    _pending: list[tuple[Molecule, Basecall, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._generator = np.random.default_rng([self.config.seed, 1])
        self._names = list(self.design.references)
        self._indels = IndelModel.fit(self.design, self.config.indel_charged, self.config.indel_uncharged)
        self._header = pysam.AlignmentHeader.from_dict(
            {
                "HD": {"VN": "1.6", "SO": "unsorted"},
                "SQ": [{"SN": name, "LN": len(text)} for name, text in self.design.references.items()],
                "PG": [{"ID": "simulator", "PN": "leech data simulate"}],
            }
        )
        self._bam = self.stack.enter_context(pysam.AlignmentFile(str(self.bam_path), "wb", header=self._header))
        self._truth: IO[str] = self.stack.enter_context((self.folder / "truth.tsv").open("w", encoding="utf-8"))
        self._truth.write("\t".join(TRUTH_COLUMNS) + "\n")
        self._pod5 = self.stack.enter_context(escapepod.Writer(str(self.folder / "reads.pod5"), software="leech"))
        acquisition = self._uuid()
        self._run = self._pod5.add_run_info(
            escapepod.create_run_info(
                acquisition_id=acquisition,
                protocol_run_id=acquisition,
                flow_cell_id=self.config.flow_cell,
                sample_id=self.config.sample,
                sample_rate=SAMPLE_RATE,
                sequencing_kit="sqk-rna004",
                experiment_name="simulated",
                software="leech",
            )
        )

    def add(self, number: int) -> None:
        """Draw and write ``number`` molecules, with the records that come beside them."""
        config, generator = self.config, self._generator
        names = [self._names[place] for place in generator.integers(0, len(self._names), number)]
        charged = generator.random(number) < config.charged_fraction
        self.num_charged += int(charged.sum())
        molecules = draw_molecules(generator, self.design, names, charged)
        waiting: list[tuple[Molecule, Basecall, bool]] = []
        for molecule in molecules:
            indel = bool(generator.random() < self._indels.chance(molecule))
            junction = self.design.junctions[molecule.reference] - molecule.first
            called = (molecule, basecall(generator, molecule, junction, indel), indel)
            # Half as many pairs as split molecules: each pair takes the one that follows too.
            if waiting or generator.random() < config.split_fraction / (2 - config.split_fraction):
                waiting.append(called)
                if len(waiting) == 2:
                    self._write_read(waiting)
                    waiting = []
            else:
                self._write_read([called])
        if waiting:
            self._write_read(waiting)

    def _write_read(self, parts: Sequence[tuple[Molecule, Basecall, bool]]) -> None:
        """Write one POD5 read that holds one molecule, or two that the basecaller split."""
        parent = self._uuid()
        in_pod5 = bool(self._generator.random() >= self.config.missing_fraction)
        signal = np.concatenate([molecule.raw for molecule, _, _ in parts])
        if in_pod5:
            self._add_signal(parent, signal)
        offset = 0
        for molecule, called, indel in parts:
            read_id = parent if len(parts) == 1 else self._uuid()
            self.num_in_pod5 += in_pod5
            record = self._record(read_id, molecule, called)
            if len(parts) > 1:
                record.set_tag("pi", parent)
                record.set_tag("sp", offset, "i")
            self._write_records(record)
            self._write_truth(read_id, parent, molecule, in_pod5, indel, offset)
            offset += len(molecule.raw)

    def _add_signal(self, read_id: str, signal: np.ndarray[Any, np.dtype[np.int16]]) -> None:
        self._number += 1
        self._pod5.add_read(
            read_id=read_id,
            read_number=self._number,
            start_sample=self._number * 20000,
            channel=self._number % 2675 + 1,
            well=self._number % 4 + 1,
            pore_type="not_set",
            calibration_offset=CALIBRATION_OFFSET,
            calibration_scale=CALIBRATION_SCALE,
            median_before=200.0,
            end_reason="signal_positive",
            end_reason_forced=False,
            run_info_index=self._run,
            num_minknow_events=len(signal) // 36,
            signal=signal,
        )

    def _record(self, read_id: str, molecule: Molecule, called: Basecall) -> pysam.AlignedSegment:
        generator = self._generator
        record = pysam.AlignedSegment(self._header)
        record.query_name = read_id
        record.query_sequence = called.sequence
        record.query_qualities = array.array("B", [20] * len(called.sequence))
        record.reference_id = self._names.index(molecule.reference)
        record.reference_start = called.position
        record.cigartuples = called.cigar
        record.mapping_quality = int(generator.integers(0, 61))
        start = len(molecule.leader)
        record.set_tag("qs", float(np.float32(generator.normal(12, 2))), "f")
        record.set_tag("ns", start + len(molecule.used), "i")
        record.set_tag("ts", start, "i")
        record.set_tag("mv", array.array("b", [STRIDE, *called.moves.tolist()]))
        if "A" in called.sequence and generator.random() < 0.5:
            record.set_tag("MN", len(called.sequence), "i")
            record.set_tag("MM", "A+a.,0;")
            record.set_tag("ML", array.array("B", [int(generator.integers(0, 256))]))
        return record

    def _write_records(self, record: pysam.AlignedSegment) -> None:
        config, generator = self.config, self._generator
        text = record.to_dict()
        extra: list[dict[str, Any]] = []
        if generator.random() < config.duplicate_fraction:
            extra.append(text)
        if generator.random() < config.secondary_fraction:
            other = self._names[generator.integers(0, len(self._names))]
            extra.append({**text, "flag": "256", "ref_name": other, "seq": "*", "qual": "*"})
        if generator.random() < config.supplementary_fraction:
            kept = 30
            clip = len(text["seq"]) - kept
            part = {"seq": text["seq"][:kept], "qual": text["qual"][:kept], "cigar": f"{kept}M{clip}H"}
            other = self._names[generator.integers(0, len(self._names))]
            extra.append({**text, **part, "flag": "2048", "ref_name": other})
        if generator.random() < config.unmapped_fraction:
            nowhere = {"flag": "4", "ref_name": "*", "ref_pos": "0", "map_quality": "0", "cigar": "*"}
            extra.append({**text, **nowhere, "name": self._uuid()})
        records = [record, *(pysam.AlignedSegment.from_dict(fields, self._header) for fields in extra)]
        for one in records:
            self._bam.write(one)
        self.num_records += len(records)

    def _write_truth(
        self, read_id: str, parent: str, molecule: Molecule, in_pod5: bool, indel: bool, offset: int
    ) -> None:
        focus = self.design.junctions[molecule.reference] - molecule.first - 1
        first = offset + len(molecule.leader)
        # Sequence direction to time: [a, b) of n used samples becomes [n - b, n - a).
        end, start = (first + int(molecule.edges[-1] - molecule.edges[place]) for place in (focus, focus + 1))
        cells = (
            read_id,
            parent,
            molecule.reference,
            int(molecule.charged),
            int(in_pod5),
            int(indel),
            f"{molecule.signal_logit:.6g}",
            f"{molecule.speed:.4f}",
            start,
            end,
        )
        self._truth.write("\t".join(map(str, cells)) + "\n")

    def _uuid(self) -> str:
        return str(uuid.UUID(bytes=self._generator.bytes(16), version=4))
