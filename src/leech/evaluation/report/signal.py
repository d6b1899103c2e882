"""The parts of the report about the signal itself: what it looks like around the site by state, and single reads.

Hides: which tables and figures these are. Belongs here: what is shown of a corpus; the numbers come from
``data/squiggle.py``, the drawings from ``data/page.py``. Invariants: every drawing's numbers stand under it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from leech.console import Table
from leech.data.corpus import Corpus
from leech.data.drawing import numbers
from leech.data.examples import Example
from leech.data.grouping import Groups
from leech.data.page import dwell_figure, example_figure, signal_figure
from leech.data.portrait import example_table
from leech.data.squiggle import POINTS_PER_BASE, View, view_groups
from leech.evaluation.report.section import Section, heading

FEWEST_READS = 20
"""Reads that a state and call need for medians of their own."""

_BLOCK_ROWS = 2**16

_GIVE_CORPUS = "Give a folder that 'leech data prepare' or 'leech data merge' wrote, with --corpus."


def view_by_call(corpus: Corpus, calls: Mapping[bytes, str], num_chunks: int, seed: int) -> View:
    """Look at chunks by true label and call; groups of few chunks are left out, because their medians would say little.

    :param calls: label called, by the 16 bytes of the read's id.
    """
    codes = np.full(len(corpus), -1, dtype=np.int64)
    places: dict[tuple[int, str], int] = {}
    for start in range(0, len(corpus), _BLOCK_ROWS):
        rows = np.arange(start, min(start + _BLOCK_ROWS, len(corpus)), dtype=np.int64)
        columns = corpus.gather(rows, ["read_id", "label"])
        for row, read_id, label in zip(rows.tolist(), columns["read_id"], columns["label"].tolist(), strict=True):
            call = calls.get(read_id.tobytes())
            if call is not None and label >= 0:
                codes[row] = places.setdefault((label, call), len(places))
    sizes = np.bincount(codes[codes >= 0], minlength=len(places))
    codes[(codes >= 0) & (sizes[codes] < FEWEST_READS)] = -1
    names = [f"{corpus.labels[label]}, called {call}" for label, call in places]
    return view_groups(corpus, Groups("call", codes, names), num_chunks, seed)


def signal_section(view: View | None, by_call: View | None) -> Section:
    """Return signal and dwell around the site, by truth and, where calls are known, by truth and call."""
    body: list[str] = []
    for one, ending, title in (
        (view, "", "By state"),
        (by_call, "-by-call", f"By state and call, where there are {FEWEST_READS} reads or more"),
    ):
        if one is not None and one.labels:
            body += [
                heading(title),
                signal_figure(one),
                numbers(_signal_table(one), f"signal{ending}.tsv"),
                dwell_figure(one),
                numbers(_base_table(one), f"dwell{ending}.tsv"),
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
        cells: list[str] = []
        for one in view.labels:
            cells += [_cell(float(values[point])) for values in (one.signal, one.signal_low, one.signal_high)]
            cells.append(str(one.signal_reads[point]))
        rows.append((f"{position:.4f}", view.letters[base], *cells))
    whats = ("median", "16 %", "84 %", "reads")
    columns = ("offset", "base", *(f"{what} {name}" for name in names for what in whats))
    return Table(title="median signal around the site", columns=columns, rows=tuple(rows))


def _base_table(view: View) -> Table:
    """Return a row per base around the site: median level and mean dwell by state, and the reads that have it."""
    names = [one.label or "no label" for one in view.labels]
    rows = []
    for place, (offset, letter) in enumerate(zip(view.offsets, view.letters, strict=True)):
        cells: list[str] = []
        for one in view.labels:
            cells += [_cell(float(one.level[place])), _cell(float(one.dwell[place])), str(one.base_reads[place])]
        rows.append((str(offset), letter, *cells))
    columns = ("offset", "base", *(f"{what} {name}" for name in names for what in ("level", "dwell", "reads")))
    return Table(title="level (median) and dwell in samples (geometric mean)", columns=columns, rows=tuple(rows))


def _cell(value: float) -> str:
    return f"{value:.4f}" if np.isfinite(value) else ""
