"""Several runs called by a model of more than two states: outputs per sample, and a table over all of them.

Hides: which samples are done already. Belongs here: what is done sample by sample; one run is ``predict.py``'s, the sheet
``prediction/sheet.py``'s. Invariants: as of ``prediction/samples.py``: a sample that was finished by the same model, inputs and
settings is not run again; the combined table holds every sample that is complete; a failed sample makes the whole run fail, by
name, at its end.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leech.console import Progress, Table
from leech.data.config import ReadSources
from leech.errors import MismatchError
from leech.models.bundle import load_bundle
from leech.prediction.config import PredictConfig
from leech.prediction.multiclass.calls import ClassRules
from leech.prediction.multiclass.predict import ClassPredictResult, plan_files, predict_classes
from leech.prediction.multiclass.tally import ClassTally, StateCounts
from leech.prediction.multiclass.writers import SUMMARY, shown, write_combined
from leech.prediction.names import RECORD, SUMMARIES
from leech.prediction.outputs import OutputFiles
from leech.prediction.record import CLASSES_FORMAT, RUN_AGAIN, read_record
from leech.prediction.sheet import COMBINED, Called, Command, Sample, call_each
from leech.provenance import Identity, Stamp, atomic_file


@dataclass(frozen=True)
class ClassSamplesResult:
    """What a run over several samples made.

    :ivar called: what became of each sample.
    :ivar tallies: calls of every complete sample.
    :ivar tables_written: the combined table; empty where no sample is complete.
    """

    path: Path
    labels: tuple[str, ...]
    called: Called[ClassPredictResult, ClassTally]
    tallies: Mapping[str, ClassTally]
    min_depth: int
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
        for name, tally in self.tallies.items():
            total = tally.total()
            state = "complete already" if name in self.called.earlier else "called"
            rows.append((name, state, *map(str, total.num_by_label), str(total.num_no_call)))
        rows.extend((name, "failed", *[""] * len(self.labels), "") for name in self.called.failed)
        by_reference = (shown(tally, self.labels, self.min_depth) for tally in self.tallies.values())
        return [
            Table(title="Samples", columns=("sample", "state", *self.labels, "no call"), rows=tuple(rows)),
            *(
                Table(title=f"Sample {name}", columns=table.columns, rows=table.rows)
                for name, table in zip(self.tallies, by_reference, strict=True)
            ),
        ]


def predict_class_samples(
    model: Path,
    samples: Sequence[Sample],
    sources: ReadSources,
    config: PredictConfig,
    output: Path,
    *,
    force: bool,
    progress: Progress,
    stamp: Stamp,
) -> ClassSamplesResult:
    """Call the runs of all samples; parameters and errors as of :func:`leech.prediction.samples.predict_samples`.

    :param config: with the format filled in.
    """
    loaded = load_bundle(model)
    rules = ClassRules.of(config, loaded.bundle)
    combined = output / f"{COMBINED}.{SUMMARY}.tsv.gz"
    command = Command.begin(model, sources, config, output)
    command.refuse_inputs(samples, lambda sample: _plan(command, sample), [combined])
    done = {} if force else _earlier_tallies(command, samples, rules, loaded.bundle.labels)

    def call(sample: Sample) -> ClassPredictResult:
        files = command.files_of(sample)
        return predict_classes(
            model,
            loaded,
            command.sources_of(sample),
            command.config_of(sample),
            command.place_of(sample),
            identity=_identity(command, sample, files, rules),
            # What is incomplete by its own account is replaced unasked.
            force=force or sample.name in done,
            progress=progress,
            stamp=command.stamp_of(stamp, sample, files),
            clock=time.monotonic,
        )

    called = call_each(samples, lambda sample: done.get(sample.name), call)
    tallies = called.complete(samples, lambda result: result.tally)
    if tallies:
        # It is made of the samples' own files and grows with them, so there is nothing to lose.
        with atomic_file(combined, force=True) as partial:
            write_combined(partial, tallies, loaded.bundle.labels, config.min_depth)
        if force:
            # Made of samples that a model of two states had called, and that were called again.
            for name in SUMMARIES.values():
                (output / f"{COMBINED}.{name}.tsv.gz").unlink(missing_ok=True)
    return ClassSamplesResult(
        path=output,
        labels=loaded.bundle.labels,
        called=called,
        tallies=tallies,
        min_depth=config.min_depth,
        tables_written=(combined,) if tallies else (),
    )


def _plan(command: Command, sample: Sample) -> OutputFiles:
    return plan_files(command.sources_of(sample), command.config_of(sample), command.place_of(sample))


def _identity(command: Command, sample: Sample, files: Mapping[Path, Identity | None], rules: ClassRules) -> str:
    return command.identity_of(sample, files, rules=list(rules))


def _earlier_tallies(
    command: Command, samples: Sequence[Sample], rules: ClassRules, labels: Sequence[str]
) -> dict[str, ClassTally | None]:
    """Return the calls of the samples that the folder holds already; None for one that is incomplete.

    :raises MismatchError: samples that were called by something else, before any other is run: the combined table would mix or
        lose them.
    """
    found: dict[str, ClassTally | None] = {}
    others = []
    for sample in samples:
        path = command.output / f"{sample.name}.{RECORD}"
        if not path.is_file():
            continue
        record = read_record(path, RUN_AGAIN, CLASSES_FORMAT)
        lacks_reads = bool(record.get("unreadable_pod5"))
        is_same = record.get("identity") == _identity(command, sample, command.files_of(sample), rules)
        if not is_same and not lacks_reads:
            others.append(f"'{sample.name}'")
            continue
        is_complete = not lacks_reads and all(file.is_file() for file in _plan(command, sample).all)
        found[sample.name] = _tally_of(record, labels) if is_complete else None
    if others:
        raise MismatchError(
            f"'{command.output}' holds {len(others)} of the {len(samples)} samples as a run with another model, other "
            f"settings or other inputs left them: {', '.join(others)}. Nothing was run or replaced.",
            hint="Give --force to call all samples again and replace the earlier results, or another output folder with -o.",
        )
    return found


def _tally_of(record: Mapping[str, Any], labels: Sequence[str]) -> ClassTally:
    return ClassTally.of(
        len(labels),
        {
            row["reference"]: StateCounts(
                [int(row["called"][label]) for label in labels],
                Counter({str(reason): int(number) for reason, number in row["no_call_reasons"].items()}),
            )
            for row in record["references"]
        },
    )
