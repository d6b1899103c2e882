"""Settings of the simulator; no numpy, because flags are made from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from leech.config import knob


@dataclass(frozen=True, kw_only=True)
class SimulateConfig:
    """One simulated library. Two libraries share molecules and pore when ``design_seed`` and the pore model agree."""

    reads: int = knob(2000, minimum=1, help="Molecules to simulate, each one primary record.")
    charged_fraction: float = knob(
        0.5, minimum=0.0, maximum=1.0, help="Share of molecules whose tRNA carries its amino acid."
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
        "signal cannot tell apart are met as closely as they can be.",
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

    def __post_init__(self) -> None:
        if self.indel_uncharged > self.indel_charged:
            raise ValueError(
                f"indel_uncharged {self.indel_uncharged:g} exceeds indel_charged {self.indel_charged:g}; "
                "it is the bend of a charged read that makes a basecaller stumble"
            )
