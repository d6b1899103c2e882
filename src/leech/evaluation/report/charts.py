"""Figures of results: shares with intervals, curves, histograms, bars and a heat map.

Hides: where things stand on these drawings. Belongs here: one function per kind of figure, of plain values; what is shown is
decided in ``samples.py``, ``models.py`` and ``signal.py``, and what is drawn with comes from ``data/drawing.py``. Invariants:
as there; things of one kind differ in shape or dashes as well as in colour, so that a grey print can be read; drawings are no
wider than a column, so that their words can be read on a telephone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from leech.data.drawing import COLOURS, Frame, Scale, axis, axis_across, colour, lines, points, svg, text

_FRAME = Frame(440, 280, left=54, right=14, top=14, bottom=44)

_DASHES = ("", "7 3", "2 3", "9 3 2 3")

_SHAPES = 4
"""Shapes of dots; with the colours, that many times as many things can be told apart."""

_CHARACTER = 6.7
"""Width of a character of text."""

_LONGEST_NAME = 30

_TALLEST = 800
"""Height above which a figure is divided, so that it fits a printed page."""

_REST = "#bbbbbb"

HEAT_STEPS = 20

_HEAT = ((0, 34, 78), (67, 78, 108), (125, 124, 120), (188, 174, 108), (254, 232, 56))
"""Dark blue over grey to yellow: even in lightness, and the same order to all eyes."""


class Dot(NamedTuple):
    """A share of one thing in one row.

    :ivar enough: whether it rests on enough reads.
    :ivar words: what to say of it.
    :ivar faint: another figure for the same, marked faintly; None for none.
    """

    thing: int
    value: float
    low: float
    high: float
    enough: bool
    words: str
    faint: float | None = None


class HeatCell(NamedTuple):
    """A share in a heat map, whether it rests on enough reads, what to say of it, and whether it is a corrected one."""

    share: float
    enough: bool
    words: str
    is_corrected: bool = False


class Row(NamedTuple):
    """A row of a dot plot; rows of one group follow one another."""

    group: str
    name: str
    dots: Sequence[Dot]


class Line(NamedTuple):
    """A curve: its places along both axes."""

    xs: Sequence[float]
    ys: Sequence[float]


class Mark(NamedTuple):
    """A dot on a plot of curves, of the ``thing``-th curve, with limits where it has some."""

    thing: int
    x: float
    y: float
    low: float | None = None
    high: float | None = None
    words: str = ""


class Axes(NamedTuple):
    """What a plot of curves says along its sides, and how far they go; None: as far as the curves do."""

    across: str
    up: str
    x: tuple[float, float] | None = None
    y: tuple[float, float] | None = None


def shorten(name: str) -> str:
    """Return a name no longer than there is place for."""
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 9]}…{name[-8:]}"


def dot(x: float, y: float, thing: int, *, full: bool = True, words: str = "") -> str:
    """Draw a dot in the shape and colour of the ``thing``-th thing; hollow where it is not ``full``."""
    look = f'fill="{colour(thing) if full else "#fff"}" stroke="{colour(thing)}" stroke-width="1.3"'
    title = f"<title>{escape(words)}</title>" if words else ""
    shape = thing // len(COLOURS) % _SHAPES
    if shape == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" {look}>{title}</circle>'
    corners = (
        ((-3, -3), (3, -3), (3, 3), (-3, 3)),
        ((0, -3.8), (3.6, 3), (-3.6, 3)),
        ((0, -4.2), (4.2, 0), (0, 4.2), (-4.2, 0)),
    )[shape - 1]
    return f'<polygon points="{points((x + right, y + down) for right, down in corners)}" {look}>{title}</polygon>'


def _dashes(thing: int) -> str:
    return _DASHES[thing // len(COLOURS) % len(_DASHES)] if thing >= len(COLOURS) else _DASHES[thing % len(_DASHES)]


def key(names: Sequence[str], *, dots: bool) -> str:
    """Return the key of dots or of curves, in their order."""
    drawn = []
    for thing, name in enumerate(names):
        mark = (
            dot(12, 6, thing)
            if dots
            else f'<line x1="0" x2="24" y1="6" y2="6" stroke="{colour(thing)}" stroke-width="2" '
            f'stroke-dasharray="{_dashes(thing) or "none"}"/>'
        )
        drawn.append(f'<span class="key"><svg viewBox="0 0 24 12" aria-hidden="true">{mark}</svg>{escape(name)}</span>')
    return "".join(drawn)


def dot_plots(title: str, rows: Sequence[Row], num_things: int, across: str) -> Iterator[str]:
    """Draw shares from 0 to 1 with their intervals, a row per name and a line in it per thing.

    Yields as many drawings as it takes for each to fit on a page.
    """
    height = max(20, 8 * num_things + 6)
    longest = max((len(shorten(row.name)) for row in rows), default=0)
    left = max(60.0, longest * _CHARACTER + 14)
    for page in _pages(rows, height):
        groups = len({row.group for row in page if row.group})
        frame = Frame(left + 300, 44 + 14 + len(page) * height + 18 * groups, left=left, right=14, top=14, bottom=44)
        yield svg(title, _dot_rows(page, frame, height, num_things, across), frame)


def _pages(rows: Sequence[Row], height: float) -> Iterator[list[Row]]:
    size = max(1, int(_TALLEST // height))
    for start in range(0, len(rows), size):
        yield list(rows[start : start + size])


def _dot_rows(rows: Sequence[Row], frame: Frame, height: float, num_things: int, across: str) -> Iterator[str]:
    x = frame.across(0.0, 1.0)
    yield from axis_across(x, across, frame)
    y, group = frame.top, ""
    for row in rows:
        if row.group != group:
            group = row.group
            y += 18
            yield text(4, y - 5, group, attributes=' font-weight="bold"')
            yield f'<line x1="4" x2="{frame.width - frame.right:g}" y1="{y - 1:.1f}" y2="{y - 1:.1f}" stroke="#bbb"/>'
        name = shorten(row.name)
        full = f"<title>{escape(row.name)}</title>" if name != row.name else ""
        middle = y + height / 2
        yield f'<text x="{frame.left - 6:.1f}" y="{middle + 4:.1f}" text-anchor="end">{escape(name)}{full}</text>'
        for one in row.dots:
            place = middle + (one.thing - (num_things - 1) / 2) * 8
            dashes = "" if one.enough else ' stroke-dasharray="2 2"'
            yield (
                f'<line x1="{x(one.low):.1f}" x2="{x(one.high):.1f}" y1="{place:.1f}" y2="{place:.1f}" '
                f'stroke="{colour(one.thing)}"{dashes}/>'
            )
            if one.faint is not None:
                raw = x(one.faint)
                yield (
                    f'<line x1="{raw:.1f}" x2="{raw:.1f}" y1="{place - 4:.1f}" y2="{place + 4:.1f}" '
                    f'stroke="{colour(one.thing)}" stroke-width="1.6" stroke-opacity="0.4"/>'
                )
            yield dot(x(one.value), place, one.thing, full=one.enough, words=one.words)
        y += height
        if num_things > 1:
            yield f'<line x1="{frame.left:g}" x2="{frame.width - frame.right:g}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'


def curves(
    title: str,
    drawn: Sequence[Line],
    axes: Axes,
    *,
    marks: Sequence[Mark] = (),
    upright: Sequence[tuple[float, str]] = (),
    diagonal: bool = False,
) -> str:
    """Draw curves over one pair of axes.

    :param upright: vertical lines with their words, for example a threshold.
    :param diagonal: draw y = x, what chance or perfection gives.
    """
    x, y = _spanned([line.xs for line in drawn], axes.x), _spanned([line.ys for line in drawn], axes.y)
    across, up = _FRAME.across(*x), _FRAME.upwards(*y)
    parts = [*axis(up, axes.up, _FRAME), *axis_across(across, axes.across, _FRAME)]
    if diagonal:
        ends = [(across(end), up(end)) for end in (0.0, 1.0)]
        parts.append(f'<polyline points="{points(ends)}" fill="none" stroke="#999" stroke-dasharray="3 3"/>')
    for place, words in upright:
        left = across(place)
        parts.append(
            f'<line x1="{left:.1f}" x2="{left:.1f}" y1="{_FRAME.top:g}" y2="{_FRAME.floor:g}" stroke="#333" '
            'stroke-dasharray="5 3"/>'
        )
        parts.append(text(left - 4, _FRAME.top + 10, words, "end"))
    for thing, line in enumerate(drawn):
        parts += lines(
            [across(value) for value in line.xs], np.array(line.ys, float), up, colour(thing), _dashes(thing)
        )
    for mark in marks:
        parts += _mark(mark, across, up)
    return svg(title, parts, _FRAME)


def _mark(mark: Mark, across: Scale, up: Scale) -> Iterable[str]:
    left = across(mark.x)
    if mark.low is not None and mark.high is not None:
        yield (
            f'<line x1="{left:.1f}" x2="{left:.1f}" y1="{up(mark.low):.1f}" y2="{up(mark.high):.1f}" '
            f'stroke="{colour(mark.thing)}"/>'
        )
    yield dot(left, up(mark.y), mark.thing, words=mark.words)


def _spanned(values: Sequence[Sequence[float]], given: tuple[float, float] | None) -> tuple[float, float]:
    if given is not None:
        return given
    known = [value for line in values for value in line if np.isfinite(value)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    return (low, high) if high - low > 1e-9 else (low - 0.5, high + 0.5)


def steps(edges: Sequence[float], heights: Sequence[float]) -> Line:
    """Return a histogram's outline: one height more than there are edges in between."""
    xs = [edge for edge in edges for _ in range(2)]
    return Line(xs, [0.0, *(height for height in heights for _ in range(2)), 0.0])


def share_bars(title: str, names: Sequence[str], parts: Sequence[Sequence[float]]) -> str:
    """Draw a bar per name, divided by shares of 1; the last part of each is grey.

    :param parts: of every name, as many shares as there are parts.
    """
    left = max(60.0, max((len(shorten(name)) for name in names), default=0) * _CHARACTER + 14)
    frame = Frame(left + 300, 54 + 24 * len(names), left=left, right=14, top=10, bottom=44)
    x = frame.across(0.0, 100.0)
    drawn = [*axis_across(x, "% of records", frame)]
    for row, (name, shares) in enumerate(zip(names, parts, strict=True)):
        top = frame.top + 24 * row + 3
        drawn.append(text(left - 6, top + 13, shorten(name), "end"))
        start = 0.0
        for place, share in enumerate(shares):
            fill = bar_colour(place, len(shares))
            width = x(100 * share) - x(0)
            if width > 0:
                drawn.append(
                    f'<rect x="{x(100 * start):.1f}" y="{top:g}" width="{width:.1f}" height="18" fill="{fill}" stroke="#fff" '
                    f'stroke-width="0.8"><title>{100 * share:.1f} %</title></rect>'
                )
            start += share
    return svg(title, drawn, frame)


def bar_colour(place: int, num_parts: int) -> str:
    """Return the colour of a part of a bar."""
    return _REST if place == num_parts - 1 and num_parts > 1 else colour(place)


def bar_key(names: Sequence[str]) -> str:
    """Return the key of the parts of bars."""
    return "".join(
        f'<span class="key"><span style="background: {bar_colour(place, len(names))}"></span>{escape(name)}</span>'
        for place, name in enumerate(names)
    )


def heat_style() -> str:
    """Return the rules of a heat map's cells."""
    rules = [
        ".heat td { text-align: center; padding: .1em .3em; border: 1px solid #fff; min-width: 2.2em; "
        "font-variant-numeric: tabular-nums; print-color-adjust: exact; -webkit-print-color-adjust: exact }",
        ".heat th { border: 0; font-weight: normal; white-space: nowrap } .heat th.group { font-weight: bold; "
        "border-bottom: 1px solid #bbb } .heat thead th { vertical-align: bottom }",
        ".heat thead th span { writing-mode: vertical-rl; transform: rotate(180deg); max-height: 12em; overflow: hidden }",
        ".heat td.few { font-style: italic; opacity: .75 } .heat td.none { color: #777 }",
    ]
    for step in range(HEAT_STEPS + 1):
        red, green, blue = _heat(step / HEAT_STEPS)
        ink = "#fff" if step / HEAT_STEPS < 0.45 else "#000"
        rules.append(f".heat .h{step} {{ background: rgb({red},{green},{blue}); color: {ink} }}")
    return "\n".join(rules)


def _heat(share: float) -> tuple[int, int, int]:
    place = share * (len(_HEAT) - 1)
    first = min(int(place), len(_HEAT) - 2)
    rest = place - first
    red, green, blue = (
        round(low + (high - low) * rest) for low, high in zip(_HEAT[first], _HEAT[first + 1], strict=True)
    )
    return red, green, blue


def heat_map(columns: Sequence[str], rows: Sequence[tuple[str, str, Sequence[HeatCell | None]]]) -> str:
    """Return shares as a table of coloured cells with the percentage in each.

    A table is read without colours too, and moves sideways on a telephone.

    Where some cells are corrected, those that are not stand in brackets.

    :param rows: group, name, and the cell of every column; None for no read.
    """
    mixed = any(cell is not None and cell.is_corrected for _, _, cells in rows for cell in cells)
    head = "".join(f"<th><span>{escape(name)}</span></th>" for name in columns)
    body, group = [], ""
    for of_group, name, cells in rows:
        if of_group != group:
            group = of_group
            body.append(f'<tr><th class="group" colspan="{len(columns) + 1}">{escape(group)}</th></tr>')
        body.append(f"<tr><th>{escape(name)}</th>{''.join(_heat_cell(cell, mixed) for cell in cells)}</tr>")
    return (
        f'<div class="wide"><table class="heat"><thead><tr><th></th>{head}</tr></thead><tbody>\n'
        + "\n".join(body)
        + "</tbody></table></div>"
    )


def _heat_cell(cell: HeatCell | None, mixed: bool) -> str:
    if cell is None:
        return '<td class="none">–</td>'
    few, mark = ("", "") if cell.enough else (" few", "*")
    shown = f"{100 * cell.share:.0f}"
    if mixed and not cell.is_corrected:
        shown = f"({shown})"
    return f'<td class="h{round(cell.share * HEAT_STEPS)}{few}" title="{escape(cell.words)}">{shown}{mark}</td>'
