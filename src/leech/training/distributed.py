"""Ranks: processes that train one model together.

Hides: process groups, the launcher's environment, and how processes are started, watched and ended. Belongs here: what
ranks say to each other, and what becomes of the others when one fails; which rows a rank takes is ``samplers.py``'s, and the
step they take together the loop's. Invariants: one rank creates no process group; what a sum returns is the same bits on every
rank; when one rank fails the others end too, and the failure that came first is the one that is told.
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
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from leech.console import log_as_rank, logger, set_up_logging
from leech.errors import ConfigError, InterruptedRunError, LeechError
from leech.models.device import choose_device

T = TypeVar("T")

TIMEOUT_S = 600.0
"""Seconds that a rank waits for the others in one exchange before it gives up."""

_GRACE_S = 5.0
"""Seconds between the first failure of a rank and the end of all others."""

_LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
"""What torchrun tells its processes, and what a script for srun can."""


class LostContactError(LeechError):
    """Another rank ended, hung or could not be reached."""


@dataclass(frozen=True)
class World:
    """This process among those that train together.

    :ivar rank: its number, from 0; the first writes, shows progress and speaks for all.
    :ivar size: how many there are.
    :ivar device: where this one computes.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")

    @property
    def is_first(self) -> bool:
        """Whether this rank writes files."""
        return self.rank == 0

    def share(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return this rank's rows: every ``size``-th of them, from the ``rank``-th on."""
        return rows[self.rank :: self.size]

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over all ranks, in ``values`` itself.

        :raises LostContactError: another rank is gone.
        """
        if self.size > 1:
            with self.contact():
                distributed.all_reduce(values)
        return values

    def sum_array(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum over all ranks of arrays in memory."""
        if self.size == 1:
            return values
        return self.sum(torch.from_numpy(values).to(self.device)).cpu().numpy()

    def wait(self) -> None:
        """Return when all ranks have come this far."""
        self.sum(torch.zeros(1, device=self.device))

    def parallel(self, module: nn.Module) -> nn.Module:
        """Return the module in such a form that its backward pass averages gradients over the ranks.

        Every parameter that is to be trained must belong to the one module that is given here.

        :raises ConfigError: layers that look at the whole batch, on the CPU, where ranks cannot share what they see.
        """
        if self.size == 1:
            return module
        return DistributedDataParallel(module, gradient_as_bucket_view=True)

    def synchronised(self, module: nn.Module) -> nn.Module:
        """Return the module with batch normalisation over the batches of all ranks together.

        :raises ConfigError: there is such a layer and no way to do that, which is so on the CPU.
        """
        watching = [name for name, part in module.named_modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
        if not watching or self.size == 1:
            return module
        if self.device.type == "cpu":
            raise ConfigError(
                f"The network's layer '{watching[0]}' normalises over the batch. On the CPU each of {self.size} ranks would "
                "see its own share only, and the model would depend on their number.",
                hint="Use --gpus 1, or a network that normalises per chunk.",
            )
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]
        return converted

    @contextmanager
    def contact(self) -> Iterator[None]:
        """Turn the many ways in which torch says that a rank is gone into one."""
        try:
            yield
        except RuntimeError as error:
            if self.size == 1 or not _is_about_contact(error):
                raise
            raise LostContactError(
                f"Rank {self.rank} of {self.size} lost contact with the others: {str(error).splitlines()[0]}",
                hint="Look for what another rank said before; a rank that was killed says nothing.",
            ) from error


def _is_about_contact(error: RuntimeError) -> bool:
    words = str(error).lower()
    return isinstance(error, distributed.DistError) or any(
        word in words for word in ("gloo", "nccl", "connection", "peer", "process group", "timed out")
    )


class Place(NamedTuple):
    """Where a launcher put this process."""

    rank: int
    size: int
    local_rank: int


def launched(environment: Mapping[str, str]) -> Place | None:
    """Return where torchrun (or a script like it) put this process; None where there was no launcher.

    :raises ConfigError: variables that are there in part, or are no such numbers.
    """
    found = {name: environment[name] for name in _LAUNCHER if name in environment}
    if not found:
        return None
    missing = [name for name in (*_LAUNCHER, "MASTER_ADDR", "MASTER_PORT") if name not in environment]
    hint = "Start with torchrun, which sets them all; or unset them to train on one machine without a launcher."
    if missing:
        raise ConfigError(
            f"The environment has {', '.join(found)} but not {', '.join(missing)}: this looks like a launcher's process, but "
            "it does not say how to reach the others.",
            hint=hint,
        )
    try:
        place = Place(*(int(found[name]) for name in _LAUNCHER))
    except ValueError:
        place = Place(-1, 0, 0)
    if not 0 <= place.rank < place.size:
        raise ConfigError(f"The environment says {found}, which are no rank and number of ranks.", hint=hint)
    return place


def run_ranks(
    function: Callable[..., T],
    arguments: Sequence[Any],
    *,
    gpus: int | None,
    device: str,
    timeout_s: float = TIMEOUT_S,
) -> T:
    """Call ``function(world, *arguments)`` on every rank, and return what it returns on this process's, or the first rank.

    Under a launcher this process is one of the ranks; otherwise, for more than one, as many new processes are. They are given
    ``arguments`` by value, so let those be small.

    :param gpus: how many; None for what the launcher says, or one.
    :param device: auto, cpu or cuda.
    :raises ConfigError: a number of ranks that cannot be had here.
    :raises LeechError: what a rank raised, or that it was killed.
    """
    place = launched(os.environ)
    if place is not None:
        if gpus is not None:
            raise ConfigError(
                f"--gpus {gpus} beside a launcher that has started {place.size} ranks: only one of them can say how many.",
                hint="Leave --gpus out, or start leech without torchrun.",
            )
        return _join_launcher(function, arguments, place, device, timeout_s)
    if gpus is None or gpus == 1:
        return function(World(device=choose_device(device)), *arguments)
    kind = _kind_of_many(gpus, device)
    return _start_ranks(function, arguments, gpus, kind, timeout_s)


def _kind_of_many(count: int, device: str) -> str:
    """Return cpu or cuda for ``count`` ranks on this machine, or refuse."""
    if multiprocessing.current_process().daemon:
        raise ConfigError(
            f"--gpus {count} was asked for in a daemonic process, which may not start others.",
            hint="Call it from the main process, or use --gpus 1.",
        )
    if device == "cpu":
        return "cpu"
    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if available < count:
        raise ConfigError(
            f"--gpus {count}: torch {torch.__version__} finds {available or 'no'} usable GPU{'' if available == 1 else 's'} "
            "here, and two ranks cannot share one.",
            hint=f"Use --gpus {available}, or --device cpu to train with {count} processes on the CPU."
            if available
            else f"Use --device cpu to train with {count} processes on the CPU, or --gpus 1.",
        )
    return "cuda"


@contextmanager
def _process_group(place: Place, kind: str, timeout_s: float, init_method: str) -> Iterator[World]:
    """Be a member of a process group for the length of a block."""
    device = torch.device("cpu")
    if kind == "cuda":
        device = torch.device("cuda", place.local_rank)
        torch.cuda.set_device(device)
    world = World(place.rank, place.size, device)
    with world.contact():
        distributed.init_process_group(
            "nccl" if kind == "cuda" else "gloo",
            init_method=init_method,
            rank=place.rank,
            world_size=place.size,
            timeout=timedelta(seconds=timeout_s),
        )
    yield world
    # Not reached after an error: leaving a group whose other members are gone can wait for ever.
    distributed.destroy_process_group()


def _join_launcher(
    function: Callable[..., T], arguments: Sequence[Any], place: Place, device: str, timeout_s: float
) -> T:
    kind = "cuda" if device != "cpu" and torch.cuda.is_available() else "cpu"
    if device == "cuda" and kind == "cpu":
        choose_device(device)
    if kind == "cuda" and place.local_rank >= torch.cuda.device_count():
        raise ConfigError(
            f"Rank {place.rank} is number {place.local_rank} on its machine, which has {torch.cuda.device_count()} GPUs.",
            hint="Start no more processes on a machine than it has GPUs, or use --device cpu.",
        )
    log_as_rank(place.rank, place.size)
    try:
        with _process_group(place, kind, timeout_s, "env://") as world:
            return function(world, *arguments)
    except LeechError as error:
        error.message = f"[rank {place.rank}/{place.size}] {error.message}"
        raise


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


def _start_ranks(function: Callable[..., T], arguments: Sequence[Any], size: int, kind: str, timeout_s: float) -> T:
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
            try:
                reports.append(end.recv())
            except EOFError:
                # It died without a word; its exit code is there once it is joined.
                process.join(_GRACE_S)
            if deadline is None and not (reports and reports[-1].is_done):
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
    before = {number: signal.signal(number, forward) for number in STOPPING}
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
        with _process_group(place, job.kind, job.timeout_s, f"file://{job.meeting_place}") as world:
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


STOPPING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
"""Signals that ask for an end: the first two are what batch systems send before they kill, the third is Ctrl-C."""


class StopRequest:
    """Whether this process was asked to end.

    :ivar signal: number of the signal; 0 while there was none.
    """

    def __init__(self) -> None:
        self.signal = 0

    def __call__(self, number: int, frame: object = None) -> None:
        """Take note; a second interrupt is not put off."""
        if number == signal.SIGINT and self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number

    @contextmanager
    def listening(self) -> Iterator[StopRequest]:
        """Take note of signals during a block, in the main thread; elsewhere Python lets nobody listen."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.getsignal(number) for number in STOPPING}
        for number, handler in before.items():
            # A rank that was told to ignore interrupts goes on doing so.
            if handler is not signal.SIG_IGN:
                signal.signal(number, self)
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
