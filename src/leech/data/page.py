"""One page about a corpus, to be read in a browser without network or scripts.

Hides: HTML and SVG. Belongs here: drawing; the numbers come from ``squiggle.py`` and the tables from ``inspect.py``. Figures
are SVG written into the page: a plotting library would be a heavy thing to install for three kinds of lines, and its pages
need scripts. Invariants: everything that comes from data is escaped; the same values give the same page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.console import Table
from leech.data.squiggle import POINTS_PER_BASE, Example, View

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Told apart by people who do not see all colours (Okabe and Ito 2008)."""

_WIDTH, _HEIGHT = 900, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 10, 12, 40

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; background: #fff; max-width: 60em; margin: 2em auto }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin: 2em 0 .4em }
table { border-collapse: collapse; font-size: .9em } th, td { padding: .15em .8em .15em 0; text-align: left }
th { border-bottom: 1px solid #888 } td.number { text-align: right; font-variant-numeric: tabular-nums }
td { overflow-wrap: anywhere } .key { margin-right: 1.2em; white-space: nowrap }
.key span { display: inline-block; width: 1.4em; height: .7em; margin-right: .4em }
svg { width: 100%; height: auto } svg text { font: 12px system-ui, sans-serif; fill: #333 }
figure { margin: .5em 0 1.5em } figcaption, footer { color: #555; font-size: .9em }
summary { cursor: pointer; margin: .5em 0 }
"""

_LONG_TABLE = 25
"""Tables of more rows than this are folded."""

Floats = NDArray[np.float64]


class _Scale(NamedTuple):
    """A straight map from values to places on the drawing."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def render_page(title: str, tables: Sequence[Table], view: View, footer: str) -> str:
    """Return the page: figures first, then all tables."""
    parts = [f"<h1>{escape(title)}</h1>", *_figures(view), *(_table(table) for table in tables)]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + f"\n<footer><p>{escape(footer)}</p></footer>\n</body></html>\n"
    )


def _figures(view: View) -> Iterable[str]:
    if not view.labels:
        return
    averaged = (
        f"Mean over {view.num_references} references that every label has, each weighing the same"
        if view.num_references
        else "The labels have no reference in common, so each is averaged over its own: differences may be the sequence's"
    )
    key = "".join(
        f'<span class="key"><span style="background: {_colour(place)}"></span>{escape(one.label or "no label")} '
        f"({one.num_chunks} chunks)</span>"
        for place, one in enumerate(view.labels)
    )
    yield "<h2>Signal around the focus, mean by label</h2>"
    yield _figure(
        _mean_signal(view), f"{averaged}; the band is the standard deviation between reads of a reference.", key
    )
    yield "<h2>Dwell around the focus, mean by label</h2>"
    yield _figure(_mean_dwell(view), f"{averaged}.", key)
    if view.examples:
        yield "<h2>Examples</h2>"
    codes = {one.label: place for place, one in enumerate(view.labels)}
    for example in view.examples:
        caption = f"{example.label or 'no label'} · {example.reference} · read {example.read_id} · row {example.row}"
        yield _figure(_example(example, _colour(codes[example.label])), caption)


def _figure(drawing: str, caption: str, key: str = "") -> str:
    return f"<figure>{key}{drawing}<figcaption>{escape(caption)}</figcaption></figure>"


def _colour(place: int) -> str:
    return _COLOURS[place % len(_COLOURS)]


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    body = "\n".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in table.rows)
    drawn = f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"
    if len(table.rows) > _LONG_TABLE:
        drawn = f"<details><summary>{len(table.rows)} rows</summary>{drawn}</details>"
    return f"<h2>{escape(table.title)}</h2>{drawn}"


def _cell(text: str) -> str:
    numeric = text[:1] in set("-0123456789") and text.rstrip("%").replace(".", "", 1).lstrip("-").isdigit()
    return f'<td class="number">{escape(text)}</td>' if numeric else f"<td>{escape(text)}</td>"


def _mean_signal(view: View) -> str:
    """Draw the mean signal of every label, every base as wide as every other."""
    x = _Scale(0, len(view.offsets), _LEFT, _WIDTH - _RIGHT)
    bands = [(one.signal - one.signal_sd, one.signal + one.signal_sd) for one in view.labels]
    y = _vertical([edge for band in bands for edge in band])
    places = [x((point + 0.5) / POINTS_PER_BASE) for point in range(len(view.offsets) * POINTS_PER_BASE)]
    drawn = []
    for number, (low, high) in enumerate(bands):
        for run in _runs(low):
            outline = [(places[i], y(high[i])) for i in run] + [(places[i], y(low[i])) for i in reversed(run)]
            drawn.append(f'<polygon points="{_points(outline)}" fill="{_colour(number)}" opacity="0.15"/>')
    for number, one in enumerate(view.labels):
        drawn += _lines(places, one.signal, y, _colour(number))
    return _svg("Mean normalised signal by label", [*_bases(view, x), *_axis(y, "signal"), *drawn])


def _mean_dwell(view: View) -> str:
    x = _Scale(0, len(view.offsets), _LEFT, _WIDTH - _RIGHT)
    y = _vertical([*(one.dwell for one in view.labels), np.zeros(1)])
    places = [x(place + 0.5) for place in range(len(view.offsets))]
    drawn = []
    for number, one in enumerate(view.labels):
        drawn += _lines(places, one.dwell, y, _colour(number))
        drawn += [
            f'<circle cx="{place:.1f}" cy="{y(value):.1f}" r="3" fill="{_colour(number)}"/>'
            for place, value in zip(places, one.dwell, strict=True)
            if np.isfinite(value)
        ]
    return _svg("Mean dwell by label, in samples", [*_bases(view, x), *_axis(y, "samples"), *drawn])


def _bases(view: View, x: _Scale) -> Iterable[str]:
    """Draw a column per feature base, with letter and offset, the focus shaded."""
    floor = _HEIGHT - _BOTTOM
    for place, (offset, letter) in enumerate(zip(view.offsets, view.letters, strict=True)):
        middle = x(place + 0.5)
        if offset == 0:
            yield _shade(x(place), x(place + 1))
        yield f'<line x1="{x(place):.1f}" x2="{x(place):.1f}" y1="{_TOP}" y2="{floor}" stroke="#ddd"/>'
        yield f'<text x="{middle:.1f}" y="{floor + 15}" text-anchor="middle">{letter}</text>'
        yield f'<text x="{middle:.1f}" y="{floor + 31}" text-anchor="middle">{offset}</text>'


def _example(example: Example, colour: str) -> str:
    """Draw one chunk over its samples, with the boundaries of its bases."""
    x = _Scale(0, len(example.signal), _LEFT, _WIDTH - _RIGHT)
    y = _vertical([example.signal])
    floor = _HEIGHT - _BOTTOM
    drawn = []
    for base in example.bases:
        start, end = (x(min(max(edge, 0), len(example.signal))) for edge in (base.start, base.end))
        if base.offset == 0:
            drawn.append(_shade(start, end))
        drawn.append(f'<line x1="{start:.1f}" x2="{start:.1f}" y1="{_TOP}" y2="{floor}" stroke="#ccc"/>')
        middle = (start + end) / 2
        drawn.append(f'<text x="{middle:.1f}" y="{floor + 15}" text-anchor="middle">{base.letter}</text>')
    drawn += _lines([x(sample + 0.5) for sample in range(len(example.signal))], example.signal, y, colour)
    ticks = range(0, len(example.signal) + 1, max(1, 10 ** (len(str(len(example.signal))) - 1) // 2))
    drawn += [f'<text x="{x(tick):.1f}" y="{floor + 31}" text-anchor="middle">{tick}</text>' for tick in ticks]
    return _svg(f"Normalised signal of read {example.read_id}", [*_axis(y, "signal"), *drawn])


def _shade(start: float, end: float) -> str:
    height = _HEIGHT - _BOTTOM - _TOP
    return f'<rect x="{start:.1f}" y="{_TOP}" width="{max(end - start, 1):.1f}" height="{height}" fill="#f3ecd2"/>'


def _svg(title: str, drawn: Iterable[str]) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"><title>{escape(title)}</title>\n'
        + "\n".join(drawn)
        + "\n</svg>"
    )


def _vertical(curves: Sequence[Floats]) -> _Scale:
    known = np.concatenate([curve[np.isfinite(curve)] for curve in curves])
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    if high - low < 1e-6:
        low, high = low - 0.5, high + 0.5
    return _Scale(low, high, _HEIGHT - _BOTTOM, _TOP)


def _axis(y: _Scale, name: str) -> Iterable[str]:
    step = 10 ** np.floor(np.log10((y.high - y.low) / 2))
    step = float(next(step * factor for factor in (5, 2, 1) if (y.high - y.low) / (step * factor) >= 2))
    for number in range(int(np.ceil(y.low / step)), int(np.floor(y.high / step)) + 1):
        place = y(number * step)
        yield f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{place:.1f}" y2="{place:.1f}" stroke="#eee"/>'
        yield f'<text x="{_LEFT - 6}" y="{place + 4:.1f}" text-anchor="end">{number * step:g}</text>'
    middle = (y.start + y.end) / 2
    yield f'<text x="12" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 12 {middle:.0f})">{escape(name)}</text>'


def _lines(places: Sequence[float], values: Floats, y: _Scale, colour: str) -> list[str]:
    return [
        f'<polyline points="{_points([(places[i], y(values[i])) for i in run])}" fill="none" stroke="{colour}" '
        'stroke-width="1.5"/>'
        for run in _runs(values)
    ]


def _runs(values: Floats) -> list[list[int]]:
    """Return the places of the values that are numbers, one list per stretch."""
    known = np.flatnonzero(np.isfinite(values))
    return [run.tolist() for run in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1) if len(run)]


def _points(pairs: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in pairs)
