"""Calling the state of every read of a run: ``leech predict``.

Hides: how records, chunks, logits and outputs are kept in step. Belongs here: the stream from BAM to BAM; cutting is
``data/stream.py``'s and by the model's recipe, so that nothing about it can be chosen here. Invariants: every record
comes out, in order; each gets one call or one reason; memory does not grow with the run; outputs appear together when
all are complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pysam
from numpy.typing import NDArray

from leech.console import Progress, Table, logger
from leech.data.accounts import ladder_table, refuse_incomplete
from leech.data.batches import make_inputs
from leech.data.chunks import CutResult
from leech.data.config import ReadSources
from leech.data.corpus import stored_table
from leech.data.pod5 import BadFile
from leech.data.prepare import refinement_tables
from leech.data.reasons import NOT_A_LOSS, USED, Counts
from leech.data.refine import RefinementTally
from leech.data.sites import sites_for_model
from leech.data.stream import RecordBatch, open_stream
from leech.errors import ConfigError
from leech.models.bundle import LoadedModel, ModelBundle, load_bundle
from leech.models.device import choose_device
from leech.models.inference import Predictor, charging_likelihood, is_positive
from leech.prediction.config import PredictConfig
from leech.prediction.writers import TABLES, Call, CallTables, header_with_program, tag_record
from leech.provenance import Stamp, atomic_file


@dataclass(frozen=True)
class PredictResult:
    """What ``predict`` made.

    :ivar groups: per reference: reads called positive, called negative, and mapped but not called.
    :ivar threshold: smallest ``cl`` that counts as positive.
    :ivar bad_files: POD5 files that could not be read; their reads have no call.
    :ivar num_files: of all POD5 files, the bad ones too.
    """

    path: Path
    tables_written: tuple[Path, ...]
    counts: Counts
    labels: tuple[str, str]
    threshold: int
    groups: dict[str, tuple[int, int, int]]
    bad_files: Sequence[BadFile]
    num_files: int
    refinement: RefinementTally | None

    def refuse_incomplete(self) -> None:
        """Fail the run when POD5 files were left out; the calls of the others stand.

        :raises InputError: with the files' names.
        """
        refuse_incomplete(self.bad_files, self.num_files)

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        negative, positive = self.labels
        content = {
            "path": str(self.path),
            "tables": [str(path) for path in self.tables_written],
            "counts": self.counts.ladder(),
            "threshold_cl": self.threshold,
            "unreadable_pod5": {str(file.path): file.why for file in self.bad_files},
            "references": [
                {"reference": name, positive: group[0], negative: group[1], "no_call": group[2]}
                for name, group in self.groups.items()
            ],
        }
        return content if self.refinement is None else {**content, "refinement": self.refinement.to_mapping()}

    def tables(self) -> list[Table]:
        """Return calls by reference and the ladder of counts."""
        negative, positive = self.labels
        rows = []
        for name, (called_positive, called_negative, no_call) in self.groups.items():
            called = called_positive + called_negative
            fraction = f"{called_positive / called:.3f}" if called else ""
            rows.append((name, str(called_positive), str(called_negative), str(no_call), fraction))
        columns = ("reference", positive, negative, "no call", f"fraction {positive}")
        title = f"Calls at cl >= {self.threshold}"
        return [
            Table(title=title, columns=columns, rows=tuple(rows)),
            ladder_table(self.counts),
            *refinement_tables(self.refinement),
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
    """Call every read of a run and write the BAM again with a ``cl`` tag on each called record.

    :param model: model folder; its recipe cuts the chunks.
    :param output: BAM; appears, with the tables, when everything is complete.
    :raises InputError: unusable files, or no read that could be called.
    :raises MismatchError: the reads contradict the recipe's signal frame, or refinement lowers their level correlation.
    """
    if output.suffix != ".bam":
        raise ConfigError(f"Output '{output}' must end in .bam, the format that is written.")
    if str(sources.bam) != "-" and output.resolve() == sources.bam.resolve():
        raise ConfigError(f"Output '{output}' is the input BAM itself.", hint="Give another name with -o.")
    loaded = load_bundle(model)
    bundle = loaded.bundle
    predictor = Predictor(loaded.network, choose_device(config.device))
    threshold = config.threshold_cl or bundle.threshold_cl
    counts = Counts()
    groups: Counter[tuple[str, str]] = Counter()
    refinement = None if bundle.recipe.refinement == "none" else RefinementTally()
    replaced = num_calls = 0
    with ExitStack() as stack:
        # Names first: indexing a large run takes minutes, and one that is taken can be told at once.
        partial = stack.enter_context(atomic_file(output, force=force))
        tables, table_paths = _open_tables(stack, config, output, force)
        sites = sites_for_model(model, bundle.recipe, sources.read_sites)
        table = stored_table(model, bundle.recipe)
        stream = stack.enter_context(open_stream(sources, bundle.recipe, table, sites))
        header = header_with_program(stream.header, stamp.versions["leech"], " ".join(stamp.command))
        with (
            pysam.AlignmentFile(str(partial), "wb", header=header) as out,
            progress.task("predict", unit="records") as task,
        ):
            for batch in stream.batches(config.batch_records, config.workers):
                probabilities = _probabilities(batch.cut, loaded, predictor, config.batch_size)
                for record, call in _calls(batch, probabilities, threshold):
                    replaced += tag_record(record, call.likelihood)
                    out.write(record)
                    num_calls += call.likelihood is not None
                    if tables is not None:
                        tables.write(call)
                    groups[call.reference, _group(call)] += 1
                counts.add_all(batch.outcomes)
                if refinement is not None:
                    refinement.merge(batch.cut.refinement)
                task.advance(len(batch.records))
        if tables is not None:
            tables.close()
        stream.settle(counts, num_calls)
        if refinement is not None:
            refinement.refuse_harm()
    if replaced:
        logger.warning(
            "%d records carried a cl tag already; it was replaced, or removed where no call is made.", replaced
        )
    names = sorted({name for name, group in groups if name and group != "other"})
    _warn_about_new_references({name for name, group in groups if group in ("positive", "negative")}, bundle)
    return PredictResult(
        path=output,
        tables_written=tuple(table_paths.values()),
        counts=counts,
        labels=(bundle.labels[0], bundle.labels[1]),
        threshold=threshold,
        groups={name: (groups[name, "positive"], groups[name, "negative"], groups[name, "no call"]) for name in names},
        bad_files=stream.bad_files,
        num_files=stream.num_files,
        refinement=refinement,
    )


def _warn_about_new_references(called: set[str], bundle: ModelBundle) -> None:
    """Say which references the model never learnt from: how good its calls are there, no test split has shown."""
    known = bundle.training.get("references")
    new = sorted(called - set(known)) if known is not None else []
    if new:
        listed = ", ".join(new[:5]) + (f" and {len(new) - 5} more" if len(new) > 5 else "")
        logger.warning(
            "%d of %d references called were not in the model's training split: %s. Its test figures do not cover them.",
            len(new),
            len(called),
            listed,
        )


def _open_tables(
    stack: ExitStack, config: PredictConfig, output: Path, force: bool
) -> tuple[CallTables | None, dict[str, Path]]:
    if config.tables is None:
        return None, {}
    sample = config.sample or output.stem
    paths = {name: config.tables / f"{sample}.{name}.tsv.gz" for name in TABLES}
    partials = {name: stack.enter_context(atomic_file(path, force=force)) for name, path in paths.items()}
    tables = CallTables(partials)
    # On a failure too, before their partial files are removed.
    stack.callback(tables.abandon)
    return tables, paths


def _probabilities(cut: CutResult, loaded: LoadedModel, predictor: Predictor, batch_size: int) -> NDArray[np.float64]:
    """Return P(positive) of each chunk, float64 (num_chunks,)."""
    bundle, columns = loaded.bundle, cut.chunks.columns
    parts = [np.zeros(0)]
    for start in range(0, len(cut.chunks), batch_size):
        part = {name: values[start : start + batch_size] for name, values in columns.items()}
        inputs = make_inputs(part, bundle.recipe, bundle.spec.features)
        parts.append(predictor.positive_probability(inputs, bundle.calibration))
    return np.concatenate(parts)


def _calls(
    batch: RecordBatch, probabilities: NDArray[np.float64], threshold: int
) -> Iterator[tuple[pysam.AlignedSegment, Call]]:
    """Pair each record with its call; every probability is used exactly once."""
    likelihoods = charging_likelihood(probabilities)
    positive = is_positive(likelihoods, threshold)
    called = iter(zip(probabilities.tolist(), likelihoods.tolist(), positive.tolist(), strict=True))
    for record, outcome in zip(batch.records, batch.outcomes, strict=True):
        probability, likelihood, side = next(called) if outcome == USED else (None, None, None)
        call = Call(
            read_id=record.query_name or "",
            reference=record.reference_name or "",
            probability=probability,
            likelihood=likelihood,
            positive=side,
            reason="" if outcome == USED else outcome,
        )
        yield record, call
    assert next(called, None) is None, "more calls than used records"


def _group(call: Call) -> str:
    if call.positive is not None:
        return "positive" if call.positive else "negative"
    return "other" if call.reason in NOT_A_LOSS else "no call"
