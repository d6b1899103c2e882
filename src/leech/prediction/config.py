"""Settings of ``leech predict``.

Belongs here: what a user may choose about a prediction run; what is cut and how it is judged comes from the model folder.
Neither numpy nor torch, because flags are made from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from leech.config import knob


@dataclass(frozen=True, kw_only=True)
class PredictConfig:
    """How ``leech predict`` runs."""

    tables: Path | None = knob(None, help="Folder for the gzip TSV tables of calls; none are written by default.")
    sample: str | None = knob(None, help="Name that the tables' files begin with; default: the output's name.")
    threshold_cl: int | None = knob(
        None, minimum=1, maximum=255, help="Smallest cl that counts as positive in the tables; default: the model's."
    )
    workers: int = knob(
        1, minimum=1, maximum=512, help="Processes that decode and cut; the calls are the same at any number."
    )
    batch_size: int = knob(
        512, minimum=1, maximum=65536, help="Chunks given to the network at once; every read is called at any size."
    )
    device: Literal["auto", "cpu", "cuda"] = knob("auto", help="Where to compute; 'auto' is a GPU where there is one.")
    batch_records: int = knob(1000, minimum=1, expose=False, help="BAM records held in memory at once per worker.")

    def __post_init__(self) -> None:
        if self.sample is not None and (not self.sample or "/" in self.sample):
            raise ValueError(f"sample '{self.sample}' begins the tables' file names, so it is a name without '/'")
