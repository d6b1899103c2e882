"""The parts of the report about the signal itself: means around the site by state, and single reads.

Hides: which tables and figures these are. Belongs here: what is shown of a corpus; the numbers come from
``data/squiggle.py``, the drawings from ``data/page.py``. Invariants: every drawing's numbers stand under it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from leech.console import Table
from leech.data.drawing import numbers
from leech.data.page import dwell_figure, example_figure, signal_figure
from leech.data.portrait import example_table
from leech.data.squiggle import POINTS_PER_BASE, Example, View
from leech.evaluation.report.section import Section, heading

_GIVE_CORPUS = "Give a folder that 'leech data prepare' or 'leech data merge' wrote, with --corpus."


def signal_section(view: View | None, by_call: View | None) -> Section:
    """Return mean signal and dwell around the site, by truth and, where calls are known, by truth and call."""
    body: list[str] = []
    for one, title in ((view, "By state"), (by_call, "By state and call")):
        if one is not None and one.labels:
            body += [
                heading(title),
                signal_figure(one),
                numbers(_signal_table(one), "signal.tsv"),
                dwell_figure(one),
                numbers(base_table(one), "dwell.tsv"),
            ]
    return Section("signal", "Signal and dwell around the site", tuple(body), _GIVE_CORPUS)


def examples_section(view: View | None) -> Section:
    """Return single reads with the boundaries of their bases."""
    body = () if view is None else tuple(part for example in view.examples for part in _example(example, view))
    return Section("examples", "Single reads", body, _GIVE_CORPUS)


def _example(example: Example, view: View) -> Iterator[str]:
    yield example_figure(example, view)
    yield numbers(example_table(example), f"read-{example.read_id}.tsv")


def _signal_table(view: View) -> Table:
    names = [one.label or "no label" for one in view.labels]
    rows = []
    for point in range(len(view.offsets) * POINTS_PER_BASE):
        base, place = divmod(point, POINTS_PER_BASE)
        position = view.offsets[base] + (place + 0.5) / POINTS_PER_BASE
        cells = (_cell(float(values[point])) for one in view.labels for values in (one.signal, one.signal_sd))
        rows.append((f"{position:.4f}", view.letters[base], *cells))
    columns = ("offset", "base", *(f"{what} {name}" for name in names for what in ("mean", "sd")))
    return Table(title="mean signal around the site", columns=columns, rows=tuple(rows))


def base_table(view: View) -> Table:
    """Return a row per base around the site: mean level and dwell by state."""
    names = [one.label or "no label" for one in view.labels]
    rows = tuple(
        (
            str(offset),
            letter,
            *(_cell(float(values[place])) for one in view.labels for values in (one.level, one.dwell)),
        )
        for place, (offset, letter) in enumerate(zip(view.offsets, view.letters, strict=True))
    )
    columns = ("offset", "base", *(f"{what} {name}" for name in names for what in ("level", "dwell")))
    return Table(title="mean level and dwell in samples", columns=columns, rows=rows)


def _cell(value: float) -> str:
    return f"{value:.4f}" if np.isfinite(value) else ""
