"""The whole of leech on simulated reads: ``leech demo``.

Hides: nothing that a user could not type; every step is the core function of a command. Belongs here: their order, and
the comparison with the truth that only simulated reads have. Invariants: equal options give equal calls; heavy modules
are imported when the demo runs, because the command line makes its flags from this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leech.config import build, knob
from leech.console import Progress, Table, logger
from leech.provenance import Stamp, atomic_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leech.evaluation.evaluate import Evaluation
    from leech.prediction.predict import PredictResult

MIXTURE_FRACTION = 0.3
"""Charged share of the third library, which the model has never seen."""

SITE = {"motif": "CCAGGC", "motif_offset": 2}


@dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """How ``leech demo`` runs."""

    reads: int = knob(800, minimum=50, help="Reads per simulated library: charged, uncharged and a mixture.")
    gpus: int = knob(1, minimum=1, help="GPUs to train on.")
    seed: int = knob(0, minimum=0, help="Seed of reads, split and training.")


@dataclass(frozen=True)
class DemoResult:
    """What the demo made and how it compares with the truth.

    :ivar figures: (what, found, the best that is possible or true).
    :ivar paths: what lies where.
    """

    figures: tuple[tuple[str, str, str], ...]
    paths: dict[str, Path]

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "figures": [{"what": what, "leech": found, "reference": best} for what, found, best in self.figures],
            "paths": {name: str(path) for name, path in self.paths.items()},
        }

    def tables(self) -> list[Table]:
        """Return the figures and the paths."""
        return [
            Table(title="leech demo", columns=("what", "leech", "at best"), rows=self.figures),
            Table(
                title="Made", columns=("what", "path"), rows=[(name, str(path)) for name, path in self.paths.items()]
            ),
        ]


def run_demo(config: DemoConfig, output: Path, *, force: bool, progress: Progress, stamp: Stamp) -> DemoResult:
    """Simulate three libraries, train on two, call the third, and compare with truth and oracle.

    :param output: folder for everything; appears when the demo is complete.
    """
    with atomic_folder(output, force=force) as work:
        figures = _run(config, work, progress, stamp)
        stamp.write(work)
    names = {
        "charged reads": "charged",
        "uncharged reads": "uncharged",
        "training corpus": "corpus",
        "model": "model",
        "metrics on the test split": "metrics.json",
        "mixture, called": "mixture.bam",
        "tables of calls": "tables",
        "truth of the mixture": "mixture/truth.tsv",
    }
    return DemoResult(tuple(figures), {what: output / name for what, name in names.items()})


def _run(config: DemoConfig, work: Path, progress: Progress, stamp: Stamp) -> list[tuple[str, str, str]]:
    from leech.data.compose import merge
    from leech.data.config import MergeConfig, PrepareConfig
    from leech.data.prepare import prepare
    from leech.data.recipe import Recipe
    from leech.data.simulate.config import SimulateConfig
    from leech.data.simulate.write import simulate
    from leech.evaluation.config import EvalConfig
    from leech.evaluation.evaluate import evaluate
    from leech.prediction.config import PredictConfig
    from leech.prediction.predict import PredictResult, predict
    from leech.training.config import TrainConfig
    from leech.training.train import train

    libraries = {"charged": 1.0, "uncharged": 0.0, "mixture": MIXTURE_FRACTION}
    for number, (name, fraction) in enumerate(libraries.items()):
        logger.info("Simulating library '%s': %d reads, %.0f %% charged.", name, config.reads, 100 * fraction)
        settings = {
            "reads": config.reads,
            "charged_fraction": fraction,
            "seed": 3 * config.seed + number,
            "sample": name,
            # One file each, however many reads there are.
            "pod5_reads": config.reads,
        }
        simulate(build(SimulateConfig, settings), work / name, force=False, stamp=stamp, progress=progress)
    for name in ("charged", "uncharged"):
        prepare(
            _sources(work / name),
            build(Recipe, SITE),
            build(PrepareConfig, {"label": name}),
            work / f"{name}.corpus",
            force=False,
            progress=progress,
            stamp=stamp,
        )
    merge(
        [work / "charged.corpus", work / "uncharged.corpus"],
        build(MergeConfig, {"positive_label": "charged", "seed": config.seed}),
        work / "corpus",
        force=False,
        stamp=stamp,
    )
    training = build(TrainConfig, {"seed": config.seed, "gpus": config.gpus})
    train(training, work / "corpus", work / "model", force=False, progress=progress, stamp=stamp)
    evaluation = evaluate(
        work / "model",
        work / "corpus",
        build(EvalConfig, {}),
        work / "metrics.json",
        force=False,
        progress=progress,
        stamp=stamp,
    )
    prediction = predict(
        work / "model",
        _sources(work / "mixture"),
        build(PredictConfig, {"tables": work / "tables"}),
        work / "mixture.bam",
        force=False,
        progress=progress,
        stamp=stamp,
    )
    assert isinstance(prediction, PredictResult), "the demo's model tells two states apart"
    return _compare(work, evaluation, prediction)


def _sources(library: Path) -> Any:
    from leech.data.config import ReadSources

    files = {"pod5": [library / "reads.pod5"], "bam": library / "mappings.bam", "reference": library / "reference.fa"}
    return build(ReadSources, files)


def _compare(work: Path, evaluation: Evaluation, prediction: PredictResult) -> list[tuple[str, str, str]]:
    """Compare calls with truth and with the oracle that knows the simulator's parameters, on the same reads."""

    import numpy as np

    from leech.data.corpus import Corpus
    from leech.data.pod5 import unpack_read_ids
    from leech.data.simulate.oracle import auroc
    from leech.evaluation.summary import Metrics

    oracle = {**_truth(work / "charged"), **_truth(work / "uncharged")}
    corpus = Corpus.open(work / "corpus")
    rows = corpus.rows("test")
    columns = corpus.gather(rows, ["read_id", "label"])
    names = unpack_read_ids(columns["read_id"])
    test_charged = columns["label"] == corpus.labels.index("charged")
    best = auroc(test_charged, np.array([oracle[name][1] for name in names]))
    assert isinstance(evaluation.metrics, Metrics), "the demo's model tells two states apart"
    found = evaluation.metrics.auroc.value
    assert found is not None, "a test split of two states has an AUROC"

    truth = _truth(work / "mixture")
    calls = [row for row in _rows(work / "tables" / "mixture.charging_calls.tsv.gz") if row["cl"]]
    charged = np.array([truth[row["read_id"]][0] for row in calls])
    probability = np.array([float(row["p"]) for row in calls])
    oracle_score = np.array([truth[row["read_id"]][1] for row in calls])
    threshold = prediction.threshold
    called = np.array([int(row["cl"]) for row in calls]) >= threshold
    return [
        ("test reads", str(len(rows)), ""),
        ("AUROC, test split", f"{found:.3f}", f"{best:.3f}"),
        ("mixture reads called", str(len(calls)), str(len(truth))),
        ("AUROC, mixture", f"{auroc(charged, probability):.3f}", f"{auroc(charged, oracle_score):.3f}"),
        (f"charged fraction at cl >= {threshold}", f"{called.mean():.3f}", f"{charged.mean():.3f}"),
        ("calls that are right", f"{(called == charged).mean():.3f}", ""),
    ]


def _truth(library: Path) -> dict[str, tuple[bool, float]]:
    """Return (charged, oracle's log likelihood ratio) by read id."""
    rows = _rows(library / "truth.tsv")
    return {row["read_id"]: (row["charged"] == "1", float(row["oracle_logit"])) for row in rows}


def _rows(path: Path) -> list[Mapping[str, str]]:
    import csv

    from leech.data.packed import open_to_read

    with open_to_read(path) as file:
        return list(csv.DictReader(file, delimiter="\t"))
