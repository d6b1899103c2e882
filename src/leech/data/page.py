"""The page about a corpus, and the drawing of one of its chunks.

Hides: where things stand on these drawings. Belongs here: figures of a corpus, also where they are part of another page; the
numbers come from ``squiggle.py``, the tables from ``inspect.py``, and what is drawn with from ``drawing.py``. Invariants: as
there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from leech.console import Table
from leech.data.drawing import (
    Frame,
    Scale,
    axis,
    colour,
    colour_key,
    document,
    figure,
    lines,
    points,
    runs,
    shade,
    svg,
    table_html,
    text,
    vertical,
)
from leech.data.squiggle import POINTS_PER_BASE, Example, View

FRAME = Frame(900, 260)


def render_page(title: str, tables: Sequence[Table], view: View, footer: str) -> str:
    """Return the page: figures first, then all tables."""
    parts = [f"<h1>{escape(title)}</h1>", *_figures(view), *(table_html(table) for table in tables)]
    return document(title, parts, footer)


def _figures(view: View) -> Iterable[str]:
    if not view.labels:
        return
    yield "<h2>Signal around the focus, mean by label</h2>"
    yield signal_figure(view)
    yield "<h2>Dwell around the focus, mean by label</h2>"
    yield dwell_figure(view)
    if view.examples:
        yield "<h2>Examples</h2>"
    for example in view.examples:
        yield example_figure(example, view)


def signal_figure(view: View) -> str:
    """Return the mean signal of every label with its key and caption."""
    spread = "the band is the standard deviation between reads of a reference"
    return figure(mean_signal(view), f"{_averaged(view)}; {spread}.", _key(view), wide=True)


def dwell_figure(view: View) -> str:
    """Return the mean dwell of every label with its key and caption."""
    return figure(mean_dwell(view), f"{_averaged(view)}.", _key(view), wide=True)


def example_figure(example: Example, view: View) -> str:
    """Return one of the view's examples in the colour of its label, with its caption."""
    codes = {one.label: place for place, one in enumerate(view.labels)}
    return figure(draw_example(example, colour(codes[example.label])), caption_of(example), wide=True)


def caption_of(example: Example) -> str:
    """Say which chunk an example is."""
    return f"{example.label or 'no label'} · {example.reference} · read {example.read_id} · row {example.row}"


def _averaged(view: View) -> str:
    if view.num_references:
        return f"Mean over {view.num_references} references that every label has, each weighing the same"
    return "The labels have no reference in common, so each is averaged over its own: differences may be the sequence's"


def _key(view: View) -> str:
    return colour_key([f"{one.label or 'no label'} ({one.num_chunks} chunks)" for one in view.labels])


def mean_signal(view: View) -> str:
    """Draw the mean signal of every label, every base as wide as every other."""
    x = FRAME.across(0, len(view.offsets))
    bands = [(one.signal - one.signal_sd, one.signal + one.signal_sd) for one in view.labels]
    y = vertical([edge for band in bands for edge in band], FRAME)
    places = [x((point + 0.5) / POINTS_PER_BASE) for point in range(len(view.offsets) * POINTS_PER_BASE)]
    drawn = []
    for number, (low, high) in enumerate(bands):
        for run in runs(low):
            outline = [(places[i], y(high[i])) for i in run] + [(places[i], y(low[i])) for i in reversed(run)]
            drawn.append(f'<polygon points="{points(outline)}" fill="{colour(number)}" opacity="0.15"/>')
    for number, one in enumerate(view.labels):
        drawn += lines(places, one.signal, y, colour(number))
    return svg("Mean normalised signal by label", [*_bases(view, x), *axis(y, "signal", FRAME), *drawn], FRAME)


def mean_dwell(view: View) -> str:
    """Draw the mean dwell of every label, base by base."""
    x = FRAME.across(0, len(view.offsets))
    y = vertical([*(one.dwell for one in view.labels), np.zeros(1)], FRAME)
    places = [x(place + 0.5) for place in range(len(view.offsets))]
    drawn = []
    for number, one in enumerate(view.labels):
        drawn += lines(places, one.dwell, y, colour(number))
        drawn += [
            f'<circle cx="{place:.1f}" cy="{y(value):.1f}" r="3" fill="{colour(number)}"/>'
            for place, value in zip(places, one.dwell, strict=True)
            if np.isfinite(value)
        ]
    return svg("Mean dwell by label, in samples", [*_bases(view, x), *axis(y, "samples", FRAME), *drawn], FRAME)


def _bases(view: View, x: Scale) -> Iterable[str]:
    """Draw a column per feature base, with letter and offset, the focus shaded."""
    floor = FRAME.floor
    for place, (offset, letter) in enumerate(zip(view.offsets, view.letters, strict=True)):
        middle = x(place + 0.5)
        if offset == 0:
            yield shade(x(place), x(place + 1), FRAME)
        yield f'<line x1="{x(place):.1f}" x2="{x(place):.1f}" y1="{FRAME.top:g}" y2="{floor:g}" stroke="#ddd"/>'
        yield text(middle, floor + 15, letter, "middle")
        yield text(middle, floor + 31, str(offset), "middle")


def draw_example(example: Example, stroke: str, *, alone: bool = False) -> str:
    """Draw one chunk over its samples, with the boundaries of its bases.

    :param alone: as an SVG file, instead of as a part of a page.
    """
    width = len(example.signal)
    x, y = FRAME.across(0, width), vertical([example.signal], FRAME)
    floor = FRAME.floor
    drawn = []
    for base in example.bases:
        start, end = (x(min(max(edge, 0), width)) for edge in (base.start, base.end))
        if base.offset == 0:
            drawn.append(shade(start, end, FRAME))
        drawn.append(f'<line x1="{start:.1f}" x2="{start:.1f}" y1="{FRAME.top:g}" y2="{floor:g}" stroke="#ccc"/>')
        drawn.append(text((start + end) / 2, floor + 15, base.letter, "middle"))
    drawn += lines([x(sample + 0.5) for sample in range(width)], example.signal, y, stroke)
    step = max(1, 10 ** (len(str(width)) - 1) // 2)
    drawn += [text(x(tick), floor + 31, str(tick), "middle") for tick in range(0, width + 1, step)]
    title = f"Normalised signal of read {example.read_id}"
    return svg(title, [*axis(y, "signal", FRAME), *drawn], FRAME, alone=alone)
