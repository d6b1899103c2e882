"""Work spread over processes, each given one task at a time over a pipe of its own, with results in the order of the work.

Hides: how processes start, how tasks and answers travel, and how all of it ends. Belongs here: nothing about what the work
is; ``stream.py`` cuts reads with it, ``simulate/write.py`` makes them. Invariants: results come in the order of the tasks; a
few tasks per worker are in flight at most, so memory does not grow with their number; a worker that dies, at whatever
moment, makes the answer it owed an error and never a wait without end; no worker outlives the process that started it.

A pool whose workers share one pipe (``concurrent.futures``) cannot keep the second: a worker that is killed while it writes
an answer leaves half a message and a lock that nobody releases, and its siblings hold the pipe open.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from leech.errors import LeechError

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Kept = TypeVar("Kept")


_COLLECT_AFTER = 50_000
"""New objects between two searches for garbage in cycles, of which reads and chunks have none; Python's own number is 700,
and with hundreds of records in memory the search takes a twentieth of all time."""


class WorkerDiedError(Exception):
    """A worker process ended before its result was there; what came before is right but incomplete."""


def spread(
    work: Callable[[Task], Answer],
    tasks: Iterable[tuple[Kept, Task]],
    workers: int,
    *,
    ahead: int,
    start: Callable[..., None],
    arguments: tuple[Any, ...],
) -> Iterator[tuple[Kept, Answer]]:
    """Yield the result of every task, with what was to be kept of it here.

    :param work: what a worker does; a function of a module, like ``start``.
    :param tasks: pairs of what stays in this process and what travels to a worker.
    :param ahead: tasks per worker that are taken before the first result is awaited.
    :param start: called once in every worker, with ``arguments``.
    :raises WorkerDiedError: a worker ended.
    """
    waiting: deque[tuple[Kept, Future[Answer]]] = deque()
    with start_workers(work, workers, start, arguments) as pool:
        for kept, task in tasks:
            waiting.append((kept, pool.submit(task)))
            if len(waiting) > ahead * workers:
                yield _next(waiting)
        while waiting:
            yield _next(waiting)


def _next(waiting: deque[tuple[Kept, Future[Answer]]]) -> tuple[Kept, Answer]:
    kept, future = waiting.popleft()
    return kept, future.result()


class Workers(Generic[Task, Answer]):
    """A number of worker processes; use :func:`start_workers`."""

    def __init__(self, number: int) -> None:
        # Threads wait for the answers, so that this one can go on reading and writing.
        self._threads = ThreadPoolExecutor(number, thread_name_prefix="worker")
        self._idle: SimpleQueue[Connection] = SimpleQueue()
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []

    def submit(self, task: Task) -> Future[Answer]:
        """Hand a task to the next idle worker.

        The answer's error is what the worker raised, or :class:`WorkerDiedError`.
        """
        return self._threads.submit(self._ask, task)

    def _start(
        self, work: Callable[[Task], Answer], number: int, start: Callable[..., None], arguments: tuple[Any, ...]
    ) -> None:
        # A fresh interpreter per worker: a fork would copy locked mutexes of the threads that run here.
        context = multiprocessing.get_context("spawn")
        for _ in range(number):
            ours, theirs = context.Pipe()
            self._pipes.append(ours)
            process = context.Process(target=_serve, args=(theirs, work, start, arguments), daemon=True)
            process.start()
            self._processes.append(process)
            # Once the worker alone holds its end, its death ends the pipe.
            theirs.close()
            self._idle.put(ours)

    def _ask(self, task: Task) -> Answer:
        pipe = self._idle.get()
        try:
            pipe.send(task)
            is_answer, value = pipe.recv()
        except (EOFError, OSError) as error:
            raise WorkerDiedError("A worker process died before it had answered.") from error
        finally:
            self._idle.put(pipe)
        if not is_answer:
            raise value
        answer: Answer = value
        return answer

    def _end(self, *, kill: bool) -> None:
        if kill:
            for process in self._processes:
                process.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join()


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Search for garbage in cycles a hundredth as often while the block runs."""
    before = gc.get_threshold()
    gc.set_threshold(_COLLECT_AFTER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def start_workers(
    work: Callable[[Task], Answer], number: int, start: Callable[..., None], arguments: tuple[Any, ...]
) -> Iterator[Workers[Task, Answer]]:
    """Start worker processes, and end them with the block: in order where it ends well, at once where it does not.

    :param start: called in each worker with ``arguments``, once; all of it must travel to it.
    """
    workers: Workers[Task, Answer] = Workers(number)
    try:
        with _signals_held():
            workers._start(work, number, start, arguments)
        yield workers
    except BaseException:
        workers._end(kill=True)
        raise
    workers._end(kill=False)


def _serve(
    pipe: Connection, work: Callable[[Task], Answer], start: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    start(*arguments)
    try:
        with collecting_rarely():
            while True:
                pipe.send(_answered(work, pipe.recv()))
    except (EOFError, OSError):
        # Nobody asks any more.
        return


def _answered(work: Callable[[Task], Answer], task: Task) -> tuple[bool, Answer | Exception]:
    try:
        return True, work(task)
    except LeechError as error:
        return False, error
    except Exception:
        # An error of another kind is a bug: its traceback is what helps, and it may not travel itself.
        return False, RuntimeError(f"in a worker process:\n{traceback.format_exc()}")


def _end_with_parent() -> None:
    """Kill this process once its parent is gone, which a worker at work would not notice."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def _signals_held() -> Iterator[None]:
    """Put off signals while workers start: a half-started one would end with a traceback of its own.

    Processes started inside never get an interrupt; it is for this one to say so and to end them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []
    handlers = {
        number: signal.signal(number, lambda caught_number, _: caught.append(caught_number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    # Starting Python's own tracker of resources unblocks signals, so it must not come between.
    resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for held in caught:
            signal.raise_signal(held)
