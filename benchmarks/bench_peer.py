"""``leech data prepare`` against ``remora dataset prepare``, the maker's tool for signal around a base, on the same reads.

    python benchmarks/bench_peer.py REMORA [--reads 4000] [--runs 3] [--write]

REMORA is the peer's executable, which wants an environment of its own (numpy below 2). Both cut one window of 225 + 225
samples around the same base of the reference, from the same simulated POD5 and the same BAM, to which MD tags are added
because the peer reads the reference from them; with 1 and with 2 workers, without and with refinement by the same k-mer
table. They run in turns, each as a user would start it, and medians are compared: seconds of wall clock, which a busy machine
stretches, and processor seconds of all processes together, which it stretches less. Start-up counts for both; what is left
of the rates without it is estimated from a run of both on 50 reads.
"""

from __future__ import annotations

import argparse
import datetime
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


def simulate(folder: Path, reads: int) -> Path:
    command = [str(LEECH), "data", "simulate", "-o", str(folder)]
    run([*command, "--reads", str(reads), "--pod5-reads", str(reads), "-q"])
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
    return command + table if refined else command


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
            took: dict[str, list[Took]] = {name: [] for name in tools}
            for _ in range(runs):
                for name, command in tools.items():
                    took[name].append(run(command(library)))
            start = {name: run(command(small)) for name, command in tools.items()}
            whole = {name: Took(*(statistics.median(part) for part in zip(*took[name], strict=True))) for name in tools}
            net = {name: max(whole[name].cpu - start[name].cpu, 1e-3) for name in tools}
            rows.append(
                f"| {'yes' if refined else 'no'} | {workers} | {reads / whole['leech'].wall:.0f} | "
                f"{reads / whole['remora'].wall:.0f} | {whole['remora'].wall / whole['leech'].wall:.1f} | "
                f"{whole['remora'].cpu / whole['leech'].cpu:.1f} | {net['remora'] / net['leech']:.1f} |"
            )
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
    today = datetime.date.today().isoformat()
    text = "\n".join(
        [
            f"# leech data prepare and remora dataset prepare, {today}\n",
            f"{given.reads} simulated reads, medians of {given.runs} runs in turns, start-up included; remora {version}; "
            f"{os.cpu_count()} cores, load average {load:.1f} before and {os.getloadavg()[0]:.1f} after.\n",
            "| refinement | workers | leech, reads/s | remora, reads/s | ratio, wall | ratio, CPU | ratio, CPU, no start-up |",
            "|---|---|---|---|---|---|---|",
            *rows,
        ]
    )
    sys.stdout.write(text + "\n")
    if given.write:
        (Path(__file__).parent / "results" / f"peer-{today}.md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
