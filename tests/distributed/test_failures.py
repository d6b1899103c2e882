"""How runs on several ranks begin and end when something is wrong, and when somebody ends them."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from ranks import fail, write_material
from safetensors import safe_open
from safetensors.numpy import load_file
from torch import distributed

from leech.errors import ConfigError, InputError, InterruptedRunError, LeechError
from leech.training import processes
from leech.training.distributed import launched, run_ranks
from leech.training.processes import _outcome, _Report
from leech.training.stopping import StopRequest
from leech.training.world import LostContactError, Place, World, process_group

pytestmark = pytest.mark.timeout(240)

LAUNCHER = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_material(tmp_path_factory.mktemp("material"))


def test_one_rank_has_no_process_group_and_is_this_process() -> None:
    def function(world: World) -> tuple[int, int, bool]:
        return os.getpid(), world.size, distributed.is_initialized()

    for gpus in (None, 1):
        assert run_ranks(function, [], gpus=gpus, device="cpu") == (os.getpid(), 1, False)


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("raise", LeechError, r"(?s)^Rank 1 of 2 failed.*in fail.*ValueError: the middle of nowhere"),
        ("hang", LostContactError, r"^Rank 1 of 2 did not answer"),
    ],
)
def test_the_rank_that_failed_is_named_and_none_is_left(how: str, kind: type[LeechError], words: str) -> None:
    started = time.monotonic()
    with pytest.raises(kind, match=words):
        run_ranks(fail, [how], gpus=2, device="cpu", timeout_s=5)
    # The time-out and the grace take 5 s each, the rest is imports.
    assert time.monotonic() - started < 30
    assert multiprocessing.active_children() == []


LOST = _Report(0, False, error=LostContactError("Rank 0 lost contact."))


@pytest.mark.parametrize(
    ("reports", "codes", "words"),
    [
        ([LOST, _Report(1, False, error=InputError("No.", hint="Mend it."))], [0, 0], r"^\[rank 1/2\] No\.\nMend it\."),
        # What all of them found needs no number.
        ([_Report(1, False, error=InputError("No.")), _Report(0, False, error=InputError("No."))], [0, 0], r"^No\."),
        ([LOST], [0, -9], r"^Rank 1 of 2 was ended by signal 9 \(SIGKILL\)"),
        # A rank that was killed comes before one that then hung in an exchange.
        ([LOST], [0, None, -11], r"^Rank 2 of 3 was ended by signal 11"),
        ([LOST], [0, 3], r"^Rank 1 of 2 ended with code 3"),
        ([LOST], [0, None], r"^Rank 1 of 2 did not answer"),
        ([LOST, LOST._replace(rank=1)], [0, 0], r"^Rank 0 lost contact"),
        ([LOST, _Report(1, False, error=InterruptedRunError("Ended."))], [0, 0], r"^Ended"),
    ],
)
def test_what_came_first_is_told(reports: list[_Report], codes: list[int | None], words: str) -> None:
    with pytest.raises(LeechError, match=words):
        _outcome(reports, codes, [])


def test_ranks_that_wait_for_a_killed_one_are_not_waited_for_because_another_had_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "_GRACE_S", 0.2)
    pipes = [multiprocessing.Pipe(duplex=False) for _ in range(3)]
    done = _Report(1, True, result=None)
    pipes[1][1].send(done)
    # The first is killed, and the last never says anything.
    pipes[0][1].close()
    started = time.monotonic()
    assert processes._watch({here: mock.Mock() for here, _ in pipes}) == [done]
    assert time.monotonic() - started < 5


def test_interrupts_that_a_shell_lets_be_ignored_in_the_background_stay_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with processes._forwarded_signals([]) as received:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGUSR1)
            assert received == [signal.SIGUSR1]
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_rank_on_gpus_says_which_is_its_own_before_it_meets_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = mock.Mock()
    monkeypatch.setattr(torch.cuda, "set_device", calls.set_device)
    for name in ("init_process_group", "destroy_process_group"):
        monkeypatch.setattr(distributed, name, getattr(calls, name))
    # The fourth of two machines with two GPUs each.
    with process_group(Place(3, 4, 1), "cuda", 600.0, "env://") as world:
        assert (world.rank, world.size, str(world.device)) == (3, 4, "cuda:1")
    chosen, met, left = calls.mock_calls
    assert chosen == mock.call.set_device(torch.device("cuda", 1))
    assert met.args == ("nccl",)
    assert (met.kwargs["rank"], met.kwargs["world_size"], str(met.kwargs["device_id"])) == (3, 4, "cuda:1")
    assert met.kwargs["timeout"].total_seconds() == 600
    assert left == mock.call.destroy_process_group()


def test_a_process_for_which_there_is_no_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LAUNCHER.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="number 1 on its machine, where 1 can be seen") as caught:
        run_ranks(fail, ["not"], gpus=None, device="auto")
    assert "LOCAL_RANK=0" in str(caught.value)


def test_a_launchers_words_are_taken_or_refused() -> None:
    assert launched({}) is None
    assert launched(LAUNCHER) == (1, 2, 1)
    with pytest.raises(ConfigError, match="has RANK but not WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT"):
        launched({"RANK": "0"})
    for wrong in ({"RANK": "2"}, {"RANK": "first"}, {"WORLD_SIZE": "0"}):
        with pytest.raises(ConfigError, match="no rank and number of ranks"):
            launched({**LAUNCHER, **wrong})


def test_gpus_beside_a_launcher_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LAUNCHER.items():
        monkeypatch.setenv(name, value)
    for gpus in (1, 2):
        with pytest.raises(ConfigError, match=f"--gpus {gpus} beside a launcher that has started 2 ranks"):
            run_ranks(fail, ["not"], gpus=gpus, device="cpu")


@pytest.mark.skipif(torch.cuda.device_count() > 8, reason="there are more GPUs than are asked for")
@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_more_ranks_than_gpus_are_refused_at_once(device: str) -> None:
    with pytest.raises(ConfigError, match=r"--gpus 9: torch .* usable GPU") as caught:
        run_ranks(fail, ["not"], gpus=9, device=device)
    assert "--device cpu" in str(caught.value)


def test_a_daemonic_parent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="daemonic"):
        run_ranks(fail, ["not"], gpus=2, device="cpu")


def test_signals_are_noted_while_somebody_listens_and_a_second_interrupt_is_not_put_off() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)]
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        with StopRequest().listening() as stop:
            assert stop.signal == 0
            os.kill(os.getpid(), number)
            assert stop.signal == number
            if number == signal.SIGINT:
                with pytest.raises(KeyboardInterrupt):
                    os.kill(os.getpid(), number)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)] == before


def command(material: tuple[Path, Path], output: Path, *more: str) -> list[str]:
    """A run that takes minutes if nobody ends it."""
    data, network = material
    arguments = ["model", "train", "--data", data, "-o", output, "--model", network, "--device", "cpu", "--json"]
    arguments += ["--batch-size", 16, "--save-minutes", 0, *more]
    return ["-c", "from leech.cli.main import entry_point; entry_point()", *(str(argument) for argument in arguments)]


LONG = ("--epochs", "2000")


def start(arguments: list[str], **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        **options,
    )


def children_of(pid: int) -> list[int]:
    """Return the processes whose parent is ``pid`` and which are ranks, in the order in which they were started."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody asked about counts as gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


@linux_only
def test_whoever_is_ended_all_ranks_end_and_the_run_can_go_on(material: tuple[Path, Path], tmp_path: Path) -> None:
    output, file = tmp_path / "model", tmp_path / "model.resume"

    def ended(whom: int | None, number: signal.Signals) -> tuple[int, str]:
        """Go on until the state is saved, send a signal to a rank or the parent, and return its code and its words."""
        before = file.stat().st_mtime_ns if file.exists() else 0
        process = start(command(material, output, "--gpus", "2", "--resume", *LONG))
        wait_for_change(file, before)
        ranks = children_of(process.pid)
        assert len(ranks) == 2
        os.kill(process.pid if whom is None else ranks[whom], number)
        stdout, stderr = process.communicate(timeout=30)
        deadline = time.monotonic() + 10
        while any(is_alive(pid) for pid in ranks):
            assert time.monotonic() < deadline, "ranks outlived their parent"
            time.sleep(0.05)
        assert stdout == ""
        return process.returncode, stderr

    code, words = ended(None, signal.SIGINT)
    assert code == 130, words
    assert "its state is saved in" in words
    assert "--resume" in words
    assert [path.name for path in tmp_path.iterdir()] == ["model.resume"]
    code, words = ended(1, signal.SIGTERM)
    assert code == 75, words
    assert "[rank 0/2] INFO: Going on after step" in words
    code, words = ended(0, signal.SIGKILL)
    assert code == 1
    assert "Rank 0 of 2 was ended by signal 9 (SIGKILL)" in words
    assert ended(None, signal.SIGKILL)[0] == -signal.SIGKILL
    # What was saved is whole all the same.
    with safe_open(file, framework="numpy") as saved:
        assert json.loads(saved.metadata()["state"])["step"] > 0


def wait_for_change(path: Path, before: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists() or path.stat().st_mtime_ns == before:
        assert time.monotonic() < deadline, f"{path} is not written again"
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def torchrun(port: int, *more: str) -> list[str]:
    return [
        "-m",
        "torch.distributed.run",
        "--master-addr",
        "127.0.0.1",
        "--master-port",
        str(port),
        *more,
        "--no-python",
        sys.executable,
    ]


@linux_only
def test_under_torchrun_two_processes_and_two_nodes_make_the_model_of_one_rank(
    material: tuple[Path, Path], tmp_path: Path
) -> None:
    short = ("--epochs", "2")
    alone = start(command(material, tmp_path / "alone", *short))
    assert json.loads(alone.communicate(timeout=60)[0])["step"] == 12
    processes = [start([*torchrun(free_port(), "--nproc-per-node", "2"), *command(material, tmp_path / "two", *short)])]
    port = free_port()
    for node in (0, 1):
        nodes = torchrun(port, "--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", "1")
        processes.append(start([*nodes, *command(material, tmp_path / "nodes", *short)]))
    results = [process.communicate(timeout=90) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], results
    # The first rank alone shows the result.
    assert json.loads(results[0][0])["path"] == str(tmp_path / "two")
    assert [bool(stdout) for stdout, _ in results] == [True, True, False]
    expected = load_file(tmp_path / "alone" / "model.safetensors")
    for name in ("two", "nodes"):
        weights = load_file(tmp_path / name / "model.safetensors")
        assert list(weights) == list(expected)
        assert max(abs(weights[key] - expected[key]).max() for key in weights) < 1e-4


@linux_only
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_torchrun_saves_the_run_whether_it_is_passed_on_or_not(
    material: tuple[Path, Path], tmp_path: Path, number: signal.Signals
) -> None:
    arguments = command(material, tmp_path / "model", *LONG)
    process = start([*torchrun(free_port(), "--nproc-per-node", "2"), *arguments])
    wait_for_change(tmp_path / "model.resume", 0)
    process.send_signal(number)
    # Its ranks hold the other end: they have ended when there is nothing more to be read.
    _, stderr = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "its state is saved in" in stderr
    assert [path.name for path in tmp_path.iterdir()] == ["model.resume"]
