"""How often the interval of a reported charged fraction holds the truth, on simulated mixtures; how far off raw fractions are.

    python benchmarks/bench_mixtures.py [--reads 4000] [--training 6000] [--effects 1 0.5] [--seed 0] [--workers 2] [--write]

For each strength of the amino acids' effects (1: a good model; less: a weak one) the commands that a user types are run: two
libraries of one state are simulated, prepared and merged, a network is trained and calibrated for an FPR of 2 %; two control
libraries and mixtures of 0, 0.1, 0.25, 0.5 and 1 charged over the same 20 tRNAs are simulated from other reads and called. A
cell is a tRNA in a mixture. The truth is what was asked of the simulator, so intervals also have to allow for which molecules
were drawn. Beside what predict writes with the model alone and with controls, two things are worked out from the same calls:
the correction by the pair of rates of all references, and that of a tRNA which the model was not measured on (its own counts
left out). An interval of 95 % is to hold the truth in 90 % of the cells at least. ``--write`` puts a dated table into
benchmarks/results/.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dated import show, today
from leech.data.proportion import wilson
from leech.models.bundle import CallCounts, read_bundle
from leech.prediction.fractions import correct_errors
from leech.prediction.rates import ReferenceRates

FRACTIONS = (0.0, 0.1, 0.25, 0.5, 1.0)
LEECH = "import sys; from leech.cli.main import main; sys.exit(main(sys.argv[1:]))"


class Cell(NamedTuple):
    """A fraction that was reported of a tRNA in a mixture."""

    truth: float
    value: float
    low: float
    high: float

    @property
    def is_held(self) -> bool:
        return self.low <= self.truth <= self.high


def leech(*words: object) -> None:
    command = [sys.executable, "-c", LEECH, *map(str, words), "-q"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"leech {' '.join(map(str, words))}\n{done.stderr}")


class Experiment:
    """A model of simulated reads, and the libraries that it calls."""

    def __init__(self, folder: Path, effect: float, options: argparse.Namespace) -> None:
        self.folder, self.effect, self.options = folder, effect, options
        self.model = folder / "model"
        self._seed = 100 * options.seed

    def simulate(self, name: str, fraction: float, reads: int) -> Path:
        # Other reads for every library, of the same references and pore.
        self._seed += 1
        size = ("--reads", reads, "--seed", self._seed, "--workers", self.options.workers)
        leech(
            "data", "simulate", "-o", self.folder / name, "--charged-fraction", fraction, "--effect", self.effect, *size
        )
        return self.folder / name

    @staticmethod
    def inputs(library: Path) -> tuple[object, ...]:
        files = ("--bam", library / "mappings.bam", "--reference", library / "reference.fa")
        return ("--pod5", library / "reads.pod5", *files)

    def train(self) -> None:
        corpora = []
        for label, fraction in (("uncharged", 0.0), ("charged", 1.0)):
            library = self.simulate(f"library-{label}", fraction, self.options.training)
            corpora.append(self.folder / label)
            site = ("--motif", "CCAGGC", "--motif-offset", 2, "--label", label, "--workers", self.options.workers)
            leech("data", "prepare", "-o", corpora[-1], *self.inputs(library), *site)
        merged, plain = self.folder / "corpus", self.folder / "plain"
        shares = ("--split", 0.4, 0.1, 0.3, 0.2, "--positive-label", "charged")
        leech("data", "merge", *corpora, "-o", merged, *shares)
        leech("model", "train", "--data", merged, "-o", plain, "--epochs", self.options.epochs, "--device", "cpu")
        target = ("--target-fpr", 0.02, "--bootstrap", 200, "--device", "cpu")
        leech("model", "calibrate", "--model", plain, "--data", merged, "-o", self.model, *target)

    def predict(self, library: Path, name: str, *more: object) -> Path:
        tables = self.folder / "tables"
        how = ("--format", "tsv", "--sample", name, "--device", "cpu", "--workers", self.options.workers)
        leech("predict", "--model", self.model, *self.inputs(library), "-o", tables, *how, *more)
        return tables / f"{name}.charging_summary.tsv.gz"

    def measured(self) -> dict[str, CallCounts]:
        """Return the calls on the test split by reference."""
        achieved = read_bundle(self.model).operating_point.achieved
        assert achieved is not None, "the model was calibrated"
        assert achieved["test"].references is not None, "references were counted"
        return achieved["test"].references


def rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def reported(table: list[dict[str, str]], column: str, truth: float) -> Iterator[Cell]:
    for row in table:
        if row[column]:
            yield Cell(truth, *(float(row[f"{column}{suffix}"]) for suffix in ("", "_low", "_high")))


def worked_out(table: list[dict[str, str]], counts: dict[str, CallCounts], truth: float, way: str) -> Iterator[Cell]:
    """Yield what predict would report by other rates from the same calls."""
    rates = ReferenceRates.of(counts)
    assert rates is not None, "the model tells the states apart"
    for row in table:
        chosen = rates.pooled
        if way == "unseen":
            others = ReferenceRates.of({name: one for name, one in counts.items() if name != row["reference"]})
            assert others is not None, "the model tells the states apart"
            chosen = others.unseen
        positive = int(row["n_positive"])
        value, interval = correct_errors(positive, positive + int(row["n_negative"]), chosen)
        if value is not None and interval is not None:
            yield Cell(truth, value, *interval)


WAYS = {
    "raw, as called": ("fraction", "plain"),
    "corrected, one pair of rates for all tRNAs": ("pooled", "plain"),
    "corrected, rates of each tRNA (predict)": ("error_corrected", "plain"),
    "the same, and for no-calls (predict)": ("no_call_corrected", "plain"),
    "corrected, a tRNA that was not measured": ("unseen", "plain"),
    "corrected, control libraries (predict)": ("error_corrected", "controls"),
    "the same, and for no-calls (predict, controls)": ("no_call_corrected", "controls"),
}


def measure(folder: Path, effect: float, options: argparse.Namespace) -> Iterator[str]:
    experiment = Experiment(folder, effect, options)
    experiment.train()
    counts = experiment.measured()
    controls: list[object] = []
    for state, fraction in (("negative", 0.0), ("positive", 1.0)):
        library = experiment.simulate(f"control-{state}", fraction, options.reads)
        controls += [f"--{state}-control", experiment.predict(library, f"control-{state}")]
    found: dict[str, list[Cell]] = {way: [] for way in WAYS}
    depths = []
    for fraction in FRACTIONS:
        library = experiment.simulate(f"mixture-{fraction}", fraction, options.reads)
        tables = {
            "plain": rows(experiment.predict(library, f"mixture-{fraction}")),
            "controls": rows(experiment.predict(library, f"controlled-{fraction}", *controls)),
        }
        depths += [int(row["n_positive"]) + int(row["n_negative"]) for row in tables["plain"]]
        for way, (column, which) in WAYS.items():
            if column in ("pooled", "unseen"):
                found[way] += worked_out(tables[which], counts, fraction, column)
            else:
                found[way] += reported(tables[which], column, fraction)
    yield from described(effect, counts, depths, found)


def described(
    effect: float, counts: dict[str, CallCounts], depths: Sequence[int], found: dict[str, list[Cell]]
) -> Iterator[str]:
    tpr = [one.tp / one.num_positive for one in counts.values()]
    fpr = [one.fp / one.num_negative for one in counts.values()]
    reads = [min(one.num_positive, one.num_negative) for one in counts.values()]
    yield (
        f"\n## Effect {effect:g}\n\nOn the test split, by tRNA: TPR {min(tpr):.2f} to {max(tpr):.2f}, FPR {min(fpr):.3f} to "
        f"{max(fpr):.3f}, {min(reads)} reads or more of either state. Calls per cell: {min(depths)} to {max(depths)}, median "
        f"{int(np.median(depths))}.\n"
    )
    by_truth = " | ".join(f"bias at {fraction:g}" for fraction in FRACTIONS)
    yield f"| fraction | cells | interval holds the truth (95 % interval) | mean width | {by_truth} |"
    yield "|" + "---|" * (4 + len(FRACTIONS))
    for way, cells in found.items():
        held = sum(cell.is_held for cell in cells)
        interval = wilson(held, len(cells))
        assert interval is not None, "a model corrects some cells"
        bias = (
            np.mean([cell.value - cell.truth for cell in cells if cell.truth == fraction]) for fraction in FRACTIONS
        )
        width = np.mean([cell.high - cell.low for cell in cells])
        share = f"{held / len(cells):.1%} ({interval.low:.1%} to {interval.high:.1%})"
        yield f"| {way} | {len(cells)} | {share} | {width:.3f} | {' | '.join(f'{value:+.3f}' for value in bias)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reads", type=int, default=4000, help="reads of a mixture or control")
    parser.add_argument("--training", type=int, default=6000, help="reads of either library that the model learns from")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--effects", type=float, nargs="+", default=[1.0, 0.5])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    show(report(options), "mixtures" if options.write else None)


def report(options: argparse.Namespace) -> Iterator[str]:
    command = " ".join(["python", "benchmarks/bench_mixtures.py", *sys.argv[1:]])
    yield f"# Charged fractions of simulated mixtures, {today()}\n"
    yield (
        f"`{command}`: 20 tRNAs x {len(FRACTIONS)} mixtures ({', '.join(f'{fraction:g}' for fraction in FRACTIONS)} charged), "
        f"{options.reads} reads each; model of {options.training} reads of either state, called at FPR <= 2 %."
    )
    for effect in options.effects:
        with tempfile.TemporaryDirectory() as name:
            yield from measure(Path(name), effect, options)


if __name__ == "__main__":
    main()
