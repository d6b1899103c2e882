"""Joining corpora and splitting them: ``leech data merge``.

Hides: how reads are dealt to splits. Belongs here: what a merged corpus consists of; reading one is ``corpus.py``'s.
Invariants: chunks are referred to, not copied; all chunks of a parent read lie in one split; the split depends on the
parent read ids, the labels, the shares and the seed alone, so neither on the order of inputs nor on the machine.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leech.config import nearest, to_mapping
from leech.console import Table, logger
from leech.data.config import MergeConfig
from leech.data.corpus import CATEGORICAL, SPLITS, Corpus, write_array
from leech.data.manifest import Source, write_manifest
from leech.data.reasons import Counts
from leech.errors import ConfigError, InputError, MismatchError
from leech.provenance import Stamp, atomic_folder


@dataclass(frozen=True)
class MergeResult:
    """What ``merge`` made.

    :ivar counts: chunks by (label, split).
    """

    path: Path
    num_chunks: int
    counts: dict[tuple[str, str], int]

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        by_label: dict[str, dict[str, int]] = {}
        for (label, split), number in self.counts.items():
            by_label.setdefault(label, {})[split] = number
        return {"path": str(self.path), "num_chunks": self.num_chunks, "chunks": by_label}

    def tables(self) -> list[Table]:
        """Return chunks by label and split."""
        labels = list(dict.fromkeys(label for label, _ in self.counts))
        rows = [(label, *(str(self.counts.get((label, split), 0)) for split in SPLITS)) for label in labels]
        return [Table(title="Chunks by label and split", columns=("label", *SPLITS), rows=tuple(rows))]


def merge(corpora: Sequence[Path], config: MergeConfig, output: Path, *, force: bool, stamp: Stamp) -> MergeResult:
    """Join corpora by reference and deal their parent reads to train, validation and test, stratified by label.

    :param corpora: folders made by ``prepare``, each with a label and all cut by one recipe.
    :param output: folder of the merged corpus, a few bytes per chunk.
    :raises InputError: a corpus that cannot be opened, has no label, is merged already or is given twice.
    :raises MismatchError: corpora cut by different recipes.
    :raises ConfigError: a positive label that no corpus has.
    """
    # Sorted by content, so that the order on the command line changes nothing.
    opened = sorted((Corpus.open(path) for path in corpora), key=lambda corpus: corpus.manifest.digest)
    _check_sources(opened)
    categories = _joined_categories(opened, config.positive_label)
    labels = np.concatenate(
        [
            np.array([categories["label"].index(name) for name in corpus.labels])[corpus.column("label")]
            for corpus in opened
        ]
    )
    parents = np.concatenate([corpus.column("parent_id") for corpus in opened])
    split = assign_splits(parents, labels, config.split, config.seed)
    _warn_repeated(opened)
    with atomic_folder(output, force=force) as folder:
        columns = {"split": write_array(folder / "split.npy", split)}
        counts = Counts()
        for corpus in opened:
            counts.by_outcome.update(Counts.from_ladder(corpus.manifest.counts).by_outcome)
        write_manifest(
            folder,
            kind="merged",
            num_chunks=len(split),
            recipe=opened[0].recipe,
            columns=columns,
            categories=categories,
            counts=counts.ladder(),
            runs=dict(sorted((run, rate) for corpus in opened for run, rate in corpus.manifest.runs.items())),
            settings=to_mapping(config),
            sources=[
                Source(os.path.relpath(corpus.path.resolve(), output.resolve()), corpus.manifest.digest, len(corpus))
                for corpus in opened
            ],
            positive_label=config.positive_label,
        )
        stamp.write(folder)
    numbers = {
        (label, name): int(((labels == code) & (split == place)).sum())
        for code, label in enumerate(categories["label"])
        for place, name in enumerate(SPLITS)
    }
    return MergeResult(output, len(split), numbers)


def _check_sources(opened: Sequence[Corpus]) -> None:
    seen: dict[str, Path] = {}
    for corpus in opened:
        if corpus.manifest.kind == "merged":
            raise InputError(
                f"'{corpus.path}' is a merged corpus already.", hint="Give the corpora that it was merged from."
            )
        if corpus.manifest.digest in seen:
            raise InputError(
                f"'{corpus.path}' and '{seen[corpus.manifest.digest]}' hold the same chunks; "
                "their reads would count twice.",
                hint="Give each corpus once.",
            )
        seen[corpus.manifest.digest] = corpus.path
        if not corpus.labels or (corpus.column("label") < 0).any():
            raise InputError(
                f"Corpus '{corpus.path}' has chunks without a label, so they cannot be split by label.",
                hint="Prepare it again with --label NAME.",
            )
        first = opened[0]
        if corpus.recipe.digest() != first.recipe.digest():
            differing = ", ".join(
                f"{name} ({ours} / {theirs})" for name, ours, theirs in first.recipe.differences(corpus.recipe)
            )
            raise MismatchError(
                f"'{first.path}' and '{corpus.path}' were cut by different recipes: {differing}. "
                "A network would learn the difference.",
                hint="Prepare all libraries with the same options.",
            )


def _joined_categories(opened: Sequence[Corpus], positive_label: str | None) -> dict[str, list[str]]:
    categories = {
        column: list(dict.fromkeys(name for corpus in opened for name in corpus.categories[column]))
        for column in CATEGORICAL
    }
    labels = sorted(categories["label"])
    if positive_label is not None:
        if positive_label not in labels:
            close = nearest(positive_label, labels)
            raise ConfigError(
                f"Positive label '{positive_label}' is not among the labels {', '.join(labels)}.",
                hint=f"Did you mean '{close}'?" if close else "Give one of them with --positive-label.",
            )
        labels.remove(positive_label)
        labels.append(positive_label)
    categories["label"] = labels
    return categories


def assign_splits(
    parents: NDArray[np.uint8], labels: NDArray[np.int64], shares: Sequence[float], seed: int
) -> NDArray[np.uint8]:
    """Deal parent reads to splits, label by label.

    The reads of a label are ordered by a hash of seed and id and cut at the cumulative shares, so each share is met to
    within one read and no random generator's state matters. A parent whose children carry different labels is dealt
    with those of its lowest label code.

    :param parents: uint8, shape (num_chunks, 16).
    :param labels: label codes, shape (num_chunks,).
    :returns: uint8 positions in ``corpus.SPLITS``, shape (num_chunks,).
    """
    ids, inverse = np.unique(np.ascontiguousarray(parents).view("V16").ravel(), return_inverse=True)
    stratum = np.full(len(ids), np.iinfo(np.int64).max)
    np.minimum.at(stratum, inverse, labels)
    key = seed.to_bytes(8, "little")
    ranks = np.array(
        [int.from_bytes(hashlib.blake2b(name.tobytes(), digest_size=8, key=key).digest(), "big") for name in ids],
        dtype=np.uint64,
    )
    result = np.zeros(len(ids), dtype=np.uint8)
    for label in np.unique(stratum):
        members = np.flatnonzero(stratum == label)
        members = members[np.argsort(ranks[members], kind="stable")]
        edges = np.floor(np.cumsum(shares) * len(members) + 0.5).astype(int)
        result[members] = np.searchsorted(edges[:-1], np.arange(len(members)), side="right")
    return result[inverse]


def _warn_repeated(opened: Sequence[Corpus]) -> None:
    ids = np.concatenate([corpus.column("read_id") for corpus in opened]).view("V16").ravel()
    extra = len(ids) - len(np.unique(ids))
    if extra:
        logger.warning(
            "%d chunks are of reads that another corpus holds too; they lie in one split, but count more than once.",
            extra,
        )
