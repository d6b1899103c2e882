"""Settings of ``leech predict``.

Belongs here: what a user may choose about a prediction run; what is cut and how it is judged comes from the model folder.
Neither numpy nor torch, because flags are made from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from leech.config import knob
from leech.errors import ConfigError


def is_sample_name(name: str) -> bool:
    """Return whether a name can begin files' names and be a cell of a table."""
    is_one_line = len(name.splitlines()) == 1
    return is_one_line and not name.startswith(".") and "/" not in name and not any(map(_is_control, name))


def _is_control(character: str) -> bool:
    return ord(character) < 32 or ord(character) == 127


@dataclass(frozen=True, kw_only=True)
class PredictConfig:
    """How ``leech predict`` runs."""

    format: Literal["bam", "tsv", "both"] | None = knob(
        None,
        help="What is written: the BAM with cl tags, the tables, or both; with 'tsv', --output is the tables' folder. Default: "
        "'both' with --tables or --samples, else 'bam'.",
    )
    tables: Path | None = knob(
        None, help="Folder for the gzip TSV tables; with --format both the default is the folder of --output."
    )
    sample: str | None = knob(
        None, help="Name that the tables' files begin with; default: the output's name, with 'tsv' the input BAM's."
    )
    threshold_cl: int | None = knob(
        None, minimum=1, maximum=255, help="Smallest cl that is called positive; default: the model's."
    )
    threshold: float | None = knob(
        None,
        minimum=0.002,
        maximum=1.0,
        help="The same as a probability, instead: every read at it or above is called positive. It is rounded to a step of "
        "1/255, since the BAM holds nothing finer.",
    )
    min_confidence: float | None = knob(
        None,
        minimum=0.0,
        maximum=1.0,
        help="Make no call (reason low_confidence) where the state that would be called has a lower probability than this.",
    )
    abstain_junction_indel: bool = knob(
        False,
        help="Make no call (reason junction_indel) where the alignment has an indel at the site's motif or does not cover it. "
        "The positive state may cause such indels itself, so this takes more reads from it and lowers its fraction.",
    )
    index: bool = knob(False, help="Write OUTPUT.bai too; takes records that are sorted by position.")
    min_depth: int = knob(
        50, minimum=1, help="Calls from which on the summaries mark a fraction as resting on enough reads."
    )
    fpr: float | None = knob(
        None,
        minimum=0.0,
        maximum=1.0,
        help="Share of negative reads that are called positive, for the corrected fractions; needs --tpr. Default: what the "
        "model's operating point was measured to have on each reference, if it was.",
    )
    tpr: float | None = knob(
        None, minimum=0.0, maximum=1.0, help="Share of positive reads that are called positive; needs --fpr."
    )
    negative_control: Path | None = knob(
        None,
        help="A charging_summary table that this model made, at this threshold and abstention, of a library whose every "
        "molecule is negative, for fractions corrected by each reference's own rates; its predict.json lies beside it. "
        "Needs --positive-control.",
    )
    positive_control: Path | None = knob(None, help="The same of a library whose every molecule is positive.")
    call_rates: tuple[float, float] | None = knob(
        None,
        metavar="POSITIVE NEGATIVE",
        help="Shares of positive and of negative reads that can be called, for fractions corrected for no-calls. Default: "
        "those of the controls, else those of the libraries that the model was trained on, where each was of one state.",
    )
    reference_groups: Path | None = knob(
        None,
        help="TSV with a column reference and any of isodecoder, isoacceptor, amino_acid, for references whose names say "
        "nothing of them.",
    )
    workers: int = knob(
        1, minimum=1, maximum=512, help="Processes that decode and cut; the calls are the same at any number."
    )
    batch_size: int = knob(
        512, minimum=1, maximum=65536, help="Chunks given to the network at once; the calls are the same at any size."
    )
    device: Literal["auto", "cpu", "cuda"] = knob("auto", help="Where to compute; 'auto' is a GPU where there is one.")
    gpus: int | None = knob(
        None,
        minimum=1,
        maximum=64,
        help="GPUs (with --device cpu: copies of the network) that compute side by side; the calls are the same with any "
        "number. Default: 1.",
    )
    batch_records: int = knob(500, minimum=1, expose=False, help="BAM records held in memory at once per worker.")

    def __post_init__(self) -> None:
        if self.sample is not None and not is_sample_name(self.sample):
            raise ValueError(
                f"sample {self.sample!a} begins the tables' file names and stands in tables, so it is a name without '/', "
                "tabs and line ends that does not begin with '.'"
            )

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that are read beside the run itself."""
        given = (self.negative_control, self.positive_control, self.reference_groups)
        return tuple(path for path in given if path is not None)

    def refuse_contradictions(self) -> None:
        """Refuse options that cannot be carried out together.

        :raises ConfigError: naming them.
        """
        for is_wrong, message in self._contradictions():
            if is_wrong:
                raise ConfigError(message)

    def _contradictions(self) -> Iterator[tuple[bool, str]]:
        yield (
            self.threshold is not None and self.threshold_cl is not None,
            "--threshold and --threshold-cl say the same thing in two ways; give one of them.",
        )
        yield (
            (self.fpr is None) != (self.tpr is None),
            "--fpr and --tpr correct fractions together; give both or neither.",
        )
        yield (
            self.fpr is not None and self.tpr is not None and self.tpr <= self.fpr,
            f"--tpr {self.tpr} must lie above --fpr {self.fpr}: calls that say nothing cannot be corrected.",
        )
        yield (
            (self.negative_control is None) != (self.positive_control is None),
            "--negative-control and --positive-control correct fractions together; give both or neither.",
        )
        yield (
            self.fpr is not None and self.negative_control is not None,
            "--fpr and --tpr say what the controls would tell; give one or the other.",
        )
        yield (
            self.call_rates is not None and not all(0 < rate <= 1 for rate in self.call_rates),
            "--call-rates must lie above 0, up to 1: of a state that is never called nothing is known.",
        )
        yield (
            self.format == "bam" and self.tables is not None,
            "--format bam writes no tables, and --tables says where they go; give one of them.",
        )
        yield (
            self.format == "tsv" and self.tables is not None,
            "With --format tsv the tables go to --output; leave out --tables.",
        )
        yield self.format == "tsv" and self.index, "--index goes with a BAM, and --format tsv writes none."
