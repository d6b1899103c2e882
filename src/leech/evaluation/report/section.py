"""A part of the report, and how numbers are written in it.

Hides: the HTML around a part. Belongs here: what all parts share; what they show is in ``samples.py``, ``models.py`` and
``signal.py``. Invariants: a part has content, or one line that says which input would give it some; never neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from leech.evaluation.intervals import Interval
from leech.models.learnt import Overlap

_MOST_NAMED = 20
"""Names in a sentence; tables have all."""


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


def warning(words: str) -> str:
    """Return a sentence or more without which a part would be misunderstood."""
    return f'<p class="warning">{escape(words)}</p>'


def warn_of_learnt(overlaps: Mapping[str, Overlap], what: str) -> Iterator[str]:
    """Say which of several things rest on reads that the model learnt from.

    :param overlaps: by name.
    :param what: the things in words, such as "figures".
    """
    seen = {name: found for name, found in overlaps.items() if found.state == "yes"}
    if seen:
        told = [f"{name} ({found.num_found} of {found.num_compared} reads compared)" for name, found in seen.items()]
        yield warning(
            f"The model learnt from reads behind these {what}, or was chosen by them: {_some(told)}. It calls those better "
            "than it will call others, so they do not show how good it is."
        )


def about_learnt(overlaps: Mapping[str, Overlap], what: str) -> Iterator[str]:
    """Do what :func:`warn_of_learnt` does, and say of which things it is not known."""
    yield from warn_of_learnt(overlaps, what)
    unknown = [name for name, found in overlaps.items() if found.state == "unknown"]
    if unknown:
        yield paragraph(
            f"Whether the model learnt from reads behind these {what} is not known of {_some(unknown)}: the files do not tell, "
            "or the reads are of a sequencing run that it learnt from others of."
        )


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


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
