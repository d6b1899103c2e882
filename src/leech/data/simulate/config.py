"""Settings of the simulator; no numpy, because flags are made from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from leech.config import knob
from leech.data.simulate.nuisances import NUISANCES

THREE_PRIME_ADAPTER = "GGCTTCTTCTTGCTCTTCCAACCTTGCCTTAAAAAAAAAA"


@dataclass(frozen=True, kw_only=True)
class SimulateConfig:
    """One simulated library. Two libraries share references and pore when ``design_seed`` and the k-mer table agree."""

    reads: int = knob(2000, minimum=1, help="Molecules to simulate, each one primary record.")
    charged_fraction: float = knob(
        0.5, minimum=0.0, maximum=1.0, help="Share of molecules whose tRNA carries its amino acid."
    )
    charged_fractions: Path | None = knob(
        None,
        help="Table reference<TAB>fraction of the charged share of single tRNAs; --charged-fraction holds for the others.",
    )
    seed: int = knob(0, minimum=0, help="Seed of the reads: molecules drawn, dwell, noise, errors.")
    design_seed: int = knob(
        0, minimum=0, help="Seed of the references, of the synthetic pore model and of the amino acids' effects."
    )
    num_references: int = knob(20, minimum=1, maximum=1000, help="Number of tRNA references.")
    kmer_table: Path | None = knob(
        None, help="Real k-mer level table; default: a synthetic one, written beside the reads."
    )
    kmer_centre: int | None = knob(
        None,
        minimum=0,
        help="Position within the k-mer whose base carries the level; default: 3 of 9, 0 of the synthetic 5.",
    )
    sample: str = knob("simulated", help="Sample name in the POD5 run information.")
    flow_cell: str = knob("SIM00001", help="Flow cell id in the POD5 run information.")
    flow_cells: int = knob(
        1, minimum=1, maximum=100, help="Flow cells; the second is called as --flow-cell with '-2' behind, and so on."
    )
    runs: int = knob(1, minimum=1, maximum=100, help="Sequencing runs on each flow cell.")
    pod5_reads: int = knob(
        20000,
        minimum=1,
        help="Molecules per POD5 file at most. A single file is reads.pod5; several lie in a tree pod5/<flow cell>/<run>/.",
    )
    bam_order: Literal["coordinate", "read"] = knob(
        "coordinate", help="Order of the BAM: sorted and indexed, or as the reads lie in the POD5."
    )
    adapter: str = knob(
        THREE_PRIME_ADAPTER, help="3' adapter of the references and of the reads, 5'->3' from the base behind CCA."
    )
    adapter_charged: str | None = knob(
        None, help="3' adapter of charged reads, where it is another; reads are aligned as far as it agrees."
    )
    adapter_uncharged: str | None = knob(None, help="The same of uncharged reads.")
    speed_charged: float = knob(
        1.0,
        minimum=0.1,
        maximum=10.0,
        help="Speed of charged reads relative to uncharged ones; another than 1 is a shortcut that the oracle does not take.",
    )
    effect: float = knob(
        1.0, minimum=0.0, maximum=10.0, help="Strength of the amino acids' effects; 0 leaves no difference."
    )
    indel_charged: float = knob(
        0.52, minimum=0.0, maximum=1.0, help="Share of charged reads with an indel across the junction."
    )
    indel_uncharged: float = knob(
        0.024,
        minimum=0.0,
        maximum=1.0,
        help="The same of uncharged reads, at most that of charged ones; an indel comes from the signal, so shares that the "
        "signal cannot tell apart are met as closely as they can be, and the result says how closely.",
    )
    split_fraction: float = knob(
        0.02, minimum=0.0, maximum=1.0, help="Share of molecules that lie two to a POD5 read (tags pi and sp)."
    )
    missing_fraction: float = knob(
        0.01, minimum=0.0, maximum=1.0, help="Share of molecules whose signal is not in the POD5."
    )
    secondary_fraction: float = knob(0.02, minimum=0.0, maximum=1.0, help="Secondary records (SEQ '*') per molecule.")
    supplementary_fraction: float = knob(
        0.01, minimum=0.0, maximum=1.0, help="Supplementary, hard-clipped records per molecule."
    )
    duplicate_fraction: float = knob(0.005, minimum=0.0, maximum=1.0, help="Records written twice, per molecule.")
    unmapped_fraction: float = knob(0.01, minimum=0.0, maximum=1.0, help="Unmapped records per molecule.")
    nuisance: tuple[str, ...] = knob(
        (),
        metavar="NAME=FRACTION",
        help="Share of molecules with this fault or peculiarity, which the truth names. Repeatable. Names: "
        + ", ".join(NUISANCES)
        + ".",
    )
    workers: int = knob(
        1, minimum=1, maximum=512, help="Processes that simulate; the reads are the same at any number."
    )

    def __post_init__(self) -> None:
        # Folders are named after it.
        if "/" in self.flow_cell or self.flow_cell in ("", ".", "..") or not self.flow_cell.isprintable():
            raise ValueError(f"flow_cell {self.flow_cell!r} cannot name a folder: it must not be empty or hold a slash")
        if self.indel_uncharged > self.indel_charged:
            raise ValueError(
                f"indel_uncharged {self.indel_uncharged:g} exceeds indel_charged {self.indel_charged:g}; "
                "it is the bend of a charged read that makes a basecaller stumble"
            )
