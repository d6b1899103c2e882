"""Calling the state of every read of a run: ``leech predict``.

Hides: how records, chunks, probabilities and outputs are kept in step. Belongs here: the stream from BAM to BAM; cutting is
``data/stream.py``'s and by the model's recipe, so that nothing about it can be chosen here. Invariants: every record
comes out, in order; each gets one call or one reason; memory does not grow with the run; outputs appear together when
all are complete.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leech.config import to_mapping
from leech.console import Progress, Table, Task, format_duration, logger
from leech.data.accounts import ladder_table, refinement_table, refuse_incomplete
from leech.data.config import ReadSources
from leech.data.corpus import stored_table
from leech.data.pod5 import BadFile
from leech.data.reasons import USED, Counts
from leech.data.recipe import Recipe
from leech.data.refine import RefinementTally
from leech.data.sites import sites_for_model
from leech.data.stream import ReadStream, open_stream
from leech.models.bundle import LoadedModel, load_bundle
from leech.models.device import choose_devices
from leech.prediction.agreement import Agreement, warn_about_new_references
from leech.prediction.calls import Call, CallRules, judge
from leech.prediction.config import PredictConfig
from leech.prediction.controls import read_controls
from leech.prediction.fractions import Corrections, fractions, warn_of_abstention
from leech.prediction.outputs import OutputFiles
from leech.prediction.record import FORMAT, SCHEMA_VERSION, Calling, choices_of
from leech.prediction.scoring import ScoredBatch, replicas, scored_batches
from leech.prediction.summary import Summarised, shown, write_summary
from leech.prediction.tally import Tally, assign_groups, read_reference_groups, warn_of_unassigned
from leech.prediction.writers import CallBam, CallTables, header_with_program
from leech.provenance import Stamp, final_path

_ETA_AFTER_S = 2.0
"""Seconds before the time left is told; the first batches say little of it."""


@dataclass(frozen=True)
class PredictResult:
    """What ``predict`` made.

    :ivar path: the BAM; the folder of the tables where there is none.
    :ivar rules: by which reads were called.
    :ivar summarised: calls by reference.
    :ivar histogram: called reads by ``cl``, 256 counts.
    :ivar bad_files: POD5 files that could not be read; their reads have no call.
    :ivar num_files: of all POD5 files, the bad ones too.
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
) -> PredictResult:
    """Call every read of a run; write the BAM again with a ``cl`` tag on each called record, tables, or both.

    :param model: model folder; its recipe cuts the chunks.
    :param output: BAM, or with the format ``tsv`` the folder of the tables; appears, with everything beside it, when all is
        complete.
    :raises ConfigError: an output that cannot be written so, or options that contradict each other.
    :raises InputError: unusable files, no read that could be called, or an index asked for of records that are not sorted.
    :raises MismatchError: the reads contradict the recipe's signal frame, or refinement lowers their level correlation.
    """
    return predict_run(
        model,
        sources,
        config,
        output,
        identity=None,
        force=force,
        progress=progress,
        stamp=stamp,
        clock=time.monotonic,
    )


def predict_run(
    model: Path,
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
    """Do what :func:`predict` does.

    :param identity: by which a later command knows the finished run again; stands in its record.
    :param clock: seconds, for the time that is left.
    """
    config.refuse_contradictions()
    files = OutputFiles.plan(sources, config, output)
    files.refuse_inputs([*sources.pod5, sources.bam, sources.reference, sources.read_sites, *config.files])
    loaded = load_bundle(model)
    bundle = loaded.bundle
    group_table = {} if config.reference_groups is None else read_reference_groups(config.reference_groups)
    rules = CallRules.of(config, bundle.threshold_cl)
    calling = Calling.of(model, bundle, rules)
    controls = read_controls(config, calling)
    corrections = Corrections.of(config, bundle, rules, controls)
    with ExitStack() as stack:
        # Names first: indexing a large run takes minutes, and one that is taken can be told at once.
        partial = files.reserve(stack, force=force)
        stream = stack.enter_context(open_run(model, bundle.recipe, sources))
        if controls is not None:
            controls.refuse_others(stream.header.references)
        run = _Run(loaded, rules, stream, partial, output, stack, stamp)
        with progress.task("predict", unit="reads") as task:
            run.go(config, task, clock)
        groups = assign_groups(run.tally.by_reference(), group_table)
        result = PredictResult(
            path=output,
            tables_written=files.tables,
            counts=run.counts,
            labels=bundle.two_labels,
            rules=rules,
            summarised=Summarised(run.tally, groups, corrections, config.min_depth),
            histogram=tuple(run.histogram.tolist()),
            bad_files=stream.bad_files,
            num_files=stream.num_files,
            refinement=run.refinement,
        )
        for level, path in partial.summaries.items():
            write_summary(path, result.summarised, level)
        if partial.record is not None:
            _write_record(partial.record, result, calling, sources, config, identity, stamp)
        for path in files.stale_indexes():
            path.unlink()
    if files.summaries:
        warn_of_unassigned(groups)
    called = {name for name, tally in run.tally.by_reference().items() if tally.num_called}
    warn_about_new_references(called, bundle)
    if controls is not None:
        controls.warn_of_uncovered(called)
    warn_of_abstention(run.tally.total(), corrections)
    return result


def open_run(model: Path, recipe: Recipe, sources: ReadSources) -> AbstractContextManager[ReadStream]:
    """Open a run to be cut as the model's chunks were: by its recipe, its k-mer table and its sites.

    :param model: folder in which table and sites lie.
    """
    sites = sites_for_model(model, recipe, sources.read_sites)
    return open_stream(sources, recipe, stored_table(model, recipe), sites)


class _Run:
    """A run on its way through: what was counted so far, and the files that are being written."""

    def __init__(
        self,
        loaded: LoadedModel,
        rules: CallRules,
        stream: ReadStream,
        partial: OutputFiles,
        output: Path,
        stack: ExitStack,
        stamp: Stamp,
    ) -> None:
        self._loaded, self._rules, self._stream, self._partial = loaded, rules, stream, partial
        self._agreement = Agreement(loaded.bundle, stream)
        self.counts, self.tally = Counts(), Tally()
        self.histogram: NDArray[np.int64] = np.zeros(256, dtype=np.int64)
        self.refinement = None if loaded.bundle.recipe.refinement == "none" else RefinementTally()
        self._bam: CallBam | None = None
        self._tables: CallTables | None = None
        if partial.bam is not None:
            header = header_with_program(stream.header, stamp.versions["leech"], " ".join(stamp.command))
            self._bam = CallBam(partial.bam, output, header, must_be_sorted=partial.index is not None)
            # On a failure too, before the partial files are removed.
            stack.callback(self._bam.abandon)
        if partial.calls:
            self._tables = CallTables(partial.calls)
            stack.callback(self._tables.abandon)

    def go(self, config: PredictConfig, task: Task, clock: Callable[[], float]) -> None:
        """Read, call and write everything, and judge whether it is complete."""
        batches = scored_batches(
            self._stream,
            self._loaded,
            replicas(self._loaded.network, choose_devices(config.device, config.gpus)),
            batch_records=config.batch_records,
            workers=config.workers,
            batch_size=config.batch_size,
        )
        start = clock()
        with closing(batches):
            for scored in batches:
                self._write(scored)
                task.advance(len(scored.batch.records))
                left = _time_left(self._stream.share_read, clock() - start)
                if left is not None:
                    task.describe(left)
        task.describe("")
        self._finish()

    def _write(self, scored: ScoredBatch) -> None:
        batch = scored.batch
        outcomes = []
        for record, call in judge(batch, scored.probabilities, self._rules):
            if self._bam is not None:
                self._bam.write(record, call)
            if self._tables is not None:
                self._tables.write(call)
            self._count(call)
            outcomes.append(call.reason or USED)
        self.counts.add_all(outcomes)
        self._agreement.see(batch)
        if self.refinement is not None:
            self.refinement.merge(batch.cut.refinement)

    def _count(self, call: Call) -> None:
        self.tally.count(call)
        if call.likelihood is not None:
            self.histogram[call.likelihood] += 1

    def _finish(self) -> None:
        if self._bam is not None:
            self._bam.close()
            if self._bam.num_replaced:
                logger.warning(
                    "%d records carried a cl tag already; it was replaced, or removed where no call is made.",
                    self._bam.num_replaced,
                )
        if self._tables is not None:
            self._tables.close()
        self._stream.settle(self.counts, int(self.histogram.sum()))
        if self.refinement is not None:
            self.refinement.refuse_harm()
        if self._bam is not None and self._partial.index is not None:
            self._bam.index(self._partial.index)


def _time_left(share: float | None, seconds: float) -> str | None:
    """Return how much of the alignments is read and how long the rest will take, in words."""
    if not share or seconds < _ETA_AFTER_S:
        return None
    return f"{share:.0%} of the BAM, about {format_duration(seconds * (1 - share) / share)} left"


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
