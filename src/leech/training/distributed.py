"""How many ranks there are, and who starts them.

Hides: the launcher's environment. Belongs here: choosing between this process alone, a launcher's ranks and new processes
(``processes.py``), and refusing what cannot be had; what ranks say to each other is ``world.py``'s. Invariants: what cannot be
had is refused before anything is started; one rank is this process and nothing else.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch

from leech.console import log_as_rank
from leech.errors import ConfigError, LeechError
from leech.models.device import choose_device
from leech.training.processes import start_ranks
from leech.training.world import Place, World, process_group

T = TypeVar("T")

TIMEOUT_S = 600.0
"""Seconds that a rank waits for the others in one exchange before it gives up."""

_LOOK_S = 1.0
"""Seconds between two looks at whether the launcher is still there."""

_SAVING_S = 60.0
"""Seconds that a rank without a launcher has to finish its step and save the run."""

_LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
"""What torchrun tells its processes, and what a script for srun can."""


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
    kind = kind_of_ranks(gpus, device)
    return start_ranks(function, arguments, gpus, kind, timeout_s)


def kind_of_ranks(count: int, device: str, option: str = "--gpus") -> str:
    """Return whether ``count`` ranks of this machine, more than one, are to be on ``cpu`` or ``cuda``.

    :param option: by which they were asked for, to be named in a refusal.
    :raises ConfigError: so many cannot be had here.
    """
    if multiprocessing.current_process().daemon:
        raise ConfigError(
            f"{option} {count} was asked for in a daemonic process, which may not start others.",
            hint=f"Call it from the main process, or use {option} 1.",
        )
    if device == "cpu":
        return "cpu"
    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if available < count:
        raise ConfigError(
            f"{option} {count}: torch {torch.__version__} finds {available or 'no'} usable GPU{'' if available == 1 else 's'} "
            "here, and two ranks cannot share one.",
            hint=f"Use {option} {available}, or --device cpu to train with {count} processes on the CPU."
            if available
            else f"Use --device cpu to train with {count} processes on the CPU, or {option} 1.",
        )
    return "cuda"


def _join_launcher(
    function: Callable[..., T], arguments: Sequence[Any], place: Place, device: str, timeout_s: float
) -> T:
    kind = "cuda" if device != "cpu" and torch.cuda.is_available() else "cpu"
    if device == "cuda" and kind == "cpu":
        choose_device(device)
    if kind == "cuda" and place.local_rank >= torch.cuda.device_count():
        raise ConfigError(
            f"Rank {place.rank} is number {place.local_rank} on its machine, where {torch.cuda.device_count()} can be seen.",
            hint="Start no more processes on a machine than it has GPUs; where each process sees one GPU of its own, set "
            "LOCAL_RANK=0 for all of them; or use --device cpu.",
        )
    log_as_rank(place.rank, place.size)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        threading.Thread(target=_end_with_launcher, args=[os.getppid()], daemon=True).start()
    try:
        with process_group(place, kind, timeout_s, "env://") as world:
            return function(world, *arguments)
    except LeechError as error:
        error.message = f"[rank {place.rank}/{place.size}] {error.message}"
        raise


def _end_with_launcher(launcher: int) -> None:
    """Ask this process to end when torchrun is gone, and end it where it does not: nobody else is left to do so.

    torchrun passes SIGTERM on to its processes, but is itself ended by SIGUSR1 or SIGKILL without a word to them.
    """
    while os.getppid() == launcher:
        time.sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_SAVING_S)
    os.kill(os.getpid(), signal.SIGKILL)
