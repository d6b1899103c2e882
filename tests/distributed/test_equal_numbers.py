"""The same numbers at any number of ranks: gradients, epochs, whole runs, and runs that were interrupted."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ranks import EVERYTHING, HEADS, gradients, many_gradients, orders_and_scores, write_material, write_three_states
from safetensors.numpy import load_file

from leech.config import build
from leech.console import Progress, SilentProgress
from leech.errors import InputError, InterruptedRunError, MismatchError
from leech.models.bundle import load_bundle
from leech.training import task as task_module
from leech.training import train as train_module
from leech.training.config import TrainConfig
from leech.training.distributed import run_ranks
from leech.training.train import TrainResult, resume_path, train
from leech.training.world import World
from planted import STAMP

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_material(tmp_path_factory.mktemp("material"))


@pytest.mark.parametrize("size", [2, 3])
def test_a_step_has_the_gradients_of_one_rank(material: tuple[Path, Path], size: int) -> None:
    data, network = material
    base = {"model": str(network), "batch_size": 8, "class_weights": "none"}
    scenarios: dict[str, dict[str, Any]] = {
        "plain": base,
        "weighted": {**base, "class_weights": "balanced"},
        "heads": {**base, **HEADS, "class_weights": "balanced"},
        "accumulated": {**base, **HEADS, "grad_accum": 3},
        # 90 training chunks in batches of 89: the second holds one, which is fewer than ranks, and has no quality or some.
        "one row": {**base, **HEADS, "batch_size": 89},
        # 5 rows: 3 and 2, or 2, 2 and 1.
        "lopsided": {**base, "batch_size": 5, "class_weights": "balanced", "noise": 0.0},
    }
    firsts = {"one row": 1}
    found, exchanges, refusals = run_ranks(many_gradients, [data, scenarios, firsts], gpus=size, device="cpu")
    batch_normalised, poisoned = refusals
    for name, values in scenarios.items():
        expected = gradients(World(), data, values, firsts.get(name, 0))
        assert set(found[name]) == set(expected)
        for parameter, gradient in expected.items():
            np.testing.assert_allclose(
                found[name][parameter], gradient, rtol=1e-5, atol=1e-6, err_msg=f"{name} {parameter}"
            )
    # With weights left to each rank, the gradient is another one.
    alone = gradients(World(), data, scenarios["lopsided"])
    wrong = found["mean of means"]
    difference = np.sqrt(sum(((wrong[name] - alone[name]) ** 2).sum() for name in wrong))
    assert difference > 0.03 * np.sqrt(sum((alone[name] ** 2).sum() for name in wrong))
    # 16 rows on 2 ranks in four parts, or on 3 in four: the last backward pass alone is followed by an exchange.
    assert exchanges == [False, False, False, True]
    assert batch_normalised.startswith("ConfigError: The network's layer '1' normalises over the batch.")
    assert poisoned.startswith("Step 1 gives a loss of nan")


def test_parts_of_a_batch_have_the_gradients_of_the_whole(material: tuple[Path, Path]) -> None:
    data, network = material
    values = {"model": str(network), "batch_size": 13, **HEADS}
    whole, parts = (gradients(World(), data, {**values, "grad_accum": parts}) for parts in (1, 5))
    for name, gradient in whole.items():
        np.testing.assert_allclose(parts[name], gradient, rtol=1e-5, atol=1e-6, err_msg=name)


def run(
    material: tuple[Path, Path],
    output: Path,
    gpus: int,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    **values: Any,
) -> TrainResult:
    data, network = material
    config = build(TrainConfig, {**EVERYTHING, "model": str(network), "gpus": gpus, **values})
    progress = progress or SilentProgress()
    result = train(config, data, output, force=False, resume=resume, progress=progress, stamp=STAMP)
    assert result is not None
    return result


def history(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    return [
        {key: value for key, value in line.items() if key not in ("seconds", "chunks_per_second")} for line in lines
    ]


def assert_same_run(first: Path, second: Path) -> None:
    assert sorted(path.name for path in first.iterdir()) == sorted(path.name for path in second.iterdir())
    for name in ("train.toml",):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    lines, others = history(first), history(second)
    assert len(lines) == len(others)
    for line, other in zip(lines, others, strict=True):
        assert line.keys() == other.keys()
        for key, value in line.items():
            assert other[key] == pytest.approx(value, rel=1e-5), key
    weights, their = load_file(first / "model.safetensors"), load_file(second / "model.safetensors")
    assert list(weights) == list(their)
    assert not any("module" in name or "head" in name or "orig_mod" in name for name in weights)
    for name, value in weights.items():
        np.testing.assert_allclose(their[name], value, atol=1e-4, rtol=0, err_msg=name)


@pytest.fixture(scope="module")
def alone(material: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run by one rank: 3 epochs of 10 steps, evaluated after the second and the third."""
    folder = tmp_path_factory.mktemp("alone") / "model"
    run(material, folder, 1)
    return folder


def test_a_run_is_the_same_on_one_two_and_three_ranks(material: tuple[Path, Path], alone: Path, tmp_path: Path) -> None:
    for size in (2, 3):
        result = run(material, tmp_path / str(size), size)
        assert_same_run(alone, tmp_path / str(size))
        expected = load_bundle(alone).bundle.training["validation"]
        assert result.metrics == pytest.approx(expected, rel=1e-5)
        assert not resume_path(tmp_path / str(size)).exists()


def test_all_ranks_together_take_the_epoch_of_one_in_its_order_and_give_its_scores(material: tuple[Path, Path]) -> None:
    data, network = material
    values = {**EVERYTHING, "model": str(network)}
    threads = torch.get_num_threads()
    # Ranks divide the cores among them; how many threads add numbers up decides the last bits.
    torch.set_num_threads(1)
    try:
        expected, scores = orders_and_scores(World(), data, values)
    finally:
        torch.set_num_threads(threads)
    found, theirs = run_ranks(orders_and_scores, [data, values], gpus=4, device="cpu")
    assert found == expected
    assert expected[0] != expected[1]
    # The same bits, since batches are those of one rank.
    assert np.array_equal(theirs, scores)
    assert len(np.unique(scores)) > 50


def interrupt_after(monkeypatch: pytest.MonkeyPatch, steps: int, number: signal.Signals = signal.SIGTERM) -> None:
    """Let a run in this process be asked to end after so many steps."""
    usual = train_module.fit

    def fit(task: Any, config: Any, plan: Any, world: Any, hooks: Any, resume: Any) -> Any:
        taken = iter(range(1, 1000))

        def on_step(chunks: int, loss: float) -> None:
            # The request is noticed by the next step.
            if next(taken) == steps - 1:
                hooks.stop(number)

        return usual(task, config, plan, world, hooks._replace(on_step=on_step), resume)

    monkeypatch.setattr(train_module, "fit", fit)


@pytest.mark.parametrize(
    ("steps", "number", "code"), [(4, signal.SIGTERM, 75), (20, signal.SIGUSR1, 75), (30, signal.SIGINT, 130)]
)
def test_a_run_that_was_interrupted_goes_on_to_the_same_bits(
    material: tuple[Path, Path],
    alone: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    steps: int,
    number: signal.Signals,
    code: int,
) -> None:
    # Within an epoch; after the last step of one and before its evaluation; likewise at the end of the run.
    target = tmp_path / "model"
    with monkeypatch.context() as patch:
        interrupt_after(patch, steps, number)
        with pytest.raises(InterruptedRunError, match=f"after step {steps} of 30") as caught:
            run(material, target, 1)
    assert caught.value.exit_code == code
    assert "--resume" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["model.resume"]
    run(material, target, 1, resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    for name in ("model.safetensors", "model.json"):
        assert (target / name).read_bytes() == (alone / name).read_bytes()
    assert history(target) == history(alone)


def test_a_run_over_three_states_is_the_same_on_two_ranks_and_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    material = write_three_states(tmp_path / "material")
    # The classes are of different sizes and weigh the same, so that a mean of the ranks' means would be another number.
    values = {"label_smoothing": 0.1, "class_weights": "balanced", "oversample_minority": False}
    run(material, tmp_path / "one", 1, **values)
    result = run(material, tmp_path / "two", 2, **values)
    assert_same_run(tmp_path / "one", tmp_path / "two")
    bundle = load_bundle(tmp_path / "one").bundle
    assert bundle.labels == ("a", "b", "c")
    assert result.metrics == pytest.approx(bundle.training["validation"], rel=1e-5)
    assert history(tmp_path / "two")[-1].keys() >= {"validation_auroc", "train_loss_adversary", "train_loss_regression"}
    with monkeypatch.context() as patch:
        interrupt_after(patch, 14, signal.SIGTERM)
        with pytest.raises(InterruptedRunError, match="after step 14 of 30"):
            run(material, tmp_path / "again", 1, **values)
    run(material, tmp_path / "again", 1, resume=True, **values)
    for name in ("model.safetensors", "model.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()


class Places(SilentProgress):
    """Takes note of where a run says that it begins, and how far it came."""

    def __init__(self) -> None:
        self.begun_at = self.done = 0

    @contextmanager
    def task(self, name: str, *, unit: str, total: int | None = None) -> Iterator[Places]:
        yield self

    def start_at(self, amount: int) -> None:
        self.begun_at = self.done = amount

    def advance(self, amount: int = 1) -> None:
        self.done += amount

    def describe(self, text: str) -> None:
        assert text.startswith("loss ")


def test_an_evaluation_that_is_interrupted_is_done_again_by_the_continuation(
    material: tuple[Path, Path], alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model"
    usual, scored = task_module.score, []

    def score(network: Any, corpus: Any, rows: Any, *others: Any) -> Any:
        # The 30 rows are one batch; the signal comes in the second evaluation.
        scored.append(len(rows))
        if len(scored) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return usual(network, corpus, rows, *others)

    with monkeypatch.context() as patch:
        patch.setattr(task_module, "score", score)
        with pytest.raises(InterruptedRunError, match="after step 30 of 30"):
            run(material, target, 1)
    assert scored == [30, 30]
    assert [path.name for path in tmp_path.iterdir()] == ["model.resume"]
    places = Places()
    run(material, target, 1, resume=True, progress=places)
    # No step is left: 3 epochs of 90 rows were taken, and the evaluation alone is done.
    assert (places.begun_at, places.done) == (270, 270)
    for name in ("model.safetensors", "model.json"):
        assert (target / name).read_bytes() == (alone / name).read_bytes()
    assert history(target) == history(alone)


def test_whoever_asks_for_an_end_while_the_model_is_written_gets_it(
    material: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = train_module._write

    def write(*arguments: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        usual(*arguments)

    monkeypatch.setattr(train_module, "_write", write)
    assert run(material, tmp_path / "model", 1, epochs=1).path.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_progress_begins_where_the_run_goes_on(
    material: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model"
    with monkeypatch.context() as patch:
        interrupt_after(patch, 14)
        with pytest.raises(InterruptedRunError):
            run(material, target, 1)
    places = Places()
    run(material, target, 1, resume=True, progress=places)
    # An epoch of 90 and four batches of 9.
    assert (places.begun_at, places.done) == (126, 270)


def test_a_run_of_one_rank_goes_on_with_two_and_refuses_to_become_another_run(
    material: tuple[Path, Path], alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model"
    with monkeypatch.context() as patch:
        interrupt_after(patch, 13)
        with pytest.raises(InterruptedRunError):
            run(material, target, 1)
    with pytest.raises(InputError, match="would be lost"):
        run(material, target, 1)
    with pytest.raises(MismatchError, match=r"learning_rate of the command \(was 0.002, is 0.001\)") as refused:
        run(material, target, 1, resume=True, learning_rate=0.001)
    assert "batch_size" not in refused.value.message
    other = write_material(tmp_path / "other", seed=1)
    with pytest.raises(MismatchError, match=r"the corpus \(was sha256:.*; source 1 of the corpus"):
        run((other[0], material[1]), target, 1, resume=True)
    run(material, target, 2, resume=True)
    assert_same_run(alone, target)
    before = (target / "model.safetensors").read_bytes()
    result = run(material, target, 1, resume=True)
    assert result.step == load_bundle(target).bundle.training["step"]
    assert (target / "model.safetensors").read_bytes() == before
    # As left by a run that was ended between writing its model and removing the state; it is not read.
    resume_path(target).write_bytes(b"a state")
    assert run(material, target, 1, resume=True).step == result.step
    with pytest.raises(
        MismatchError, match="is complete, but it comes from another run; what differs: seed of the command"
    ):
        run(material, target, 1, resume=True, seed=9)


def test_a_moved_corpus_is_the_same_and_a_damaged_resume_file_is_refused(
    material: tuple[Path, Path], alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model"
    with monkeypatch.context() as patch:
        interrupt_after(patch, 4)
        with pytest.raises(InterruptedRunError):
            run(material, target, 1)
    moved = shutil.copytree(material[0].parent, tmp_path / "moved")
    file = resume_path(target)
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    with pytest.raises(InputError, match="Cannot read resume file"):
        run(material, target, 1, resume=True)
    # A few bytes of a weight, and a figure of the history: both can be read, and neither is what was written.
    for place in (len(whole) - 100, whole.index(b"learning_rate") + 18):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(InputError, match="is damaged"):
            run(material, target, 1, resume=True)
    file.write_bytes(whole)
    run((moved / "merged", material[1]), target, 1, resume=True)
    assert (target / "model.safetensors").read_bytes() == (alone / "model.safetensors").read_bytes()


def test_a_full_disk_leaves_the_last_good_resume_file(
    material: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model"
    usual, written = os.fsync, []

    def full_the_second_time(descriptor: int) -> None:
        written.append(descriptor)
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        usual(descriptor)

    monkeypatch.setattr(os, "fsync", full_the_second_time)
    # Saved after every step.
    with pytest.raises(InputError, match="No space left"):
        run(material, target, 1, save_minutes=0.0)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["model.resume"]
    interrupt_after(monkeypatch, 3)
    with pytest.raises(InterruptedRunError, match="after step 4 of"):
        run(material, target, 1, resume=True)
