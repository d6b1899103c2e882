"""What ranks do in these tests: functions that new processes can import, and the small run that they share."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import nn

from leech.config import build
from leech.data.corpus import Corpus
from leech.errors import InputError, LeechError
from leech.models.spec import build_network, load_architecture
from leech.training import task as task_module
from leech.training.checks import examine
from leech.training.config import TrainConfig
from leech.training.loop import reproducible
from leech.training.step import Share, SharePart, Stepper, epoch_shares
from leech.training.task import make_task
from leech.training.world import World
from numeric_column import add_numeric_column
from planted import write_planted, write_states

SMOOTH = """
name = "smooth"
base_start = -4
base_end = 4
features = ["log_dwell", "level_mean"]
[[branches]]
name = "signal_branch"
inputs = ["signal"]
layers = [
    { layer = "convolution", channels = 12, kernel = 11, stride = 5, activation = "silu" },
    { layer = "residual", kernel = 3, dropout = 0.1, activation = "silu" },
    { layer = "pool_bases", spread = true },
]
[[branches]]
name = "bases"
inputs = ["signal_branch", "base_onehot", "features"]
layers = [
    { layer = "dropout", probability = 0.2 },
    { layer = "convolution", channels = 12, kernel = 1, activation = "silu" },
    { layer = "summary", attention = true },
    { layer = "dropout", probability = 0.2 },
]
"""
"""Without the kinks of a ReLU, at which a rounding error can become a gradient."""

HEADS = {"adversary": "reference", "regress": "quality", "regress_weight": 0.5}
EVERYTHING = {
    **HEADS,
    "device": "cpu",
    "epochs": 3,
    "batch_size": 9,
    "oversample_minority": True,
    "balance_by": "reference",
    "grad_accum": 2,
    "noise": 0.2,
}


def write_material(folder: Path, seed: int = 0) -> tuple[Path, Path]:
    """Write a corpus (36 and 54 training chunks, of which a third has no quality) and a network, and return their paths."""
    return _with_quality(write_planted(folder, (60, 90), strength=0.5, seed=seed), folder)


def write_three_states(folder: Path) -> tuple[Path, Path]:
    """Write the like with three states, of 36, 30 and 24 training chunks."""
    return _with_quality(write_states(folder, {"a": 0.0, "b": 1.0, "c": 2.0}, (60, 50, 40)), folder)


def _with_quality(data: Path, folder: Path) -> tuple[Path, Path]:
    quality = np.random.default_rng(0).normal(12, 3, 150)
    quality[::3] = np.nan
    add_numeric_column(data, "quality", quality)
    network = folder / "smooth.toml"
    network.write_text(SMOOTH)
    return data, network


def make_stepper(world: World, data: Path, values: dict[str, Any]) -> Stepper:
    config = build(TrainConfig, {"device": "cpu", **values})
    corpus = Corpus.open(data)
    states = examine(corpus, None)
    spec = load_architecture(config.model)
    network = build_network(spec, corpus.recipe, num_classes=len(states.labels), seed=config.seed)
    task = make_task(corpus, states, network, spec.features, config)
    return Stepper(task, config, 10, world)


def gradients(world: World, data: Path, values: dict[str, Any], first_batch: int = 0) -> dict[str, np.ndarray]:
    """Take one step and return its gradients, with the losses as ``losses``; they are the same on every rank, or it fails."""
    with reproducible(torch.device("cpu")):
        stepper = make_stepper(world, data, values)
        shares = epoch_shares(
            stepper.task,
            0,
            batch_size=stepper._config.batch_size or 16,
            num_parts=stepper._config.grad_accum,
            world=world,
            first_batch=first_batch,
        )
        result = stepper.take(next(shares), 0)
    found = {name: value.grad.numpy().copy() for name, value in stepper.module.named_parameters()}
    for name, gradient in found.items():
        together = world.sum_array(gradient.astype(np.float64))
        assert np.array_equal(together, world.size * gradient.astype(np.float64)), name
    return {**found, "losses": result.losses / np.maximum(result.weights, 1e-30)}


def per_rank_mean(world: World, data: Path, values: dict[str, Any]) -> dict[str, np.ndarray]:
    """Do what is wrong: let each rank divide by its own weight, and average."""
    stepper = make_stepper(world, data, values)
    share = next(epoch_shares(stepper.task, 0, batch_size=stepper._config.batch_size, num_parts=1, world=world))
    own = World()
    part = share.parts[0]
    alone = make_stepper(own, data, values)
    alone.take(Share(part.batch.rows, [SharePart(part.batch, part.owners, True)]), 0)
    return {
        name: world.sum_array(parameter.grad.numpy().astype(np.float64)) / world.size
        for name, parameter in alone.module.named_parameters()
    }


def many_gradients(world: World, data: Path, scenarios: dict[str, dict[str, Any]], firsts: dict[str, int]) -> Any:
    found = {name: gradients(world, data, values, firsts.get(name, 0)) for name, values in scenarios.items()}
    # A rank's mean is wrong as soon as ranks differ in weight.
    found["mean of means"] = per_rank_mean(world, data, {**scenarios["lopsided"]})
    refusals = [_batch_normalised(world), _poisoned(world, data, scenarios["heads"])]
    return found, _exchanges(world, data, scenarios["accumulated"]), refusals


def _exchanges(world: World, data: Path, values: dict[str, Any]) -> list[bool]:
    """Return for each backward pass of a step in four parts whether the ranks exchanged their gradients."""
    stepper = make_stepper(world, data, {**values, "grad_accum": 4})
    share = next(epoch_shares(stepper.task, 0, batch_size=16, num_parts=4, world=world))
    seen: list[bool] = []
    # ``require_backward_grad_sync`` is what no_sync switches off.
    stepper.mark = lambda phase: (
        seen.append(bool(stepper._shared.require_backward_grad_sync)) if phase == "forward" else None
    )
    stepper.take(share, 0)
    return seen


def _poisoned(world: World, data: Path, values: dict[str, Any]) -> str:
    """Return what a step says in which the second row of the batch, which is rank 1's, has no finite loss."""
    stepper = make_stepper(world, data, values)
    share = next(epoch_shares(stepper.task, 0, batch_size=8, num_parts=1, world=world))
    usual = stepper.task.losses

    def losses(module: nn.Module, inputs: Any, batch: Any, *others: Any) -> torch.Tensor:
        return usual(module, inputs, batch, *others) * (float("nan") if share.rows[1] in batch.rows else 1.0)

    before = [parameter.clone() for parameter in stepper.module.parameters()]
    with mock.patch.object(stepper.task, "losses", losses), pytest.raises(LeechError) as caught:
        stepper.take(share, 0)
    assert all(torch.equal(one, other) for one, other in zip(before, stepper.module.parameters(), strict=True))
    # All ranks came out of the step, and say the same.
    expected = f"rows {share.rows[1]}."
    assert world.sum(torch.tensor(float(expected in caught.value.message))).item() == world.size
    return caught.value.message


def _batch_normalised(world: World) -> str:
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    try:
        world.synchronised(module)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def order_of_epochs(world: World, data: Path, values: dict[str, Any]) -> list[list[int]]:
    """Return the rows of two epochs in the order of the batches, put together from the shares of all ranks."""
    stepper = make_stepper(world, data, values)
    orders = []
    for epoch in range(2):
        order: list[int] = []
        for share in epoch_shares(stepper.task, epoch, batch_size=16, num_parts=2, world=world):
            together = np.zeros(len(share.rows))
            own = np.concatenate([part.batch.rows for part in share.parts if part.counts] or [[]])
            together[world.rank :: world.size] = own + 1
            whole = world.sum_array(together) - 1
            assert np.array_equal(whole, share.rows)
            order += whole.astype(int).tolist()
        orders.append(order)
    return orders


def scores(world: World, data: Path, values: dict[str, Any]) -> np.ndarray:
    """Return the scores of 97 rows by an untrained network, in batches of 7, and check that each row was scored once."""
    stepper = make_stepper(world, data, values)
    rows = np.arange(97, dtype=np.int64)
    with mock.patch.object(task_module, "_VALIDATION_BATCH", 7):
        seen: list[int] = []
        usual = task_module.score

        def counted(network: nn.Module, corpus: Corpus, rows: np.ndarray, *others: Any) -> Any:
            seen.extend(rows.tolist())
            return usual(network, corpus, rows, *others)

        with mock.patch.object(task_module, "score", counted):
            task = stepper.task
            p = task_module._scored_together(
                stepper.average.network, task.corpus, rows, task.features, world, lambda: False
            )
            # Asked on the last rank alone, half-way: all end, and none of them scores all of its rows.
            seen_before = len(seen)
            asked = lambda: world.rank == world.size - 1 and len(seen) > seen_before  # noqa: E731
            with mock.patch.object(task_module, "_BATCHES_OF_ROUND", 1):
                found = task_module._scored_together(
                    stepper.average.network, task.corpus, rows, task.features, world, asked
                )
            assert found is None
            assert len(seen) == seen_before + 7
            del seen[seen_before:]
    times = np.bincount(seen, minlength=97).astype(np.float64)
    assert (world.sum_array(times) == 1).all()
    return p


def orders_and_scores(world: World, data: Path, values: dict[str, Any]) -> tuple[list[list[int]], np.ndarray]:
    return order_of_epochs(world, data, values), scores(world, data, values)


def fail(world: World, how: str) -> str:
    """Fail on rank 1 while the others wait for it; return on all where ``how`` is "not"."""
    if world.rank == 1:
        if how == "raise":
            raise ValueError("the middle of nowhere")
        if how == "refuse":
            raise InputError("'corpus' is full of holes.", hint="Mend it.")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "hang":
            time.sleep(300)
    world.sum(torch.zeros(1))
    return f"{world.size} ranks"
