"""Looking into a corpus: ``leech data inspect``.

Hides: nothing. Belongs here: numbers about a corpus as it is on disk. Invariants: reads small columns only, never signal.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leech.config import to_mapping
from leech.console import Table
from leech.data.accounts import ladder_table
from leech.data.corpus import SPLITS, Corpus
from leech.data.reasons import Counts

UNLABELLED = ""
"""Shown where a chunk has no label; an absent label stays empty and never becomes a word."""

_JUNCTION_STATES = ("no indel", "indel", "not covered")


@dataclass(frozen=True)
class Inspection:
    """What a corpus holds.

    :ivar groups: chunks by (label, reference, split); split is empty in a corpus that is not split.
    :ivar junction: chunks by (label, state of the motif in the alignment).
    :ivar bytes_per_chunk: size of the column files by chunk; of a merged corpus, with its sources.
    """

    corpus: Corpus
    groups: dict[tuple[str, str, str], int]
    junction: dict[tuple[str, str], int]
    bytes_per_chunk: float

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
                {"label": label or None, "reference": reference, "split": split or None, "chunks": number}
                for (label, reference, split), number in self.groups.items()
            ],
            "junction": [
                {"label": label or None, "state": state, "chunks": number}
                for (label, state), number in self.junction.items()
            ],
        }

    def tables(self) -> list[Table]:
        """Return overview, chunks by group, state of the junction, ladder of counts."""
        manifest, recipe = self.corpus.manifest, self.corpus.recipe
        overview = (
            ("path", str(self.corpus.path)),
            ("kind", manifest.kind),
            ("chunks", str(manifest.num_chunks)),
            ("bytes per chunk", f"{self.bytes_per_chunk:.0f}"),
            ("labels", ", ".join(self.corpus.labels)),
            ("positive label", manifest.positive_label or ""),
            ("site", f"{recipe.motif} offset {recipe.motif_offset}, occurrence: {recipe.motif_occurrence}"),
            (
                "signal window",
                f"{recipe.samples_before} + {recipe.samples_after} samples, {recipe.base_justify} of focus",
            ),
            ("base window", f"-{recipe.bases_before} .. {recipe.bases_after}"),
            ("level features", f"{recipe.feature_start} .. {recipe.feature_end}"),
            ("k-mer table", (recipe.kmer_table_sha256 or "")[:16]),
            ("digest", manifest.digest),
        )
        groups = [(*names, str(number)) for names, number in self.groups.items()]
        junction = [(*names, str(number)) for names, number in self.junction.items()]
        return [
            Table(title="Corpus", columns=("what", "value"), rows=overview),
            Table(title="Chunks", columns=("label", "reference", "split", "chunks"), rows=tuple(groups)),
            Table(title="Motif in the alignment", columns=("label", "state", "chunks"), rows=tuple(junction)),
            ladder_table(Counts.from_ladder(manifest.counts)),
        ]


def inspect(path: Path) -> Inspection:
    """Count what the corpus in folder ``path`` holds.

    :raises InputError: no complete corpus there.
    """
    corpus = Corpus.open(path)
    label_names = [*corpus.labels, UNLABELLED]
    labels = [label_names[code] for code in corpus.column("label").tolist()]
    references = [corpus.categories["reference"][code] for code in corpus.column("reference").tolist()]
    places = corpus.column("split").tolist() if corpus.is_split else []
    splits = [SPLITS[place] for place in places] or [""] * len(corpus)
    junction = [_JUNCTION_STATES[state] for state in corpus.column("junction_indel").tolist()]
    return Inspection(
        corpus=corpus,
        groups=dict(sorted(Counter(zip(labels, references, splits, strict=True)).items())),
        junction=dict(sorted(Counter(zip(labels, junction, strict=True)).items())),
        bytes_per_chunk=_column_bytes(corpus) / max(len(corpus), 1),
    )


def _column_bytes(corpus: Corpus) -> int:
    own = sum((corpus.path / f"{name}.npy").stat().st_size for name in corpus.manifest.columns)
    return own + sum(_column_bytes(part) for part in corpus.parts)
