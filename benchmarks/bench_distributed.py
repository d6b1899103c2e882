"""What the training loop costs, on one rank and on several, in time and in memory.

Five questions, each answered on corpora of random chunks of the default recipe (450 samples, 41 bases):

1. loop: chunks per CPU second of the loop against a bare PyTorch loop written by hand over the same tensors in RAM, with the
   same network, loss, clipping and optimizer, and without noise on inputs. One thread, step by step in turn.
2. noise: CPU time of a step with noise on inputs and dropout that belong to a row, against torch's own (``randn_like`` and
   ``nn.functional.dropout``). One thread, step by step in turn.
3. ranks: wall time of steps with the whole batch on 1 rank x 1 thread, 1 x 2 and 2 x 1, by phase, in turn and three times
   each; and of two single runs side by side that exchange nothing, which is what the machine's cores allow. Needs a quiet
   machine: the load average is written beside it. CPU seconds a chunk do not, and bound what ranks can gain.
4. memory: sum over ranks of PSS and of anonymous memory while they train, for a small and a large corpus. Pages of the corpus
   are mapped and counted once over all ranks; they belong to the system's cache, which takes them back when it needs to.
5. start: seconds from the call to the first step, for both corpora, without what torch
   imports.

    python benchmarks/bench_distributed.py [--steps 12] [--gigabytes 0.2 2] [--ranks 1 2 4] [--write]

With --write, a dated page is put into benchmarks/results/.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from dated import keep, today
from leech.config import build
from leech.data.compose import merge
from leech.data.config import MergeConfig
from leech.data.corpus import ChunkArrays, Corpus, CorpusWriter, column_layout
from leech.data.recipe import Recipe
from leech.models.spec import build_network, load_architecture
from leech.provenance import Stamp
from leech.training.checks import examine
from leech.training.config import TrainConfig
from leech.training.distributed import run_ranks
from leech.training.loop import make_plan, reproducible
from leech.training.losses import binary_cross_entropy
from leech.training.optim import make_optimizer
from leech.training.step import Stepper, epoch_shares
from leech.training.task import ClassificationTask
from leech.training.world import World

BLOCK = 4096
BATCH = 512


def random_chunks(recipe: Recipe, label: str, seed: int) -> ChunkArrays:
    generator = np.random.default_rng(seed)
    columns = {}
    for name, (dtype, shape) in column_layout(recipe).items():
        columns[name] = generator.integers(1, 100, (BLOCK, *shape)).astype(dtype)
    columns["dwell"][:] = generator.integers(5, 15, columns["dwell"].shape)
    columns["valid_start"][:], columns["valid_end"][:] = 0, recipe.num_samples
    columns["sequence"][:] = generator.integers(0, 4, columns["sequence"].shape)
    columns["focus_base_start"][:] = recipe.samples_before
    for name in ("flow_cell", "run", "sample", "label", "reference"):
        columns[name][:] = 0
    columns["read_id"] = generator.integers(0, 256, (BLOCK, 16), dtype=np.uint8)
    columns["parent_id"] = columns["read_id"].copy()
    names = {"reference": ["tRNA"], "flow_cell": ["F"], "run": ["R"], "sample": ["S"], "label": [label]}
    return ChunkArrays(columns, names)


def write_corpus(folder: Path, gigabytes: float) -> Path:
    """Write two libraries of random chunks and merge them; both together have about so many bytes."""
    recipe = build(Recipe, {"motif": "CCAGGC", "motif_offset": 2})
    bytes_a_chunk = sum(
        dtype.itemsize * int(np.prod(shape, dtype=int)) for dtype, shape in column_layout(recipe).values()
    )
    blocks = max(1, round(gigabytes * 1e9 / bytes_a_chunk / BLOCK / 2))
    sources = []
    for number, label in enumerate(("uncharged", "charged")):
        source = folder / label
        source.mkdir(parents=True)
        with CorpusWriter(source, recipe) as writer:
            for block in range(blocks):
                chunks = random_chunks(recipe, label, 2 * block + number)
                writer.append(chunks)
            count = blocks * BLOCK
            writer.finish(counts={"seen": count, "used": count}, runs={"R": 4000}, settings={})
        sources.append(source)
    config = build(MergeConfig, {"split": [0.8, 0.1, 0.1], "positive_label": "charged"})
    stamp = Stamp(command=("bench",), time_utc="1970-01-01T00:00:00+00:00", versions={})
    merge(sources, config, folder / "merged", force=False, stamp=stamp)
    return folder / "merged"


def make_stepper(world: World, data: Path, **values: Any) -> tuple[Stepper, ClassificationTask, Corpus]:
    config = build(TrainConfig, {"device": "cpu", "batch_size": BATCH, "epochs": 1, **values})
    corpus = Corpus.open(data)
    spec = load_architecture(config.model)
    network = build_network(spec, corpus.recipe, seed=0)
    task = ClassificationTask(corpus, examine(corpus, None), network, spec.features, config)
    return Stepper(task, config, make_plan(task.num_rows, config).num_steps, world), task, corpus


def in_turn(steps: int, *takers: Callable[[], None]) -> list[float]:
    """Return the median CPU seconds of each, called by turns."""
    seconds: list[list[float]] = [[] for _ in takers]
    for number in range(steps + 2):
        for place, take in enumerate(takers):
            started = time.process_time()
            take()
            if number >= 2:
                seconds[place].append(time.process_time() - started)
    return [statistics.median(times) for times in seconds]


def against_a_bare_loop(data: Path, steps: int) -> float:
    """Return the loop's chunks per CPU second over those of a loop written by hand."""
    stepper, task, corpus = make_stepper(World(), data, noise=0.0, average_decay=0.0)
    share = next(epoch_shares(task, 0, batch_size=BATCH, num_parts=1, world=World()))
    (part,) = share.parts
    network = build_network(load_architecture("tcn"), corpus.recipe, seed=0)
    optimizer = make_optimizer(network, 1e-3, 0.01)
    positive = torch.from_numpy(part.batch.labels == 1)
    ones = torch.ones(len(positive))

    def bare() -> None:
        network.train()
        optimizer.zero_grad(set_to_none=True)
        loss = binary_cross_entropy(network(part.batch.inputs), positive, ones)
        (loss.total / loss.weight).backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()

    shares = epoch_shares(task, 0, batch_size=BATCH, num_parts=1, world=World())

    def whole() -> None:
        # Gathering included, which the bare loop is spared.
        stepper.take(next(shares), 0)

    with reproducible(torch.device("cpu")):
        ours, theirs = in_turn(steps, whole, bare)
    return theirs / ours


def cost_of_noise(data: Path, steps: int) -> tuple[float, float]:
    """Return the CPU seconds of a step with noise by row, and with torch's own."""
    stepper, task, _ = make_stepper(World(), data)
    share = next(epoch_shares(task, 0, batch_size=BATCH, num_parts=1, world=World()))
    plain, _, _ = make_stepper(World(), data, noise=0.0)

    def by_torch(inputs: Any, strength: float) -> Any:
        noisy = torch.where(
            inputs.signal == 0, inputs.signal, inputs.signal + strength * torch.randn_like(inputs.signal)
        )
        return inputs._replace(signal=noisy, features=inputs.features + strength * torch.randn_like(inputs.features))

    def ours() -> None:
        stepper.take(share, 0)

    def theirs() -> None:
        with (
            mock.patch("leech.models.layers.row_dropout", lambda values, p, *_: nn.functional.dropout(values, p)),
            mock.patch("leech.training.step.add_noise", lambda inputs, *_, **__: by_torch(inputs, 0.2)),
        ):
            plain.take(share, 0)

    with reproducible(torch.device("cpu")):
        first, second = in_turn(steps, ours, theirs)
    return first, second


def timed_on_rank(world: World, data: Path, steps: int, threads: int, batch: int = BATCH) -> dict[str, Any]:
    torch.set_num_threads(threads)
    phases: dict[str, float] = {}
    with reproducible(world.device):
        stepper, task, _ = make_stepper(world, data)
        shares = epoch_shares(task, 0, batch_size=batch, num_parts=1, world=world)
        for _ in range(2):
            stepper.take(next(shares), 0)
        last, began, cpu = time.perf_counter(), time.perf_counter(), time.process_time()

        def mark(phase: str) -> None:
            nonlocal last
            now = time.perf_counter()
            phases[phase] = phases.get(phase, 0.0) + now - last
            last = now

        stepper.mark = mark
        for _ in range(steps):
            share = next(shares)
            mark("data")
            stepper.take(share, 0)
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    total = float(world.sum_array(np.array([cpu]))[0])
    chunks = steps * batch
    shares_of_time = {name: seconds / wall for name, seconds in phases.items()}
    return {"wall": chunks / wall, "cpu_ms": 1000 * total / chunks, "phases": shares_of_time}


def runs_side_by_side(num_runs: int, data: Path, steps: int) -> dict[str, Any]:
    """Return chunks/s over runs that share nothing but the machine: no ranks can be faster than these are together.

    Each takes batches of its share of the whole one, as a rank would.
    """
    with ProcessPoolExecutor(num_runs, mp_context=multiprocessing.get_context("spawn")) as pool:
        # Long enough that their starts, apart by some tenths of a second, do not count.
        waiting = [pool.submit(timed_on_rank, World(), data, 4 * steps, 1, BATCH // num_runs) for _ in range(num_runs)]
        found = [run.result() for run in waiting]
    phases = {name: statistics.mean(run["phases"].get(name, 0.0) for run in found) for name in found[0]["phases"]}
    return {
        "wall": sum(run["wall"] for run in found),
        "cpu_ms": statistics.mean(run["cpu_ms"] for run in found),
        "phases": phases,
    }


def memory_on_rank(world: World, data: Path, steps: int) -> tuple[float, float, float]:
    """Return sums over ranks in MB: PSS, anonymous memory; and the seconds from here to the first step."""
    torch.set_num_threads(1)
    # Torch imports it with the first optimizer of a process: a second that is no business of ours.
    importlib.import_module("torch._dynamo")
    started = time.perf_counter()
    with reproducible(world.device):
        stepper, task, corpus = make_stepper(world, data)
        shares = epoch_shares(task, 0, batch_size=BATCH, num_parts=1, world=world)
        stepper.take(next(shares), 0)
        first = time.perf_counter() - started
        # Touch the pages of as many rows as an epoch would.
        rows = task.epoch_rows(0)
        for start in range(0, len(rows), BATCH * 64):
            corpus.gather(world.share(rows[start : start + BATCH * 64]), ["signal", "level_mean", "sequence"])
        for _ in range(steps):
            stepper.take(next(shares), 0)
    world.wait()
    found = {
        line.split(":")[0]: int(line.split()[1]) / 1024
        for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    }
    world.wait()
    pss, anonymous = world.sum_array(np.array([found["Pss"], found["Anonymous"]])).tolist()
    return pss, anonymous, first


def report(steps: int, gigabytes: Sequence[float], ranks: Sequence[int]) -> str:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    lines = [
        f"# Training on one and several ranks, {today()}\n",
        f"torch {torch.__version__}, {os.cpu_count()} cores, load average {load} at the start; network tcn, batches of {BATCH} "
        "chunks of 450 samples and 41 bases.\n",
    ]
    with tempfile.TemporaryDirectory(prefix="leech-bench-") as folder:
        corpora = {size: write_corpus(Path(folder) / str(size), size) for size in gigabytes}
        small = corpora[gigabytes[0]]
        torch.set_num_threads(1)
        ratio = against_a_bare_loop(small, steps)
        lines.append(f"- One rank against a bare loop over tensors in RAM: {ratio:.3f} of its chunks per CPU second.")
        ours, theirs = cost_of_noise(small, steps)
        lines.append(
            f"- Noise and dropout by row against torch's own: {1000 * ours:.0f} and {1000 * theirs:.0f} ms CPU a step, "
            f"{100 * (ours / theirs - 1):+.1f} %."
        )
        lines += [
            "",
            "| ranks x threads | chunks/s (wall) | CPU ms a chunk | data % | forward % | backward % | reduce % | step % |",
        ]
        lines.append("|---|---|---|---|---|---|---|---|")
        rows = [
            (f"{size} x {threads}", run_ranks(timed_on_rank, [small, steps, threads], gpus=size, device="cpu"))
            for _ in range(3)
            for size, threads in ((1, 1), (1, 2), (2, 1))
        ]
        rows.append(("2 runs of 1 x 1 side by side", runs_side_by_side(2, small, steps)))
        for name, found in rows:
            shares = " | ".join(
                f"{100 * found['phases'].get(phase, 0):.1f}"
                for phase in ("data", "forward", "backward", "reduce", "step")
            )
            lines.append(f"| {name} | {found['wall']:.0f} | {found['cpu_ms']:.3f} | {shares} |")
        lines += ["", "| ranks | corpus, GB | PSS, MB | anonymous, MB | first step, s |", "|---|---|---|---|---|"]
        for size in ranks:
            for gigabyte, data in corpora.items():
                pss, anonymous, first = run_ranks(memory_on_rank, [data, 2], gpus=size, device="cpu")
                lines.append(f"| {size} | {gigabyte} | {pss:.0f} | {anonymous:.0f} | {first:.2f} |")
        lines.append(f"\nLoad average at the end: {', '.join(f'{value:.1f}' for value in os.getloadavg())}.")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[0.2, 2.0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    text = report(given.steps, given.gigabytes, given.ranks)
    print(text)
    if given.write:
        keep("distributed", text)


if __name__ == "__main__":
    main()
