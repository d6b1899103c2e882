"""Settings of the simulator; no numpy, because flags are made from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from leech.config import knob


@dataclass(frozen=True, kw_only=True)
class SimulateConfig:
    """One simulated library. Two libraries share molecules and pore when ``design_seed`` and the pore model agree."""

    reads: int = knob(2000, minimum=1, help="Primary reads to simulate.")
    charged_fraction: float = knob(
        0.5, minimum=0.0, maximum=1.0, help="Share of reads whose tRNA carries its amino acid."
    )
    seed: int = knob(0, minimum=0, help="Seed of the reads: molecules drawn, dwell, noise, errors.")
    design_seed: int = knob(
        0, minimum=0, help="Seed of the references, of the synthetic pore model and of the adducts' effects."
    )
    num_references: int = knob(20, minimum=1, maximum=1000, help="Number of tRNA references.")
    kmer_table: Path | None = knob(
        None, help="Real k-mer level table; default: a synthetic one, written beside the reads."
    )
    sample: str = knob("simulated", help="Sample name in the POD5 run information.")
    flow_cell: str = knob("SIM00001", help="Flow cell id in the POD5 run information.")
