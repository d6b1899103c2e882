"""Settings of the evaluation commands.

Belongs here: dataclasses for ``leech eval ...`` and ``leech data check``; neither numpy nor torch, because flags are made
from them. What a metric is lies in ``metrics.py``; the operating point belongs to the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from leech.config import knob

Goal = Literal["fpr", "precision", "recall"]

MAX_FOLDS = 10
"""Each class has this many reads at least, so that every fold holds some."""


@dataclass(frozen=True, kw_only=True)
class ScoringConfig:
    """What all commands share that score chunks and give intervals."""

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
class EvalConfig(ScoringConfig):
    """How ``leech eval test`` runs."""

    split: Literal["train", "validation", "test", "calibration", "all"] = knob(
        "test",
        help="Split of the corpus to score; 'all' takes every labelled chunk of a corpus, split, left out or neither.",
    )
    scores: Path | None = knob(
        None, help="TSV of the scores read by read, .tsv or .tsv.gz; none is written by default."
    )
    target_fpr: float = knob(
        0.05,
        minimum=0.0,
        maximum=1.0,
        help="FPR for which the sweep over thresholds of two states names one; calls do not change.",
    )


@dataclass(frozen=True, kw_only=True)
class CompareConfig(ScoringConfig):
    """How ``leech eval compare`` runs."""

    data: tuple[Path, ...] = knob(
        (),
        metavar="PATH",
        help="Corpus to score the models on; given again, one for each model in their order, of the same reads.",
    )
    split: Literal["train", "validation", "test", "calibration", "all"] = knob(
        "test", help="Split of the corpora to score; 'all' takes every labelled chunk."
    )
    common_reads: bool = knob(
        False, help="Compare on the reads that all have, where some lack reads that others have; refused otherwise."
    )
    flips: Path | None = knob(
        None, help="TSV of the reads that are not called alike, .tsv or .tsv.gz; none is written by default."
    )


class Target(NamedTuple):
    """What an operating point has to reach: an FPR or less, a precision or a recall or more."""

    goal: Goal
    value: float

    def describe(self) -> str:
        """Return it in words: ``FPR <= 0.02``."""
        return f"FPR <= {self.value:g}" if self.goal == "fpr" else f"{self.goal} >= {self.value:g}"


@dataclass(frozen=True, kw_only=True)
class CalibrateConfig(ScoringConfig):
    """How ``leech model calibrate`` runs."""

    method: Literal["auto", "temperature", "platt", "isotonic", "vector"] = knob(
        "auto",
        help="Form of the calibration: temperature, platt or isotonic for two states, temperature or vector for more; 'auto' "
        "takes the one of least cross-validated log loss on the calibration split.",
    )
    target_fpr: float | None = knob(
        None,
        minimum=0.0,
        maximum=1.0,
        help="Operating point: call as many reads positive as this FPR allows. Without a target the model's stays.",
    )
    target_precision: float | None = knob(
        None,
        minimum=0.0,
        maximum=1.0,
        help="Operating point: call as many reads positive as this precision allows, at the split's prevalence.",
    )
    target_recall: float | None = knob(
        None, minimum=0.0, maximum=1.0, help="Operating point: call as few reads positive as find this share of them."
    )
    folds: int = knob(5, minimum=2, maximum=MAX_FOLDS, help="Folds of the cross-validation between methods.")
    seed: int = knob(0, minimum=0, help="Seed of the folds and of the resampling.")

    def __post_init__(self) -> None:
        if len(self._targets()) > 1:
            raise ValueError("of --target-fpr, --target-precision and --target-recall only one can be met: give one")

    def _targets(self) -> list[Target]:
        given: tuple[tuple[Goal, float | None], ...] = (
            ("fpr", self.target_fpr),
            ("precision", self.target_precision),
            ("recall", self.target_recall),
        )
        return [Target(goal, value) for goal, value in given if value is not None]

    @property
    def target(self) -> Target | None:
        """What the operating point has to reach; None leaves it."""
        return next(iter(self._targets()), None)


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
        10000,
        minimum=0,
        help="Chunks of the corpus looked at for signal and dwell around the site, as many of every label.",
    )
    examples: int = knob(
        3,
        minimum=0,
        maximum=100,
        help="Chunks of every label that are shown one by one, of as many references as there are.",
    )
    seed: int = knob(0, minimum=0, help="Seed of the choice of chunks.")
