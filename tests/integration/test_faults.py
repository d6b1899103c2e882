"""What goes wrong around a run: killed workers, signals, full and read-only disks. Real processes, real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tiny_run import TinyRecord, ramp, read_id, write_run

NUM_READS = 4000
LEECH = [sys.executable, "-c", "from leech.cli.main import entry_point; entry_point()"]
RECIPE = ["--motif", "GTAC", "--motif-offset", "1", "--motif-occurrence", "last", "--label", "x"]
RECIPE += ["--bases-before", "2", "--bases-after", "2", "--feature-start", "-1", "--feature-end", "1"]
LIMIT_S = 40


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    names = [read_id(number) for number in range(1, NUM_READS + 1)]
    # The frame is not told from ramps, and the guard looks at the first 2,000 records before any worker starts.
    return write_run(
        tmp_path_factory.mktemp("faults") / "run",
        [TinyRecord(name) for name in names],
        {name: ramp(60) for name in names},
        {"tRNA-A": "ACGTACGTAC"},
    )


def command(sources, output, *options, bam=None):
    inputs = ["--pod5", str(sources.pod5[0]), "--bam", str(bam or sources.bam), "--reference", str(sources.reference)]
    return [*LEECH, "data", "prepare", "-o", str(output), *inputs, *RECIPE, *options]


def children(pid):
    """Return the worker processes of a run, without Python's own resource tracker."""
    try:
        listed = [(task / "children").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
        found = [int(child) for child in " ".join(listed).split()]
        return [child for child in found if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
    except FileNotFoundError:
        return []


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition, what):
    until = time.monotonic() + LIMIT_S
    while not (value := condition()):
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.02)
    return value


class HeldRun:
    """A run with workers whose BAM comes through a pipe and stops short of its end, so that it cannot finish."""

    def __init__(self, sources, output):
        self.process = subprocess.Popen(
            command(sources, output, "--workers", "2", bam="-"),
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        content = sources.bam.read_bytes()
        # Enough to hold back the last block of the BAM, some 500 records.
        held = 100
        self.rest = content[-held:]
        self.process.stdin.write(content[:-held])
        self.process.stdin.flush()
        try:
            self.workers = wait_for(lambda: children(self.process.pid), "workers")
        except AssertionError:
            self.process.kill()
            raise AssertionError(self.process.communicate()) from None

    def finish(self, rest=b""):
        _, errors = self.process.communicate(rest, timeout=LIMIT_S)
        wait_for(lambda: not any(map(alive, self.workers)), "the end of all workers")
        return self.process.returncode, errors.decode()


@pytest.fixture
def held(sources, tmp_path):
    run = HeldRun(sources, tmp_path / "corpus")
    yield run
    if run.process.poll() is None:
        run.process.kill()
        run.process.communicate()


def test_a_run_that_is_left_alone_ends_well_and_leaves_no_process(held, tmp_path):
    code, errors = held.finish(held.rest)
    assert (code, [path.name for path in tmp_path.iterdir()]) == (0, ["corpus"]), errors


def test_a_killed_worker_fails_the_run_and_nothing_is_left(held, tmp_path):
    os.kill(held.workers[0], signal.SIGKILL)
    code, errors = held.finish(held.rest)
    assert code == 1
    assert "A worker process died" in errors
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_says_so_once_and_leaves_nothing(held, tmp_path, number, code):
    # A terminal sends an interrupt to every process of the run.
    os.killpg(held.process.pid, number) if number == signal.SIGINT else os.kill(held.process.pid, number)
    found, errors = held.finish()
    assert (found, "interrupted: nothing unfinished" in errors, "Traceback" in errors) == (code, True, False), errors
    assert list(tmp_path.iterdir()) == []


def test_workers_do_not_outlive_a_killed_run(held, tmp_path):
    held.process.kill()
    code, _ = held.finish()
    assert code == -signal.SIGKILL
    assert not (tmp_path / "corpus").exists()


def test_a_full_disk_is_named_and_nothing_is_left(sources, tmp_path):
    import resource

    # A file-size limit fails a write in the same way as a full disk; 4,000 chunks of signal take 3.6 MB.
    run = subprocess.run(
        command(sources, tmp_path / "corpus"),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)),
    )
    assert run.returncode == 1
    assert f"Cannot write '{tmp_path / 'corpus'}'" in run.stderr
    assert "Free some space" in run.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named_before_any_work(sources):
    # /proc takes no files from anyone, root included.
    run = subprocess.run(command(sources, "/proc/corpus"), capture_output=True, text=True, timeout=LIMIT_S)
    assert run.returncode == 1
    assert "Cannot write beside '/proc/corpus'" in run.stderr
    assert "Signal frame" not in run.stderr


def test_two_hundred_files_are_read_with_few_handles(tmp_path):
    import resource

    from tiny_run import write_pod5

    names = [read_id(number) for number in range(1, 201)]
    records = [TinyRecord(name) for name in names]
    sources = write_run(tmp_path / "run", records, {names[0]: ramp(60)}, {"tRNA-A": "ACGTACGTAC"})
    for number, name in enumerate(names):
        folder = tmp_path / "run" / "many" / str(number % 7)
        folder.mkdir(parents=True, exist_ok=True)
        write_pod5(folder / f"{number}.pod5", {name: ramp(60)})
    arguments = command(sources, tmp_path / "corpus", "--workers", "2", "--json")
    arguments[arguments.index("--pod5") + 1] = str(tmp_path / "run" / "many")
    run = subprocess.run(
        arguments,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    )
    assert run.returncode == 0, run.stderr
    assert '"used": 200' in run.stdout


@pytest.fixture
def simulating(tmp_path):
    """A simulation with two workers that would take minutes; (its process, its workers) once it writes."""
    words = ["data", "simulate", "-o", str(tmp_path / "library"), "--reads", "1000000", "--workers", "2"]
    process = subprocess.Popen(
        [*LEECH, *words], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )
    workers = wait_for(lambda: children(process.pid), "workers")
    wait_for(lambda: any(file.stat().st_size > 0 for file in tmp_path.rglob("records.sam")), "the first records")
    yield process, workers
    if process.poll() is None:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("whom", "number", "code", "words"),
    [
        ("all", signal.SIGINT, 130, "interrupted: nothing unfinished"),
        ("parent", signal.SIGTERM, 143, "interrupted: nothing unfinished"),
        ("worker", signal.SIGKILL, 1, "A worker process died"),
    ],
)
def test_a_simulation_that_is_ended_says_so_and_leaves_nothing(simulating, tmp_path, whom, number, code, words):
    process, workers = simulating
    if whom == "all":
        os.killpg(process.pid, number)
    else:
        os.kill({"parent": process.pid, "worker": workers[0]}[whom], number)
    _, errors = process.communicate(timeout=LIMIT_S)
    wait_for(lambda: not any(map(alive, workers)), "the end of all workers")
    assert (process.returncode, words in errors.decode(), "Traceback" in errors.decode()) == (code, True, False), errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("limit", [20_000, 400_000, 3_000_000])
def test_a_disk_that_is_full_for_a_simulation_is_named(tmp_path, limit):
    import resource

    # 2,000 reads are a POD5 of 16 MB, 4 MB of SAM and a table of truth of 0.3 MB: each limit stops another file.
    run = subprocess.run(
        [*LEECH, "data", "simulate", "-o", str(tmp_path / "library")],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert run.returncode == 1, run.stderr
    assert "Cannot write" in run.stderr
    assert "Traceback" not in run.stderr
    assert list(tmp_path.iterdir()) == []
