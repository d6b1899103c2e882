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
from leech.data.examples import Example
from leech.data.squiggle import FEWEST_SHARE, POINTS_PER_BASE, View

FRAME = Frame(900, 276, right=24, bottom=56)

_ALONE = Frame(900, 320, right=24, top=56, bottom=56)
"""Of a file of its own, with room for words over the drawing."""

_WHAT_IS_DRAWN = "Line: normalised signal. Upright lines: where bases begin. Shaded: the focus base."


_LEFT_OUT = f"Where fewer than {100 * FEWEST_SHARE:.0f} % of a label's reads have a value, none is drawn."


def render_page(title: str, tables: Sequence[Table], view: View, footer: str) -> str:
    """Return the page: figures first, then all tables."""
    parts = [f"<h1>{escape(title)}</h1>", *_figures(view), *(table_html(table) for table in tables)]
    return document(title, parts, footer)


def _figures(view: View) -> Iterable[str]:
    if not view.labels:
        return
    yield "<h2>Signal around the focus, median by label</h2>"
    yield signal_figure(view)
    yield "<h2>Dwell around the focus, geometric mean by label</h2>"
    yield dwell_figure(view)
    if view.examples:
        yield "<h2>Examples</h2>"
    for example in view.examples:
        yield example_figure(example, view)


def signal_figure(view: View) -> str:
    """Return the median signal of every label with its key and caption."""
    spread = "the band holds the middle 68 % of the reads (16 % to 84 % quantile)"
    return figure(median_signal(view), f"{_averaged(view)}; {spread}. {_LEFT_OUT}", _key(view), wide=True)


def dwell_figure(view: View) -> str:
    """Return the mean dwell of every label with its key and caption."""
    return figure(mean_dwell(view), f"{_averaged(view, 'Geometric mean')}. {_LEFT_OUT}", _key(view), wide=True)


def example_figure(example: Example, view: View) -> str:
    """Return one of the view's examples in the colour of its label, with its caption."""
    codes = {one.label: place for place, one in enumerate(view.labels)}
    return figure(
        draw_example(example, colour(codes[example.label])), f"{caption_of(example)}. {_WHAT_IS_DRAWN}", wide=True
    )


def caption_of(example: Example) -> str:
    """Say which chunk an example is."""
    return f"{example.label or 'no label'} · {example.reference} · read {example.read_id} · row {example.row}"


def _averaged(view: View, what: str = "Median") -> str:
    if view.num_references:
        return f"{what} over the reads of {view.num_references} references that every label has, each weighing the same"
    return f"{what} over reads. The labels have no reference in common, so each has its own: differences may be the sequence's"


def _key(view: View) -> str:
    return colour_key([f"{one.label or 'no label'} ({one.num_chunks} chunks)" for one in view.labels])


def median_signal(view: View) -> str:
    """Draw the median signal of every label, every base as wide as every other."""
    x = FRAME.across(0, len(view.offsets))
    shown = [one.enough(one.signal_reads) for one in view.labels]
    bands = [
        (np.where(there, one.signal_low, np.nan), np.where(there, one.signal_high, np.nan))
        for one, there in zip(view.labels, shown, strict=True)
    ]
    y = vertical([edge for band in bands for edge in band], FRAME)
    places = [x((point + 0.5) / POINTS_PER_BASE) for point in range(len(view.offsets) * POINTS_PER_BASE)]
    drawn = []
    for number, (low, high) in enumerate(bands):
        for run in runs(low):
            outline = [(places[i], y(high[i])) for i in run] + [(places[i], y(low[i])) for i in reversed(run)]
            drawn.append(f'<polygon points="{points(outline)}" fill="{colour(number)}" opacity="0.15"/>')
    for number, (one, there) in enumerate(zip(view.labels, shown, strict=True)):
        drawn += lines(places, np.where(there, one.signal, np.nan), y, colour(number))
    return svg(
        "Median normalised signal by label", [*_bases(view, x), *axis(y, "normalised signal", FRAME), *drawn], FRAME
    )


def mean_dwell(view: View) -> str:
    """Draw the geometric mean of the dwell of every label, base by base."""
    x = FRAME.across(0, len(view.offsets))
    dwells = [np.where(one.enough(one.base_reads), one.dwell, np.nan) for one in view.labels]
    y = vertical([*dwells, np.zeros(1)], FRAME)
    places = [x(place + 0.5) for place in range(len(view.offsets))]
    drawn = []
    for number, dwell in enumerate(dwells):
        drawn += lines(places, dwell, y, colour(number))
        drawn += [
            f'<circle cx="{place:.1f}" cy="{y(value):.1f}" r="3" fill="{colour(number)}"/>'
            for place, value in zip(places, dwell, strict=True)
            if np.isfinite(value)
        ]
    return svg(
        "Geometric mean of the dwell by label, in samples",
        [*_bases(view, x), *axis(y, "samples", FRAME), *drawn],
        FRAME,
    )


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
    yield text((x.start + x.end) / 2, floor + 48, "base, 5'→3', counted from the focus", "middle")


def draw_example(example: Example, stroke: str, *, alone: bool = False) -> str:
    """Draw one chunk over its samples, with the boundaries of its bases.

    :param alone: as an SVG file, instead of as a part of a page.
    """
    width, frame = len(example.signal), _ALONE if alone else FRAME
    x, y = frame.across(0, width), vertical([example.signal], frame)
    floor = frame.floor
    drawn = []
    if alone:
        drawn += [text(frame.left, 20, caption_of(example)), text(frame.left, 40, _WHAT_IS_DRAWN)]
    for base in example.bases:
        start, end = (x(min(max(edge, 0), width)) for edge in (base.start, base.end))
        if base.offset == 0:
            drawn.append(shade(start, end, frame))
        drawn.append(f'<line x1="{start:.1f}" x2="{start:.1f}" y1="{frame.top:g}" y2="{floor:g}" stroke="#ccc"/>')
        drawn.append(text((start + end) / 2, floor + 15, base.letter, "middle"))
    drawn += lines([x(sample + 0.5) for sample in range(width)], example.signal, y, stroke)
    step = max(1, 10 ** (len(str(width)) - 1) // 2)
    drawn += [text(x(tick), floor + 31, str(tick), "middle") for tick in range(0, width + 1, step)]
    drawn.append(text((x.start + x.end) / 2, floor + 48, "samples from the start of the window, 5'→3'", "middle"))
    title = f"Normalised signal of read {example.read_id}"
    return svg(title, [*axis(y, "normalised signal", frame), *drawn], frame, alone=alone)
