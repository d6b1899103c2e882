"""What a biologist looks at: calls, no-calls and the positive fraction per tRNA, and rolled up.

Hides: columns and their order. Belongs here: rows made of counts; the counting is ``tally.py``'s, the formulae are in
``fractions.py``. Invariants: the columns are the same in every table of a level, whatever is known; what is not known is an
empty cell; a fraction that rests on few reads is shown and marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from leech.console import Table
from leech.data.grouping import LEVELS
from leech.prediction.fractions import Corrections, Fraction, fractions
from leech.prediction.tally import UNASSIGNED, GroupTally, Tally
from leech.prediction.writers import GzipTable

_CORRECTED = ("error_corrected", "no_call_corrected")

_FIGURES = tuple(f"{name}{suffix}" for name in _CORRECTED for suffix in ("", "_low", "_high"))

COLUMNS = (
    "n_positive",
    "n_negative",
    "n_no_call",
    "no_call_reasons",
    "fraction",
    "fraction_low",
    "fraction_high",
    "enough",
    *_FIGURES,
)
"""Columns behind the name of the group."""


class Summarised(NamedTuple):
    """Counts of a run with all that is needed to summarise them.

    :ivar groups: groups of every reference by level.
    """

    tally: Tally
    groups: Mapping[str, Mapping[str, str]]
    corrections: Corrections
    min_depth: int

    def rows(self, level: str) -> Iterator[tuple[str, ...]]:
        """Yield the rows of one level of ``names.SUMMARIES``."""
        if level == "reference":
            for name, tally in self.tally.by_reference().items():
                levels = (self.groups[name][other] for other in LEVELS)
                yield (name, *levels, *self._cells(tally, self.corrections_of([name])))
        else:
            members: dict[str, list[str]] = {}
            for name in self.tally.by_reference():
                members.setdefault(self.groups[name][level] or UNASSIGNED, []).append(name)
            for name, tally in self.tally.rolled_up(self.groups, level).items():
                yield (name, *self._cells(tally, self.corrections_of(members[name])))

    def total(self) -> dict[str, Any]:
        """Return the fractions of all reads, ready for JSON; None for what is not known."""
        tally = self.tally.total()
        found = fractions(tally.num_positive, tally.num_negative, self.corrections_of(self.tally.by_reference()))
        return {name: _plain(fraction) for name, fraction in zip(("fraction", *_CORRECTED), found, strict=True)}

    def corrections_of(self, references: Iterable[str]) -> Corrections:
        """Return the corrections of some references taken together."""
        return self.corrections.for_references({name: self.tally.num_called(name) for name in references})

    def _cells(self, tally: GroupTally, corrections: Corrections) -> tuple[str, ...]:
        found = fractions(tally.num_positive, tally.num_negative, corrections)
        return (
            str(tally.num_positive),
            str(tally.num_negative),
            str(tally.num_no_call),
            ",".join(f"{reason}={number}" for reason, number in tally.reasons().items()),
            *_fraction_cells(found.raw),
            str(int(tally.num_called >= self.min_depth)),
            *_fraction_cells(found.error_corrected),
            *_fraction_cells(found.no_call_corrected),
        )


def columns_of(level: str) -> tuple[str, ...]:
    """Return the columns of a table of one level of ``names.SUMMARIES``."""
    return (level, *(LEVELS if level == "reference" else ()), *COLUMNS)


def write_summary(path: Path, summarised: Summarised, level: str) -> None:
    """Write the table of one level of ``names.SUMMARIES``."""
    table = GzipTable(path, columns_of(level))
    try:
        for row in summarised.rows(level):
            table.write(*row)
    finally:
        table.close()


def write_combined(path: Path, samples: Mapping[str, Summarised], level: str) -> None:
    """Write one table of several samples: a row per group and sample, also where a sample has no read of a group."""
    everything: dict[str, Mapping[str, str]] = {}
    for summarised in samples.values():
        everything.update(summarised.groups)
    table = GzipTable(path, ("sample", *columns_of(level)))
    try:
        names = Tally.from_mapping(
            {reference: {"positive": 0, "negative": 0, "no_calls": {}} for reference in everything}
        )
        by_sample = {}
        for sample, summarised in samples.items():
            whole = Tally.from_mapping({**names.to_mapping(), **summarised.tally.to_mapping()})
            by_sample[sample] = list(summarised._replace(tally=whole, groups=everything).rows(level))
        for rows in zip(*by_sample.values(), strict=True):
            for sample, row in zip(by_sample, rows, strict=True):
                table.write(sample, *row)
    finally:
        table.close()


def shown(summarised: Summarised, labels: tuple[str, str], title: str) -> Table:
    """Return the counts and fractions of every reference for a terminal, with corrections where there are any.

    Where no read is without a call, or both states are called alike, there is nothing of no-calls to correct.
    """
    negative, positive = labels
    calls, has_no_call = summarised.corrections.calls, summarised.tally.total().num_no_call > 0
    shows_calls = calls is not None and calls.positive != calls.negative
    shows_calls &= has_no_call or summarised.corrections.calls_source == "options"
    rows = []
    tallies = summarised.tally.by_reference()
    groups = [(name, [name], tally) for name, tally in tallies.items()]
    for name, members, tally in [*groups, ("all", list(tallies), summarised.tally.total())]:
        found = fractions(tally.num_positive, tally.num_negative, summarised.corrections_of(members))
        row = [name, str(tally.num_positive), str(tally.num_negative), str(tally.num_no_call), *_short(found.raw)]
        row.append("" if tally.num_called >= summarised.min_depth else "few reads")
        for corrected in (found.error_corrected, found.no_call_corrected if shows_calls else None):
            if corrected is not None:
                row.extend(_short(corrected))
        rows.append(row)
    interval = "95 % interval"
    columns = ["reference", positive, negative, "no call", f"fraction {positive}", interval, ""]
    if summarised.corrections.errors is not None:
        columns += ["error-corrected", interval]
    if shows_calls:
        columns += ["no-call-corrected", interval]
    return Table(title=title, columns=columns, rows=rows)


def _fraction_cells(fraction: Fraction | None) -> tuple[str, str, str]:
    if fraction is None or fraction.value is None or fraction.interval is None:
        return "", "", ""
    low, high = fraction.interval
    return f"{fraction.value:.6g}", f"{low:.6g}", f"{high:.6g}"


def _plain(fraction: Fraction | None) -> dict[str, Any] | None:
    if fraction is None or fraction.value is None or fraction.interval is None:
        return None
    return {"value": fraction.value, "interval": list(fraction.interval)}


def _short(fraction: Fraction) -> tuple[str, str]:
    if fraction.value is None or fraction.interval is None:
        return "", ""
    return f"{fraction.value:.3f}", f"{fraction.interval.low:.3f} to {fraction.interval.high:.3f}"
