"""Calling the state of every read of a run: ``leech predict``.

Hides: what has to be read, written and recorded around the calls. Belongs here: a run's files; the loop that calls its reads is
``run.py``'s, and cutting goes by the model's recipe, so that nothing about it can be chosen here. Invariants: every record
comes out, in order; outputs appear together when all are complete.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from leech.config import to_mapping
from leech.console import Progress, Table
from leech.data.accounts import ladder_table, refinement_table, refuse_incomplete
from leech.data.config import ReadSources
from leech.data.pod5 import BadFile
from leech.data.reasons import Counts
from leech.data.refine import RefinementTally
from leech.data.stream import ReadStream
from leech.models.bundle import LoadedModel, load_bundle, read_bundle
from leech.models.learnt import Overlap
from leech.prediction.calls import Call, CallRules
from leech.prediction.config import PredictConfig
from leech.prediction.controls import Controls, read_controls
from leech.prediction.fractions import Corrections, fractions, warn_of_abstention
from leech.prediction.multiclass.predict import ClassPredictResult, predict_classes
from leech.prediction.outputs import OutputFiles
from leech.prediction.record import FORMAT, SCHEMA_VERSION, Calling, choices_of
from leech.prediction.run import Run, open_run
from leech.prediction.summary import Summarised, shown, write_summary
from leech.prediction.tally import Tally, assign_groups, read_reference_groups, warn_of_unassigned
from leech.prediction.writers import CallBam, CallFiles, CallTables, header_with_program
from leech.provenance import Stamp, final_path


@dataclass(frozen=True)
class PredictResult:
    """What ``predict`` made.

    :ivar path: the BAM; the folder of the tables where there is none.
    :ivar rules: by which reads were called.
    :ivar summarised: calls by reference.
    :ivar histogram: called reads by ``cl``, 256 counts.
    :ivar bad_files: POD5 files that could not be read; their reads have no call.
    :ivar num_files: of all POD5 files, the bad ones too.
    :ivar learnt: whether the model learnt from the reads.
    """

    path: Path
    tables_written: tuple[Path, ...]
    counts: Counts
    labels: tuple[str, str]
    rules: CallRules
    summarised: Summarised
    histogram: tuple[int, ...]
    bad_files: Sequence[BadFile]
    num_files: int
    refinement: RefinementTally | None
    learnt: Overlap

    @property
    def threshold(self) -> int:
        """Smallest ``cl`` that counts as positive."""
        return self.rules.threshold_cl

    @property
    def groups(self) -> dict[str, tuple[int, int, int]]:
        """Per reference: reads called positive, called negative, and mapped but not called."""
        return {
            name: (tally.num_positive, tally.num_negative, tally.num_no_call)
            for name, tally in self.summarised.tally.by_reference().items()
        }

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
            "threshold_cl": self.threshold,
            "min_confidence": self.rules.min_confidence or None,
            "abstain_junction_indel": self.rules.needs_clean_junction,
            "unreadable_pod5": {str(file.path): file.why for file in self.bad_files},
            "learnt_from": self.learnt.to_mapping(),
            "corrections": self.summarised.corrections.to_mapping(),
            "references": list(self._references()),
        }
        return content if self.refinement is None else {**content, "refinement": self.refinement.to_mapping()}

    def _references(self) -> Iterator[dict[str, Any]]:
        negative, positive = self.labels
        for name, tally in self.summarised.tally.by_reference().items():
            raw = fractions(tally.num_positive, tally.num_negative, self.summarised.corrections).raw
            yield {
                "reference": name,
                positive: tally.num_positive,
                negative: tally.num_negative,
                "no_call": tally.num_no_call,
                "no_call_reasons": tally.reasons(),
                "fraction": raw.value,
                "interval": None if raw.interval is None else list(raw.interval),
            }

    def tables(self) -> list[Table]:
        """Return calls by reference and the ladder of counts."""
        return [
            shown(self.summarised, self.labels, f"Calls at cl >= {self.threshold}"),
            ladder_table(self.counts),
            *([] if self.refinement is None else [refinement_table({"": self.refinement.to_mapping()})]),
        ]


def predict(
    model: Path,
    sources: ReadSources,
    config: PredictConfig,
    output: Path,
    *,
    force: bool,
    progress: Progress,
    stamp: Stamp,
) -> PredictResult | ClassPredictResult:
    """Call every read of a run; write the BAM again with the calls as tags, tables, or both.

    What is written of a model of more than two states is ``prediction/multiclass/predict.py``'s to say.

    :param model: model folder; its recipe cuts the chunks.
    :param output: BAM, or with the format ``tsv`` the folder of the tables; appears, with everything beside it, when all is
        complete.
    :raises ConfigError: an output that cannot be written so, or options that contradict each other.
    :raises InputError: unusable files, no read that could be called, or an index asked for of records that are not sorted.
    :raises MismatchError: the reads contradict the recipe's signal frame, or refinement lowers their level correlation.
    """
    config.refuse_contradictions()
    inputs = [*sources.pod5, sources.bam, sources.reference, sources.read_sites, *config.files]
    OutputFiles.plan(sources, config, output).refuse_inputs(inputs)
    if not read_bundle(model).has_two_states:
        return predict_classes(
            model,
            load_bundle(model),
            sources,
            config,
            output,
            identity=None,
            force=force,
            progress=progress,
            stamp=stamp,
            clock=time.monotonic,
        )
    return predict_run(
        Caller.load(model, config),
        sources,
        config,
        output,
        identity=None,
        force=force,
        progress=progress,
        stamp=stamp,
        clock=time.monotonic,
    )


class Caller(NamedTuple):
    """What calls reads, and what is known of its calls; read once, however many runs are called by it.

    :ivar model: the folder.
    :ivar calling: how it stands in the records of runs.
    :ivar controls: None where none are given.
    :ivar groups: of the table of reference groups; empty where none is given.
    """

    model: Path
    loaded: LoadedModel
    rules: CallRules
    calling: Calling
    controls: Controls | None
    corrections: Corrections
    groups: Mapping[str, Mapping[str, str]]

    @classmethod
    def load(cls, model: Path, config: PredictConfig) -> Caller:
        """Read the model folder and the files that the configuration names.

        :raises InputError: one that cannot be used.
        :raises MismatchError: a folder that was changed, or controls that were called by something else.
        """
        loaded = load_bundle(model)
        groups = {} if config.reference_groups is None else read_reference_groups(config.reference_groups)
        rules = CallRules.of(config, loaded.bundle.threshold_cl)
        calling = Calling.of(model, loaded.bundle, rules)
        controls = read_controls(config, calling)
        corrections = Corrections.of(config, loaded.bundle, rules, controls)
        return cls(model, loaded, rules, calling, controls, corrections, groups)

    def summarise(self, tally: Tally, config: PredictConfig) -> Summarised:
        """Return a run's calls with what is needed to write them down by reference and by group."""
        return Summarised(tally, assign_groups(tally.by_reference(), self.groups), self.corrections, config.min_depth)


def predict_run(
    caller: Caller,
    sources: ReadSources,
    config: PredictConfig,
    output: Path,
    *,
    identity: str | None,
    force: bool,
    progress: Progress,
    stamp: Stamp,
    clock: Callable[[], float],
) -> PredictResult:
    """Do what :func:`predict` does, by what was read before; that no output is an input was checked.

    :param caller: loaded with this configuration; only the sample's name may be another.
    :param identity: by which a later command knows the finished run again; stands in its record.
    :param clock: seconds, for the time that is left.
    """
    files = OutputFiles.plan(sources, config, output)
    bundle, controls = caller.loaded.bundle, caller.controls
    with ExitStack() as stack:
        # Names first: indexing a large run takes minutes, and one that is taken can be told at once.
        partial = files.reserve(stack, force=force)
        stream = stack.enter_context(open_run(caller.model, bundle.recipe, sources))
        if controls is not None:
            controls.refuse_others(stream.header.references)
        written = _call_files(partial, output, stream, stack, stamp)
        run = Run(caller.model, caller.loaded, caller.rules, stream)
        with progress.task("predict", unit="reads") as task:
            run.go(config, written.write, task, clock)
        written.finish()
        result = PredictResult(
            path=output,
            tables_written=files.tables,
            counts=run.counts,
            labels=bundle.two_labels,
            rules=caller.rules,
            summarised=caller.summarise(run.tally, config),
            histogram=tuple(run.histogram.tolist()),
            bad_files=stream.bad_files,
            num_files=stream.num_files,
            refinement=run.refinement,
            learnt=run.learnt,
        )
        for level, path in partial.summaries.items():
            write_summary(path, result.summarised, level)
        if partial.record is not None:
            _write_record(partial.record, result, caller.calling, sources, config, identity, stamp)
        for path in (*files.stale_indexes(), *files.stale_tables()):
            path.unlink()
    if files.summaries:
        warn_of_unassigned(result.summarised.groups)
    if controls is not None:
        controls.warn_of_uncovered(run.called)
    warn_of_abstention(run.tally.total(), caller.corrections)
    return result


def _call_files(
    partial: OutputFiles, output: Path, stream: ReadStream, stack: ExitStack, stamp: Stamp
) -> CallFiles[Call]:
    """Open what single calls are written to; ``output`` is the BAM's final name, for messages."""
    bam = None
    if partial.bam is not None:
        header = header_with_program(stream.header, stamp.versions["leech"], " ".join(stamp.command))
        bam = CallBam(partial.bam, output, header, must_be_sorted=partial.index is not None)
    return CallFiles(bam, CallTables(partial.calls) if partial.calls else None, partial.index, stack)


def _write_record(
    path: Path,
    result: PredictResult,
    calling: Calling,
    sources: ReadSources,
    config: PredictConfig,
    identity: str | None,
    stamp: Stamp,
) -> None:
    """Write all that a report needs to know of the run, and by which a later run knows whether it is the same."""
    content = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        **{name: value for name, value in result.to_mapping().items() if name not in ("path", "tables", "references")},
        **calling.values,
        "total": result.summarised.total(),
        "tally": result.summarised.tally.to_mapping(),
        "cl_histogram": list(result.histogram),
        "identity": identity,
        "settings": to_mapping(replace(config, tables=None if config.tables is None else final_path(config.tables))),
        "sources": choices_of(sources),
        "provenance": stamp.to_mapping(),
    }
    path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
