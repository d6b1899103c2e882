"""Seconds that ``--help`` takes, for leech and every command, in fresh interpreters; the budget is 0.3 s each.

    python benchmarks/bench_help.py [--repeats 5]

The smallest of the repeats is shown: what else the machine does only ever adds. Not bound by: torch, numpy or the data.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from leech.cli.reference import commands

BUDGET_S = 0.3


def seconds(words: tuple[str, ...], repeats: int) -> float:
    program = "import sys; from leech.cli.main import main; sys.exit(main(sys.argv[1:]))"
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", program, *words, "--help"], check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - start)
    return min(taken)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    slow = 0
    for path, _ in commands():
        taken = seconds(path, repeats)
        slow += taken > BUDGET_S
        print(f"{taken:.3f} s  leech {' '.join(path)} --help")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
