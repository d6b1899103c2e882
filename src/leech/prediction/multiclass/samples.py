"""Several runs called by a model of more than two states: outputs per sample, and a table over all of them.

Hides: which samples are done already. Belongs here: what is done sample by sample; one run is ``predict.py``'s, the sheet
``prediction/sheet.py``'s. Invariants: as of ``prediction/samples.py``: a sample that was finished by the same model, inputs and
settings is not run again; the combined table holds every sample that is complete; a failed sample makes the whole run fail, by
name, at its end.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from leech.config import to_mapping
from leech.console import Progress, Table
from leech.data.config import ReadSources
from leech.errors import MismatchError
from leech.models.bundle import DESCRIPTION, ModelBundle, read_bundle
from leech.prediction.config import PredictConfig
from leech.prediction.multiclass.calls import ClassRules
from leech.prediction.multiclass.predict import ClassPredictResult, plan_files, predict_classes
from leech.prediction.multiclass.tally import ClassTally, StateCounts
from leech.prediction.multiclass.writers import SUMMARY, shown, write_combined
from leech.prediction.names import RECORD, SUMMARIES
from leech.prediction.outputs import OutputFiles
from leech.prediction.record import CLASSES_FORMAT, RUN_AGAIN, choices_of, read_record
from leech.prediction.sheet import COMBINED, Called, Sample, call_each, decisive, place_of
from leech.provenance import Identity, Stamp, atomic_file, digest_of, refuse_input_as_output


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
    bundle = read_bundle(model)
    ClassRules.of(config, bundle)
    combined = output / f"{COMBINED}.{SUMMARY}.tsv.gz"
    inputs = [sources.reference, sources.read_sites, *(path for one in samples for path in (*one.pod5, one.bam))]
    for sample in samples:
        _plan(sample, sources, config, output).refuse_inputs(inputs)
    refuse_input_as_output(combined, inputs)
    identities = {sample.name: _identity(model, sample, sources, config) for sample in samples}
    done = {} if force else _earlier_tallies(samples, identities, sources, config, output, bundle)

    def call(sample: Sample) -> ClassPredictResult:
        return predict_classes(
            model,
            replace(sources, pod5=sample.pod5, bam=sample.bam),
            replace(config, sample=sample.name),
            place_of(sample, config, output),
            identity=identities[sample.name],
            # What is incomplete by its own account is replaced unasked.
            force=force or sample.name in done,
            progress=progress,
            stamp=_stamp_of(stamp, model, sample, sources),
            clock=time.monotonic,
        )

    called = call_each(samples, lambda sample: done.get(sample.name), call)
    complete = {**called.earlier, **{name: result.tally for name, result in called.finished.items()}}
    tallies = {sample.name: complete[sample.name] for sample in samples if sample.name in complete}
    if tallies:
        # It is made of the samples' own files and grows with them, so there is nothing to lose.
        with atomic_file(combined, force=True) as partial:
            write_combined(partial, tallies, bundle.labels, config.min_depth)
        if force:
            # Made of samples that a model of two states had called, and that were called again.
            for name in SUMMARIES.values():
                (output / f"{COMBINED}.{name}.tsv.gz").unlink(missing_ok=True)
    return ClassSamplesResult(
        path=output,
        labels=bundle.labels,
        called=called,
        tallies=tallies,
        min_depth=config.min_depth,
        tables_written=(combined,) if tallies else (),
    )


def _plan(sample: Sample, sources: ReadSources, config: PredictConfig, output: Path) -> OutputFiles:
    own = replace(sources, pod5=sample.pod5, bam=sample.bam)
    return plan_files(own, replace(config, sample=sample.name), place_of(sample, config, output))


def _stamp_of(stamp: Stamp, model: Path, sample: Sample, sources: ReadSources) -> Stamp:
    inputs = [model, *sample.pod5, sample.bam, sources.reference, sources.read_sites]
    identities = (Identity.of(path) for path in inputs if path is not None)
    return replace(stamp, inputs=tuple(found for found in identities if found is not None))


def _identity(model: Path, sample: Sample, sources: ReadSources, config: PredictConfig) -> str:
    """Return the digest of all that decides a sample's tables; files are known by size, time and, small ones, content."""
    paths = [*sample.pod5, sample.bam, sources.reference, sources.read_sites]
    files = [Identity.of(path) for path in paths if path is not None]
    content = {
        "model": hashlib.sha256((model / DESCRIPTION).read_bytes()).hexdigest(),
        "rules": [config.min_confidence or 0.0, config.abstain_junction_indel],
        "files": [None if file is None else asdict(file) for file in files],
        "settings": decisive(to_mapping(config)),
        "sources": choices_of(sources),
    }
    return digest_of(content)


def _earlier_tallies(
    samples: Sequence[Sample],
    identities: Mapping[str, str],
    sources: ReadSources,
    config: PredictConfig,
    output: Path,
    bundle: ModelBundle,
) -> dict[str, ClassTally | None]:
    """Return the calls of the samples that the folder holds already; None for one that is incomplete.

    :raises MismatchError: samples that were called by something else, before any other is run: the combined table would mix or
        lose them.
    """
    found: dict[str, ClassTally | None] = {}
    others = []
    for sample in samples:
        path = output / f"{sample.name}.{RECORD}"
        if not path.is_file():
            continue
        record = read_record(path, RUN_AGAIN, CLASSES_FORMAT)
        lacks_reads = bool(record.get("unreadable_pod5"))
        if record.get("identity") != identities[sample.name] and not lacks_reads:
            others.append(f"'{sample.name}'")
            continue
        is_complete = not lacks_reads and all(file.is_file() for file in _plan(sample, sources, config, output).all)
        found[sample.name] = _tally_of(record, bundle.labels) if is_complete else None
    if others:
        raise MismatchError(
            f"'{output}' holds {len(others)} of the {len(samples)} samples as a run with another model, other settings or "
            f"other inputs left them: {', '.join(others)}. Nothing was run or replaced.",
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
