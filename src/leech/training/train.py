"""From a corpus to a model folder: ``leech model train``.

Hides: what a finished model consists of and in which order things are checked. Belongs here: putting corpus, network, task
and loop together and writing the result. Invariants: everything that can be refused is refused before the first epoch; the
folder appears under its name when it is complete; on the CPU it depends on the configuration and the data alone, apart from
times and the stamp.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from leech.config import dump_toml
from leech.console import Progress, Table, format_duration, logger
from leech.console import Task as ProgressTask
from leech.data.corpus import Corpus
from leech.errors import ConfigError
from leech.evaluation.verdict import warn_unchecked
from leech.models.bundle import ModelBundle, save_bundle
from leech.models.device import choose_device
from leech.models.spec import ArchitectureSpec, build_network, load_architecture
from leech.provenance import Stamp, atomic_folder
from leech.training.checkpoints import Kept
from leech.training.checks import TwoStates, examine
from leech.training.config import TrainConfig
from leech.training.loop import Record, fit, make_plan, reproducible
from leech.training.task import ClassificationTask


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
    config: TrainConfig, data: Path, output: Path, *, force: bool, progress: Progress, stamp: Stamp
) -> TrainResult:
    """Train a network on the training split of a corpus and write the model folder ``output``.

    :raises ConfigError: settings that cannot be carried out here or contradict the corpus.
    :raises InputError: a corpus that cannot be trained on (see ``checks.py``), or an ``output`` that exists.
    :raises LeechError: training diverged.
    """
    if config.gpus > 1:
        raise ConfigError(
            f"--gpus {config.gpus}: training on several GPUs comes with the next step of leech; one is used until then.",
            hint="Use --gpus 1.",
        )
    device = choose_device(config.device)
    corpus = Corpus.open(data)
    states = examine(corpus, config.positive_label)
    warn_unchecked(corpus)
    spec = load_architecture(config.model)
    with reproducible(device), atomic_folder(output, force=force) as folder:
        network = build_network(spec, corpus.recipe, num_classes=2, seed=config.seed)
        num_parameters = sum(parameter.numel() for parameter in network.parameters())
        task = ClassificationTask(corpus, states, network, spec.features, config)
        plan = make_plan(task.num_rows, config)
        logger.info(
            "Training: %d parameters, %d epochs of %d steps of %d chunks, learning rate %g, seed %d, on %s.",
            num_parameters,
            plan.epochs,
            plan.steps_per_epoch,
            plan.batch_size,
            config.learning_rate,
            config.seed,
            device.type,
        )
        records: list[Record] = []
        with progress.task("train", unit="chunks", total=plan.epochs * task.num_rows) as shown:
            kept = fit(
                task,
                config,
                plan,
                device,
                on_record=_Reporter(records, shown),
                on_step=lambda chunks, _: shown.advance(chunks),
                clock=time.perf_counter,
            )
        network.load_state_dict(kept.state)
        save_bundle(_describe(spec, corpus, states, kept, stamp), network, folder)
        for companion in (corpus.kmer_table(), corpus.bed_sites()):
            if companion is not None:
                companion.save(folder)
        _write_history(records, folder)
        settled = replace(config, positive_label=states.labels[1], batch_size=plan.batch_size, epochs=plan.epochs)
        (folder / "train.toml").write_text(dump_toml(settled), encoding="utf-8")
    return TrainResult(output, kept.epoch, kept.step, kept.metrics, records[-1].seconds, num_parameters)


class _Reporter:
    """Keeps the records and tells of each: beside the progress, and in the log."""

    def __init__(self, records: list[Record], shown: ProgressTask) -> None:
        self._records, self._shown = records, shown

    def __call__(self, record: Record) -> None:
        self._records.append(record)
        area, loss = record.metrics["auroc"], record.metrics["loss"]
        self._shown.describe(f"loss {record.train_loss:.3f}, validation loss {loss:.3f}, AUROC {area:.3f}")
        logger.debug("%s", record.to_mapping())


def _describe(spec: ArchitectureSpec, corpus: Corpus, states: TwoStates, kept: Kept, stamp: Stamp) -> ModelBundle:
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
        },
        stamp=stamp.to_mapping(),
    )


def _references(corpus: Corpus, states: TwoStates) -> list[str]:
    """Return the names of the references that were learnt from, in the order of their names."""
    codes = np.unique(corpus.gather(states.train, ["reference"])["reference"])
    return sorted(corpus.categories["reference"][code] for code in codes)


def _write_history(records: list[Record], folder: Path) -> None:
    lines = (json.dumps(record.to_mapping(), allow_nan=False) for record in records)
    (folder / "history.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
