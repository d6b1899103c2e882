"""A part of the report, and how numbers are written in it.

Hides: the HTML around a part. Belongs here: what all parts share; what they show is in ``samples.py``, ``models.py`` and
``signal.py``. Invariants: a part has content, or one line that says which input would give it some; never neither.
"""

from __future__ import annotations

import re
from html import escape
from typing import NamedTuple

from leech.evaluation.intervals import Interval


class Section(NamedTuple):
    """A part of the report.

    :ivar anchor: its name in links and in the names of its TSV files.
    :ivar body: HTML; empty where the input is missing.
    :ivar lacking: what would fill it.
    """

    anchor: str
    title: str
    body: tuple[str, ...]
    lacking: str

    def html(self) -> str:
        """Return the part as it stands on the page."""
        content = "\n".join(self.body) if self.body else f'<p class="lacking">{escape(self.lacking)}</p>'
        return f'<section id="{self.anchor}"><h2>{escape(self.title)}</h2>\n{content}</section>'


def paragraph(words: str) -> str:
    """Return a sentence or more."""
    return f"<p>{escape(words)}</p>"


def heading(words: str) -> str:
    """Return the heading of one of several things in a part."""
    return f"<h3>{escape(words)}</h3>"


def file_name(*words: str) -> str:
    """Return the name of a TSV that says what is in it, safe on any system."""
    return "-".join(re.sub(r"[^A-Za-z0-9._]+", "-", word).strip("-") for word in words) + ".tsv"


def number(value: float | None, digits: int = 4) -> str:
    """Return a figure with this many decimals; what is not known is an empty cell."""
    return "" if value is None else f"{value:.{digits}f}"


def count(value: int | None) -> str:
    """Return a number of things; what is not known is an empty cell."""
    return "" if value is None else str(value)


def limits(interval: Interval | None) -> tuple[str, str]:
    """Return both ends of an interval as cells."""
    return ("", "") if interval is None else (number(interval.low), number(interval.high))


def span(interval: Interval | None) -> str:
    """Return an interval in words."""
    return "" if interval is None else f"{interval.low:.3f} to {interval.high:.3f}"
