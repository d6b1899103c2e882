"""Ranks as new processes of this machine.

Hides: how they are started, watched and ended, and how one fails. Belongs here: what becomes of the others when one fails, and
which failure is told; whether processes are started at all is ``distributed.py``'s. Invariants: when one rank fails the others
end too; the failure that came first is the one that is told, with its rank; no rank outlives its parent.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from leech.console import log_as_rank, logger, set_up_logging
from leech.errors import InterruptedRunError, LeechError
from leech.training.stopping import STOPPING
from leech.training.world import LostContactError, Place, process_group

T = TypeVar("T")

_GRACE_S = 5.0
"""Seconds between the first failure of a rank and the end of all others."""


class _Job(NamedTuple):
    """All that a new process needs to know."""

    function: Callable[..., Any]
    arguments: Sequence[Any]
    size: int
    kind: str
    timeout_s: float
    meeting_place: str
    num_threads: int
    log_level: int


class _Report(NamedTuple):
    """How a rank ended.

    :ivar error: what leech raised on purpose; None where there was another exception, or none.
    :ivar text: traceback of any other exception.
    """

    rank: int
    is_done: bool
    result: Any = None
    error: LeechError | None = None
    text: str | None = None

    @property
    def is_consequence(self) -> bool:
        """Whether the failure is only that another rank had failed."""
        return isinstance(self.error, LostContactError)


def start_ranks(function: Callable[..., T], arguments: Sequence[Any], size: int, kind: str, timeout_s: float) -> T:
    """Call ``function(world, *arguments)`` in ``size`` new processes, and return what the first rank returns.

    :param kind: cpu or cuda.
    """
    context = torch.multiprocessing.get_context("spawn")
    threads = torch.get_num_threads() if "OMP_NUM_THREADS" in os.environ else max(1, torch.get_num_threads() // size)
    with tempfile.TemporaryDirectory(prefix="leech-ranks-") as folder:
        job = _Job(
            function,
            tuple(arguments),
            size,
            kind,
            timeout_s,
            str(Path(folder) / "meeting"),
            threads,
            logger.getEffectiveLevel(),
        )
        ends: dict[Connection, Any] = {}
        ranks: list[Any] = []
        with _forwarded_signals(ranks) as received:
            try:
                for rank in range(size):
                    here, there = context.Pipe(duplex=False)
                    process = context.Process(target=_be_rank, args=(job, rank, there), name=f"leech-rank-{rank}")
                    process.start()
                    there.close()
                    ranks.append(process)
                    ends[here] = process
                reports = _watch(ends)
                silent = [rank for rank, process in enumerate(ranks) if process.is_alive()]
            finally:
                for process in ranks:
                    process.kill()
                    process.join()
        codes = [None if rank in silent else process.exitcode for rank, process in enumerate(ranks)]
        result: T = _outcome(reports, codes, received)
        return result


def _watch(ends: Mapping[Connection, Any]) -> list[_Report]:
    """Return the reports of all ranks that made one, waiting for the others no longer than it takes them to notice."""
    reports: list[_Report] = []
    open_ends = dict(ends)
    deadline: float | None = None
    while open_ends:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            break
        for end in wait(list(open_ends), timeout=left):
            assert isinstance(end, Connection)
            process = open_ends.pop(end)
            has_failed = True
            try:
                reports.append(end.recv())
                has_failed = not reports[-1].is_done
            except EOFError:
                # It died without a word; its exit code is there once it is joined.
                process.join(_GRACE_S)
            if deadline is None and has_failed:
                deadline = time.monotonic() + _GRACE_S
    return reports


def _outcome(reports: Sequence[_Report], codes: Sequence[int | None], received: Sequence[int]) -> Any:
    """Return the first rank's result, or raise what ended the run.

    :param codes: exit code of each rank; None for one that had to be ended because it neither reported nor ended.
    :param received: signals that asked for an end.
    """
    size = len(codes)
    if len(reports) == size and all(report.is_done for report in reports):
        return next(report.result for report in reports if report.rank == 0)
    stopped = [report.error for report in reports if isinstance(report.error, InterruptedRunError)]
    if stopped:
        if signal.SIGINT in received:
            stopped[0].exit_code = 128 + signal.SIGINT
        raise stopped[0]
    causes = [report for report in reports if not report.is_done and not report.is_consequence]
    for report in causes:
        if report.error is None:
            raise LeechError(
                f"Rank {report.rank} of {size} failed, and the others were ended:\n{report.text}",
                hint="If that looks like a bug in leech, report it with this traceback.",
            )
    if causes and causes[0].error is not None:
        error = causes[0].error
        if len(causes) < size:
            error.message = f"[rank {causes[0].rank}/{size}] {error.message}"
        raise error
    if received:
        # It came while the ranks were still starting, and nobody could take note of it.
        ended = InterruptedRunError("Training was asked to end before it began; nothing was changed.")
        ended.exit_code = 128 + signal.SIGINT if signal.SIGINT in received else ended.exit_code
        raise ended
    told = {report.rank for report in reports}
    for rank in sorted({*range(size)} - told, key=lambda rank: codes[rank] is None):
        raise _silent_end(rank, size, codes[rank])
    raise next(report.error for report in reports if report.error is not None)


def _silent_end(rank: int, size: int, code: int | None) -> LeechError:
    if code is None:
        return LostContactError(
            f"Rank {rank} of {size} did not answer the others in time, and all were ended.",
            hint="It may wait for a disk or a GPU that hangs; look at the machine.",
        )
    how = f"was ended by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"ended with code {code}"
    return LeechError(
        f"Rank {rank} of {size} {how}, and the others were ended.",
        hint="SIGKILL is mostly the system's answer to memory running out: try a smaller --batch-size, or --grad-accum.",
    )


@contextmanager
def _forwarded_signals(ranks: Sequence[Any]) -> Iterator[list[int]]:
    """Pass the signals that ask for an end on to the ranks; yields those that came.

    A terminal's interrupt reaches the ranks as well, so they ignore it and are told by the signal that is passed on. A second
    interrupt ends them at once.
    """
    received: list[int] = []

    def forward(number: int, frame: object) -> None:
        if number == signal.SIGINT and signal.SIGINT in received:
            raise KeyboardInterrupt
        received.append(number)
        for process in ranks:
            if process.is_alive():
                os.kill(process.pid, signal.SIGTERM)

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    # Whoever started this process with interrupts ignored, as a shell does in the background, means it.
    before = {number: handler for number in STOPPING if (handler := signal.getsignal(number)) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, forward)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _be_rank(job: _Job, rank: int, end: Connection) -> None:
    """Run as one of the new processes."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        # All ranks are on this machine; without this gloo would look up the machine's name, which need not resolve.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(job.num_threads)
    set_up_logging()
    logger.setLevel(job.log_level)
    log_as_rank(rank, job.size)
    place = Place(rank, job.size, rank)
    try:
        with process_group(place, job.kind, job.timeout_s, f"file://{job.meeting_place}") as world:
            result = job.function(world, *job.arguments)
        report = _Report(rank, is_done=True, result=result if rank == 0 else None)
    except LeechError as error:
        # Where it was raised is of no use to whoever reads it, and cannot be sent.
        report = _Report(rank, is_done=False, error=error.with_traceback(None))
    except BaseException:
        report = _Report(rank, is_done=False, text=traceback.format_exc())
    end.send(report)
    end.close()


def _end_with_parent() -> None:
    """End this process as soon as its parent is gone, however that ended, so that no rank is left behind."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGKILL)
