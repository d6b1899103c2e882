"""Chunks per second of the built-in networks on one thread: training steps and inference.

A training step is forward, loss, backward, clipping and AdamW, with a batch of 512 chunks of the default recipe (450
samples, 41 bases). Times are CPU time of this process with one thread, so that other work on the machine does not count as
slowness here; caches are still shared with it. The networks take turns, step by step, with a plain reference in the same
run: a Conv1d residual network with a stem of stride 3. Its ratio carries over to other machines, the rate does not.
Not measured: making batches, and anything on a GPU.

    python benchmarks/bench_network.py [--seconds 10] [--networks tcn mine.toml] [--write]

With --write, a dated table is put into benchmarks/results/.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dated import keep, today
from leech.config import build
from leech.data.batches import Inputs
from leech.data.recipe import CONTEXT_BASES, Recipe
from leech.models.spec import build_network, built_in_names, load_architecture
from leech.training.losses import binary_cross_entropy
from leech.training.optim import make_optimizer

REFERENCE = "plain Conv1d"


class PlainBlock(nn.Module):
    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation)
        self.norm = nn.GroupNorm(1, channels)

    def forward(self, values: Tensor) -> Tensor:
        return values + nn.functional.gelu(self.norm(self.convolution(values)))


class PlainNetwork(nn.Module):
    """Signal only, 265 thousand parameters, 150 steps for 450 samples; what one would write first."""

    def __init__(self, channels: int = 96) -> None:
        super().__init__()
        self.stem = nn.Conv1d(1, channels, 9, stride=3, padding=3)
        self.blocks = nn.Sequential(*(PlainBlock(channels, 2 ** (number % 5)) for number in range(9)))
        self.head = nn.Sequential(nn.Linear(channels, 128), nn.GELU(), nn.Linear(128, 1))

    def forward(self, inputs: Inputs) -> Tensor:
        return self.head(self.blocks(self.stem(inputs.signal[:, None, :])).mean(dim=2))


def random_inputs(count: int, recipe: Recipe, num_features: int) -> Inputs:
    generator = torch.Generator().manual_seed(0)
    edges = torch.zeros(count, recipe.num_bases + 1, dtype=torch.int64)
    edges[:, 1:] = torch.randint(0, 72, (count, recipe.num_bases), generator=generator).cumsum(dim=1)
    edges += (recipe.samples_before - edges[:, recipe.bases_before])[:, None]
    return Inputs(
        signal=torch.randn(count, recipe.num_samples, generator=generator),
        base_bounds=edges.to(torch.int32),
        sequence=torch.randint(0, 4, (count, recipe.num_bases + 2 * CONTEXT_BASES), generator=generator).to(
            torch.uint8
        ),
        features=torch.randn(count, num_features, recipe.num_feature_bases, generator=generator),
    )


class Contender(NamedTuple):
    num_parameters: int
    train: Callable[[], None]
    infer: Callable[[], None]


def make_contender(network: nn.Module, inputs: Inputs) -> Contender:
    optimizer = make_optimizer(network, learning_rate=1e-3, weight_decay=0.01)
    positive = torch.arange(len(inputs.signal)) % 2 == 0
    weights = torch.ones(len(positive))

    def train() -> None:
        network.train()
        optimizer.zero_grad(set_to_none=True)
        total, weight = binary_cross_entropy(network(inputs), positive, weights, 0.0)
        (total / weight).backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()

    def infer() -> None:
        network.eval()
        with torch.inference_mode():
            network(inputs)

    return Contender(sum(parameter.numel() for parameter in network.parameters()), train, infer)


def measure(work: dict[str, Callable[[], None]], seconds: float) -> dict[str, float]:
    """Return the median CPU seconds of each, taking turns until each had ``seconds`` on average."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for call in work.values():
        call()
    begin = time.process_time()
    while time.process_time() - begin < seconds * len(work) or min(map(len, times.values())) < 3:
        for name, call in work.items():
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def table(contenders: dict[str, Contender], batch: int, seconds: float) -> list[str]:
    training = measure({name: contender.train for name, contender in contenders.items()}, seconds)
    inference = measure({name: contender.infer for name, contender in contenders.items()}, seconds)
    lines = [
        "| network | parameters | training, chunks/s | ratio | inference, chunks/s | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for name, contender in contenders.items():
        cells = [f"{batch / times[name]:.0f} | {times[REFERENCE] / times[name]:.2f}" for times in (training, inference)]
        lines.append(f"| {name} | {contender.num_parameters} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="CPU seconds per network, for training and inference"
    )
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--networks", nargs="+", default=built_in_names(), help="built-in names or TOML files")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    recipe = build(Recipe, {"motif": "CCAGGC", "motif_offset": 2})
    batch = arguments.batch_size
    contenders = {REFERENCE: make_contender(PlainNetwork(), random_inputs(batch, recipe, 0))}
    for name in arguments.networks:
        spec = load_architecture(name)
        network = build_network(spec, recipe)
        contenders[spec.name] = make_contender(network, random_inputs(batch, recipe, len(spec.features)))
    lines = table(contenders, batch, arguments.seconds)
    print("\n".join(lines))
    if arguments.write:
        keep(
            "network",
            f"# Networks on one CPU thread, {today()}\n\nMedian CPU time of steps with {batch} chunks of {recipe.num_samples} "
            f"samples and {recipe.num_bases} bases, torch {torch.__version__}; ratio to the plain network in the same run.\n"
            "\n" + "\n".join(lines) + "\n",
        )


if __name__ == "__main__":
    main()
