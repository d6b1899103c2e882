"""Worker processes: answers in order, errors that travel, and deaths that are no wait without end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from leech.data.workers import WorkerDiedError, spread, start_workers
from leech.errors import InputError

LIMIT_S = 30


def ready(*_):
    pass


def square(number):
    return number**2


def fail(number):
    if number == 1:
        raise InputError("bad file", hint="copy it again")
    raise KeyError("a bug")


def die_in_the_middle_of_the_answer(_):
    # The pipe holds far less than the answer, so the write is under way when the time is over.
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return bytes(50_000_000)


def sleep(_):
    threading.Event().wait(600)


def test_results_come_in_the_order_of_the_tasks_with_what_was_kept():
    tasks = ((str(number), number) for number in range(20))
    results = spread(square, tasks, 2, ahead=3, start=ready, arguments=("x",))
    assert list(results) == [(str(number), number * number) for number in range(20)]


def test_every_task_is_answered_and_no_process_is_left():
    with start_workers(square, 2, ready, ()) as workers:
        answers = [workers.submit(number) for number in range(20)]
        assert [answer.result(LIMIT_S) for answer in answers] == [number * number for number in range(20)]
        processes = list(workers._processes)
    assert [process.exitcode for process in processes] == [0, 0]


def test_errors_of_a_task_come_back_and_the_worker_goes_on():
    with start_workers(fail, 1, ready, ()) as workers:
        with pytest.raises(InputError) as meant:
            workers.submit(1).result(LIMIT_S)
        with pytest.raises(RuntimeError, match="KeyError: 'a bug'"):
            workers.submit(2).result(LIMIT_S)
    assert (meant.value.message, meant.value.hint) == ("bad file", "copy it again")


def test_a_worker_killed_while_it_writes_an_answer_is_an_error_for_all_that_wait():
    class SlowToRead:
        """Reads half an answer and leaves the rest in the pipe until the worker is dead."""

        def __init__(self, pipe, process):
            self.pipe, self.process = pipe, process

        def send(self, task):
            self.pipe.send(task)

        def recv(self):
            os.read(self.pipe.fileno(), 1000)
            self.process.join(LIMIT_S)
            return self.pipe.recv()

        def close(self):
            self.pipe.close()

    with start_workers(die_in_the_middle_of_the_answer, 1, ready, ()) as workers:
        workers._idle.put(SlowToRead(workers._idle.get(), workers._processes[0]))
        for answer in [workers.submit(0), workers.submit(1)]:
            with pytest.raises(WorkerDiedError):
                answer.result(LIMIT_S)


def test_what_goes_wrong_outside_ends_workers_that_are_busy():
    processes, answers = [], []

    def interrupted():
        with start_workers(sleep, 2, ready, ()) as workers:
            processes.extend(workers._processes)
            answers.extend(workers.submit(0) for _ in range(4))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [process.exitcode for process in processes] == [-signal.SIGKILL] * 2
    assert all(answer.done() for answer in answers)


def blocked(_):
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_no_worker_gets_an_interrupt_in_a_fresh_process():
    # In a process of its own, because what starts Python's tracker of resources unblocks signals, and does so once.
    code = (
        "from test_workers import blocked, ready; from leech.data.workers import spread\n"
        "if __name__ == '__main__':\n"
        "    print([result for _, result in spread(blocked, [(0, 0)] * 8, 2, ahead=3, start=ready, arguments=())])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=True
    )
    assert run.stdout.strip() == str([True] * 8)
