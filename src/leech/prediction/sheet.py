"""A sheet of samples, and what is the same of all runs over one, whatever the model.

Hides: the sheet's form. Belongs here: reading it, where a sample's files go, and that one sample's failure is not the others';
the runs are ``samples.py``'s, those of more than two states ``multiclass/samples.py``'s. Invariants: names of samples can
begin names of files and are told apart; paths start at the sheet's own folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from leech.console import logger
from leech.errors import InputError, LeechError
from leech.prediction.config import PredictConfig, is_sample_name
from leech.prediction.record import RULES
from leech.prediction.tsv import read_tsv

COMBINED = "samples"
"""What the names of the combined tables begin with."""

_COLUMNS = ("sample", "pod5", "bam")

_WITHOUT_EFFECT = ("workers", "batch_size", "batch_records", "device", "gpus", "sample", "tables", "threshold", *RULES)
"""Settings that a sample may be finished with and yet be the same; what threshold and abstention come to is compared apart."""


class Sample(NamedTuple):
    """One line of the sheet."""

    name: str
    pod5: tuple[Path, ...]
    bam: Path


def read_sheet(path: Path) -> list[Sample]:
    """Read a sample sheet: a TSV with the columns sample, pod5 and bam, in any order; others are passed over.

    Several POD5 paths of a sample are separated by ``;``. Relative paths start at the sheet's own folder.

    :raises InputError: unreadable, a missing column, an empty cell, a name that is no file name, or one that comes twice.
    """
    (_, columns), *lines = read_tsv(path, "a sample sheet")
    missing = [column for column in _COLUMNS if column not in columns]
    if missing:
        raise InputError(
            f"Sample sheet '{path}' has no column {' and no column '.join(map(repr, missing))}; it has {', '.join(columns)}.",
            hint="Its header line names sample, pod5 and bam, separated by tabs.",
        )
    samples: dict[str, Sample] = {}
    for number, cells in lines:
        row = dict(zip(columns, cells, strict=True))
        where = f"Sample sheet '{path}' line {number}"
        empty = [column for column in _COLUMNS if not row[column]]
        if empty:
            raise InputError(f"{where}: column '{empty[0]}' is empty.")
        name = row["sample"]
        if not is_sample_name(name) or name == COMBINED:
            raise InputError(
                f"{where}: column 'sample' holds '{name}', which cannot begin the names of the sample's files.",
                hint=f"Give a name without '/', not beginning with '.', and other than '{COMBINED}'.",
            )
        if name in samples:
            raise InputError(f"{where}: column 'sample' holds '{name}' a second time.")
        if row["bam"] == "-":
            raise InputError(f"{where}: column 'bam' is standard input, which can be one sample only.")
        pod5 = tuple(path.parent / part.strip() for part in row["pod5"].split(";") if part.strip())
        samples[name] = Sample(name, pod5, path.parent / row["bam"])
    if not samples:
        raise InputError(f"Sample sheet '{path}' lists no sample.")
    return list(samples.values())


class OneResult(Protocol):
    """The result of one run."""

    def refuse_incomplete(self) -> None:
        """Fail where POD5 files were left out."""

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""


R = TypeVar("R", bound=OneResult)
E = TypeVar("E")


class Called(NamedTuple, Generic[R, E]):
    """What became of the samples, by name.

    :ivar finished: results of those that were run now.
    :ivar earlier: what was found of those that were complete already.
    :ivar failed: why.
    """

    finished: dict[str, R]
    earlier: dict[str, E]
    failed: dict[str, LeechError]

    def refuse_incomplete(self) -> None:
        """Fail where a sample failed or lacks the reads of some POD5 files; what is complete stands.

        :raises LeechError: with the samples' names.
        """
        broken: dict[str, LeechError] = dict(self.failed)
        for name, result in self.finished.items():
            try:
                result.refuse_incomplete()
            except LeechError as error:
                broken[name] = error
        if broken:
            told = (
                f"'{name}': {error.message}" + ("" if error.hint is None else f" ({error.hint})")
                for name, error in broken.items()
            )
            number = len(self.finished) + len(self.earlier) + len(self.failed)
            others = "The other samples are complete. " if len(broken) < number else ""
            raise LeechError(
                f"{len(broken)} of {number} samples failed. {'; '.join(told)}",
                hint=f"{others}The same command again runs only those that are not complete.",
            )

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "samples": {name: result.to_mapping() for name, result in self.finished.items()},
            "complete_already": list(self.earlier),
            "failed": {name: error.message for name, error in self.failed.items()},
        }


def call_each(
    samples: Sequence[Sample], found: Callable[[Sample], E | None], call: Callable[[Sample], R]
) -> Called[R, E]:
    """Call the samples one after the other; one that fails does not stop the others.

    :param found: what there is of a sample that is complete already; None for one that has to be called.
    """
    called: Called[R, E] = Called({}, {}, {})
    for number, sample in enumerate(samples, start=1):
        before = found(sample)
        if before is not None:
            logger.info("Sample '%s' (%d of %d) is complete: nothing to do.", sample.name, number, len(samples))
            called.earlier[sample.name] = before
            continue
        logger.info("Sample '%s', %d of %d.", sample.name, number, len(samples))
        try:
            called.finished[sample.name] = call(sample)
        except LeechError as error:
            logger.error("Sample '%s' failed: %s", sample.name, error.message)
            called.failed[sample.name] = error
    return called


def place_of(sample: Sample, config: PredictConfig, output: Path) -> Path:
    """Return what a sample's run has as its output: its BAM, or the folder of the tables."""
    return output if config.format == "tsv" else output / f"{sample.name}.bam"


def decisive(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings by which two runs over a sample differ."""
    return {name: value for name, value in settings.items() if name not in _WITHOUT_EFFECT}
