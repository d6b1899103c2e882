"""How fast ``leech data simulate`` is and how much memory it takes, by number of reads and of workers.

    python benchmarks/bench_simulate.py [--reads 2000 20000] [--workers 1 2]

Every run is a process of its own; its start (imports, fitting the model of indels: about 0.5 s) counts, so small libraries
look slow. It is bound by processors: drawing noise and writing text, then compressing signal, which the parent process does
for all workers. Peaks are of resident memory as the kernel counts it: that of the parent, and the largest of a worker.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

RUN = """
import json, resource, sys, time
from leech.cli.main import main
start = time.perf_counter()
assert main(sys.argv[1:]) == 0
wall = time.perf_counter() - start
own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
processor = sum(one.ru_utime + one.ru_stime for one in (own, children))
print(json.dumps([wall, processor, own.ru_maxrss / 1024, children.ru_maxrss / 1024]), file=sys.stderr)
"""


def measure(reads: int, workers: int) -> tuple[float, float, float, float]:
    """Return seconds, processor seconds, peak MB of the parent and of the largest worker."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["-q", "data", "simulate", "--reads", str(reads), "--workers", str(workers)]
        result = subprocess.run(
            [sys.executable, "-c", RUN, *words, "-o", str(Path(folder, "library"))],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    wall, processor, parent, worker = json.loads(result.stderr.splitlines()[-1])
    return wall, processor, parent, worker


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reads", type=int, nargs="+", default=[2000, 20000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    print(
        "| reads | workers | seconds | reads/s | processor seconds | reads per processor second | parent MB | worker MB |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for reads in options.reads:
        for workers in options.workers:
            wall, processor, parent, worker = measure(reads, workers)
            figures = f"{wall:.1f} | {reads / wall:.0f} | {processor:.1f} | {reads / processor:.0f} | {parent:.0f}"
            print(f"| {reads} | {workers} | {figures} | {'' if workers == 1 else f'{worker:.0f}'} |", flush=True)


if __name__ == "__main__":
    main()
