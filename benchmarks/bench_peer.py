"""``leech data prepare`` and ``leech predict`` against the maker's tool for signal around a base, remora, on the same reads.

    python benchmarks/bench_peer.py REMORA [--reads 4000] [--runs 3] [--write]

REMORA is the peer's executable, which wants an environment of its own (numpy below 2). Both cut one window of 225 + 225
samples around the same base of the reference, from the same simulated POD5 and the same BAM, to which MD tags are added
because the peer reads the reference from them; with 1 and with 2 workers, without and with refinement by the same k-mer
table. Then both call the reads of one library with a network trained for one pass over 600 reads of each state: leech's
default one, and for the peer the small convolutional one below, since its package brings none to train (its size, and
leech's, are in the report; accuracy is not compared).

They run in turns, each as a user would start it, and medians are compared: seconds of wall clock, which a busy machine
stretches, and processor seconds of all processes together, which it stretches less. Start-up counts for both; the last
column leaves out what both take for 50 reads.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pysam

from dated import keep, today

PEER_NETWORK = """
import torch
from torch import nn

class network(nn.Module):
    _variable_width_possible = False

    def __init__(self, size=64, kmer_len=9, num_out=2):
        super().__init__()
        def branch(channels):
            return nn.Sequential(nn.Conv1d(channels, size, 11, padding=5), nn.SiLU(),
                                 nn.Conv1d(size, size, 9, stride=3, padding=4), nn.SiLU())
        self.signal, self.sequence = branch(1), branch(4 * kmer_len)
        self.both = nn.Sequential(nn.Conv1d(2 * size, size, 5, padding=2), nn.SiLU(),
                                  nn.Conv1d(size, size, 5, stride=2, padding=2), nn.SiLU(),
                                  nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(size, num_out))

    def forward(self, sigs, seqs):
        return self.both(torch.cat([self.signal(sigs), self.sequence(seqs)], 1))
"""

LEECH = Path(sys.executable).parent / "leech"
WINDOW = 225


class Took(NamedTuple):
    """Seconds of wall clock, and of all processors."""

    wall: float
    cpu: float


def run(command: Sequence[str]) -> Took:
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(time.perf_counter() - started, cpu)


def mismatches(record: pysam.AlignedSegment, reference: str) -> str:
    """Return the MD tag (SAM Optional Fields Specification): matches, mismatched and deleted reference bases."""
    sequence = record.query_sequence or ""
    query, position, matches, words = 0, record.reference_start, 0, []
    for operation, length in record.cigartuples or ():
        if operation in (0, 7, 8):
            for step in range(length):
                base = reference[position + step]
                if sequence[query + step] == base:
                    matches += 1
                else:
                    words.append(f"{matches}{base}")
                    matches = 0
            query, position = query + length, position + length
        elif operation in (1, 4):
            query += length
        elif operation == 2:
            words.append(f"{matches}^{reference[position : position + length]}")
            matches, position = 0, position + length
    return "".join(words) + str(matches)


def simulate(folder: Path, reads: int, charged: float = 0.5) -> Path:
    command = [str(LEECH), "data", "simulate", "-o", str(folder), "--charged-fraction", str(charged), "-q"]
    command += ["--seed", str(reads + int(100 * charged))]
    run([*command, "--reads", str(reads), "--pod5-reads", str(reads)])
    with pysam.FastxFile(str(folder / "reference.fa")) as file:
        references = {entry.name: (entry.sequence or "").upper() for entry in file}
    with (
        pysam.AlignmentFile(str(folder / "mappings.bam")) as old,
        pysam.AlignmentFile(str(folder / "md.bam"), "wb", template=old) as new,
    ):
        for record in old.fetch(until_eof=True):
            if not record.is_unmapped and record.query_sequence:
                record.set_tag("MD", mismatches(record, references[record.reference_name or ""]))
            new.write(record)
    return folder


def ours(library: Path, output: Path, workers: int, refined: bool) -> list[str]:
    command = [str(LEECH), "data", "prepare", "-o", str(output), "--force", "-q", "--label", "x"]
    command += ["--pod5", str(library / "reads.pod5"), "--bam", str(library / "md.bam")]
    command += ["--reference", str(library / "reference.fa"), "--motif", "CCAGGC", "--motif-offset", "2"]
    command += ["--samples-before", str(WINDOW), "--samples-after", str(WINDOW), "--workers", str(workers)]
    table = ["--kmer-table", str(library / "kmer_levels.tsv"), "--refinement", "kmer"]
    return [*command, *(table if refined else ["--refinement", "none"])]


def peers(remora: str, library: Path, output: Path, workers: int, refined: bool) -> list[str]:
    command = [remora, "dataset", "prepare", "--output-path", str(output), "--overwrite", "--mod-base-control"]
    command += ["--motif", "CCAGGC", "2", "--reverse-signal", "--chunk-context", str(WINDOW), str(WINDOW)]
    command += ["--num-extract-alignment-workers", str(workers), "--num-extract-chunks-workers", str(workers)]
    levels = ["--refine-kmer-level-table", str(library / "peer_levels.tsv"), "--refine-scale-iters", "0"]
    return [*command, *(levels if refined else []), str(library / "reads.pod5"), str(library / "md.bam")]


def peer_levels(library: Path) -> None:
    """Write the k-mer table as the peer reads it: without a header."""
    lines = (library / "kmer_levels.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if set(line.split("\t")[0]) <= set("ACGT")]
    (library / "peer_levels.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def in_turns(tools: dict[str, Callable[[Path], list[str]]], library: Path, small: Path, reads: int, runs: int) -> str:
    """Run both tools and return the rates and ratios as cells of a table."""
    took: dict[str, list[Took]] = {name: [] for name in tools}
    for _ in range(runs):
        for name, command in tools.items():
            took[name].append(run(command(library)))
    start = {name: run(command(small)) for name, command in tools.items()}
    whole = {name: Took(*(statistics.median(part) for part in zip(*took[name], strict=True))) for name in tools}
    net = {name: max(whole[name].cpu - start[name].cpu, 1e-3) for name in tools}
    return (
        f"{reads / whole['leech'].wall:.0f} | {reads / whole['remora'].wall:.0f} | "
        f"{whole['remora'].wall / whole['leech'].wall:.1f} | {whole['remora'].cpu / whole['leech'].cpu:.1f} | "
        f"{net['remora'] / net['leech']:.1f} |"
    )


def train_both(remora: str, folder: Path) -> tuple[Path, Path]:
    """Train both tools' networks on the same two libraries; return leech's folder and the peer's model file."""
    corpora, datasets = [], []
    for state, charged in (("uncharged", 0.0), ("charged", 1.0)):
        library = simulate(folder / state, 600, charged)
        corpora.append(str(folder / f"{state}.corpus"))
        # The default recipe: calling refines boundaries as leech does where nothing is said.
        command = ours(library, Path(corpora[-1]), 1, refined=False)[:-2]
        run([*command[: command.index("x")], state, *command[command.index("x") + 1 :]])
        datasets.append(str(folder / f"{state}.dataset"))
        command = peers(remora, library, Path(datasets[-1]), 1, refined=False)
        if charged:
            place = command.index("--mod-base-control")
            command[place : place + 1] = ["--mod-base", "c", "charged"]
        run(command)
    model, corpus = folder / "model", folder / "corpus"
    merged = [
        "data",
        "merge",
        *corpora,
        "-o",
        str(corpus),
        "--positive-label",
        "charged",
        "--split",
        "0.7",
        "0.15",
        "0.15",
    ]
    run([str(LEECH), *merged, "-q"])
    run(
        [
            str(LEECH),
            "model",
            "train",
            "--data",
            str(corpus),
            "-o",
            str(model),
            "--epochs",
            "1",
            "--device",
            "cpu",
            "-q",
        ]
    )
    network, config = folder / "network.py", folder / "config.jsn"
    network.write_text(PEER_NETWORK, encoding="utf-8")
    run([remora, "dataset", "make_config", str(config), *datasets, "--dataset-weights", "1", "1"])
    trained = [remora, "model", "train", str(config), "--model", str(network), "--output-path", str(folder / "peer")]
    trained += ["--overwrite", "--epochs", "1", "--chunks-per-epoch", "512", "--batch-size", "64", "--device", "cpu"]
    run([*trained, "--num-test-chunks", "256", "--chunk-context", str(WINDOW), str(WINDOW)])
    return model, folder / "peer" / "model_best.pt"


def compare_calls(remora: str, folder: Path, library: Path, small: Path, reads: int, runs: int) -> str:
    model, peer = train_both(remora, folder)

    def call(where: Path) -> list[str]:
        command = [str(LEECH), "predict", "--model", str(model), "-o", str(folder / "calls.bam"), "--force", "-q"]
        command += ["--pod5", str(where / "reads.pod5"), "--bam", str(where / "md.bam"), "--device", "cpu"]
        return [*command, "--reference", str(where / "reference.fa"), "--workers", "1"]

    def infer(where: Path) -> list[str]:
        command = [remora, "infer", "from_pod5_and_bam", str(where / "reads.pod5"), str(where / "md.bam")]
        return [*command, "--model", str(peer), "--out-bam", str(folder / "theirs.bam"), "--reference-anchored"]

    return in_turns({"leech": call, "remora": infer}, library, small, reads, runs)


def compare(remora: str, folder: Path, reads: int, runs: int) -> list[str]:
    library, small = simulate(folder / "library", reads), simulate(folder / "small", 50)
    for each in (library, small):
        peer_levels(each)
    rows = []
    for refined in (False, True):
        for workers in (1, 2):
            tools: dict[str, Callable[[Path], list[str]]] = {
                "leech": lambda where: ours(where, folder / "ours", workers, refined),  # noqa: B023
                "remora": lambda where: peers(remora, where, folder / "theirs", workers, refined),  # noqa: B023
            }
            cells = in_turns(tools, library, small, reads, runs)
            rows.append(f"| prepare{', refined' if refined else ''} | {workers} | {cells}")
    rows.append(f"| predict | 1 | {compare_calls(remora, folder, library, small, reads, runs)}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("remora")
    parser.add_argument("--reads", type=int, default=4000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="leech-bench-") as folder:
        rows = compare(given.remora, Path(folder), given.reads, given.runs)
    version = subprocess.run([given.remora, "--version"], capture_output=True, text=True, check=False).stdout.split()[
        -1
    ]
    text = "\n".join(
        [
            f"# leech and remora, {today()}\n",
            f"{given.reads} simulated reads, medians of {given.runs} runs in turns, start-up included; remora {version}; "
            f"{os.cpu_count()} cores, load average {load:.1f} before and {os.getloadavg()[0]:.1f} after.\n",
            "| what | workers | leech, reads/s | remora, reads/s | ratio, wall | ratio, CPU | ratio, CPU, no start-up |",
            "|---|---|---|---|---|---|---|",
            *rows,
        ]
    )
    sys.stdout.write(text + "\n")
    if given.write:
        keep("peer", text + "\n")


if __name__ == "__main__":
    main()
