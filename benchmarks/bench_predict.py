"""How fast ``leech predict`` is beside its two halves alone, and whether its memory grows with the run.

    python benchmarks/bench_predict.py [--reads 20000] [--runs 3] [--model tcn] [--memory 10000 100000] [--write]

The halves are preparing the same reads (``leech data prepare``, one worker) and the network over all of their chunks (one
thread, chunks gathered from the corpus). Predict has one worker and one network thread too, and does both at once, and writes
the BAM; on two free cores it cannot be faster than the slower half, and the aim is 0.8 of that. All three run in processes of
their own, in turn, with imports done before the clock starts, and medians are compared; processor seconds are given because a
busy machine moves them less. Weights are those before training: they take as long.

Memory is the peak of the parent's resident pages as the kernel noted it, and, sampled every 0.1 s, the workers'
proportional share (PSS), summed; of both, what is their own (anonymous) too, sampled. The rest are pages of mapped POD5 files
and libraries, which the kernel takes back when it needs them: they grow with what has been read, for as long as memory is free.
``--memory`` runs predict with two workers on libraries of these sizes, in POD5 files of 5,000 reads. ``--write`` puts a dated
table into benchmarks/results/.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dated import show, today
from leech.config import build
from leech.data.recipe import Recipe
from leech.models.bundle import ModelBundle, save_bundle
from leech.models.spec import build_network, load_architecture

COMMAND = """
import sys, time
import leech.evaluation.evaluate, leech.prediction.predict, leech.data.prepare, pydantic
from leech.cli.main import main
start, start_cpu = time.perf_counter(), time.process_time()
code = main(sys.argv[1:])
print(time.perf_counter() - start, time.process_time() - start_cpu, file=sys.stderr)
sys.exit(code)
"""

NETWORK = """
import sys, time
from pathlib import Path
import numpy, torch
from leech.data.corpus import Corpus
from leech.evaluation.evaluate import score
from leech.models.bundle import load_bundle
start, start_cpu = time.perf_counter(), time.process_time()
loaded, corpus = load_bundle(Path(sys.argv[1])), Corpus.open(Path(sys.argv[2]))
rows = numpy.arange(len(corpus))
score(loaded.network, corpus, rows, loaded.bundle.spec.features, 512, torch.device("cpu"))
print(time.perf_counter() - start, time.process_time() - start_cpu, file=sys.stderr)
"""

SITE = {"motif": "CCAGGC", "motif_offset": 2}


class Peak:
    """Highest MB seen of a process and its descendants."""

    def __init__(self) -> None:
        self.resident = self.own = self.workers = self.workers_own = 0.0

    def look(self, pid: int) -> None:
        try:
            status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            self.resident = max(self.resident, int(status["VmHWM"].split()[0]) / 1024)
            self.own = max(self.own, int(status["RssAnon"].split()[0]) / 1024)
            shares = [share_mb(worker) for worker in descendants(pid)]
            self.workers = max(self.workers, sum(share for share, _ in shares))
            self.workers_own = max(self.workers_own, sum(own for _, own in shares))
        except (OSError, KeyError):
            return


def descendants(pid: int) -> Iterator[int]:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in (thread / "children").read_text().split():
            yield int(child)
            yield from descendants(int(child))


def share_mb(pid: int) -> tuple[float, float]:
    """Return a process's proportional share, and of that its own pages."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0, 0.0
    sizes = {name: int(rest.split()[0]) / 1024 for name, _, rest in (line.partition(":") for line in lines[1:])}
    return sizes["Pss"], sizes["Pss_Anon"]


class Run(NamedTuple):
    """Seconds, the parent's processor seconds and peak memory of a command."""

    seconds: float
    cpu: float
    peak: Peak


def run(script: str, *words: object, watched: bool = False) -> Run:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
    command = [sys.executable, "-c", script, *map(str, words)]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, env=environment, text=True, **pipes)  # type: ignore[call-overload]
    peak, done = Peak(), threading.Event()

    def watch() -> None:
        while not done.wait(0.1):
            peak.look(process.pid)

    watcher = threading.Thread(target=watch)
    if watched:
        watcher.start()
    _, errors = process.communicate()
    done.set()
    if watched:
        watcher.join()
    if process.returncode:
        raise SystemExit(errors)
    seconds, cpu = map(float, errors.split()[-2:])
    return Run(seconds, cpu, peak)


def simulate(folder: Path, reads: int, pod5_reads: int) -> Path:
    size = ("--reads", reads, "--pod5-reads", pod5_reads, "--workers", 2)
    run(COMMAND, "data", "simulate", "-o", folder, *size, "-q")
    return folder


def inputs(library: Path) -> tuple[object, ...]:
    single = library / "reads.pod5"
    files = ("--bam", library / "mappings.bam", "--reference", library / "reference.fa")
    return ("--pod5", single if single.exists() else library / "pod5", *files, "-q", "--force")


def write_model(folder: Path, architecture: str) -> Path:
    spec, recipe = load_architecture(architecture), build(Recipe, SITE)
    bundle = ModelBundle(spec=spec, recipe=recipe, labels=("uncharged", "charged"), training={}, stamp={})
    folder.mkdir()
    save_bundle(bundle, build_network(spec, recipe, seed=0), folder)
    return folder


def predict(model: Path, library: Path, output: Path, workers: int, *, watched: bool = False) -> Run:
    how = ("--device", "cpu", "--workers", workers)
    return run(COMMAND, "predict", "--model", model, *inputs(library), "-o", output, *how, watched=watched)


def speed(folder: Path, model: Path, options: argparse.Namespace) -> Iterator[str]:
    library, corpus = simulate(folder / "library", options.reads, options.reads), folder / "corpus"
    site = ("--motif", SITE["motif"], "--motif-offset", SITE["motif_offset"])
    prepare = (COMMAND, "data", "prepare", "-o", corpus, *inputs(library), *site, "--label", "x")
    run(*prepare)
    runs: dict[str, list[Run]] = {"prepare alone": [], "network alone": [], "predict": []}
    for _ in range(options.runs):
        runs["prepare alone"].append(run(*prepare))
        runs["network alone"].append(run(NETWORK, model, corpus))
        runs["predict"].append(predict(model, library, folder / "calls.bam", 1))
    seconds = {name: statistics.median(one.seconds for one in found) for name, found in runs.items()}
    cpu = {name: statistics.median(one.cpu for one in found) for name, found in runs.items()}
    slower = max(seconds["prepare alone"], seconds["network alone"])
    yield f"## Speed, {options.model}, {options.reads} reads\n"
    yield "| what | reads/s, median | all runs | reads per processor second | of the slower half |"
    yield "|---|---|---|---|---|"
    for name, found in runs.items():
        every = ", ".join(f"{options.reads / one.seconds:.0f}" for one in found)
        ratio = f"{slower / seconds[name]:.2f}"
        yield f"| {name} | {options.reads / seconds[name]:.0f} | {every} | {options.reads / cpu[name]:.0f} | {ratio} |"
    halves = cpu["prepare alone"] + cpu["network alone"]
    yield (
        f"\nProcessor seconds: predict {cpu['predict']:.1f}, both halves together {halves:.1f}. Load of the machine at the "
        f"end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.\n"
    )


def memory(folder: Path, model: Path, sizes: list[int]) -> Iterator[str]:
    yield "## Memory, two workers\n"
    yield "| reads | parent, resident MB | of that its own | workers, sum of PSS, MB | of that their own | reads/s |"
    yield "|---|---|---|---|---|---|"
    for reads in sizes:
        library = simulate(folder / f"library-{reads}", reads, 5000)
        found = predict(model, library, folder / "calls.bam", 2, watched=True)
        peak = found.peak
        sizes = (peak.resident, peak.own, peak.workers, peak.workers_own)
        yield f"| {reads} | {' | '.join(f'{size:.0f}' for size in sizes)} | {reads / found.seconds:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reads", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--model", default="tcn")
    parser.add_argument("--memory", type=int, nargs="*", default=[10_000, 100_000], help="sizes of libraries")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    show(report(options), "predict" if options.write else None)


def report(options: argparse.Namespace) -> Iterator[str]:
    command = " ".join(["python", "benchmarks/bench_predict.py", *sys.argv[1:]])
    yield f"# Predicting, {today()}\n"
    yield f"`{command}`\n"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = write_model(folder / "model", options.model)
        if options.runs:
            yield from speed(folder, model, options)
        yield from memory(folder, model, options.memory)


if __name__ == "__main__":
    main()
