"""From a corpus to a model folder: ``leech model train``.

Hides: what a finished model consists of and in which order things are checked. Belongs here: putting ranks, corpus, network,
task and loop together and writing the result. Invariants: everything that can be refused is refused before the first epoch;
the folder appears under its name when it is complete; on the CPU it depends on the configuration and the data alone, apart
from times, the stamp, and the last digits where the number of ranks differs.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from leech.config import dump_toml
from leech.console import Progress, SilentProgress, Table, format_duration, logger
from leech.console import Task as ProgressTask
from leech.data.corpus import Corpus
from leech.errors import InputError, MismatchError
from leech.evaluation.verdict import warn_unchecked
from leech.models.bundle import ModelBundle, save_bundle
from leech.models.description import describe
from leech.models.learnt import Learnt
from leech.models.spec import ArchitectureSpec, build_network, load_architecture
from leech.provenance import Stamp, atomic_folder, require_free
from leech.training.checkpoints import Kept
from leech.training.checks import TwoStates, examine
from leech.training.claim import claimed
from leech.training.config import TrainConfig
from leech.training.distributed import launched, run_ranks
from leech.training.loop import Fitted, Hooks, Plan, Record, fit, make_plan, reproducible
from leech.training.resume import ResumeFile, differences, identity_of
from leech.training.stopping import StopRequest
from leech.training.task import ClassificationTask
from leech.training.world import World


@dataclass(frozen=True)
class TrainResult:
    """What ``train`` made.

    :ivar metrics: of the validation split, of the weights that were kept; ``epoch`` and ``step`` are theirs.
    :ivar seconds: of training, evaluations included.
    """

    path: Path
    epoch: int
    step: int
    metrics: dict[str, float | None]
    seconds: float
    num_parameters: int

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "path": str(self.path),
            "epoch": self.epoch,
            "step": self.step,
            "validation": self.metrics,
            "seconds": round(self.seconds, 1),
            "num_parameters": self.num_parameters,
        }

    def tables(self) -> list[Table]:
        """Return the figures of the model that was kept."""
        rows = [
            ("model", str(self.path)),
            ("parameters", str(self.num_parameters)),
            ("kept epoch", str(self.epoch)),
            ("kept step", str(self.step)),
            *((f"validation {name}", "" if value is None else f"{value:.4f}") for name, value in self.metrics.items()),
            ("time", format_duration(self.seconds)),
        ]
        return [Table(title="Trained model", columns=("what", "value"), rows=tuple(rows))]


def train(
    config: TrainConfig,
    data: Path,
    output: Path,
    *,
    force: bool,
    resume: bool = False,
    progress: Progress,
    stamp: Stamp,
) -> TrainResult | None:
    """Train a network on the training split of a corpus and write the model folder ``output``.

    Beside it, ``<output>.resume`` holds the state of the run until it is complete.

    :param resume: go on from that file if there is one, and begin if there is none; the model of a run that is complete is
        left as it is.
    :return: None on a rank of a launcher that is not the first, which alone writes and tells.
    :raises ConfigError: settings that cannot be carried out here or contradict the corpus.
    :raises InputError: a corpus that cannot be trained on (see ``checks.py``), or an ``output`` that exists.
    :raises MismatchError: a run to be resumed that was begun with another corpus or other settings.
    :raises InterruptedRunError: the run was asked to end, and can be resumed.
    :raises LeechError: training diverged, or a rank was lost.
    """
    require_free(output, force=force or (resume and output.is_dir()), folder=True)
    # Said here at once, instead of by each rank after it has started.
    Corpus.open(data)
    load_architecture(config.model)
    job = _Job(config, data, output, force, resume, progress, stamp)
    place = launched(os.environ)
    # One process speaks for all ranks.
    with claimed(output) if place is None or place.rank == 0 else nullcontext():
        return run_ranks(_train_on_rank, [job], gpus=config.gpus, device=config.device)


class _Job(NamedTuple):
    """What a rank is told."""

    config: TrainConfig
    data: Path
    output: Path
    force: bool
    resume: bool
    progress: Progress
    stamp: Stamp


def _train_on_rank(world: World, job: _Job) -> TrainResult | None:
    """Train as one of the ranks; the first writes the model."""
    corpus = Corpus.open(job.data)
    with _said_once(world):
        states = examine(corpus, job.config.positive_label)
        warn_unchecked(corpus)
    spec = load_architecture(job.config.model)
    plan = make_plan(len(states.train), job.config)
    # What was left to leech to choose, so that a run which spells it out is the same run.
    settled = replace(job.config, positive_label=states.labels[1], batch_size=plan.batch_size, epochs=plan.epochs)
    file = ResumeFile(resume_path(job.output), identity_of(settled, corpus, spec))
    finished = _prepare_resume(file, job)
    if finished is not None:
        return finished if world.is_first else None
    network = build_network(spec, corpus.recipe, num_classes=2, seed=settled.seed)
    folder_of_output = atomic_folder(job.output, force=job.force) if world.is_first else nullcontext(None)
    stop = StopRequest()
    # Whoever asks for an end after the last evaluation gets the model, which is there as soon as a saved state would be.
    with reproducible(world.device), stop.listening(), folder_of_output as folder:
        with _said_once(world):
            task = ClassificationTask(corpus, states, network, spec.features, settled)
        progress = job.progress if world.is_first else SilentProgress()
        fitted = _fit(task, settled, plan, world, file, progress, stop)
        if folder is not None:
            network.load_state_dict(fitted.kept.state)
            _write(folder, job, spec, corpus, states, settled, network, fitted)
    if folder is None:
        return None
    file.discard()
    kept = fitted.kept
    num_parameters = sum(parameter.numel() for parameter in network.parameters())
    return TrainResult(job.output, kept.epoch, kept.step, kept.metrics, fitted.records[-1].seconds, num_parameters)


@contextmanager
def _said_once(world: World) -> Iterator[None]:
    """Let the first rank alone tell what all of them find alike."""
    logger.disabled = not world.is_first
    try:
        yield
    finally:
        logger.disabled = False


def resume_path(output: Path) -> Path:
    """Return where the state of a run that makes ``output`` is kept."""
    return output.with_name(f"{output.name}.resume")


def _prepare_resume(file: ResumeFile, job: _Job) -> TrainResult | None:
    """Settle whether to begin or to go on; returns the result of a run that is complete already.

    :raises InputError: there is a state to go on from, and nobody said whether to.
    """
    if file.path.exists() and not job.resume:
        if not job.force:
            raise InputError(
                f"'{file.path}' holds the state of an interrupted run, which would be lost.",
                hint="Give --resume to go on from there, or --force to begin anew.",
            )
        return None
    if job.resume and job.output.is_dir() and not job.force:
        # A state may still lie beside it, of a run that was ended between writing its model and removing that.
        return _finished(job.output, file.identity)
    if not job.resume or file.path.exists():
        return None
    logger.info("There is no '%s' to go on from: training begins.", file.path)
    return None


def _finished(output: Path, identity: Mapping[str, Any]) -> TrainResult:
    """Return the result of the complete run that made ``output``.

    :raises MismatchError: that was another run.
    """
    model = describe(output)
    recorded = model.bundle.training.get("run")
    differing = (
        ["what it was trained with, which it does not say"] if recorded is None else differences(recorded, identity)
    )
    if differing:
        raise MismatchError(
            f"Model '{output}' is complete, but it comes from another run; what differs: {'; '.join(differing)}.",
            hint="Give another --output, or --force without --resume to replace it.",
        )
    logger.info("'%s' is complete: nothing to do.", output)
    training = model.bundle.training
    last = json.loads((output / "history.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    return TrainResult(
        output,
        training["epoch"],
        training["step"],
        training["validation"],
        last["seconds"],
        sum(model.parameters.values()),
    )


def _fit(
    task: ClassificationTask,
    config: TrainConfig,
    plan: Plan,
    world: World,
    file: ResumeFile,
    progress: Progress,
    stop: StopRequest,
) -> Fitted:
    logger.info(
        "Training: %d parameters, %d epochs of %d steps of %d chunks, learning rate %g, seed %d, on %s.",
        sum(parameter.numel() for parameter in task.network.parameters()),
        plan.epochs,
        plan.steps_per_epoch,
        plan.batch_size,
        config.learning_rate,
        config.seed,
        f"{world.size} x {world.device.type}" if world.size > 1 else world.device.type,
    )
    with progress.task("train", unit="chunks", total=plan.epochs * task.num_rows) as shown:
        reporter = _Reporter(shown)
        hooks = Hooks(
            on_record=reporter.on_record,
            on_restored=shown.start_at,
            on_step=reporter.on_step,
            clock=time.perf_counter,
            stop=stop,
        )
        fitted = fit(task, config, plan, world, hooks, file)
    last = fitted.records[-1]
    if world.is_first and last.step < plan.num_steps:
        logger.info(
            "Stopped early at step %d of %d, %d evaluations after the best one; kept the weights of epoch %d of %d.",
            last.step,
            plan.num_steps,
            fitted.kept.num_since,
            fitted.kept.epoch,
            last.epoch,
        )
    return fitted


def _write(
    folder: Path,
    job: _Job,
    spec: ArchitectureSpec,
    corpus: Corpus,
    states: TwoStates,
    settled: TrainConfig,
    network: nn.Module,
    fitted: Fitted,
) -> None:
    run = identity_of(settled, corpus, spec)
    learnt = _learnt(corpus, states)
    save_bundle(_describe(spec, corpus, states, fitted.kept, learnt, job.stamp, run), network, folder)
    learnt.save(folder)
    for companion in (corpus.kmer_table(), corpus.bed_sites()):
        if companion is not None:
            companion.save(folder)
    _write_history(fitted.records, folder)
    # How many shared the work is no part of what was made.
    portable = replace(settled, gpus=None)
    (folder / "train.toml").write_text(dump_toml(portable), encoding="utf-8")


class _Reporter:
    """Tells of each step beside the progress, and of each record there and in the log."""

    def __init__(self, shown: ProgressTask) -> None:
        self._shown = shown
        self._loss: float | None = None
        self._judgement = ""

    def on_step(self, chunks: int, loss: float) -> None:
        # Of about the last twenty steps: single ones jump.
        self._loss = loss if self._loss is None else 0.95 * self._loss + 0.05 * loss
        self._shown.describe(f"loss {self._loss:.3f}{self._judgement}")
        self._shown.advance(chunks)

    def on_record(self, record: Record) -> None:
        area, loss = record.metrics["auroc"], record.metrics["loss"]
        self._judgement = f", validation loss {loss:.3f}, AUROC {area:.3f}"
        self._shown.describe(f"loss {record.train_loss:.3f}{self._judgement}")
        logger.debug("%s", record.to_mapping())


def _describe(
    spec: ArchitectureSpec,
    corpus: Corpus,
    states: TwoStates,
    kept: Kept,
    learnt: Learnt,
    stamp: Stamp,
    run: Mapping[str, Any],
) -> ModelBundle:
    return ModelBundle(
        spec=spec,
        recipe=corpus.recipe,
        labels=states.labels,
        training={
            "epoch": kept.epoch,
            "step": kept.step,
            "validation": kept.metrics,
            "num_train": dict(zip(states.labels, states.num_train, strict=True)),
            "num_validation": dict(zip(states.labels, states.num_validation, strict=True)),
            "references": _references(corpus, states),
            "corpus_digest": corpus.manifest.digest,
            **_origin(corpus),
            **learnt.to_mapping(),
            "run": dict(run),
        },
        stamp=stamp.to_mapping(),
    )


def _learnt(corpus: Corpus, states: TwoStates) -> Learnt:
    """Return what the model will tell of its reads, those by which it was chosen among them."""
    rows = np.sort(np.concatenate([states.train, states.validation]))
    found = corpus.gather(rows, ["parent_id", "run"])
    names = corpus.categories["run"]
    return Learnt.of(found["parent_id"], (names[code] for code in np.unique(found["run"])))


def _references(corpus: Corpus, states: TwoStates) -> list[str]:
    """Return the names of the references that were learnt from, in the order of their names."""
    codes = np.unique(corpus.gather(states.train, ["reference"])["reference"])
    return sorted(corpus.categories["reference"][code] for code in codes)


def _origin(corpus: Corpus) -> dict[str, Any]:
    """Return what predicting compares new runs with: sampling rates, basecaller models, and records by outcome per label.

    A library of several labels tells nothing of either, so it is left out of the last.
    """
    libraries = corpus.parts or [corpus]
    ladders: dict[str, Counter[str]] = {}
    for library in libraries:
        if len(library.labels) == 1:
            ladders.setdefault(library.labels[0], Counter()).update(library.manifest.counts)
    return {
        "sample_rates": sorted({rate for library in libraries for rate in library.manifest.runs.values()}),
        "basecall_models": sorted(
            {name for library in libraries for name in library.manifest.settings.get("basecall_models", [])}
        ),
        "counts_by_label": {label: dict(ladder) for label, ladder in sorted(ladders.items())},
    }


def _write_history(records: list[Record], folder: Path) -> None:
    lines = (json.dumps(record.to_mapping(), allow_nan=False) for record in records)
    (folder / "history.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
