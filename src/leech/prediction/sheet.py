"""A sheet of samples, and what is the same of all runs over one, whatever the model.

Hides: the sheet's form. Belongs here: reading it, what the samples of a command share, where a sample's files go, how a
finished sample is known again, and that one sample's failure is not the others'; the runs are ``samples.py``'s, those of more
than two states ``multiclass/samples.py``'s. Invariants: names of samples can begin names of files and are told apart; paths
start at the sheet's own folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from leech.config import to_mapping
from leech.console import logger
from leech.data.config import ReadSources
from leech.errors import InputError, LeechError
from leech.models.bundle import DESCRIPTION
from leech.prediction.config import PredictConfig, is_sample_name
from leech.prediction.outputs import OutputFiles
from leech.prediction.record import RULES, choices_of
from leech.prediction.tsv import read_tsv
from leech.provenance import Identity, Stamp, digest_of, refuse_input_as_output

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

    def complete(self, samples: Sequence[Sample], of: Callable[[R], E]) -> dict[str, E]:
        """Return what there is of all complete samples, in the order of the sheet.

        :param of: what of a result is the like of what was found of earlier ones.
        """
        found = {**self.earlier, **{name: of(result) for name, result in self.finished.items()}}
        return {sample.name: found[sample.name] for sample in samples if sample.name in found}

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


def decisive(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings by which two runs over a sample differ."""
    return {name: value for name, value in settings.items() if name not in _WITHOUT_EFFECT}


class Command(NamedTuple):
    """What all samples of a command share, looked at once.

    :ivar sources: their POD5 and BAM are the samples' own.
    :ivar files: which files those of the command are; None for one that is not there.
    :ivar description: sha256 of the model's description.
    """

    model: Path
    sources: ReadSources
    config: PredictConfig
    output: Path
    files: Mapping[Path, Identity | None]
    description: str

    @classmethod
    def begin(cls, model: Path, sources: ReadSources, config: PredictConfig, output: Path) -> Command:
        """Look at the files that the samples share."""
        shared = (model, sources.reference, sources.read_sites, *config.files)
        files = {path: Identity.of(path) for path in shared if path is not None}
        description = hashlib.sha256((model / DESCRIPTION).read_bytes()).hexdigest()
        return cls(model, sources, config, output, files, description)

    def sources_of(self, sample: Sample) -> ReadSources:
        """Return where a sample's reads are."""
        return replace(self.sources, pod5=sample.pod5, bam=sample.bam)

    def config_of(self, sample: Sample) -> PredictConfig:
        """Return how a sample is called."""
        return replace(self.config, sample=sample.name)

    def place_of(self, sample: Sample) -> Path:
        """Return what a sample's run has as its output: its BAM, or the folder of the tables."""
        return self.output if self.config.format == "tsv" else self.output / f"{sample.name}.bam"

    def files_of(self, sample: Sample) -> dict[Path, Identity | None]:
        """Return which files a sample is called from as they are now, the command's among them."""
        return {**self.files, **{path: Identity.of(path) for path in (*sample.pod5, sample.bam)}}

    def identity_of(self, sample: Sample, files: Mapping[Path, Identity | None], **rules: Any) -> str:
        """Return the digest of all that decides a sample's tables; files are known by size, time and, small ones, content.

        :param files: of :meth:`files_of`.
        :param rules: by which reads are called.
        """
        paths = [*sample.pod5, sample.bam, self.sources.reference, self.sources.read_sites, *self.config.files]
        identities = [files[path] for path in paths if path is not None]
        content = {
            "model": self.description,
            **rules,
            "files": [None if identity is None else asdict(identity) for identity in identities],
            "settings": decisive(to_mapping(self.config)),
            "sources": choices_of(self.sources),
        }
        return digest_of(content)

    def stamp_of(self, stamp: Stamp, sample: Sample, files: Mapping[Path, Identity | None]) -> Stamp:
        """Return the provenance of a sample's files.

        :param files: of :meth:`files_of`.
        """
        inputs = [self.model, *sample.pod5, sample.bam, self.sources.reference, self.sources.read_sites]
        identities = (files[path] for path in inputs if path is not None)
        return replace(stamp, inputs=tuple(found for found in identities if found is not None))

    def refuse_inputs(
        self, samples: Sequence[Sample], plan: Callable[[Sample], OutputFiles], combined: Iterable[Path]
    ) -> None:
        """Refuse a folder in which one sample's outputs would take the place of what another is made from.

        :param plan: the files of a sample.
        :param combined: the tables over all samples.
        """
        inputs = [self.sources.reference, self.sources.read_sites, *self.config.files]
        inputs += [path for sample in samples for path in (*sample.pod5, sample.bam)]
        for sample in samples:
            plan(sample).refuse_inputs(inputs)
        for path in combined:
            refuse_input_as_output(path, inputs)
