"""Where a benchmark's figures go: to the terminal as they come, and with --write into a dated file of benchmarks/results/."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path


def today() -> str:
    return datetime.date.today().isoformat()


def show(lines: Iterable[str], write_as: str | None) -> None:
    """Print lines as they come; with a name, write them as :func:`keep` does when all have come."""
    shown = []
    for line in lines:
        shown.append(line)
        print(line, flush=True)
    if write_as is not None:
        keep(write_as, "\n".join(shown) + "\n")


def keep(name: str, text: str) -> None:
    """Write the result of today's run; an earlier one of today is replaced."""
    target = Path(__file__).parent / "results" / f"{name}-{today()}.md"
    target.write_text(text, encoding="utf-8")
    print(f"written: {target.name}")
