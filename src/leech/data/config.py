"""Settings of the data commands that do not change a chunk's bytes.

Belongs here: dataclasses for ``leech data ...`` beside the recipe; no numpy, because flags are made from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from leech.config import knob


@dataclass(frozen=True, kw_only=True)
class ReadSources:
    """Where reads come from, and how much of them may be missing or bad."""

    pod5: tuple[Path, ...] = knob(help="POD5 file or directory tree; give it again, or several paths after it.")
    bam: Path = knob(help="Aligned BAM, SAM or CRAM with move tables (mv, ts, ns tags); '-' reads standard input.")
    reference: Path = knob(help="FASTA of the references in the BAM.")
    min_mapq: int = knob(
        0, minimum=0, maximum=255, help="Smallest mapping quality used; isodecoders give good reads 0."
    )
    strict: bool = knob(
        False,
        help="Stop before any work at a POD5 file that cannot be read, and make it an error when a read has no signal.",
    )
    max_fail_frac: float | None = knob(
        None,
        minimum=0.0,
        maximum=1.0,
        help="Largest share of the mapped primary reads that may fail; more is an error. Default: a warning above 0.5.",
    )


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """How ``leech data prepare`` runs."""

    label: str | None = knob(None, help="State of every read of this library, for example 'charged'.")
    sample: str | None = knob(None, help="Sample name; default: the POD5 run information's.")
    kmer_table: Path | None = knob(None, help="K-mer level table (KMER<TAB>level, gzip allowed) for expected levels.")
    sort: Literal["records", "read_id"] = knob(
        "records",
        help="Order of the chunks: that of the records, or ascending read id, which is the same for any order of records.",
    )
    workers: int = knob(
        1, minimum=1, maximum=512, help="Processes that decode and cut; the corpus is the same at any number."
    )
    batch_reads: int = knob(500, minimum=1, expose=False, help="Reads handed to a worker at once.")


@dataclass(frozen=True, kw_only=True)
class MergeConfig:
    """How ``leech data merge`` joins and splits."""

    split: tuple[float, float, float] = knob(
        (0.7, 0.15, 0.15),
        minimum=0.0,
        maximum=1.0,
        help="Shares of parent reads for train, validation and test; sum 1.",
    )
    positive_label: str | None = knob(None, help="Which of two labels counts as positive; training needs to know.")
    seed: int = knob(0, minimum=0, help="Seed of the split.")

    def __post_init__(self) -> None:
        if abs(sum(self.split) - 1) > 1e-6:
            raise ValueError(
                f"split shares {' '.join(map(str, self.split))} sum to {sum(self.split):g}; they must sum to 1"
            )
