"""CPU seconds and memory of merging and inspecting two corpora of many random chunks, a row of the table per set of options.

    python benchmarks/bench_merge.py [--chunks 1000000] [--work DIR]

Every case runs in an interpreter of its own, so that the peak is its own. Chunks are short, since a merge reads no signal;
inspect reads 10,000 of them. CPU time, because a busy machine makes the clock on the wall say nothing. Not bound by: the disk,
because the files were just written.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from leech.config import build
from leech.data.corpus import ChunkArrays, CorpusWriter, column_layout
from leech.data.recipe import Recipe

RECIPE = build(Recipe, {"motif": "CCAGGC", "motif_offset": 2, "samples_before": 5, "samples_after": 5})
AMINO_ACIDS = ("Ala", "Arg", "Asn", "Asp", "Cys", "Gln", "Glu", "Gly", "His", "Ile")

MERGES = (
    (),
    ("--hold-out", "flow_cell=A"),
    ("--split-by", "isotype"),
    ("--split-by", "reference", "--folds", "5", "--fold", "1"),
    ("--balance", "--balance-by", "reference", "--subsample", "300000"),
)

CASE = """
import resource, sys, time
from leech.cli.main import main
import leech.data.compose, leech.data.inspect
start = time.process_time()
assert main(sys.argv[1:]) == 0
taken = time.process_time() - start
print(f"{taken:.2f} | {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}", file=sys.stderr)
"""


def write_library(folder: Path, label: str, count: int, seed: int) -> Path:
    generator = np.random.default_rng(seed)
    columns = {name: np.zeros((count, *shape), dtype) for name, (dtype, shape) in column_layout(RECIPE).items()}
    references = [f"tRNA-{name}-NNN-{family}-1" for name in AMINO_ACIDS for family in range(1, 6)]
    columns["scale"][:] = 1
    columns["dwell"][:] = 20
    columns["read_id"][:] = generator.integers(0, 256, (count, 16), dtype=np.uint8)
    columns["parent_id"][:] = columns["read_id"]
    columns["reference"][:] = generator.integers(0, len(references), count)
    columns["flow_cell"][:] = generator.integers(0, 6, count)
    names = {"reference": references, "flow_cell": "ABCDEF", "run": ["R"], "sample": ["S"], "label": [label]}
    folder.mkdir()
    with CorpusWriter(folder, RECIPE) as writer:
        writer.append(ChunkArrays(columns, names))
        writer.finish(counts={"seen": count, "used": count}, runs={"R": 4000}, settings={})
    return folder


def case(*words: str) -> None:
    done = subprocess.run([sys.executable, "-c", CASE, "-q", *words], capture_output=True, text=True, check=True)
    shown = " ".join(word for word in words if "/" not in word and word not in ("-o", "--force"))
    print(f"| {shown} | {done.stderr.splitlines()[-1]} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=1_000_000)
    parser.add_argument("--work", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.work) as name:
        work = Path(name)
        both = [
            str(write_library(work / label, label, given.chunks // 2, seed))
            for seed, label in enumerate(("charged", "uncharged"))
        ]
        print(f"{given.chunks} chunks\n\n| command | CPU seconds | peak MB |\n|---|---|---|")
        for words in MERGES:
            case("data", "merge", *both, "-o", str(work / "merged"), "--force", *words)
        case("data", "inspect", str(work / "merged"), "--html", str(work / "page.html"))


if __name__ == "__main__":
    main()
