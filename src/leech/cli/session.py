"""What every command handler is given: progress, stamp, and a way to print its result.

Hides: the clock, logging set-up and the choice between tables and JSON. Belongs here: nothing that a core function could
know; handlers pass its parts on. Invariant: results go to stdout, talk to stderr.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from leech.console import Progress, Table
    from leech.provenance import Stamp


class Result(Protocol):
    """What a core function returns: plain types for machines, tables for people."""

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""

    def tables(self) -> list[Table]:
        """Return tables of text."""


@dataclass(frozen=True)
class Session:
    """One run of the command line."""

    argv: Sequence[str]
    verbose: bool
    quiet: bool

    def start(
        self, config: Sequence[Any] = (), inputs: Sequence[Path | None] = (), output: Path | None = None
    ) -> tuple[Progress, Stamp]:
        """Set up logging, and return the progress display and the stamp of this run.

        :param config: the configuration values of the run.
        :param inputs: what the run reads; None stands for an input not given.
        :param output: what the run writes; None where it only shows.
        :raises ConfigError: an output that is an input too.
        """
        from datetime import datetime, timezone

        from leech.config import to_mapping
        from leech.console import choose_progress, set_up_logging
        from leech.provenance import Stamp, refuse_input_as_output

        set_up_logging(verbose=self.verbose, quiet=self.quiet)
        if output is not None:
            refuse_input_as_output(output, inputs)
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        settings = {type(value).__name__: to_mapping(value) for value in config} or None
        return choose_progress(quiet=self.quiet), Stamp.make(self.argv, now, config=settings, inputs=inputs)

    def show(self, result: Result, *, as_json: bool) -> None:
        """Print a result to stdout."""
        from leech.console import render

        if as_json:
            sys.stdout.write(json.dumps(result.to_mapping(), indent=2) + "\n")
            return
        for number, table in enumerate(result.tables()):
            if number:
                sys.stdout.write("\n")
            render(table, sys.stdout)
