"""Several runs at once: a sheet of samples in, outputs per sample and tables over all of them out.

Hides: which samples are done already. Belongs here: what is done sample by sample; one run is ``predict.py``'s, the sheet and
what is the same for models of more than two states ``sheet.py``'s. Invariants: a sample's files are complete or not there; a
sample that was finished by the same model, inputs and settings is not run again; the combined tables hold every sample that is
complete; a failed sample makes the whole run fail, by name, at its end.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from leech.config import to_mapping
from leech.console import Progress, Table
from leech.data.config import ReadSources
from leech.errors import ConfigError, MismatchError
from leech.models.bundle import read_bundle
from leech.prediction.config import PredictConfig
from leech.prediction.multiclass.samples import ClassSamplesResult, predict_class_samples
from leech.prediction.names import CLASS_SUMMARY, RECORD, SUMMARIES
from leech.prediction.outputs import OutputFiles
from leech.prediction.predict import Caller, PredictResult, predict_run
from leech.prediction.record import RUN_AGAIN, Calling, choices_of, read_record, told
from leech.prediction.sheet import COMBINED, Called, Command, Sample, call_each, decisive
from leech.prediction.summary import Summarised, shown, write_combined
from leech.prediction.tally import Tally
from leech.provenance import (
    Identity,
    Stamp,
    atomic_file,
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
    command = Command.begin(model, sources, config, output)
    command.refuse_inputs(samples, lambda sample: _plan(command, sample), _combined(output).values())
    caller = Caller.load(model, config)
    earlier_runs = {} if force else _earlier_runs(command, caller, samples)

    def found(sample: Sample) -> Summarised | None:
        before = earlier_runs.get(sample.name)
        return caller.summarise(before.tally, config) if before is not None and before.is_complete else None

    def call(sample: Sample) -> PredictResult:
        files = command.files_of(sample)
        return predict_run(
            caller,
            command.sources_of(sample),
            command.config_of(sample),
            command.place_of(sample),
            identity=_identity(command, caller, sample, files),
            # What is incomplete by its own account is replaced unasked.
            force=force or sample.name in earlier_runs,
            progress=progress,
            stamp=command.stamp_of(stamp, sample, files),
            clock=time.monotonic,
        )

    called = call_each(samples, found, call)
    summaries = called.complete(samples, lambda result: result.summarised)
    if force and summaries:
        # Made of samples that a model of more states had called, and that were called again.
        (output / f"{COMBINED}.{CLASS_SUMMARY}.tsv.gz").unlink(missing_ok=True)
    return SamplesResult(
        path=output,
        labels=caller.loaded.bundle.two_labels,
        called=called,
        summaries=summaries,
        tables_written=_combine(output, summaries) if summaries else (),
    )


def _plan(command: Command, sample: Sample) -> OutputFiles:
    return OutputFiles.plan(command.sources_of(sample), command.config_of(sample), command.place_of(sample))


def _identity(command: Command, caller: Caller, sample: Sample, files: Mapping[Path, Identity | None]) -> str:
    return command.identity_of(sample, files, calling=caller.calling.values)


class _EarlierRun(NamedTuple):
    """What an earlier command made of a sample, with the same settings or incomplete.

    :ivar is_complete: whether all of its reads were there and all of its files still are; else nothing is lost with it.
    """

    tally: Tally
    is_complete: bool


def _earlier_runs(command: Command, caller: Caller, samples: Sequence[Sample]) -> dict[str, _EarlierRun]:
    """Return the samples that the folder holds already.

    :raises MismatchError: samples that were called by something else, before any other is run: the combined tables would mix
        or lose them.
    """
    found = {}
    others: dict[str, str] = {}
    output = command.output
    for sample in samples:
        path = output / f"{sample.name}.{RECORD}"
        if not path.is_file():
            continue
        record = read_record(path, RUN_AGAIN)
        is_same = record.get("identity") == _identity(command, caller, sample, command.files_of(sample))
        lacks_reads = bool(record.get("unreadable_pod5"))
        if not is_same and not lacks_reads:
            differences = _differences(record, command.sources_of(sample), command.config, caller.calling)
            others[sample.name] = (
                "; ".join(differences) or "its input files, or what the model folder says beside its network"
            )
            continue
        is_complete = not lacks_reads and all(file.is_file() for file in _plan(command, sample).all)
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
