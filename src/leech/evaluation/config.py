"""Settings of the evaluation commands.

Belongs here: dataclasses for ``leech eval ...``; neither numpy nor torch, because flags are made from them. What a metric
is lies in ``metrics.py``; the operating point belongs to the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from leech.config import knob


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """How ``leech eval test`` runs."""

    split: Literal["train", "validation", "test", "calibration", "all"] = knob(
        "test",
        help="Split of the corpus to score; 'all' takes every labelled chunk of a corpus, split, left out or neither.",
    )
    batch_size: int = knob(
        512, minimum=1, maximum=65536, help="Chunks scored at once; the result does not depend on it."
    )
    device: Literal["auto", "cpu", "cuda"] = knob("auto", help="Where to compute; 'auto' is a GPU where there is one.")
    bootstrap: int = knob(
        1000,
        minimum=0,
        maximum=100000,
        help="Resamplings of parent reads behind the 95 % intervals; 0 leaves them out.",
    )
    seed: int = knob(0, minimum=0, help="Seed of the resampling.")
