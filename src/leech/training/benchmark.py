"""How fast training is here, and what it spends its time on: ``leech model benchmark``.

Hides: clocks and what the system says of memory. Belongs here: timing the steps of the real loop on a real corpus; nothing
that is trained is kept. Invariants: steps are those of ``step.py``, of an epoch's batches in their order; warming up is not
counted; on a GPU a phase ends when its kernels have.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from leech.console import Progress, Table
from leech.data.batches import prefetched
from leech.data.corpus import Corpus
from leech.errors import ConfigError
from leech.models.spec import build_network, load_architecture
from leech.training.checks import examine
from leech.training.config import BenchmarkConfig, TrainConfig
from leech.training.distributed import kind_of_ranks, launched, run_ranks
from leech.training.loop import make_plan, reproducible
from leech.training.step import Share, Stepper, epoch_shares
from leech.training.task import ClassificationTask, make_task
from leech.training.world import World

PHASES = ("data", "forward", "backward", "reduce", "step")

_WARM_STEPS = 3


@dataclass(frozen=True)
class Timing:
    """One number of ranks.

    :ivar threads: of torch, per rank.
    :ivar chunks_per_second: over all ranks.
    :ivar shares: of the time, by phase; ``reduce`` is the time that ranks wait for each other's numbers, ``data`` that they
        wait for batches.
    :ivar memory_mb: per rank, its share of mapped pages included (PSS); None where the system does not say.
    :ivar gpu_memory_mb: largest amount that tensors of a rank took on its GPU; None on the CPU.
    :ivar first_step_s: from the opened corpus to the end of the first step.
    """

    ranks: int
    threads: int
    chunks_per_second: float
    shares: dict[str, float]
    memory_mb: list[float] | None
    gpu_memory_mb: list[float] | None
    first_step_s: float


@dataclass(frozen=True)
class BenchmarkResult:
    """A scaling table."""

    device: str
    batch_size: int
    num_parameters: int
    steps: int
    timings: list[Timing]

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return asdict(self)

    def tables(self) -> list[Table]:
        """Return a row per number of ranks."""
        first = self.timings[0]
        rows = [
            (
                str(timing.ranks),
                str(timing.threads),
                f"{timing.chunks_per_second:.0f}",
                f"{timing.chunks_per_second / first.chunks_per_second:.2f}",
                *(f"{100 * timing.shares[phase]:.1f}" for phase in PHASES),
                *(
                    "" if memory is None else f"{sum(memory):.0f}"
                    for memory in (timing.memory_mb, timing.gpu_memory_mb)
                ),
                f"{timing.first_step_s:.2f}",
            )
            for timing in self.timings
        ]
        columns = (
            "ranks",
            "threads each",
            "chunks/s",
            "of one",
            *(f"{phase} %" for phase in PHASES),
            "memory MB",
            "GPU MB",
            "first step s",
        )
        title = f"Training: {self.num_parameters} parameters, {self.batch_size} chunks a step, on {self.device}"
        return [Table(title=title, columns=columns, rows=rows)]


def benchmark(config: BenchmarkConfig, data: Path, *, progress: Progress) -> BenchmarkResult:
    """Time training steps on 1, 2, 4 ... ranks, up to as many as asked for.

    :raises InputError: a corpus that cannot be trained on.
    :raises ConfigError: more ranks than can be had here.
    """
    if launched(os.environ) is not None:
        raise ConfigError(
            "This is one of a launcher's processes, and 'leech model benchmark' starts its own: 1, 2, 4 ... of them.",
            hint="Start it without torchrun.",
        )
    if config.up_to > 1:
        # Said before anything is measured.
        kind_of_ranks(config.up_to, config.device, "--up-to")
    sizes = sorted({*(2**power for power in range(config.up_to.bit_length())), config.up_to})
    results = []
    with progress.task("benchmark", unit="runs", total=len(sizes)) as shown:
        for size in sizes:
            results.append(run_ranks(_time_on_rank, [config, data], gpus=size, device=config.device))
            shown.advance()
    return replace(results[0], timings=[result.timings[0] for result in results])


def _time_on_rank(world: World, config: BenchmarkConfig, data: Path) -> BenchmarkResult:
    corpus, spec = Corpus.open(data), load_architecture(config.model)
    states = examine(corpus, _some_label(corpus))
    settings = TrainConfig(
        model=config.model, batch_size=config.batch_size, grad_accum=config.grad_accum, seed=config.seed
    )
    started = time.perf_counter()
    with reproducible(world.device):
        network = build_network(spec, corpus.recipe, num_classes=len(states.labels), seed=config.seed)
        task = make_task(corpus, states, network, spec.features, settings)
        plan = make_plan(task.num_rows, settings)
        stepper = Stepper(task, settings, plan.num_steps, world)
        shares = prefetched(
            _batches(task, plan.batch_size, settings.grad_accum, world, 2 * config.steps + _WARM_STEPS + 1)
        )
        stepper.take(next(shares), 0)
        first_step = time.perf_counter() - started
        for _ in range(_WARM_STEPS):
            stepper.take(next(shares), 0)
        chunks, phases = _timed(stepper, shares, config.steps)
        if world.size > 1:
            # What an exchange costs beyond the backward pass that it overlaps with.
            stepper.exchanges = False
            _, alone = _timed(stepper, shares, config.steps)
            waiting = max(0.0, phases["backward"] - alone["backward"])
            phases["backward"], phases["reduce"] = phases["backward"] - waiting, phases["reduce"] + waiting
    total = sum(phases.values())
    timing = Timing(
        world.size,
        torch.get_num_threads(),
        chunks / total,
        {phase: phases[phase] / total for phase in PHASES},
        _of_all_ranks(_memory_mb(), world),
        _of_all_ranks(_gpu_memory_mb(world.device), world),
        first_step,
    )
    num_parameters = sum(parameter.numel() for parameter in network.parameters())
    return BenchmarkResult(world.device.type, plan.batch_size, num_parameters, config.steps, [timing])


def _some_label(corpus: Corpus) -> str | None:
    """Return the positive label, or any where a corpus of two does not say: nothing is called by it."""
    recorded = corpus.manifest.positive_label
    return recorded if recorded is not None or len(corpus.labels) != 2 else corpus.labels[-1]


def _batches(task: ClassificationTask, batch_size: int, num_parts: int, world: World, count: int) -> Iterator[Share]:
    """Yield so many batches, over as many epochs as that takes."""
    for epoch in itertools.count():
        for share in epoch_shares(task, epoch, batch_size=batch_size, num_parts=num_parts, world=world):
            if not count:
                return
            count -= 1
            yield share


def _timed(stepper: Stepper, shares: Iterator[Share], steps: int) -> tuple[int, dict[str, float]]:
    """Return the chunks of so many steps, over all ranks, and the seconds by phase."""
    phases = dict.fromkeys(PHASES, 0.0)
    last = time.perf_counter()

    def mark(phase: str) -> None:
        nonlocal last
        if stepper.world.device.type == "cuda":
            torch.cuda.synchronize(stepper.world.device)
        now = time.perf_counter()
        phases[phase] += now - last
        last = now

    stepper.mark = mark
    chunks = 0
    for _ in range(steps):
        share = next(shares)
        mark("data")
        stepper.take(share, 0)
        chunks += len(share.rows)
    return chunks, phases


def _of_all_ranks(number: float | None, world: World) -> list[float] | None:
    """Return each rank's number; None where some rank has none."""
    numbers = np.zeros(world.size)
    numbers[world.rank] = np.nan if number is None else number
    together = world.sum_array(numbers)
    return together.tolist() if np.isfinite(together).all() else None


def _gpu_memory_mb(device: torch.device) -> float | None:
    return torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None


def _memory_mb() -> float | None:
    """Return this process's share of memory, pages that others map too counted in proportion."""
    if sys.platform != "linux":
        return None
    for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return None
