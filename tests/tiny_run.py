"""A sequencing run small enough to work out by hand: POD5, BAM and FASTA from explicit values."""

from __future__ import annotations

import array
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import escapepod
import numpy as np
import pysam

from leech.config import build
from leech.data.config import ReadSources

STAMP_TIME = "2026-01-01T00:00:00+00:00"


def read_id(number: int) -> str:
    """Return a UUID that is easy to tell apart."""
    return str(uuid.UUID(int=number))


def ramp(length: int, start: int = 0) -> np.ndarray:
    """Return a signal whose value at raw sample t is start + t, so that a chunk shows where it was cut."""
    return np.arange(start, start + length, dtype=np.int16)


@dataclass(frozen=True)
class TinyRecord:
    """One BAM record; the defaults make a usable read of ten bases."""

    name: str
    sequence: str | None = "ACGTACGTAC"
    moves: Sequence[int] = (1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
    stride: int = 6
    cigar: str | None = "10M"
    position: int = 0
    reference: int = 0
    flag: int = 0
    mapq: int = 60
    tags: Mapping[str, Any] = field(default_factory=lambda: {"ts": 0, "ns": 60})
    mv_type: str = "b"

    def write(self, header: pysam.AlignmentHeader) -> pysam.AlignedSegment:
        """Return the pysam record."""
        record = pysam.AlignedSegment(header)
        record.query_name = self.name
        record.query_sequence = self.sequence
        record.flag = self.flag
        record.mapping_quality = self.mapq
        if self.flag & 4:
            record.reference_id = -1
        else:
            record.reference_id = self.reference
            record.reference_start = self.position
            record.cigarstring = self.cigar
        if len(self.moves):
            record.set_tag("mv", array.array(self.mv_type, [self.stride, *self.moves]))
        for name, value in self.tags.items():
            record.set_tag(name, value)
        return record


def write_pod5(path: Path, signals: Mapping[str, np.ndarray], flow_cell: str = "FC1") -> Path:
    """Write a POD5 file of one run."""
    with escapepod.Writer(str(path)) as writer:
        run = writer.add_run_info(
            escapepod.create_run_info(
                acquisition_id=f"run-of-{flow_cell}", flow_cell_id=flow_cell, sample_id="tiny", sample_rate=4000
            )
        )
        for number, (name, signal) in enumerate(signals.items()):
            writer.add_read(
                read_id=name,
                read_number=number,
                start_sample=0,
                channel=1,
                well=1,
                pore_type="not_set",
                calibration_offset=0.0,
                calibration_scale=0.1462,
                median_before=200.0,
                end_reason="signal_positive",
                end_reason_forced=False,
                run_info_index=run,
                num_minknow_events=0,
                signal=np.asarray(signal, dtype=np.int16),
            )
    return path


def write_bam(path: Path, records: Sequence[TinyRecord], references: Mapping[str, str]) -> Path:
    """Write the records in the order given, without index."""
    header = pysam.AlignmentHeader.from_dict(
        {
            "HD": {"VN": "1.6", "SO": "unsorted"},
            "SQ": [{"SN": name, "LN": len(sequence)} for name, sequence in references.items()],
        }
    )
    with pysam.AlignmentFile(str(path), "wb", header=header) as file:
        for record in records:
            file.write(record.write(header))
    return path


def write_run(
    folder: Path,
    records: Sequence[TinyRecord],
    signals: Mapping[str, np.ndarray],
    references: Mapping[str, str],
    **sources: Any,
) -> ReadSources:
    """Write a whole run into ``folder`` and return where it lies."""
    folder.mkdir(parents=True, exist_ok=True)
    fasta = folder / "reference.fa"
    fasta.write_text("".join(f">{name}\n{sequence}\n" for name, sequence in references.items()))
    return build(
        ReadSources,
        {
            "pod5": [write_pod5(folder / "reads.pod5", signals)],
            "bam": write_bam(folder / "mappings.bam", records, references),
            "reference": fasta,
            **sources,
        },
    )
