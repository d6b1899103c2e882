"""Calling the reads of a run by a model of more than two states.

Hides: what has to be read, written and recorded around the calls. Belongs here: a run's files; its calls are ``run.py``'s, and
``prediction/predict.py`` decides that this is wanted. Invariants: as there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from leech.config import to_mapping
from leech.console import Progress, Table
from leech.data.accounts import ladder_table, refinement_table, refuse_incomplete
from leech.data.config import ReadSources
from leech.data.pod5 import BadFile
from leech.data.proportion import wilson
from leech.data.reasons import Counts
from leech.data.refine import RefinementTally
from leech.data.stream import ReadStream
from leech.models.bundle import LoadedModel, ModelIdentity
from leech.models.learnt import Overlap
from leech.prediction.config import PredictConfig
from leech.prediction.multiclass.calls import ClassCall, ClassRules
from leech.prediction.multiclass.run import ClassRun
from leech.prediction.multiclass.tally import ClassTally, StateCounts
from leech.prediction.multiclass.writers import (
    CALLS,
    SUMMARY,
    ClassBam,
    ClassTables,
    comment_on_labels,
    require_distinct_columns,
    require_plain_labels,
    shown,
    write_summary,
)
from leech.prediction.outputs import OutputFiles
from leech.prediction.record import CLASSES_FORMAT, choices_of
from leech.prediction.run import open_run
from leech.prediction.writers import CallFiles, header_with_program
from leech.provenance import Stamp, final_path

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class ClassPredictResult:
    """What ``predict`` made with a model of more than two states.

    :ivar path: the BAM; the folder of the tables where there is none.
    :ivar labels: of the model, in its order.
    :ivar tally: calls by reference.
    :ivar bad_files: POD5 files that could not be read; their reads have no call.
    :ivar num_files: of all POD5 files, the bad ones too.
    :ivar learnt: whether the model learnt from the reads.
    """

    path: Path
    tables_written: tuple[Path, ...]
    counts: Counts
    labels: tuple[str, ...]
    rules: ClassRules
    tally: ClassTally
    min_depth: int
    bad_files: Sequence[BadFile]
    num_files: int
    refinement: RefinementTally | None
    learnt: Overlap

    def refuse_incomplete(self) -> None:
        """Fail the run when POD5 files were left out; the calls of the others stand.

        :raises InputError: with the files' names.
        """
        refuse_incomplete(self.bad_files, self.num_files)

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        content = {
            "path": str(self.path),
            "tables": [str(path) for path in self.tables_written],
            "counts": self.counts.ladder(),
            "labels": list(self.labels),
            "min_confidence": self.rules.min_confidence or None,
            "abstain_junction_indel": self.rules.needs_clean_junction,
            "unreadable_pod5": {str(file.path): file.why for file in self.bad_files},
            "learnt_from": self.learnt.to_mapping(),
            "references": [
                {"reference": name, **self._mapping_of(counts)} for name, counts in self.tally.by_reference().items()
            ],
            "total": self._mapping_of(self.tally.total()),
        }
        return content if self.refinement is None else {**content, "refinement": self.refinement.to_mapping()}

    def _mapping_of(self, counts: StateCounts) -> dict[str, Any]:
        called = counts.num_called
        intervals = [wilson(number, called) for number in counts.num_by_label]
        return {
            "called": dict(zip(self.labels, counts.num_by_label, strict=True)),
            "no_call": counts.num_no_call,
            "no_call_reasons": counts.reasons(),
            "fractions": {
                label: {
                    "value": number / called if called else None,
                    "interval": None if interval is None else list(interval),
                }
                for label, number, interval in zip(self.labels, counts.num_by_label, intervals, strict=True)
            },
        }

    def tables(self) -> list[Table]:
        """Return calls by reference and the ladder of counts."""
        return [
            shown(self.tally, self.labels, self.min_depth),
            ladder_table(self.counts),
            *([] if self.refinement is None else [refinement_table({"": self.refinement.to_mapping()})]),
        ]


def predict_classes(
    model: Path,
    loaded: LoadedModel,
    sources: ReadSources,
    config: PredictConfig,
    output: Path,
    *,
    identity: str | None,
    force: bool,
    progress: Progress,
    stamp: Stamp,
    clock: Callable[[], float],
) -> ClassPredictResult:
    """Call every read of a run; parameters and errors as of :func:`leech.prediction.predict.predict`.

    :param loaded: what the model folder holds.
    :param identity: by which a later command knows the finished run again; stands in its record.
    :param clock: seconds, for the time that is left.
    """
    labels = loaded.bundle.labels
    rules = ClassRules.of(config, loaded.bundle)
    files = plan_files(sources, config, output)
    files.refuse_inputs([*sources.pod5, sources.bam, sources.reference, sources.read_sites])
    if files.bam is not None:
        require_plain_labels(labels)
    if files.summaries:
        require_distinct_columns(labels)
    with ExitStack() as stack:
        partial = files.reserve(stack, force=force)
        stream = stack.enter_context(open_run(model, loaded.bundle.recipe, sources))
        written = _call_files(partial, output, labels, stream, stack, stamp)
        run = ClassRun(model, loaded, rules, stream)
        with progress.task("predict", unit="reads") as task:
            run.go(config, written.write, task, clock)
        written.finish()
        result = ClassPredictResult(
            path=output,
            tables_written=files.tables,
            counts=run.counts,
            labels=labels,
            rules=rules,
            tally=run.tally,
            min_depth=config.min_depth,
            bad_files=stream.bad_files,
            num_files=stream.num_files,
            refinement=run.refinement,
            learnt=run.learnt,
        )
        for path in partial.summaries.values():
            write_summary(path, result.tally, labels, config.min_depth)
        if partial.record is not None:
            _write_record(partial.record, model, result, sources, config, identity, stamp)
        for path in (*files.stale_indexes(), *files.stale_tables()):
            path.unlink()
    return result


def plan_files(sources: ReadSources, config: PredictConfig, output: Path) -> OutputFiles:
    """Return the files that a configuration asks for; see :meth:`leech.prediction.outputs.OutputFiles.plan`."""
    return OutputFiles.plan(sources, config, output, calls=(CALLS,), summaries={"reference": SUMMARY})


def _call_files(
    partial: OutputFiles, output: Path, labels: Sequence[str], stream: ReadStream, stack: ExitStack, stamp: Stamp
) -> CallFiles[ClassCall]:
    """Open what single calls are written to; ``output`` is the BAM's final name, for messages."""
    bam = None
    if partial.bam is not None:
        version, command = stamp.versions["leech"], " ".join(stamp.command)
        header = header_with_program(
            stream.header, version, command, lambda program: comment_on_labels(program, labels)
        )
        bam = ClassBam(partial.bam, output, header, labels, must_be_sorted=partial.index is not None)
    tables = ClassTables(partial.calls[CALLS], labels) if partial.calls else None
    return CallFiles(bam, tables, partial.index, stack)


def _write_record(
    path: Path,
    model: Path,
    result: ClassPredictResult,
    sources: ReadSources,
    config: PredictConfig,
    identity: str | None,
    stamp: Stamp,
) -> None:
    """Write what was called, and by what."""
    by = ModelIdentity.of(model)
    content = {
        "format": CLASSES_FORMAT,
        "schema_version": SCHEMA_VERSION,
        **{name: value for name, value in result.to_mapping().items() if name not in ("path", "tables")},
        "model_digest": by.model,
        "calibration_digest": by.calibration,
        "identity": identity,
        "settings": to_mapping(replace(config, tables=None if config.tables is None else final_path(config.tables))),
        "sources": choices_of(sources),
        "provenance": stamp.to_mapping(),
    }
    path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
