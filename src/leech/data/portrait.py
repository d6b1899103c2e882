"""One read of a corpus, drawn: ``leech data view``.

Hides: how a read is found among many, and which forms a drawing can be written in. Belongs here: one read at a time; many are
``inspect.py``'s business, and where things stand on the drawing ``page.py``'s. Invariants: a read with several chunks is drawn
whole, chunk by chunk; finding it reads its column of ids alone, in blocks.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leech.console import Table
from leech.data.config import ViewConfig
from leech.data.corpus import Corpus
from leech.data.drawing import colour, document, figure, numbers
from leech.data.examples import Example, examples_at
from leech.data.page import caption_of, draw_example
from leech.data.pixels import to_png
from leech.errors import ConfigError, InputError
from leech.provenance import Stamp, atomic_file

_BLOCK_ROWS = 2**18

_SINGLE = (".svg", ".png")
"""Forms that hold one drawing."""


@dataclass(frozen=True)
class Portrait:
    """A read that was drawn.

    :ivar chunks: of the read, in the order of the corpus.
    :ivar rates: sampling rate of each chunk's run, Hz; None where the corpus does not know it.
    """

    path: Path
    chunks: tuple[Example, ...]
    rates: tuple[float | None, ...]

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {"path": str(self.path), "chunks": [chunk.to_mapping() for chunk in self.chunks]}

    def tables(self) -> list[Table]:
        """Return the bases of every chunk."""
        return [_bases_table(chunk, rate) for chunk, rate in zip(self.chunks, self.rates, strict=True)]


def portray(path: Path, config: ViewConfig, output: Path, *, force: bool, stamp: Stamp) -> Portrait:
    """Draw the chunk, or chunks, of one read.

    :raises ConfigError: an output in a form that is not written, an id that is none, several chunks for one image, or a width
        for something else than a PNG.
    :raises InputError: the corpus does not hold the read, the output exists, or there is no font to write a PNG with.
    :raises MissingExtraError: a PNG without the package that makes them.
    """
    form = _form_of(output)
    if config.width is not None and form != ".png":
        raise ConfigError(
            f"--width gives a .png its pixels, and '{output}' has none.",
            hint="Leave it out: such a drawing has any size.",
        )
    corpus = Corpus.open(path)
    rows = rows_of_read(corpus, config.read_id)
    names = [corpus.categories["run"][code] for code in corpus.gather(rows, ["run"])["run"].tolist()]
    rates = tuple(corpus.manifest.runs.get(name) for name in names)
    result = Portrait(output, examples_at(corpus, rows), rates)
    content: str | bytes
    if form in _SINGLE:
        if len(rows) > 1:
            raise ConfigError(
                f"Read '{config.read_id}' has {len(rows)} chunks, and a {form} holds one drawing.",
                hint="Write .html, which holds all of them.",
            )
        content = draw_example(result.chunks[0], colour(0), alone=True) + "\n"
        if form == ".png":
            content = to_png(content, config.width)
    else:
        footer = f"{' '.join(stamp.command)} · leech {stamp.versions.get('leech', '')} · {stamp.time_utc}"
        title = f"Read {result.chunks[0].read_id}"
        content = document(title, [f"<h1>{escape(title)}</h1>", *_figures(result)], footer)
    with atomic_file(output, force=force) as partial:
        partial.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return result


def _form_of(output: Path) -> str:
    form = output.suffix.lower()
    if form in (*_SINGLE, ".html", ".htm"):
        return form
    if form in (".jpg", ".jpeg", ".pdf"):
        raise ConfigError(
            f"Output '{output}' is of a form that leech does not write.",
            hint="Write .png, or .svg and convert it (for example with Inkscape or rsvg-convert), or print .html from a "
            "browser.",
        )
    raise ConfigError(f"Output '{output}' must end in .svg, .png or .html, the forms that are written.")


def rows_of_read(corpus: Corpus, read_id: str) -> NDArray[np.int64]:
    """Return the rows of a read's chunks, ascending; ids are compared without regard to case.

    :raises ConfigError: an id that is no UUID.
    :raises InputError: there are none.
    """
    try:
        wanted = np.frombuffer(uuid.UUID(read_id).bytes, dtype=np.uint8)
    except ValueError as error:
        raise ConfigError(
            f"'{read_id}' is no read id: those are UUIDs, such as 0e9c3b9e-5c0a-4f0e-9d6a-3a4c1c0f5b1d."
        ) from error
    found = []
    for start in range(0, len(corpus), _BLOCK_ROWS):
        rows = np.arange(start, min(start + _BLOCK_ROWS, len(corpus)), dtype=np.int64)
        found.append(rows[(corpus.gather(rows, ["read_id"])["read_id"] == wanted).all(axis=1)])
    rows = np.concatenate([np.zeros(0, dtype=np.int64), *found])
    if not len(rows):
        raise InputError(
            f"Corpus '{corpus.path}' has no chunk of read '{read_id}'.",
            hint="The read may have been dropped for a reason that 'leech data inspect' counts; a split read's chunk stands "
            "under the id of the BAM record, not of its parent.",
        )
    return rows


def _figures(result: Portrait) -> Iterator[str]:
    for chunk, table in zip(result.chunks, result.tables(), strict=True):
        yield figure(draw_example(chunk, colour(0)), caption_of(chunk), wide=True)
        yield numbers(table, f"bases-{chunk.read_id}.tsv")
        yield numbers(example_table(chunk), f"read-{chunk.read_id}.tsv")


def example_table(example: Example) -> Table:
    """Return a row per sample of a chunk, with the base that it belongs to."""
    bases = {sample: base for base in example.bases for sample in range(base.start, base.end)}
    rows = []
    for sample, value in enumerate(example.signal.tolist()):
        base = bases.get(sample)
        rows.append((str(sample), _cell(value), "" if base is None else str(base.offset), base.letter if base else ""))
    return Table(
        title=f"signal of read {example.read_id}", columns=("sample", "signal", "offset", "base"), rows=tuple(rows)
    )


def _bases_table(example: Example, rate: float | None) -> Table:
    rows: Sequence[tuple[str, ...]] = tuple(
        (
            str(base.offset),
            base.letter,
            str(base.start),
            str(base.end),
            str(base.end - base.start),
            "" if rate is None else f"{1000 * (base.end - base.start) / rate:.2f}",
            _cell(_mean(example.signal[max(base.start, 0) : base.end])),
        )
        for base in example.bases
    )
    columns = ("offset", "base", "start", "end", "dwell in samples", "dwell in ms", "mean signal in the window")
    return Table(title=f"bases of {caption_of(example)}", columns=columns, rows=rows)


def _mean(values: NDArray[np.float64]) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _cell(value: float) -> str:
    return f"{value:.4f}" if np.isfinite(value) else ""
