"""Figures and tables of pages that are read in a browser without network or scripts.

Hides: HTML and SVG. Belongs here: what every page draws with, from scales and axes to a table that can be taken away as TSV;
which figures a page has is the business of ``page.py`` (a corpus) and ``evaluation/charts.py`` (results). Figures are SVG
written into the page: a plotting library would be a heavy thing to install for a few kinds of lines, brings megabytes of
script into each page, and shows nothing where scripts are switched off. Invariants: everything that comes from data is
escaped; colours are told apart by people who do not see all of them, and never alone say what something is; the same
values give the same text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from leech.console import Table

Floats = NDArray[np.float64]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Told apart by people who do not see all colours (Okabe and Ito 2008)."""

LONG_TABLE = 25
"""Tables of more rows than this are folded."""

_LARGEST = 1.35
"""How many times its own size a drawing is shown at most."""

_SVG_STYLE = "text { font: 12px system-ui, sans-serif; fill: #333 }"

_STYLE = (
    """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; background: #fff; max-width: 60em; margin: 2em auto;
  padding: 0 1em; overflow-wrap: break-word }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin: 2em 0 .4em } h3 { font-size: 1em; margin: 1.5em 0 .3em }
table { border-collapse: collapse; font-size: .9em } th, td { padding: .15em .8em .15em 0; text-align: left }
th { border-bottom: 1px solid #888 } td.number { text-align: right; font-variant-numeric: tabular-nums }
td { overflow-wrap: anywhere } td.number { white-space: nowrap; overflow-wrap: normal }
.key { margin-right: 1.2em; display: inline-block }
.key span { display: inline-block; width: 1.4em; height: .7em; margin-right: .4em }
.key svg { width: 2em; height: 1em; vertical-align: middle; margin-right: .3em }
svg { width: 100%; height: auto } svg """
    + _SVG_STYLE
    + """
figure { margin: .5em 0 1.5em } figcaption, footer { color: #555; font-size: .9em }
.wide { overflow-x: auto } .wide > svg { min-width: 44em }
summary { cursor: pointer; margin: .5em 0 }
@media print {
  body { max-width: none; margin: 0 } figure, tr { break-inside: avoid } h2, h3 { break-after: avoid }
  .wide { overflow: visible } .wide > svg { min-width: 0 }
}
"""
)


class Frame(NamedTuple):
    """The size of a drawing and of the margins around what it plots, in units of its text's pixels."""

    width: float
    height: float
    left: float = 48
    right: float = 10
    top: float = 12
    bottom: float = 40

    @property
    def floor(self) -> float:
        """Return where the plotted area ends at the bottom."""
        return self.height - self.bottom

    def across(self, low: float, high: float) -> Scale:
        """Return the scale along the plotted area."""
        return Scale(low, high, self.left, self.width - self.right)

    def upwards(self, low: float, high: float) -> Scale:
        """Return the scale from the bottom of the plotted area to its top."""
        return Scale(low, high, self.floor, self.top)


class Scale(NamedTuple):
    """A straight map from values to places on the drawing."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return where a value lies."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def colour(place: int) -> str:
    """Return the colour of the ``place``-th thing of a kind."""
    return COLOURS[place % len(COLOURS)]


def document(title: str, parts: Iterable[str], footer: str, style: str = "") -> str:
    """Return a page with everything in it.

    :param parts: HTML.
    :param style: further rules.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}{style}</style></head>\n<body>\n"
        + "\n".join(parts)
        + f"\n<footer><p>{escape(footer)}</p></footer>\n</body></html>\n"
    )


def figure(drawing: str, caption: str, key: str = "", *, wide: bool = False) -> str:
    """Return a drawing with its key above and its caption below.

    :param wide: too fine to shrink to the width of a telephone: it keeps its size there and is moved sideways.
    """
    held = f'<div class="wide">{drawing}</div>' if wide else drawing
    return f"<figure>{key}{held}<figcaption>{escape(caption)}</figcaption></figure>"


def colour_key(names: Sequence[str]) -> str:
    """Return the key of things told apart by colour, in their order."""
    return "".join(
        f'<span class="key"><span style="background: {colour(place)}"></span>{escape(name)}</span>'
        for place, name in enumerate(names)
    )


def table_html(table: Table) -> str:
    """Return a table under its title, folded where it is long."""
    drawn = bare_table(table)
    if len(table.rows) > LONG_TABLE:
        drawn = f"<details><summary>{len(table.rows)} rows</summary>{drawn}</details>"
    return f"<h2>{escape(table.title)}</h2>{drawn}"


def bare_table(table: Table) -> str:
    """Return a table without its title."""
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    body = "\n".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in table.rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'


def numbers(table: Table, file_name: str) -> str:
    """Return the numbers behind a figure, folded: as a table, and to be taken away as a TSV of this name."""
    return (
        f'<details class="numbers"><summary>Numbers: {escape(table.title)} ({len(table.rows)} rows)</summary>'
        f"<p>{tsv_link(table, file_name)}</p>{bare_table(table)}</details>"
    )


def tsv_link(table: Table, file_name: str) -> str:
    """Return a link that holds the table as TSV, so that it needs no network."""
    lines = ("\t".join(" ".join(cell.split()) for cell in row) for row in (table.columns, *table.rows))
    content = quote("\n".join(lines) + "\n", safe="/:,;=()+*'!~@")
    link = escape(f"data:text/tab-separated-values;charset=utf-8,{content}")
    return f'<a download="{escape(file_name)}" href="{link}">{escape(file_name)}</a>'


def _cell(text: str) -> str:
    numeric = text[:1] in set("-0123456789") and text.rstrip("%").replace(".", "", 1).lstrip("-").isdigit()
    return f'<td class="number">{escape(text)}</td>' if numeric else f"<td>{escape(text)}</td>"


def svg(title: str, drawn: Iterable[str], frame: Frame, *, alone: bool = False) -> str:
    """Return a drawing.

    :param alone: as a file of its own, instead of as a part of a page.
    """
    # Words of all drawings on a page are to be of one size where there is room.
    head = (
        f'<svg viewBox="0 0 {frame.width:g} {frame.height:g}" role="img" '
        f'style="max-width: {frame.width * _LARGEST:.0f}px">'
    )
    if alone:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{frame.width:g}" height="{frame.height:g}" '
            f'viewBox="0 0 {frame.width:g} {frame.height:g}" role="img"><style>{_SVG_STYLE}</style>'
            '<rect width="100%" height="100%" fill="#fff"/>'
        )
    return f"{head}<title>{escape(title)}</title>\n" + "\n".join(drawn) + "\n</svg>"


def text(x: float, y: float, words: str, anchor: str = "start", attributes: str = "") -> str:
    """Return words at a place; ``anchor`` says which of their ends stands there."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{attributes}>{escape(words)}</text>'


def vertical(curves: Sequence[Floats], frame: Frame) -> Scale:
    """Return the scale that all values of the curves fit on."""
    known = np.concatenate([curve[np.isfinite(curve)] for curve in curves])
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    if high - low < 1e-6:
        low, high = low - 0.5, high + 0.5
    return frame.upwards(low, high)


def ticks(low: float, high: float, fewest: int = 2) -> list[float]:
    """Return round numbers between two values, at least about ``fewest`` and fewer than three times as many."""
    aim = (high - low) / fewest
    step = 10 ** np.floor(np.log10(aim))
    # A span such as 0.7 - 0.5 may fall a hair short of its own step.
    step = float(next(step * factor for factor in (5, 2, 1) if step * factor <= aim * (1 + 1e-9)))
    return [number * step for number in range(int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9)) + 1)]


def axis(y: Scale, name: str, frame: Frame) -> Iterable[str]:
    """Draw the vertical axis, with a line across for each of its numbers."""
    for number in ticks(y.low, y.high):
        place = y(number)
        yield (
            f'<line x1="{frame.left:g}" x2="{frame.width - frame.right:g}" y1="{place:.1f}" y2="{place:.1f}" '
            'stroke="#eee"/>'
        )
        yield text(frame.left - 6, place + 4, f"{number:g}", "end")
    middle = (y.start + y.end) / 2
    yield f'<text x="12" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 12 {middle:.0f})">{escape(name)}</text>'


def axis_across(x: Scale, name: str, frame: Frame) -> Iterable[str]:
    """Draw the horizontal axis."""
    for number in ticks(x.low, x.high, 3):
        place = x(number)
        yield f'<line x1="{place:.1f}" x2="{place:.1f}" y1="{frame.top:g}" y2="{frame.floor:.1f}" stroke="#eee"/>'
        yield text(place, frame.floor + 15, f"{number:g}", "middle")
    yield text((x.start + x.end) / 2, frame.floor + 32, name, "middle")


def shade(start: float, end: float, frame: Frame) -> str:
    """Mark a stretch of the plotted area, for example the focus base."""
    return (
        f'<rect x="{start:.1f}" y="{frame.top:g}" width="{max(end - start, 1):.1f}" '
        f'height="{frame.floor - frame.top:g}" fill="#f3ecd2"/>'
    )


def lines(places: Sequence[float], values: Floats, y: Scale, stroke: str, dashes: str = "") -> list[str]:
    """Draw a curve, broken where a value is no number."""
    pattern = f' stroke-dasharray="{dashes}"' if dashes else ""
    return [
        f'<polyline points="{points([(places[i], y(values[i])) for i in run])}" fill="none" stroke="{stroke}" '
        f'stroke-width="1.5"{pattern}/>'
        for run in runs(values)
    ]


def runs(values: Floats) -> list[list[int]]:
    """Return the places of the values that are numbers, one list per stretch."""
    known = np.flatnonzero(np.isfinite(values))
    return [run.tolist() for run in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1) if len(run)]


def points(pairs: Iterable[tuple[float, float]]) -> str:
    """Return pairs of places as SVG has them."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in pairs)
