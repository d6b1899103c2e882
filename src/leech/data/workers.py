"""Work spread over processes, with results in the order of the work.

Hides: the pool, signals, and what becomes of processes when something goes wrong. Belongs here: nothing about what the work
is; ``stream.py`` cuts reads with it, ``simulate/write.py`` makes them. Invariants: results come in the order of the tasks; a
few tasks per worker are in flight at most, so memory does not grow with their number; no process outlives its parent.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")
Kept = TypeVar("Kept")


class WorkerDiedError(Exception):
    """A worker process ended before its result was there; what came before is right but incomplete."""


def spread(
    work: Callable[[Task], Result],
    tasks: Iterable[tuple[Kept, Task]],
    workers: int,
    *,
    ahead: int,
    start: Callable[..., None],
    arguments: tuple[Any, ...],
) -> Iterator[tuple[Kept, Result]]:
    """Yield the result of every task, with what was to be kept of it here.

    :param work: what a worker does; a function of a module, like ``start``.
    :param tasks: pairs of what stays in this process and what travels to a worker.
    :param ahead: tasks per worker that are taken before the first result is awaited.
    :param start: called once in every worker, with ``arguments``.
    :raises WorkerDiedError: a worker ended.
    """
    # A fresh interpreter per worker: a fork would copy locked mutexes of the threads that run here.
    context = multiprocessing.get_context("spawn")
    waiting: deque[tuple[Kept, Future[Result]]] = deque()
    of_others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(start, arguments))
    try:
        with _signals_held():
            # A worker is started for each task that finds none idle, and none is idle before it has started.
            for _ in range(workers):
                pool.submit(_await_work)
        for kept, task in tasks:
            waiting.append((kept, pool.submit(work, task)))
            if len(waiting) > ahead * workers:
                yield _next(waiting)
        while waiting:
            yield _next(waiting)
    except BrokenProcessPool as error:
        _end_children(of_others)
        raise WorkerDiedError from error
    except BaseException:
        _end_children(of_others)
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _next(waiting: deque[tuple[Kept, Future[Result]]]) -> tuple[Kept, Result]:
    kept, future = waiting.popleft()
    return kept, future.result()


def _start_worker(start: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    start(*arguments)


def _end_with_parent() -> None:
    """Kill this process once its parent is gone, which a worker waiting for work would never notice."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)


def _await_work() -> None:
    """Do nothing, in a worker that starts for it."""


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
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for held in caught:
            signal.raise_signal(held)


def _end_children(but: Iterable[BaseProcess]) -> None:
    """Kill the child processes that are not among ``but``.

    A pool that breaks while it starts a worker would wait for that worker for ever.
    """
    for child in set(multiprocessing.active_children()) - set(but):
        child.kill()
