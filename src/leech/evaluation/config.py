"""Settings of the evaluation commands.

Belongs here: dataclasses for ``leech eval ...`` and ``leech data check``; neither numpy nor torch, because flags are made
from them. What a metric is lies in ``metrics.py``; the operating point belongs to the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
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


@dataclass(frozen=True, kw_only=True)
class CheckConfig:
    """How ``leech data check`` runs."""

    control_offset: int = knob(
        -35,
        help="Where the control window lies: bases from the site, at least 20 between the site and its nearest base.",
    )
    control: Path | None = knob(
        None, help="Corpus of the same reads prepared at a control site; default: they are cut again from the inputs."
    )
    group_by: Literal["parent", "flow_cell", "reference"] = knob(
        "parent", help="What is never on both sides of the cross-validation: a parent read, a flow cell or a reference."
    )
    allow: tuple[Literal["reference", "flow_cell", "run", "adapter", "mapq", "speed"], ...] = knob(
        (),
        metavar="COLUMN...",
        help="Identity that goes with the label by design, such as one flow cell per library: shown, but no part of the "
        "verdict.",
    )
    max_reads: int = knob(4000, minimum=20, help="Reads per label, drawn at random; more take longer.")
    folds: int = knob(5, minimum=2, maximum=100, help="Folds of the cross-validation.")
    fail_above: float | None = knob(
        None,
        minimum=0.0,
        maximum=1.0,
        help="Exit with 1 when an AUROC that should be near 0.5 exceeds this, or the control window cannot be probed.",
    )
    bootstrap: int = knob(
        1000, minimum=1, maximum=100000, help="Resamplings of parent reads behind the 95 % intervals."
    )
    seed: int = knob(0, minimum=0, help="Seed of the reads drawn, the folds, the models and the resampling.")


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """What ``leech report`` shows."""

    metrics: tuple[Path, ...] = knob((), help="Metrics of 'leech eval test'; give it again, or several after it.")
    scores: tuple[Path, ...] = knob(
        (),
        help="Scores read by read of 'leech eval test --scores'; several may be given. With --corpus, the signal "
        "is shown by call too, that of the first.",
    )
    calls: tuple[Path, ...] = knob(
        (), help="Folder of tables of 'leech predict', with one sample or many; several may be given."
    )
    corpus: Path | None = knob(None, help="Corpus whose signal around the site is shown.")
    model: Path | None = knob(None, help="Model folder whose training is shown.")
    title: str = knob("leech report", help="Title of the page.")
    multiqc: bool = knob(False, help="Write custom content for MultiQC beside the page too, <name>..._mqc.json.")
    sample: int = knob(
        10000, minimum=0, help="Chunks of the corpus looked at for mean signal and dwell, as many of every label."
    )
    examples: int = knob(3, minimum=0, maximum=100, help="Chunks of every label that are shown one by one.")
    seed: int = knob(0, minimum=0, help="Seed of the choice of chunks.")
