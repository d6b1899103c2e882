"""What a person at the shell sees: log records, progress and tables.

Hides: rich, and whether a terminal listens. Belongs here: presentation that every command shares; what is presented comes
as plain values. Invariants: talk goes to stderr, data to stdout; without a terminal everything is plain lines; nothing
here is imported by ``--help`` and rich only where a terminal listens.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console

logger = logging.getLogger("leech")

_FIRST_INTERVAL_S = 5.0
_LAST_INTERVAL_S = 60.0
"""Seconds between two plain progress lines: a twentieth of the time so far, within these bounds, so that the log of a
day's run stays readable."""


@dataclass(frozen=True)
class Table:
    """A table of text cells, to be shown or written by whoever prints it."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class Task(Protocol):
    """One running piece of work."""

    def start_at(self, amount: int) -> None:
        """Count units that were finished before this task began: they are shown, and no part of its speed."""

    def advance(self, amount: int = 1) -> None:
        """Count finished units."""

    def describe(self, text: str) -> None:
        """Show a short state beside the count, for example the current loss."""


class Progress(Protocol):
    """Makes tasks; which implementation is a matter of where stderr goes."""

    def task(self, name: str, *, unit: str, total: int | None = None) -> AbstractContextManager[Task]:
        """Begin a task of ``total`` units (None when unknown)."""


class SilentTask:
    """Shows nothing."""

    def start_at(self, amount: int) -> None:
        """Count units that were finished earlier."""

    def advance(self, amount: int = 1) -> None:
        """Count finished units."""

    def describe(self, text: str) -> None:
        """Show a short state."""


class SilentProgress:
    """Shows nothing."""

    @contextmanager
    def task(self, name: str, *, unit: str, total: int | None = None) -> Iterator[Task]:
        """Begin a task."""
        yield SilentTask()


class _LineTask:
    def __init__(
        self, name: str, unit: str, total: int | None, write: Callable[[str], None], clock: Callable[[], float]
    ):
        self._name, self._unit, self._total, self._write, self._clock = name, unit, total, write, clock
        self._done, self._before, self._text = 0, 0, ""
        self._start = self._last = clock()

    def start_at(self, amount: int) -> None:
        self._done = self._before = amount

    def advance(self, amount: int = 1) -> None:
        self._done += amount
        now = self._clock()
        if now - self._last >= min(max(_FIRST_INTERVAL_S, (now - self._start) / 20), _LAST_INTERVAL_S):
            self._last = now
            self.show()

    def describe(self, text: str) -> None:
        self._text = text

    def show(self, *, at_end: bool = False) -> None:
        """Write a line; at the end nothing is left, also where less was done than might have been."""
        elapsed = max(self._clock() - self._start, 1e-9)
        rate = (self._done - self._before) / elapsed
        parts = [f"{self._name}: {self._done}" + (f"/{self._total}" if self._total else "") + f" {self._unit}"]
        parts.append(f"{rate:.0f} {self._unit}/s" if rate >= 10 else f"{rate:.2g} {self._unit}/s")
        if self._total and rate > 0 and self._done < self._total and not at_end:
            parts.append(f"{format_duration((self._total - self._done) / rate)} left")
        else:
            parts.append(format_duration(elapsed))
        if self._text:
            parts.append(self._text)
        self._write(", ".join(parts))


class LineProgress:
    """A plain line every few seconds and one at the end; for logs and files."""

    def __init__(self, stream: IO[str] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock

    def _write(self, line: str) -> None:
        print(line, file=self._stream or sys.stderr, flush=True)

    @contextmanager
    def task(self, name: str, *, unit: str, total: int | None = None) -> Iterator[Task]:
        """Begin a task."""
        task = _LineTask(name, unit, total, self._write, self._clock)
        yield task
        task.show(at_end=True)


class _BarTask:
    def __init__(self, bar: object, number: object) -> None:
        self._bar, self._number = bar, number

    def start_at(self, amount: int) -> None:
        # An update would be taken for units done now.
        self._bar.reset(self._number, completed=amount)  # type: ignore[attr-defined]

    def advance(self, amount: int = 1) -> None:
        self._bar.advance(self._number, amount)  # type: ignore[attr-defined]

    def describe(self, text: str) -> None:
        self._bar.update(self._number, text=text)  # type: ignore[attr-defined]


class BarProgress:
    """A rich progress bar on the terminal behind stderr."""

    @contextmanager
    def task(self, name: str, *, unit: str, total: int | None = None) -> Iterator[Task]:
        """Begin a task."""
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            ProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Task as RichTask
        from rich.text import Text

        class Speed(ProgressColumn):
            def render(self, task: RichTask) -> Text:
                speed = task.finished_speed or task.speed
                return Text("" if speed is None else f"{speed:.0f}/s" if speed >= 10 else f"{speed:.2g}/s")

        class TimeLeft(TimeRemainingColumn):
            # What ends before its total has no time left.
            def render(self, task: RichTask) -> Text:
                early = task.fields["ended"] and not task.finished
                return Text(format_duration(task.elapsed or 0)) if early else super().render(task)

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            Speed(),
            TimeLeft(elapsed_when_finished=True),
            TextColumn("{task.fields[text]}"),
        )
        with Progress(*columns, console=_console_of_log(), transient=False) as bar:
            number = bar.add_task(name, total=total, text="", ended=False)
            yield _BarTask(bar, number)
            bar.update(number, ended=True)


def choose_progress(*, quiet: bool = False, stream: IO[str] | None = None) -> Progress:
    """Return the progress display that suits ``stream``, by default stderr; call it after ``set_up_logging``."""
    if quiet:
        return SilentProgress()
    return BarProgress() if (stream or sys.stderr).isatty() else LineProgress(stream)


def set_up_logging(*, verbose: bool = False, quiet: bool = False, stream: IO[str] | None = None) -> None:
    """Send leech's log records to ``stream``, by default stderr.

    Records from INFO on are shown; with ``verbose`` from DEBUG on; with ``quiet`` from WARNING on, whatever ``verbose``.
    """
    stream = stream or sys.stderr
    handler: logging.Handler
    if stream.isatty():
        from rich.console import Console
        from rich.logging import RichHandler

        handler = RichHandler(console=Console(file=stream), show_path=False, show_time=False, markup=False)
        handler.setFormatter(logging.Formatter("%(message)s"))
    else:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO)


def log_as_rank(rank: int, size: int) -> None:
    """Begin each record with the rank that it comes from, and let ranks beyond the first say warnings only."""
    for handler in logger.handlers:
        layout = "%(message)s" if handler.formatter is None else handler.formatter._fmt
        handler.setFormatter(logging.Formatter(f"[rank {rank}/{size}] {layout}"))
    if rank:
        logger.setLevel(max(logger.level, logging.WARNING))


def render(table: Table, stream: IO[str]) -> None:
    """Write a table to ``stream``: drawn on a terminal, aligned plain text elsewhere."""
    numeric = [_is_numeric([row[place] for row in table.rows]) for place in range(len(table.columns))]
    if stream.isatty():
        from rich.console import Console
        from rich.table import Table as RichTable

        drawn = RichTable(title=table.title, title_justify="left")
        for column, right in zip(table.columns, numeric, strict=True):
            drawn.add_column(column, overflow="fold", justify="right" if right else "left")
        for row in table.rows:
            drawn.add_row(*row)
        Console(file=stream).print(drawn, markup=False)
        return
    widths = [max(len(cells[place]) for cells in (table.columns, *table.rows)) for place in range(len(table.columns))]

    def line(cells: Sequence[str]) -> str:
        layout = zip(cells, widths, numeric, strict=True)
        return "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in layout).rstrip()

    lines = [table.title] if table.title else []
    lines.extend(line(cells) for cells in (table.columns, *table.rows))
    stream.write("\n".join(lines) + "\n")


def format_duration(seconds: float) -> str:
    """Return seconds as words: 4 s, 3 min 20 s, 2 h 05 min."""
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _is_numeric(cells: Sequence[str]) -> bool:
    """Return whether a column holds numbers and blanks only, so that its digits are to stand below each other."""
    return any(cells) and all(not cell or cell[0] in "-+.0123456789" for cell in cells)


def _console_of_log() -> Console:
    # Bars and records share one console: from two, each would draw over the other.
    from rich.console import Console
    from rich.logging import RichHandler

    shared = (handler.console for handler in logger.handlers if isinstance(handler, RichHandler))
    return next(shared, None) or Console(stderr=True)
