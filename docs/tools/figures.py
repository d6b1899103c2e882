"""The figures of ``docs/concepts.md``, as SVG files made from numbers.

Hides: coordinates and colours. Belongs here: what the figures show; the sentences around them stand on the page.
Invariants: equal code gives equal bytes, and a test compares them with the files; every figure has a ground of its own and
follows the reader's light or dark setting, so that it is readable on either; colours are never the only difference.
``python docs/tools/figures.py docs/figures`` writes them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

_STYLE = """<style>
.ground{fill:#fbfbf9}.ink{fill:#1f2426}.soft{fill:#5b6468}.line{stroke:#5b6468;fill:none}.trace{stroke:#00695c;fill:none}
.one{fill:#00796b}.zero{fill:#d9dedd}.focus{fill:#c2410c}.focusline{stroke:#c2410c;fill:none}.pad{fill:#e4e0d4}
.a{fill:#b9ddd7}.b{fill:#f2d3bf}.onone{fill:#ffffff}
@media (prefers-color-scheme:dark){.ground{fill:#1c2124}.ink{fill:#eceff0}.soft{fill:#a5afb3}.line{stroke:#a5afb3}
.trace{stroke:#4db6ac}.one{fill:#4db6ac}.zero{fill:#3a4347}.focus{fill:#fb923c}.focusline{stroke:#fb923c}.pad{fill:#3b382f}
.a{fill:#1f4d47}.b{fill:#5a3620}.onone{fill:#101416}}
text{font-family:system-ui,sans-serif;font-size:14px}.small{font-size:12px}.mono{font-family:ui-monospace,monospace}
.mid{text-anchor:middle}.end{text-anchor:end}
</style>"""

SEQUENCE = "ACCAGGCT"
"""The bases of the example read, 5'->3'."""

MOVES = (1, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0, 1, 1, 0)
"""The example's move table in signal time, one number per block of the stride: as many ones as bases."""

LEVELS = {"A": 0.25, "C": 0.8, "G": 0.5, "T": 0.05}
"""Height of the example's current by base, for the eye alone."""


class Drawing:
    """SVG elements on a ground of their own."""

    def __init__(self, width: int, height: int, title: str, description: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'aria-labelledby="title about">',
            f'<title id="title">{title}</title><desc id="about">{description}</desc>',
            _STYLE,
        ]
        self.box(0, 0, width, height, "ground", radius=8)

    def box(self, x: float, y: float, width: float, height: float, kind: str, radius: float = 2) -> None:
        """Draw a filled rectangle."""
        self.parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"/>'
        )

    def text(self, x: float, y: float, words: str, kind: str = "ink") -> None:
        """Write words whose baseline begins at (x, y)."""
        words = words.replace("&", "&amp;").replace("<", "&lt;")
        self.parts.append(f'<text class="{kind}" x="{x:g}" y="{y:g}">{words}</text>')

    def path(self, points: Sequence[tuple[float, float]], kind: str, width: float = 1.5, dashes: str = "") -> None:
        """Draw a line through points."""
        steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.parts.append(f'<path class="{kind}" stroke-width="{width:g}"{dashed} d="M{steps}"/>')

    def arrow(self, start: tuple[float, float], end: tuple[float, float], kind: str = "line") -> None:
        """Draw a line with a head at its end."""
        turn = math.atan2(end[1] - start[1], end[0] - start[0])
        self.path([start, end], kind)
        sides = [(end[0] - 9 * math.cos(turn + a), end[1] - 9 * math.sin(turn + a)) for a in (0.4, -0.4)]
        self.path([sides[0], end, sides[1]], kind)

    def svg(self) -> str:
        """Return the file."""
        return "\n".join([*self.parts, "</svg>"]) + "\n"


def blocks_by_base() -> list[int]:
    """Return how many blocks each base of the example lasts, in signal time (the last base of SEQ comes first)."""
    starts = [number for number, move in enumerate(MOVES) if move]
    return [end - start for start, end in zip(starts, [*starts[1:], len(MOVES)], strict=True)]


def _current(base: str, step: float, number: int) -> float:
    """Return a height between 0 and 1 for one sample of a base: its level, and a wobble that is always the same."""
    return LEVELS[base] + 0.07 * math.sin(2.9 * number + 7 * step)


def _trace(
    lengths: Sequence[int], bases: str, x: float, y: float, block: float, height: float
) -> list[tuple[float, float]]:
    points: list[tuple[float, float]] = []
    at = 0
    for base, length in zip(bases, lengths, strict=True):
        for sample in range(6 * length):
            points.append((x + block * (at + sample / 6), y + height * (1 - _current(base, sample / 6, len(points)))))
        at += length
    return points


def moves() -> str:
    """Draw how a move table lays the bases of SEQ on the signal."""
    drawing = Drawing(
        760,
        330,
        "A move table",
        "Raw current from the 3' end to the 5' end; below it one number per block of samples, 1 where a base begins; "
        "below that the bases of SEQ in reverse order.",
    )
    left, block = 130, 42
    lengths, bases = blocks_by_base(), SEQUENCE[::-1]
    drawing.text(20, 30, "Raw signal, in the order of time")
    drawing.path(_trace(lengths, bases, left, 50, block, 90), "trace")
    drawing.text(20, 100, "current", "soft")
    drawing.text(20, 183, "mv: 6 (stride),", "soft small")
    for number, move in enumerate(MOVES):
        drawing.box(left + block * number + 1, 165, block - 2, 26, "one" if move else "zero")
        drawing.text(left + block * (number + 0.5), 183, str(move), f"{'onone' if move else 'ink'} mid mono")
    at, focus = 0, len(SEQUENCE) - 1 - 3
    drawing.text(20, 228, "base of SEQ", "soft small")
    for number, (base, length) in enumerate(zip(bases, lengths, strict=True)):
        kind = "focus" if number == focus else "a" if number % 2 else "zero"
        drawing.box(left + block * at + 1, 210, block * length - 2, 28, kind)
        ink = "onone" if number == focus else "ink"
        drawing.text(left + block * (at + length / 2), 229, base, f"{ink} mid mono")
        drawing.text(left + block * (at + length / 2), 255, str(len(SEQUENCE) - 1 - number), "soft mid mono small")
        at += length
    drawing.text(20, 255, "place in SEQ", "soft small")
    drawing.text(left, 285, "3' end: the adapter side, read first", "soft small")
    drawing.text(left + block * len(MOVES), 285, "5' end: read last", "soft small end")
    drawing.arrow((left, 300), (left + block * len(MOVES), 300))
    drawing.text(left + block * len(MOVES) / 2, 319, "time", "soft mid small")
    return drawing.svg()


def frames() -> str:
    """Draw the two directions, and where ts, ns and the window lie."""
    drawing = Drawing(
        760,
        330,
        "Signal frames",
        "Raw signal runs from the 3' end to the 5' end. What lies between ts and ns is reversed, and then runs from 5' to 3' "
        "like SEQ and the reference; the window is cut around the focus base in that direction.",
    )
    left, width, first, last = 40, 680, 130, 640
    drawing.text(left, 30, "Raw signal in the POD5, in the order of time (3' to 5')")
    drawing.box(left, 45, width, 40, "pad")
    drawing.box(first, 45, last - first, 40, "a")
    drawing.text((left + first) / 2, 70, "trimmed", "soft mid small")
    drawing.text((last + left + width) / 2, 70, "not used", "soft mid small")
    drawing.text((first + last) / 2, 70, "sequence and moves belong to these samples", "ink mid small")
    for x, name in ((first, "ts"), (last, "ns (an end, not a length)")):
        drawing.path([(x, 40), (x, 100)], "line", 1.5, "4 3")
        drawing.text(x, 117, name, "soft mid mono small")
    drawing.box(210, 45, 26, 40, "focus")
    drawing.text(223, 117, "site", "ink mid small")
    drawing.arrow((first + 60, 128), (last - 60, 180))
    drawing.arrow((last - 60, 128), (first + 60, 180))
    drawing.text(left, 158, "reversed", "soft small")
    drawing.text(left, 205, "What leech works on (5' to 3', like SEQ)")
    drawing.box(first, 215, last - first, 40, "a")
    focus = first + last - 236
    drawing.box(focus, 215, 26, 40, "focus")
    drawing.path([(focus, 210), (focus, 300)], "focusline", 2)
    for start, end, words in ((focus - 75, focus, "samples_before"), (focus, focus + 75, "samples_after")):
        drawing.path([(start, 272), (end, 272)], "line", 2)
        before = start < focus
        drawing.text(focus - 8 if before else focus + 8, 291, words, f"soft mono small{' end' if before else ''}")
    drawing.path([(focus - 75, 262), (focus - 75, 280)], "line")
    drawing.path([(focus + 75, 262), (focus + 75, 280)], "line")
    drawing.text(focus, 316, "focus position", "ink mid small")
    drawing.text(first + 8, 240, "5'", "ink small")
    drawing.text(last - 20, 240, "3'", "ink small")
    return drawing.svg()


def chunk() -> str:
    """Draw what a chunk holds."""
    drawing = Drawing(
        760,
        360,
        "A chunk",
        "A window of signal around the focus position with padding where it overhangs the read, the bases below it with their "
        "dwell, and one measurement per base and channel.",
    )
    left, block, lengths = 150, 38, blocks_by_base()[::-1]
    focus = sum(lengths[:3])
    drawing.text(20, 30, "One chunk: window samples, 5' to 3'")
    drawing.path(_trace(lengths, SEQUENCE, left, 50, block, 80), "trace")
    end = left + block * sum(lengths)
    drawing.box(end, 45, 40, 90, "pad")
    drawing.text(end + 20, 94, "pad", "soft mid small")
    drawing.text(20, 95, "signal", "soft")
    at = 0
    for number, (base, length) in enumerate(zip(SEQUENCE, lengths, strict=True)):
        x, wide = left + block * at, block * length
        kind = "focus" if number == 3 else "a" if number % 2 else "zero"
        drawing.box(x + 1, 155, wide - 2, 28, kind)
        drawing.text(x + wide / 2, 174, base, f"{'onone' if number == 3 else 'ink'} mid mono")
        drawing.text(x + wide / 2, 203, f"{number - 3:+d}" if number != 3 else "0", "soft mid mono small")
        for row, channel in enumerate(("dwell", "level")):
            share = length / 3 if channel == "dwell" else LEVELS[base] + 0.15
            drawing.box(x + wide / 2 - 8, 268 + 60 * row - 40 * share, 16, 40 * share, "one")
        at += length
    drawing.text(20, 174, "sequence", "soft")
    drawing.text(20, 203, "base offset", "soft small")
    drawing.text(20, 262, "dwell, samples", "soft small")
    drawing.text(20, 322, "level, per base", "soft small")
    for y in (268, 328):
        drawing.path([(left, y), (end, y)], "line", 1)
    drawing.path([(left + block * focus, 40), (left + block * focus, 345)], "focusline", 2)
    drawing.text(left + block * focus + 8, 347, "focus position", "ink small")
    return drawing.svg()


def leakage() -> str:
    """Draw what a split has to keep apart, and what the check looks at."""
    drawing = Drawing(
        760,
        330,
        "Leakage",
        "Above, children of one parent read must lie in one split. Below, a probe reads the label from a control window away "
        "from the site, where it must fail, and from the site, where it may succeed.",
    )
    drawing.text(20, 30, "Splits go by parent read")
    for column, name in enumerate(("train", "validation", "test")):
        x = 40 + 235 * column
        drawing.box(x, 45, 210, 84, "zero", 6)
        drawing.text(x + 105, 147, name, "soft mid")
        for row, parent in enumerate((2 * column + 1, 2 * column + 2)):
            children = 2 if parent == 3 else 1
            for child in range(children):
                wide = 186 / children - 4 * (children - 1)
                drawing.box(x + 12 + child * (wide + 8), 53 + 36 * row, wide, 30, "a" if parent % 2 else "b")
                words = f"read {parent}" if children == 1 else f"3, child {child + 1}"
                drawing.text(x + 12 + child * (wide + 8) + wide / 2, 73 + 36 * row, words, "ink mid small")
    drawing.text(20, 190, "What may tell the label, and what must not")
    drawing.box(40, 240, 680, 30, "zero", 6)
    drawing.text(30, 260, "5'", "soft end small")
    drawing.text(745, 260, "3'", "soft end small")
    drawing.box(150, 240, 150, 30, "b")
    drawing.text(225, 229, "control window", "ink mid small")
    drawing.text(225, 290, "AUROC near 0.5, or the", "soft mid small")
    drawing.text(225, 306, "library gives itself away", "soft mid small")
    drawing.box(440, 240, 150, 30, "a")
    drawing.box(508, 236, 14, 38, "focus")
    drawing.text(515, 224, "site", "ink mid small")
    drawing.text(515, 290, "AUROC as high as", "soft mid small")
    drawing.text(515, 306, "the state allows", "soft mid small")
    drawing.path([(300, 255), (440, 255)], "line", 1.5, "4 3")
    drawing.text(370, 229, "20 bases or more", "ink mid small")
    return drawing.svg()


FIGURES = {"moves.svg": moves, "frames.svg": frames, "chunk.svg": chunk, "leakage.svg": leakage}

if __name__ == "__main__":
    for name, draw in FIGURES.items():
        (Path(sys.argv[1]) / name).write_text(draw(), encoding="utf-8")
