"""Joining corpora and splitting them: ``leech data merge``.

Hides: what a merged corpus consists of on disk. Belongs here: which corpora go together, and writing the merged one;
reading one is ``corpus.py``'s, and which row is in which split is ``assign.py``'s. Invariants: chunks are referred to, not
copied; the corpora are put in the order of their content, so that their order on the command line changes nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leech.config import nearest, to_mapping
from leech.console import Table, logger
from leech.data.assign import Assignment, Rows, assign, check_choices
from leech.data.config import MergeConfig
from leech.data.corpus import SPLITS, UNUSED_CODE, Corpus, write_array
from leech.data.grouping import joined_categories, joined_codes
from leech.data.manifest import Source, write_manifest
from leech.data.reasons import REASONS, USED, Counts
from leech.data.splits import identify_parents
from leech.errors import ConfigError, InputError, MismatchError
from leech.provenance import Stamp, atomic_folder

UNUSED = "unused"
"""What rows without a split are counted under."""


@dataclass(frozen=True)
class MergeResult:
    """What ``merge`` made.

    :ivar counts: chunks by (label, split), every label with every split that there is; split "unused" is what was left out.
    :ivar left_out: chunks left out by reason.
    """

    path: Path
    num_chunks: int
    counts: dict[tuple[str, str], int]
    left_out: dict[str, int]

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        by_label: dict[str, dict[str, int]] = {}
        for (label, split), number in self.counts.items():
            by_label.setdefault(label, {})[split] = number
        return {
            "path": str(self.path),
            "num_chunks": self.num_chunks,
            "chunks": by_label,
            "left_out": self.left_out,
        }

    def tables(self) -> list[Table]:
        """Return chunks by label and split, and what was left out where anything was."""
        splits = list(dict.fromkeys(split for _, split in self.counts))
        labels = list(dict.fromkeys(label for label, _ in self.counts))
        rows = [(label, *(str(self.counts[label, split]) for split in splits)) for label in labels]
        tables = [Table(title="Chunks by label and split", columns=("label", *splits), rows=tuple(rows))]
        if self.left_out:
            lost = tuple((reason, str(number), REASONS[reason].meaning) for reason, number in self.left_out.items())
            tables.append(Table(title="Chunks left out", columns=("reason", "chunks", "meaning"), rows=lost))
        return tables


def merge(corpora: Sequence[Path], config: MergeConfig, output: Path, *, force: bool, stamp: Stamp) -> MergeResult:
    """Join corpora by reference and deal their parent reads to splits, stratified by label.

    :param corpora: folders made by ``prepare``, each with a label and all cut by one recipe.
    :param output: folder of the merged corpus, a few bytes per chunk.
    :raises InputError: a corpus that cannot be opened, is damaged, has no label, is merged already or is given twice; too
        few chunks or groups for the splits asked for.
    :raises MismatchError: corpora cut by different recipes.
    :raises ConfigError: a positive label that no corpus has, or options that cannot be carried out.
    """
    check_choices(config)
    weights = _source_weights(corpora, config.weight)
    # Sorted by content, so that the order on the command line changes nothing.
    opened = sorted((Corpus.open(path) for path in corpora), key=lambda corpus: corpus.manifest.digest)
    _check_sources(opened)
    for corpus in opened:
        corpus.verify()
    categories = joined_categories(opened)
    categories["label"] = _ordered_labels(categories["label"], config.positive_label)
    rows = Rows(
        corpora=opened,
        parents=identify_parents(np.concatenate([corpus.column("parent_id") for corpus in opened]), config.seed),
        labels=joined_codes(opened, "label", categories["label"]),
        label_names=categories["label"],
    )
    assignment = assign(rows, config)
    counts = _counted(rows, assignment.split, with_calibration=len(config.split) > 3)
    _check_filled(counts, config)
    with atomic_folder(output, force=force) as folder:
        write_manifest(
            folder,
            kind="merged",
            num_chunks=len(rows),
            recipe=opened[0].recipe,
            columns={"split": write_array(folder / "split.npy", assignment.split)},
            categories=categories,
            counts=_ladder(opened, assignment).ladder(),
            runs=dict(sorted((run, rate) for corpus in opened for run, rate in corpus.manifest.runs.items())),
            # Weights stand beside their sources: here they would hold paths.
            settings={name: value for name, value in to_mapping(config).items() if name != "weight"},
            sources=[
                Source(
                    path=os.path.relpath(corpus.path.resolve(), output.resolve()),
                    digest=corpus.manifest.digest,
                    num_chunks=len(corpus),
                    weight=weights[corpus.path.resolve()],
                )
                for corpus in opened
            ],
            positive_label=config.positive_label,
        )
        stamp.write(folder)
    return MergeResult(output, len(rows), counts, assignment.left_out)


def _counted(rows: Rows, split: NDArray[np.uint8], *, with_calibration: bool) -> dict[tuple[str, str], int]:
    """Count chunks by label and split; calibration and unused only where they are asked for or occur."""
    table = np.bincount(rows.labels * 256 + split, minlength=256 * len(rows.label_names)).reshape(-1, 256)
    codes = {name: code for code, name in enumerate(SPLITS) if name != "calibration" or with_calibration}
    if table[:, UNUSED_CODE].any():
        codes[UNUSED] = UNUSED_CODE
    return {
        (label, name): int(table[row, code])
        for row, label in enumerate(rows.label_names)
        for name, code in codes.items()
    }


def _check_filled(counts: dict[tuple[str, str], int], config: MergeConfig) -> None:
    """Refuse a split that was asked for and holds nothing; warn of one that lacks a label.

    :raises InputError: with all counts.
    """
    labels = list(dict.fromkeys(label for label, _ in counts))
    splits = list(dict.fromkeys(split for _, split in counts))
    asked = {name for name, share in zip(SPLITS, config.split, strict=False) if share > 0}
    if config.hold_out or config.folds is not None:
        asked.add("test")
    overview = "; ".join(
        f"{split}: " + ", ".join(f"{counts[label, split]} {label}" for label in labels) for split in splits
    )
    for split in (name for name in SPLITS if name in asked):
        empty = [label for label in labels if not counts[label, split]]
        if len(empty) == len(labels):
            raise InputError(
                f"Nothing is left for the {split} split. Chunks by split and label: {overview}.",
                hint="Add reads, or ask for fewer splits: a share of 0 in --split leaves one out.",
            )
        for label in empty:
            logger.warning("The %s split has no chunks of '%s'. Chunks by split and label: %s.", split, label, overview)
    if len(labels) == 1:
        logger.warning("All chunks have the label '%s'; training needs two.", labels[0])


def _ladder(opened: Sequence[Corpus], assignment: Assignment) -> Counts:
    """Return the records of all sources by outcome, chunks that were left out under their reason."""
    counts = Counts()
    for corpus in opened:
        counts.by_outcome.update(Counts.from_ladder(corpus.manifest.counts).by_outcome)
    for reason, number in assignment.left_out.items():
        counts.add(reason, number)
        counts.by_outcome[USED] -= number
    return counts


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
                hint="Prepare all libraries with the same options; what went without saying before leech placed boundaries and "
                "kept indels is --refinement none --no-indels.",
            )


def _ordered_labels(names: Sequence[str], positive_label: str | None) -> list[str]:
    """Return the labels in the order of their codes: sorted, the positive one last."""
    labels = sorted(names)
    if positive_label is not None:
        if len(labels) > 2:
            raise ConfigError(
                f"--positive-label {positive_label}: there are {len(labels)} labels ({', '.join(labels)}), and of more than "
                "two none is positive.",
                hint="Leave --positive-label out, or merge two of the libraries.",
            )
        if positive_label not in labels:
            close = nearest(positive_label, labels)
            raise ConfigError(
                f"Positive label '{positive_label}' is not among the labels {', '.join(labels)}.",
                hint=f"Did you mean '{close}'?" if close else "Give one of them with --positive-label.",
            )
        labels.remove(positive_label)
        labels.append(positive_label)
    return labels


def _source_weights(corpora: Sequence[Path], texts: Sequence[str]) -> dict[Path, float]:
    """Return the weight in the loss of every corpus, by its resolved path.

    :raises ConfigError: a text that is not CORPUS=WEIGHT, a corpus that is not merged or is named twice, or a weight that is
        not above 0.
    """
    weights = {path.resolve(): 1.0 for path in corpora}
    told: dict[Path, str] = {}
    for text in texts:
        path, equals, number = text.rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if not equals or not 0 < weight < math.inf:
            raise ConfigError(
                f"--weight '{text}' is not CORPUS=WEIGHT with a weight above 0.",
                hint="For example: --weight charged.corpus=2. Leave a corpus out to give it no weight.",
            )
        if Path(path).resolve() not in weights:
            close = nearest(path, [str(corpus) for corpus in corpora])
            raise ConfigError(
                f"--weight '{text}' names a corpus that is not merged here.",
                hint=f"Did you mean '{close}'?" if close else "Name it as it is named among the corpora.",
            )
        before = told.setdefault(Path(path).resolve(), text)
        if before is not text:
            raise ConfigError(f"--weight '{before}' and '{text}' are for the same corpus.", hint="Give one of them.")
        weights[Path(path).resolve()] = weight
    return weights
