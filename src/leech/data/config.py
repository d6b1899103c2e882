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
    read_sites: Path | None = knob(
        None,
        help="Table with one site per read: a header line and the tab-separated columns read_id, position (focus base, "
        "0-based on the reference) and, if wanted, label. Reads that it does not list are counted.",
    )
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
        help="Largest share of the mapped primary reads that may fail; more is an error. Those that an option asks to leave "
        "out do not count. Default: a warning above 0.5.",
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
    sites: Path | None = knob(
        None,
        help="BED with one site per reference (reference, start, end, and optionally name); the interval's first base "
        "is the focus.",
    )
    label_from_name: bool = knob(
        False, help="Take each read's label from the name column of --sites instead of --label."
    )
    workers: int = knob(
        1, minimum=1, maximum=512, help="Processes that decode and cut; the corpus is the same at any number."
    )
    batch_reads: int = knob(500, minimum=1, expose=False, help="Reads handed to a worker at once.")

    def __post_init__(self) -> None:
        for option, name in (("--label", self.label), ("--sample", self.sample)):
            if name is not None and (name != name.strip() or not name.isprintable() or not name):
                raise ValueError(
                    f"{option} {name!r} is no name: it must not be empty, begin or end with a space or hold tabs or line "
                    "ends; leave the option out where there is none"
                )


@dataclass(frozen=True, kw_only=True)
class MergeConfig:
    """How ``leech data merge`` joins and splits."""

    split: tuple[float, ...] = knob(
        (0.7, 0.15, 0.15),
        minimum=0.0,
        maximum=1.0,
        metavar="SHARE...",
        help="Shares of parent reads for train, validation and test, and a fourth for calibration; sum 1.",
    )
    split_by: Literal["read", "reference", "isotype", "flow_cell", "sample", "run"] = knob(
        "read",
        help="What stays whole: single parent reads, or all reads of a reference, amino acid, flow cell, sample or run.",
    )
    hold_out: tuple[str, ...] = knob(
        (),
        metavar="COLUMN=VALUE[,VALUE]",
        help="Make the test split of all reads of these references, isotypes, flow cells, samples or runs; the other shares "
        "divide the rest. Repeatable.",
    )
    folds: int | None = knob(None, minimum=2, maximum=1000, help="Divide by K-fold cross-validation; needs --fold.")
    fold: int | None = knob(
        None, minimum=1, help="Which fold, from 1, is the test split; the other shares divide the other folds."
    )
    subsample: int | None = knob(
        None, minimum=1, help="Chunks kept of every label at most (of every label and group with --balance-by)."
    )
    balance: bool = knob(
        False,
        help="Keep as many chunks of one label as of another in every split (and in every group of --balance-by).",
    )
    balance_by: Literal["reference", "isotype", "flow_cell", "sample", "run"] | None = knob(
        None, help="What --subsample and --balance count by, beside the label."
    )
    weight: tuple[str, ...] = knob(
        (),
        metavar="CORPUS=WEIGHT",
        help="Weight of a corpus's chunks in the training loss; 1 where none is given. Repeatable.",
    )
    positive_label: str | None = knob(None, help="Which of two labels counts as positive; training needs to know.")
    seed: int = knob(0, minimum=0, help="Seed of the split and of what is left out.")

    def __post_init__(self) -> None:
        given = " ".join(f"{share:g}" for share in self.split)
        if len(self.split) not in (3, 4):
            raise ValueError(
                f"--split takes three shares (train, validation, test) or four (calibration), got {len(self.split)}: {given}"
            )
        if abs(sum(self.split) - 1) > 1e-6:
            raise ValueError(f"split shares {given} sum to {sum(self.split):g}; they must sum to 1")


@dataclass(frozen=True, kw_only=True)
class InspectConfig:
    """How ``leech data inspect`` looks."""

    html: Path | None = knob(None, help="Page to write, one file with all tables and figures in it.")
    sample: int = knob(
        10000, minimum=0, help="Chunks looked at one by one for geometry, levels and dwell, as many of every label."
    )
    examples: int = knob(
        3,
        minimum=0,
        maximum=100,
        help="Chunks of every label that are shown one by one, of as many references as there are.",
    )
    seed: int = knob(0, minimum=0, help="Seed of the choice of chunks.")


@dataclass(frozen=True, kw_only=True)
class ViewConfig:
    """Which chunk ``leech data view`` draws."""

    read_id: str = knob(help="Read whose chunk is drawn, as the BAM names it.")
    width: int | None = knob(
        None, minimum=1, maximum=20000, help="Width of a .png in pixels. Default: twice that of the .svg."
    )
