"""Several runs at once: a sheet of samples in, outputs per sample and tables over all of them out.

Hides: the sheet's form, which samples are done already, and that one sample's failure is not the others'. Belongs here: what
is done sample by sample; one run is ``predict.py``'s. Invariants: a sample's files are complete or not there; a sample that was
finished by the same model, inputs and settings is not run again; the combined tables hold every sample that is complete;
a failed sample makes the whole run fail, by name, at its end.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from leech.config import to_mapping
from leech.console import Progress, Table
from leech.data.config import ReadSources
from leech.errors import ConfigError, MismatchError
from leech.models.bundle import DESCRIPTION, read_bundle
from leech.prediction.config import PredictConfig
from leech.prediction.multiclass.samples import ClassSamplesResult, predict_class_samples
from leech.prediction.names import CLASS_SUMMARY, RECORD, SUMMARIES
from leech.prediction.outputs import OutputFiles
from leech.prediction.predict import Caller, PredictResult, predict_run
from leech.prediction.record import RUN_AGAIN, Calling, choices_of, read_record, told
from leech.prediction.sheet import COMBINED, Called, Sample, call_each, decisive, place_of
from leech.prediction.sheet import read_sheet as read_sheet
from leech.prediction.summary import Summarised, shown, write_combined
from leech.prediction.tally import Tally
from leech.provenance import (
    Identity,
    Stamp,
    atomic_file,
    digest_of,
    refuse_input_as_output,
)


@dataclass(frozen=True)
class SamplesResult:
    """What a run over several samples made.

    :ivar called: what became of each sample.
    :ivar summaries: calls of every complete sample.
    :ivar tables_written: the combined tables; empty where no sample is complete.
    """

    path: Path
    labels: tuple[str, str]
    called: Called[PredictResult, Summarised]
    summaries: Mapping[str, Summarised]
    tables_written: tuple[Path, ...]

    def refuse_incomplete(self) -> None:
        """Fail where a sample failed or lacks the reads of some POD5 files; what is complete stands.

        :raises LeechError: with the samples' names.
        """
        self.called.refuse_incomplete()

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "path": str(self.path),
            "tables": [str(path) for path in self.tables_written],
            **self.called.to_mapping(),
        }

    def tables(self) -> list[Table]:
        """Return one row per sample, and one table of calls per complete sample."""
        rows = []
        for name, summarised in self.summaries.items():
            total = summarised.tally.total()
            state = "complete already" if name in self.called.earlier else "called"
            rows.append((name, state, str(total.num_positive), str(total.num_negative), str(total.num_no_call)))
        rows.extend((name, "failed", "", "", "") for name in self.called.failed)
        columns = ("sample", "state", self.labels[1], self.labels[0], "no call")
        return [
            Table(title="Samples", columns=columns, rows=tuple(rows)),
            *(shown(summarised, self.labels, f"Sample {name}") for name, summarised in self.summaries.items()),
        ]


def predict_samples(
    model: Path,
    samples: Sequence[Sample],
    sources: ReadSources,
    config: PredictConfig,
    output: Path,
    *,
    force: bool,
    progress: Progress,
    stamp: Stamp,
) -> SamplesResult | ClassSamplesResult:
    """Call the runs of all samples, one after the other, and write tables over all of them.

    :param sources: what all samples share; POD5 and BAM are the samples' own.
    :param output: folder for the samples' BAMs and tables.
    :param force: run complete samples again, and replace what is in the way.
    :raises ConfigError: options that are for one run only.
    :raises MismatchError: samples in the folder that were called by something else, and no ``force``.
    """
    config.refuse_contradictions()
    if config.sample is not None or config.tables is not None:
        raise ConfigError(
            f"{'--sample' if config.sample is not None else '--tables'} is for one run; with --samples, names come from the "
            "sheet and all files go to --output."
        )
    if output.is_file():
        raise ConfigError(f"'{output}' is a file, and with --samples the output is a folder.")
    config = replace(config, format=config.format or "both")
    if config.format == "bam":
        raise ConfigError("--format bam leaves nothing to combine over the samples.", hint="Give 'both' or 'tsv'.")
    if not read_bundle(model).has_two_states:
        return predict_class_samples(
            model, samples, sources, config, output, force=force, progress=progress, stamp=stamp
        )
    _refuse_inputs(samples, sources, config, output)
    command = _Command.begin(model, sources, config, output)
    earlier_runs = {} if force else _earlier_runs(command, samples)

    def found(sample: Sample) -> Summarised | None:
        before = earlier_runs.get(sample.name)
        return command.caller.summarise(before.tally, config) if before is not None and before.is_complete else None

    def call(sample: Sample) -> PredictResult:
        # What is incomplete by its own account is replaced unasked.
        return _run(command, sample, force=force or sample.name in earlier_runs, progress=progress, stamp=stamp)

    called = call_each(samples, found, call)
    complete = {**called.earlier, **{name: result.summarised for name, result in called.finished.items()}}
    summaries = {sample.name: complete[sample.name] for sample in samples if sample.name in complete}
    if force and summaries:
        # Made of samples that a model of more states had called, and that were called again.
        (output / f"{COMBINED}.{CLASS_SUMMARY}.tsv.gz").unlink(missing_ok=True)
    return SamplesResult(
        path=output,
        labels=command.caller.loaded.bundle.two_labels,
        called=called,
        summaries=summaries,
        tables_written=_combine(output, summaries) if summaries else (),
    )


class _Command(NamedTuple):
    """What all samples of a command share, read once.

    :ivar sources: their POD5 and BAM are the samples' own.
    :ivar files: which files those of the command are; None for one that is not there.
    :ivar description: sha256 of the model's description.
    """

    caller: Caller
    sources: ReadSources
    config: PredictConfig
    output: Path
    files: Mapping[Path, Identity | None]
    description: str

    @classmethod
    def begin(cls, model: Path, sources: ReadSources, config: PredictConfig, output: Path) -> _Command:
        """Read the model folder and what else the samples share."""
        caller = Caller.load(model, config)
        shared = (model, sources.reference, sources.read_sites, *config.files)
        files = {path: Identity.of(path) for path in shared if path is not None}
        description = hashlib.sha256((model / DESCRIPTION).read_bytes()).hexdigest()
        return cls(caller, sources, config, output, files, description)

    def sources_of(self, sample: Sample) -> ReadSources:
        """Return where a sample's reads are."""
        return replace(self.sources, pod5=sample.pod5, bam=sample.bam)

    def files_of(self, sample: Sample) -> dict[Path, Identity | None]:
        """Return which files a sample is called from as they are now, the command's among them."""
        return {**self.files, **{path: Identity.of(path) for path in (*sample.pod5, sample.bam)}}

    def identity_of(self, sample: Sample, files: Mapping[Path, Identity | None]) -> str:
        """Return the digest of all that decides a sample's tables; files are known by size, time and, small ones, content.

        :param files: of :meth:`files_of`.
        """
        paths = [*sample.pod5, sample.bam, self.sources.reference, self.sources.read_sites, *self.config.files]
        identities = [files[path] for path in paths if path is not None]
        content = {
            "model": self.description,
            "calling": self.caller.calling.values,
            "files": [None if identity is None else asdict(identity) for identity in identities],
            "settings": decisive(to_mapping(self.config)),
            "sources": choices_of(self.sources),
        }
        return digest_of(content)


def _refuse_inputs(samples: Sequence[Sample], sources: ReadSources, config: PredictConfig, output: Path) -> None:
    """Refuse a folder in which one sample's outputs would take the place of what another is made from."""
    inputs = [sources.reference, sources.read_sites, *config.files]
    inputs += [path for sample in samples for path in (*sample.pod5, sample.bam)]
    for sample in samples:
        own, named = replace(sources, pod5=sample.pod5, bam=sample.bam), replace(config, sample=sample.name)
        OutputFiles.plan(own, named, place_of(sample, config, output)).refuse_inputs(inputs)
    for path in _combined(output).values():
        refuse_input_as_output(path, inputs)


def _run(command: _Command, sample: Sample, *, force: bool, progress: Progress, stamp: Stamp) -> PredictResult:
    files = command.files_of(sample)
    own = command.sources_of(sample)
    inputs = [command.caller.model, *sample.pod5, sample.bam, own.reference, own.read_sites]
    identities = (files[path] for path in inputs if path is not None)
    return predict_run(
        command.caller,
        own,
        replace(command.config, sample=sample.name),
        place_of(sample, command.config, command.output),
        identity=command.identity_of(sample, files),
        force=force,
        progress=progress,
        stamp=replace(stamp, inputs=tuple(found for found in identities if found is not None)),
        clock=time.monotonic,
    )


class _EarlierRun(NamedTuple):
    """What an earlier command made of a sample, with the same settings or incomplete.

    :ivar is_complete: whether all of its reads were there and all of its files still are; else nothing is lost with it.
    """

    tally: Tally
    is_complete: bool


def _earlier_runs(command: _Command, samples: Sequence[Sample]) -> dict[str, _EarlierRun]:
    """Return the samples that the folder holds already.

    :raises MismatchError: samples that were called by something else, before any other is run: the combined tables would mix
        or lose them.
    """
    found = {}
    others: dict[str, str] = {}
    config, output = command.config, command.output
    for sample in samples:
        path = output / f"{sample.name}.{RECORD}"
        if not path.is_file():
            continue
        record = read_record(path, RUN_AGAIN)
        own = command.sources_of(sample)
        is_same = record.get("identity") == command.identity_of(sample, command.files_of(sample))
        lacks_reads = bool(record.get("unreadable_pod5"))
        if not is_same and not lacks_reads:
            differences = _differences(record, own, config, command.caller.calling)
            others[sample.name] = (
                "; ".join(differences) or "its input files, or what the model folder says beside its network"
            )
            continue
        files = OutputFiles.plan(own, replace(config, sample=sample.name), place_of(sample, config, output)).all
        is_complete = not lacks_reads and all(file.is_file() for file in files)
        found[sample.name] = _EarlierRun(Tally.from_mapping(record["tally"]), is_complete)
    if others:
        by_difference: dict[str, list[str]] = {}
        for name, what in others.items():
            by_difference.setdefault(what, []).append(f"'{name}'")
        listed = ". ".join(f"{', '.join(names)} differ in: {what}" for what, names in by_difference.items())
        raise MismatchError(
            f"'{output}' holds {len(others)} of the {len(samples)} samples as a run with other settings or inputs left them. "
            f"{listed}. Nothing was run or replaced.",
            hint="Give --force to call all samples again and replace the earlier results, or another output folder with -o.",
        )
    return found


def _differences(record: Mapping[str, Any], sources: ReadSources, config: PredictConfig, calling: Calling) -> list[str]:
    """Return in words in which settings an earlier run differs."""
    found = list(calling.differences(record))
    pairs = (
        (decisive(record.get("settings") or {}), decisive(to_mapping(config))),
        (record.get("sources") or {}, choices_of(sources)),
    )
    for there, here in pairs:
        found += [told(name, there.get(name), value) for name, value in here.items() if there.get(name) != value]
    return found


def _combined(output: Path) -> dict[str, Path]:
    return {level: output / f"{COMBINED}.{name}.tsv.gz" for level, name in SUMMARIES.items()}


def _combine(output: Path, summaries: Mapping[str, Summarised]) -> tuple[Path, ...]:
    paths = _combined(output)
    with ExitStack() as stack:
        # They are made of the samples' own files and grow with them, so there is nothing to lose.
        partials = {level: stack.enter_context(atomic_file(path, force=True)) for level, path in paths.items()}
        for level, path in partials.items():
            write_combined(path, summaries, level)
    return tuple(paths.values())
