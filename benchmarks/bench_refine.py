"""Boundary refinement: what it costs, what dominates, and what it does to the fit with the k-mer levels.

Cuts chunks from reads held in memory, with and without refinement, in turns in one run and on one core; times are CPU time of
this process. Two sets of reads: the real ones, and, with --simulated, a folder of ``leech data simulate`` (its reads have
about 150 bases). The shares of the time are measured on the same reads: the search inside escapepod alone, and all of
``refine_bounds``. Not measured: POD5 decoding and BAM parsing, which refinement does not change; ``rate with decoding``
adds both, measured on the same reads in the same run.

    python benchmarks/bench_refine.py DATA [--simulated FOLDER] [--repeats 5] [--write]

DATA is the folder that holds ``ecoli_psi55``, ``ecoli_ala`` and ``kmer``. With --write, a dated table is put into
benchmarks/results/.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pysam

from dated import keep, today
from leech.config import build
from leech.data import chunks, refine
from leech.data.alignments import open_alignments
from leech.data.anchors import find_sites, read_fasta
from leech.data.chunks import cut
from leech.data.levels import KmerTable
from leech.data.pod5 import Pod5Index, SignalSource, find_pod5
from leech.data.reads import AlignedReads, Examiner
from leech.data.recipe import Recipe

PSI = {"motif": "GTTC", "motif_offset": 2, "motif_occurrence": "last"}
JUNCTION = {"motif": "CCAGGC", "motif_offset": 2}


class Run(NamedTuple):
    """Reads of one library in memory, and what cutting needs beside them."""

    reads: AlignedReads
    signals: dict[bytes, Any]
    references: tuple[str, ...]
    sequences: dict[str, str]
    decode_seconds: float


def load(pod5: Path, bam: Path, reference: Path, recipe: Recipe, table: KmerTable) -> Run:
    index = Pod5Index.build(find_pod5([pod5]))
    sequences = read_fasta(reference)
    with open_alignments(bam, reference) as alignments:
        references = tuple(alignments.header.references)
        sites, anchor = find_sites(references, sequences, recipe, table)
        start = time.process_time()
        records: list[pysam.AlignedSegment] = list(alignments.records())
        reads = Examiner(sites, index, 0, anchor).examine(records).reads
        signals = SignalSource(index.files).fetch(zip(reads.file_number.tolist(), reads.parent_ids, strict=True))
        return Run(reads, signals, references, sequences, time.process_time() - start)


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def measure(name: str, run: Run, recipe: Recipe, table: KmerTable, repeats: int) -> list[str]:
    recipes = {"none": replace(recipe, refinement="none"), "kmer": replace(recipe, refinement="kmer")}
    sites = {key: find_sites(run.references, run.sequences, item, table)[0] for key, item in recipes.items()}
    seconds: dict[str, list[float]] = {"none": [], "kmer": [], "refine": [], "search": []}
    calls: list[tuple[Any, ...]] = []
    inner: list[tuple[Any, ...]] = []
    chunks.refine_bounds = lambda *arguments: calls.append(arguments) or refine.refine_bounds(*arguments)  # type: ignore
    search = refine._search
    refine._search = lambda *arguments: inner.append(arguments) or search(*arguments)  # type: ignore
    result = cut(run.reads, run.signals, sites["kmer"], run.references, recipes["kmer"], label=None, sample=None)
    chunks.refine_bounds, refine._search = refine.refine_bounds, search
    for _ in range(repeats):
        for key, item in recipes.items():
            arguments = (run.reads, run.signals, sites[key], run.references, item)
            seconds[key].append(timed(lambda given=arguments: cut(*given, label=None, sample=None))[0])
        seconds["refine"].append(timed(lambda: [refine.refine_bounds(*given) for given in calls])[0])
        seconds["search"].append(timed(lambda: [search(*given) for given in inner])[0])
    best = {key: min(values) for key, values in seconds.items()}
    number, told = len(run.reads), result.refinement.to_mapping()
    lengths = np.median(run.reads.num_bases)
    samples = np.median([len(run.signals[parent].signal) for parent in run.reads.parent_ids])
    stretch = np.median([len(given[2]) for given in inner])
    return [
        f"| {name} | {number} | {lengths:.0f} | {samples:.0f} | {stretch:.0f} | {told['correlation_before']} | "
        f"{told['correlation_after']} | {told['refined_share']:.3f} | {told['kept_moves']} | {number / best['none']:.0f} | "
        f"{number / best['kmer']:.0f} | {number / (best['kmer'] + run.decode_seconds):.0f} | "
        f"{1e6 * best['refine'] / number:.0f} | {best['search'] / best['refine']:.0%} | {best['search'] / best['kmer']:.0%} |"
    ]


def compare(name: str, run: Run, recipe: Recipe, table: KmerTable, repeats: int) -> str:
    """Return what each way of placing boundaries costs, and how its levels fit the table where the features are measured."""
    recipes = {kind: replace(recipe, refinement=kind) for kind in ("none", "step", "kmer")}
    sites = {kind: find_sites(run.references, run.sequences, item, table)[0] for kind, item in recipes.items()}
    seconds: dict[str, list[float]] = {kind: [] for kind in recipes}
    fits = {}
    for _ in range(repeats):
        for kind, item in recipes.items():
            arguments = (run.reads, run.signals, sites[kind], run.references, item)
            spent, result = timed(lambda given=arguments: cut(*given, label=None, sample=None))
            seconds[kind].append(spent)
            fits[kind] = np.median(list(correlations(result.chunks.columns)))
    cost = {kind: 1e6 * min(values) / len(run.reads) for kind, values in seconds.items()}
    cells = [
        *(f"{fits[kind]:.3f}" for kind in recipes),
        *(f"{cost[kind] - cost['none']:.0f}" for kind in ("step", "kmer")),
    ]
    return f"| {name} | {len(run.reads)} | {' | '.join(cells)} |"


def correlations(columns: Mapping[str, Any]) -> Iterator[float]:
    """Yield, per chunk, Pearson's correlation of its feature bases' mean currents with their expected levels."""
    for mean, expected in zip(columns["level_mean"], columns["expected_level"], strict=True):
        known = np.isfinite(expected) & (mean != 0)
        if known.sum() > 5:
            yield float(np.corrcoef(mean[known], expected[known])[0, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--simulated", type=Path, help="folder of 'leech data simulate' with the same k-mer table")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    table = KmerTable.load(arguments.data / "kmer" / "rna004_9mer_levels_v1.txt.gz")
    filled = {"kmer_table_sha256": table.sha256, "kmer_size": table.size, "kmer_centre": 2, "refinement": "kmer"}
    psi = arguments.data / "ecoli_psi55"
    ala = arguments.data / "ecoli_ala"
    sets = {
        "psi55 wt": (psi / "wt" / "reads.pod5", psi / "wt" / "mappings.bam", psi / "reference.fa", PSI),
        "psi55 truB": (psi / "truB" / "reads.pod5", psi / "truB" / "mappings.bam", psi / "reference.fa", PSI),
        "alanine": (ala / "reads.pod5", ala / "mappings.bam", ala / "reference.fa", JUNCTION),
    }
    if arguments.simulated:
        folder = arguments.simulated
        sets["simulated"] = (folder / "reads.pod5", folder / "mappings.bam", folder / "reference.fa", JUNCTION)
    lines = [
        "| reads | n | bases | samples | stretch, bases | r before | r after | refined | kept moves | reads/s none | "
        "reads/s kmer | reads/s with decoding | refinement, us a read | search of it | search of cutting |",
        "|---|" + "---|" * 14,
    ]
    compared = [
        "| reads | n | r none | r step | r kmer | step, us a read | kmer, us a read |",
        "|---|" + "---|" * 6,
    ]
    for name, (pod5, bam, reference, motif) in sets.items():
        recipe = build(Recipe, {**motif, **filled})
        run = load(pod5, bam, reference, recipe, table)
        lines += measure(name, run, recipe, table, arguments.repeats)
        compared.append(compare(name, run, recipe, table, arguments.repeats))
    lines += [
        "",
        f"Ways of placing boundaries: medians over reads of the correlation over the {recipe.num_feature_bases} bases whose "
        "levels are measured, and what they cost beside cutting with the move table's boundaries.",
        "",
        *compared,
    ]
    print("\n".join(lines))
    if arguments.write:
        keep(
            "refine",
            f"# Boundary refinement, {today()}\n\nCPU time of one process, best of {arguments.repeats}; default recipe "
            f"({recipe.num_bases} bases, margin {refine.MARGIN_BASES}, half band {refine.HALF_BAND_BASES} bases). "
            "Correlations are medians over reads of per-base means with expected levels over the refined stretch.\n\n"
            + "\n".join(lines)
            + "\n",
        )


if __name__ == "__main__":
    main()
