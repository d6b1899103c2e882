"""How fast and how lean ``leech data prepare`` is, against a bare loop over the same reads.

    python benchmarks/bench_prepare.py [--reads 10000] [--runs 3] [--refinement none] [--large 0] [--json FILE]

The bare loop decodes every read of the POD5 with escapepod and iterates the BAM with the tags that prepare needs; it is the
work that nobody can avoid, on one core. Both run in processes of their own, alternately, and the median of each is
compared, so that a busy machine weighs on both; processor seconds are given too, which a busy machine moves less. The
command's start (imports, index, frame check: about 0.5 s) counts, so small libraries look slow. It is bound by one core, not
by the disk: the files are in the page cache after the first run. Modules are compiled before, as an installation has them,
and the corpus of the run before is deleted outside the time taken. What two workers can gain at most depends on the
machine: in each turn, two runs with one worker each are also started at once, and "two at once" is the reads of both over
the seconds until the slower ended. Boundaries are those of the move
table; ``--refinement step`` measures the command's default, and ``kmer`` refines with the simulated pore's k-mer table. Memory
is the peak of each process's anonymous pages, sampled every 20 ms: pages of the mapped POD5 are the page cache's. ``--large``
prepares a second library of that many reads and compares the peaks.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

BARE = """
import sys, time, escapepod, pysam
pod5, bam = sys.argv[1:]
start, start_cpu = time.perf_counter(), time.process_time()
pysam.set_verbosity(0)
with pysam.AlignmentFile(bam, check_sq=False) as file:
    records = 0
    for record in file.fetch(until_eof=True):
        for name in ("mv", "ts", "ns", "pi", "sp"):
            if record.has_tag(name):
                record.get_tag(name)
        record.query_name, record.query_sequence, record.cigartuples, record.reference_start, record.mapping_quality
        records += 1
reader = escapepod.Reader(pod5)
reads = reader.reads()
samples = 0
for place in range(0, len(reads), 100):
    samples += sum(len(signal) for _, signal in reader.get_signals(reads[place : place + 100]))
print(time.perf_counter() - start, time.process_time() - start_cpu, len(reads), records, samples)
"""

PREPARE = """
import json, sys, time
from leech.cli.main import main
start, start_cpu = time.perf_counter(), time.process_time()
code = main(sys.argv[1:])
print(time.perf_counter() - start, time.process_time() - start_cpu, file=sys.stderr)
sys.exit(code)
"""


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}


def simulate(folder: Path, reads: int) -> Path:
    # Batches of 500 reads as prepare sees them; no nuisance changes how much work a read is.
    command = ["data", "simulate", "-o", str(folder), "--reads", str(reads), "--pod5-reads", str(reads), "-q"]
    subprocess.run([sys.executable, "-c", PREPARE, *command], check=True, env=environment(), capture_output=True)
    return folder


def bare(library: Path) -> tuple[float, float, int]:
    """Return seconds, processor seconds and number of reads."""
    command = [sys.executable, "-c", BARE, str(library / "reads.pod5"), str(library / "mappings.bam")]
    words = subprocess.run(command, check=True, env=environment(), capture_output=True, text=True).stdout.split()
    return float(words[0]), float(words[1]), int(words[2])


def peaks_mb(pid: int, peaks: dict[int, float]) -> None:
    """Note the peak anonymous memory of a process and of its children, as far as they live."""
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        for one in [pid, *children]:
            for line in Path(f"/proc/{one}/status").read_text().splitlines():
                if line.startswith("RssAnon"):
                    peaks[one] = max(peaks.get(one, 0.0), int(line.split()[1]) / 1024)
    except (FileNotFoundError, ProcessLookupError):
        return


def start(library: Path, output: Path, workers: int, refinement: str) -> subprocess.Popen[str]:
    shutil.rmtree(output, ignore_errors=True)
    command = ["data", "prepare", "-o", str(output), "--pod5", str(library / "reads.pod5")]
    command += ["--bam", str(library / "mappings.bam"), "--reference", str(library / "reference.fa"), "--label", "x"]
    command += ["--motif", "CCAGGC", "--motif-offset", "2", "--workers", str(workers), "-q"]
    command += ["--refinement", refinement]
    if refinement == "kmer":
        command += ["--kmer-table", str(library / "kmer_levels.tsv")]
    return subprocess.Popen(
        [sys.executable, "-c", PREPARE, *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def times(process: subprocess.Popen[str]) -> tuple[float, float]:
    """Return seconds and the parent's processor seconds; the command's own imports count."""
    _, errors = process.communicate()
    if process.returncode:
        raise SystemExit(errors)
    seconds, cpu = map(float, errors.split()[-2:])
    return seconds, cpu


def prepare(library: Path, output: Path, workers: int, refinement: str) -> tuple[float, float, float, float]:
    """Return seconds, the parent's processor seconds, and peak MB of parent and worker."""
    process = start(library, output, workers, refinement)
    peaks: dict[int, float] = {}
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            peaks_mb(process.pid, peaks)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        seconds, cpu = times(process)
    finally:
        done.set()
        watcher.join()
    parent = peaks.pop(process.pid, 0.0)
    return seconds, cpu, parent, max(peaks.values(), default=0.0)


def two_at_once(library: Path, folder: Path, refinement: str) -> float:
    """Return the seconds until the slower of two runs with one worker has ended."""
    both = [start(library, folder / f"corpus-{number}", 1, refinement) for number in range(2)]
    return max(times(process)[0] for process in both)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reads", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--refinement", choices=("none", "step", "kmer"), default="none")
    parser.add_argument("--large", type=int, default=0, help="reads of a second, larger library for the memory check")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
        library = simulate(folder / "library", options.reads)
        bare(library)
        prepare(library, folder / "corpus", 1, options.refinement)
        loops: list[tuple[float, float, int]] = []
        runs: dict[int, list[tuple[float, float, float, float]]] = {1: [], 2: []}
        pairs: list[float] = []
        for _ in range(options.runs):
            loops.append(bare(library))
            for workers in runs:
                runs[workers].append(prepare(library, folder / "corpus", workers, options.refinement))
            pairs.append(two_at_once(library, folder, options.refinement))
        seconds, cpu = (statistics.median(loop[column] for loop in loops) for column in (0, 1))
        reads = loops[0][2]
        rows = [{"what": "bare loop", "reads_per_s": round(reads / seconds), "reads_per_cpu_s": round(reads / cpu)}]
        for workers, results in runs.items():
            own = statistics.median(result[0] for result in results)
            own_cpu = statistics.median(result[1] for result in results)
            rows.append(
                {
                    "what": f"prepare, {workers} worker{'s' * (workers > 1)}",
                    "reads_per_s": round(reads / own),
                    "ratio": round(seconds / own, 3),
                    "of_one_worker": round(statistics.median(result[0] for result in runs[1]) / own, 2),
                    "parent_reads_per_cpu_s": round(reads / own_cpu),
                    "parent_cpu_ratio": round(cpu / own_cpu, 3),
                    "parent_mb": round(max(result[2] for result in results)),
                    "worker_mb": round(max(result[3] for result in results)),
                }
            )
        both = statistics.median(pairs)
        rows.append(
            {
                "what": "two at once, 1 worker each",
                "reads_per_s": round(2 * reads / both),
                "of_one_worker": round(2 * statistics.median(result[0] for result in runs[1]) / both, 2),
            }
        )
        if options.large:
            large = simulate(folder / "large", options.large)
            for workers in runs:
                took, _, parent, worker = prepare(large, folder / "corpus", workers, options.refinement)
                rows.append(
                    {
                        "what": f"prepare {options.large} reads, {workers} worker{'s' * (workers > 1)}",
                        "reads_per_s": round(options.large / took),
                        "parent_mb": round(parent),
                        "worker_mb": round(worker),
                    }
                )
    report = {
        "date": time.strftime("%Y-%m-%d"),
        "reads": reads,
        "refinement": options.refinement,
        "runs": options.runs,
        "cpus": os.cpu_count(),
        "rows": rows,
    }
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
