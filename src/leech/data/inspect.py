"""Looking into a corpus: ``leech data inspect``.

Hides: how rows are counted without holding them. Belongs here: counts over all rows of a corpus as it is on disk, and what
is shown of it as tables, JSON or a page; chunks one by one are ``squiggle.py``'s, the drawing ``page.py``'s. Invariants: of
all rows small columns only are read, in blocks, so that memory does not grow with the corpus.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from leech.config import to_mapping
from leech.console import Table
from leech.data.accounts import NO_LABEL, ladder_table, refinement_table
from leech.data.config import InspectConfig
from leech.data.corpus import SPLITS, UNUSED_CODE, Corpus, column_layout
from leech.data.page import render_page
from leech.data.reasons import REASONS, Counts
from leech.data.squiggle import Spread, View, view
from leech.provenance import Stamp, atomic_file, distinct_names

UNLABELLED = ""
"""Label of a chunk that has none: null in JSON, and ``NO_LABEL`` in tables."""

UNUSED = "unused"
"""Shown as the split of chunks that a merge left out."""

_JUNCTION_STATES = ("no indel", "indel", "not covered")

_BLOCK_ROWS = 2**18


@dataclass(frozen=True)
class Inspection:
    """What a corpus holds.

    :ivar groups: chunks by (label, reference, flow cell, split); split is empty in a corpus that is not split.
    :ivar junction: chunks by (label, state of the motif in the alignment).
    :ivar bytes_per_chunk: size of the column files by chunk; of a merged corpus, with its sources.
    :ivar view: chunks looked at one by one.
    """

    corpus: Corpus
    groups: dict[tuple[str, str, str, str], int]
    junction: dict[tuple[str, str], int]
    bytes_per_chunk: float
    view: View

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        manifest = self.corpus.manifest
        return {
            "path": str(self.corpus.path),
            "kind": manifest.kind,
            "schema_version": manifest.schema_version,
            "digest": manifest.digest,
            "num_chunks": manifest.num_chunks,
            "bytes_per_chunk": round(self.bytes_per_chunk, 1),
            "labels": self.corpus.labels,
            "positive_label": manifest.positive_label,
            "recipe": to_mapping(self.corpus.recipe),
            "recipe_digest": manifest.recipe_digest,
            "counts": manifest.counts,
            "runs": manifest.runs,
            "settings": manifest.settings,
            "sources": [vars(source) for source in manifest.sources],
            "chunks": [
                {
                    "label": label or None,
                    "reference": reference,
                    "flow_cell": flow_cell,
                    "split": split or None,
                    "chunks": number,
                }
                for (label, reference, flow_cell, split), number in self.groups.items()
            ],
            "records": [
                {
                    "source": str(part.path),
                    "labels": part.labels,
                    "counts": part.manifest.counts,
                    **_refinement_of(part),
                }
                for part in self.corpus.parts or [self.corpus]
            ],
            "view": self.view.to_mapping(),
            "junction": [
                {"label": label or None, "state": state, "chunks": number}
                for (label, state), number in self.junction.items()
            ],
        }

    def tables(self) -> list[Table]:
        """Return overview, counts, geometry, medians by label and the ladder of counts."""
        manifest, recipe = self.corpus.manifest, self.corpus.recipe
        overview = (
            ("path", str(self.corpus.path)),
            ("kind", manifest.kind),
            ("chunks", str(manifest.num_chunks)),
            ("bytes per chunk", f"{self.bytes_per_chunk:.0f}"),
            ("labels", ", ".join(self.corpus.labels)),
            ("positive label", manifest.positive_label or ""),
            ("site", recipe.site_words),
            (
                "signal window",
                f"{recipe.samples_before} + {recipe.samples_after} samples, {recipe.base_justify} of focus",
            ),
            ("base window", f"-{recipe.bases_before} .. {recipe.bases_after}"),
            ("level features", f"{recipe.feature_start} .. {recipe.feature_end}"),
            ("k-mer table", (recipe.kmer_table_sha256 or "")[:16]),
            ("digest", manifest.digest),
        )
        junction = [(label or NO_LABEL, state, str(number)) for (label, state), number in self.junction.items()]
        return [
            Table(title="Corpus", columns=("what", "value"), rows=overview),
            self._groups_table("Chunks", ("label",), (0,)),
            self._groups_table("Chunks by flow cell", ("label", "flow cell"), (0, 2)),
            self._groups_table("Chunks by reference", ("label", "reference", "flow cell"), (0, 1, 2)),
            *_view_tables(self.view),
            Table(
                title=f"{recipe.junction_words} in the alignment",
                columns=("label", "state", "chunks"),
                rows=tuple(junction),
            ),
            ladder_table(Counts.from_ladder(manifest.counts)),
            *([_yield_table(self.corpus)] if len(self.corpus.parts) > 1 else []),
            *_refinement_tables(self.corpus),
        ]

    def _groups_table(self, title: str, columns: tuple[str, ...], kept: tuple[int, ...]) -> Table:
        """Return the chunks by some of the names, a column per split that occurs."""
        numbers: Counter[tuple[tuple[str, ...], str]] = Counter()
        for names, number in self.groups.items():
            numbers[tuple(names[place] for place in kept), names[3]] += number
        splits = sorted({split for _, split in numbers}, key=[*SPLITS, UNUSED, ""].index)
        rows = [
            (names[0] or NO_LABEL, *names[1:], *(str(numbers[names, split]) for split in splits))
            for names in sorted({names for names, _ in numbers})
        ]
        return Table(title=title, columns=(*columns, *(split or "chunks" for split in splits)), rows=tuple(rows))


def _view_tables(seen: View) -> list[Table]:
    if not seen.labels:
        return []
    shares, spreads = list(seen.labels[0].shares), list(seen.labels[0].spreads)
    rows = [
        (
            one.label or NO_LABEL,
            str(one.num_chunks),
            *(f"{one.shares[name]:.1%}" for name in shares),
            *(_spread(one.spreads[name]) for name in spreads),
        )
        for one in seen.labels
    ]
    columns = ("label", "looked at", *(name.replace("_", " ") for name in (*shares, *spreads)))
    medians = tuple(
        (
            str(offset),
            letter,
            *(_number(one.level[place], 2) for one in seen.labels),
            *(_number(one.dwell[place], 1) for one in seen.labels),
            *(str(one.base_reads[place]) for one in seen.labels),
        )
        for place, (offset, letter) in enumerate(zip(seen.offsets, seen.letters, strict=True))
    )
    names = [one.label or NO_LABEL for one in seen.labels]
    over = f"{seen.num_references} shared references" if seen.num_references else "each label's own references"
    return [
        Table(title="Windows (spreads: median, 5 % to 95 %)", columns=columns, rows=tuple(rows)),
        Table(
            title=f"Level (median) and dwell in samples (geometric mean) around the focus, over {over}",
            columns=("offset", "base", *(f"{what} {name}" for what in ("level", "dwell", "reads") for name in names)),
            rows=medians,
        ),
    ]


def _spread(spread: Spread) -> str:
    if spread.low is None or spread.median is None or spread.high is None:
        return ""
    return f"{spread.median:.3g} ({spread.low:.3g} to {spread.high:.3g})"


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if np.isfinite(value) else ""


def _refinement_of(part: Corpus) -> dict[str, Any]:
    told = part.manifest.settings.get("refinement")
    return {} if told is None else {"refinement": told}


def _refinement_tables(corpus: Corpus) -> list[Table]:
    """Return what became of the boundaries of every source's reads; none where none was refined."""
    parts = list(corpus.parts or [corpus])
    names = distinct_names([part.path for part in parts])
    told = {
        f"{name} ({', '.join(part.labels)})": found["refinement"]
        for name, part in zip(names, parts, strict=True)
        if (found := _refinement_of(part))
    }
    return [refinement_table(told)] if told else []


def _yield_table(corpus: Corpus) -> Table:
    """Return the records of every source by outcome."""
    ladders = [part.manifest.counts for part in corpus.parts]
    names = [f"{part.path.name} ({', '.join(part.labels)})" for part in corpus.parts]
    outcomes = [name for name in ("seen", *REASONS, "used") if any(ladder.get(name) for ladder in ladders)]
    rows = [
        (
            outcome,
            *(
                f"{ladder.get(outcome, 0)} ({ladder.get(outcome, 0) / max(ladder['seen'], 1):.1%})"
                for ladder in ladders
            ),
        )
        for outcome in outcomes
    ]
    return Table(title="Records of every source, by outcome", columns=("outcome", *names), rows=tuple(rows))


def inspect(path: Path, config: InspectConfig, *, force: bool, stamp: Stamp) -> Inspection:
    """Count what the corpus in folder ``path`` holds, look at some of its chunks, and write the page if one is asked for.

    :param force: replace a page that exists.
    :raises InputError: no complete corpus there, a damaged one, or a page that exists.
    """
    corpus = Corpus.open(path)
    # The small columns only: codes and the numbers that place windows, without which nothing below means anything.
    corpus.verify([name for name, (_, shape) in column_layout(corpus.recipe).items() if not shape] + ["split"])
    groups, junction = _count(corpus)
    seen = view(corpus, config.sample, config.examples, config.seed)
    result = Inspection(
        corpus=corpus,
        groups=groups,
        junction=junction,
        bytes_per_chunk=_column_bytes(corpus) / max(len(corpus), 1),
        view=seen,
    )
    if config.html is not None:
        footer = f"{' '.join(stamp.command)} · leech {stamp.versions.get('leech', '')} · {stamp.time_utc}"
        with atomic_file(config.html, force=force) as partial:
            page = render_page(f"Corpus {path.resolve().name}", result.tables(), seen, footer)
            partial.write_text(page, encoding="utf-8")
    return result


def _count(corpus: Corpus) -> tuple[dict[tuple[str, str, str, str], int], dict[tuple[str, str], int]]:
    """Count all rows by label, reference, flow cell and split, and by label and state of the motif."""
    names = ("label", "reference", "flow_cell", *(("split",) if corpus.is_split else ()), "junction_indel")
    numbers: Counter[tuple[int, ...]] = Counter()
    for start in range(0, len(corpus), _BLOCK_ROWS):
        rows = np.arange(start, min(start + _BLOCK_ROWS, len(corpus)), dtype=np.int64)
        columns = corpus.gather(rows, names)
        # One number per combination: sorting those is many times faster than sorting rows of codes.
        low = [int(columns[name].min()) for name in names]
        sizes = [int(columns[name].max()) - least + 1 for name, least in zip(names, low, strict=True)]
        shifted = tuple(columns[name].astype(np.int64) - least for name, least in zip(names, low, strict=True))
        codes, counts = np.unique(np.ravel_multi_index(shifted, tuple(sizes)), return_counts=True)
        places = zip(*np.unravel_index(codes, tuple(sizes)), strict=True)
        for place, number in zip(places, counts.tolist(), strict=True):
            numbers[tuple(int(code) + least for code, least in zip(place, low, strict=True))] += number
    splits = {**dict(enumerate(SPLITS)), UNUSED_CODE: UNUSED}
    groups: Counter[tuple[str, str, str, str]] = Counter()
    junction: Counter[tuple[str, str]] = Counter()
    for (label, reference, flow_cell, *split, state), number in numbers.items():
        name = corpus.labels[label] if label >= 0 else UNLABELLED
        cell = corpus.categories["flow_cell"][flow_cell]
        groups[name, corpus.categories["reference"][reference], cell, splits[split[0]] if split else ""] += number
        junction[name, _JUNCTION_STATES[state]] += number
    return dict(sorted(groups.items())), dict(sorted(junction.items()))


def _column_bytes(corpus: Corpus) -> int:
    own = sum((corpus.path / f"{name}.npy").stat().st_size for name in corpus.manifest.columns)
    return own + sum(_column_bytes(part) for part in corpus.parts)
