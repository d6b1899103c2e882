"""Cross-validated AUROC on real reads: pseudouridine 55 in E. coli tRNA, present (wt) or absent (truB).

Prepares both libraries at the site and at a control site on the same reads, deals the reads to five folds by parent read,
trains the default network on four folds (one eighth of them for early stopping) and scores the fifth, so that every read
is scored once by a network that never saw it. Reports the AUROC over all reads, pooled over folds, for each seed.

    python benchmarks/bench_psi55.py DATA [--seeds 3] [--write]

DATA is the folder that holds ``ecoli_psi55``. With --write, a dated table is put into benchmarks/results/.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from dated import keep, today
from leech.config import build
from leech.console import SilentProgress
from leech.data.compose import merge
from leech.data.config import MergeConfig, PrepareConfig, ReadSources
from leech.data.corpus import Corpus
from leech.data.prepare import prepare
from leech.data.recipe import Recipe
from leech.evaluation.evaluate import score
from leech.models.bundle import load_bundle
from leech.provenance import Stamp
from leech.training.config import TrainConfig
from leech.training.train import train

SITES = {"site": 2, "control": -33}
"""Motif offsets: the second T of the last GTTC, and a base 35 nt upstream of it."""

FOLDS = 5


def prepare_site(data: Path, work: Path, name: str, stamp: Stamp) -> list[Path]:
    folder = data / "ecoli_psi55"
    recipe = build(Recipe, {"motif": "GTTC", "motif_offset": SITES[name], "motif_occurrence": "last"})
    libraries = []
    for label in ("wt", "truB"):
        sources = build(
            ReadSources,
            {
                "pod5": [folder / label / "reads.pod5"],
                "bam": folder / label / "mappings.bam",
                "reference": folder / "reference.fa",
            },
        )
        output = work / f"{name}-{label}"
        settings = build(PrepareConfig, {"label": label})
        prepare(sources, recipe, settings, output, force=False, progress=SilentProgress(), stamp=stamp)
        libraries.append(output)
    return libraries


def cross_validate(
    libraries: list[Path], name: str, seed: int, work: Path, stamp: Stamp, overrides: dict[str, object]
) -> tuple[float, float]:
    """Return the pooled AUROC and the longest training in seconds."""
    positive: list[np.ndarray] = []
    pooled: list[np.ndarray] = []
    longest = 0.0
    for fold in range(1, FOLDS + 1):
        data = work / f"{name}-{seed}-{fold}"
        choices = {"positive_label": "wt", "folds": FOLDS, "fold": fold, "split": [0.875, 0.125, 0.0], "seed": seed}
        merge(libraries, build(MergeConfig, choices), data, force=False, stamp=stamp)
        model = work / f"model-{name}-{seed}-{fold}"
        start = time.monotonic()
        config = build(TrainConfig, {"seed": seed, "device": "cpu", **overrides})
        train(config, data, model, force=False, progress=SilentProgress(), stamp=stamp)
        longest = max(longest, time.monotonic() - start)
        loaded, corpus = load_bundle(model), Corpus.open(data)
        scores = score(
            loaded.network, corpus, corpus.rows("test"), loaded.bundle.spec.features, 512, torch.device("cpu")
        )
        pooled.append(scores.p)
        positive.append(scores.labels == corpus.labels.index("wt"))
    assert sum(map(len, pooled)) == sum(len(Corpus.open(library)) for library in libraries), "every read once"
    return float(roc_auc_score(np.concatenate(positive), np.concatenate(pooled))), longest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sites", nargs="+", default=list(SITES), choices=list(SITES))
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="training options to try")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    overrides = dict(item.split("=", 1) for item in arguments.set)
    stamp = Stamp.make(["bench_psi55"], today())
    lines = ["| site | seed | pooled AUROC | longest training, s |", "|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for site in arguments.sites:
            libraries = prepare_site(arguments.data, work, site, stamp)
            values = []
            for seed in range(arguments.seeds):
                value, seconds = cross_validate(libraries, site, seed, work, stamp, overrides)
                values.append(value)
                lines.append(f"| {site} | {seed} | {value:.4f} | {seconds:.0f} |")
                print(lines[-1], flush=True)
            lines.append(f"| {site} | mean of {len(values)} | {np.mean(values):.4f} | |")
            print(lines[-1], flush=True)
    if arguments.write:
        threads = torch.get_num_threads()
        keep(
            "psi55",
            f"# Pseudouridine 55, {today()}\n\n5-fold cross-validation by read, 270 real reads, default network and options, "
            f"{threads} CPU threads. Control: a site 35 bases upstream on the same reads.\n\n"
            + "\n".join(lines)
            + "\n",
        )


if __name__ == "__main__":
    main()
