"""Several models on the same reads: ``leech eval compare``.

Hides: how reads of several models are matched. Belongs here: the command's core, its result and the table of flips; the
statistics of two sets of scores are in ``paired.py``. Invariants: every figure is of reads that all models scored, matched by
read id, with the same true label; differences are to the first model, later less first; each model calls at its own
operating point.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from leech.config import to_mapping
from leech.console import Progress, Table
from leech.data.corpus import Corpus
from leech.errors import ConfigError, InputError, MismatchError
from leech.evaluation import metrics
from leech.evaluation.config import CompareConfig
from leech.evaluation.evaluate import (
    labelled_rows,
    overlap_with_warning,
    require_known_labels,
    require_same_recipe,
    score_model,
)
from leech.evaluation.intervals import Estimate, cell
from leech.evaluation.metrics import Bools, Floats, Ranking
from leech.evaluation.paired import Difference, Discordance, auroc_difference, discordance
from leech.evaluation.scores import ReadScores, load_scores, read_scores, require_tsv
from leech.evaluation.summary import bootstrap
from leech.evaluation.tables import write_table
from leech.models.bundle import ModelBundle, load_bundle, read_bundle, require_two_states
from leech.models.device import choose_device
from leech.models.learnt import Overlap
from leech.provenance import Stamp, atomic_file, refuse_input_as_output

FORMAT = "leech-comparison"
SCHEMA_VERSION = 1

FIGURES = ("auroc", "auprc_positive", "auprc_negative", "balanced_accuracy", "mcc", "ece", "brier")


class Compared(NamedTuple):
    """One model or table of scores.

    :ivar data: corpus it was scored on; None for a table.
    :ivar learnt: whether the model learnt from these reads.
    :ivar figures: by name in :data:`FIGURES`, with intervals from resampled parent reads.
    """

    name: str
    path: Path
    data: Path | None
    learnt: Overlap
    figures: dict[str, Estimate]


class Contrast(NamedTuple):
    """A later model against the first.

    :ivar auroc: difference with DeLong's interval and test.
    :ivar differences: by name in :data:`FIGURES`, with intervals from the same resamplings of parent reads.
    :ivar num_flips: reads that the two call differently.
    """

    name: str
    auroc: Difference
    differences: dict[str, Estimate]
    calls: Discordance
    num_flips: int

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "name": self.name,
            "delong": {**self.auroc.estimate.to_mapping(), "p_value": self.auroc.p_value},
            "differences": {name: difference.to_mapping() for name, difference in self.differences.items()},
            "mcnemar": self.calls._asdict(),
            "num_flips": self.num_flips,
        }


@dataclass(frozen=True)
class Comparison:
    """What ``leech eval compare`` found.

    :ivar num_left_out: reads that only some have, with ``--common-reads``.
    :ivar num_flips: reads that are not called alike by all.
    """

    path: Path
    positive_label: str
    num_reads: int
    num_positive: int
    num_left_out: int
    models: tuple[Compared, ...]
    contrasts: tuple[Contrast, ...]
    num_flips: int

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON; paths are relative to the file."""
        return {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "positive_label": self.positive_label,
            "num_reads": self.num_reads,
            "num_positive": self.num_positive,
            "num_left_out": self.num_left_out,
            "models": [
                {
                    "name": model.name,
                    "path": os.path.relpath(model.path, self.path.parent),
                    "data": None if model.data is None else os.path.relpath(model.data, self.path.parent),
                    "learnt_from": model.learnt.to_mapping(),
                    "figures": {name: figure.to_mapping() for name, figure in model.figures.items()},
                }
                for model in self.models
            ],
            "baseline": self.models[0].name,
            "contrasts": [contrast.to_mapping() for contrast in self.contrasts],
            "num_flips": self.num_flips,
        }

    def tables(self) -> list[Table]:
        """Return figures by model, and for each later one its differences to the first."""
        interval = "95 % interval"
        rows = tuple(
            (name, *(text for model in self.models for text in model.figures[name].cells())) for name in FIGURES
        )
        columns = ("metric", *(head for model in self.models for head in (model.name, interval)))
        title = f"{self.num_reads} reads, {self.num_positive} {self.positive_label}; {self.num_flips} not called alike"
        return [Table(title=title, columns=columns, rows=rows), *(self._contrast(item) for item in self.contrasts)]

    def _contrast(self, contrast: Contrast) -> Table:
        calls = contrast.calls
        first, second = self.models[0].name, contrast.name
        rows = [
            ("AUROC (DeLong)", *contrast.auroc.estimate.cells("+"), _p_value(contrast.auroc.p_value)),
            *((name, *difference.cells("+"), "") for name, difference in contrast.differences.items()),
            (f"right by '{first}' alone", str(calls.only_first), "", ""),
            (f"right by '{second}' alone", str(calls.only_second), "", f"{_p_value(calls.p_value)} (McNemar)"),
            ("called differently", str(contrast.num_flips), "", ""),
        ]
        columns = ("", "difference", "95 % interval", "p-value")
        return Table(title=f"'{second}' less '{first}'", columns=columns, rows=tuple(rows))


def _p_value(value: float | None) -> str:
    return cell(value) if value is None or value >= 0.001 else f"{value:.1e}"


def compare(
    models: Sequence[Path], config: CompareConfig, output: Path, *, force: bool, progress: Progress, stamp: Stamp
) -> Comparison:
    """Compare models, or tables of scores, on the same reads; write the comparison to ``output`` as JSON.

    :param models: folders and tables that :func:`leech.evaluation.scores.write_scores` wrote; the first is the baseline.
    :raises ConfigError: fewer than two, or corpora that do not go with the models.
    :raises MismatchError: a model that needs another corpus, or reads, labels or positive labels that differ.
    :raises InputError: a read id that occurs twice, or unusable files.
    """
    data = _data_of(models, config.data)
    if config.flips is not None:
        require_tsv(config.flips)
        if config.flips.resolve() == output.resolve():
            raise ConfigError(f"Comparison and flips cannot both be written to '{output}'.")
        refuse_input_as_output(config.flips, [*models, *config.data])
    names = _names(models)
    with ExitStack() as stack:
        partial = stack.enter_context(atomic_file(output, force=force))
        table = None if config.flips is None else stack.enter_context(atomic_file(config.flips, force=force))
        # Before the first is scored, which takes minutes.
        for path, corpus in zip(models, data, strict=True):
            if corpus is not None:
                _refuse_other_corpus(read_bundle(path), Corpus.open(corpus), path)
        device = choose_device(config.device) if any(data) else torch.device("cpu")
        scored = [
            (load_scores(path), Overlap("unknown"))
            if corpus is None
            else _score(path, corpus, config, device, progress)
            for path, corpus in zip(models, data, strict=True)
        ]
        overlaps = [overlap for _, overlap in scored]
        reads, num_left_out = _matched([one for one, _ in scored], models, config.common_reads)
        compared = list(zip(names, models, data, overlaps, strict=True))
        result = _compare(reads, compared, output, num_left_out, config)
        if table is not None and config.flips is not None:
            _write_flips(table, config.flips, names, reads)
        content = {**result.to_mapping(), "settings": to_mapping(config), "provenance": stamp.to_mapping()}
        partial.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return result


def _data_of(models: Sequence[Path], data: Sequence[Path]) -> list[Path | None]:
    """Return the corpus of each model; None for a table of scores."""
    if len(models) < 2:
        raise ConfigError("A comparison takes two models or more.", hint="leech eval compare MODEL MODEL --data CORPUS")
    folders = [path for path in models if path.is_dir() or not path.name.endswith((".tsv", ".tsv.gz"))]
    if folders and not data:
        raise ConfigError(f"Model '{folders[0]}' has to be scored on a corpus.", hint="Give --data CORPUS.")
    if len(data) > 1 and len(data) != len(folders):
        raise ConfigError(
            f"{len(data)} corpora for {len(folders)} models: which goes with which?",
            hint="Give one --data for all models, or one for each in their order.",
        )
    rest = iter(data if len(data) > 1 else list(data) * len(folders))
    return [next(rest) if path in folders else None for path in models]


def _names(models: Sequence[Path]) -> list[str]:
    """Return a name for each: that of its folder or file, or where those are equal the path as it was given."""
    short = [path.name.removesuffix(".gz").removesuffix(".tsv") or str(path) for path in models]
    long = [str(path) for path in models]
    return [
        name if short.count(name) == 1 else f"{full} ({place})" if long.count(full) > 1 else full
        for place, (name, full) in enumerate(zip(short, long, strict=True), 1)
    ]


def _refuse_other_corpus(bundle: ModelBundle, corpus: Corpus, path: Path) -> None:
    """Refuse a corpus that a model cannot be scored on.

    :raises MismatchError: another recipe, or other labels.
    """
    try:
        require_same_recipe(bundle.recipe, corpus, path)
    except MismatchError as error:
        raise MismatchError(
            error.message,
            hint="Give each model a corpus of the same reads cut by its own recipe: --data A --data B, in their order.",
        ) from error
    require_known_labels(bundle, corpus, path)
    require_two_states(bundle, path, "comparing")


def _score(
    path: Path, data: Path, config: CompareConfig, device: torch.device, progress: Progress
) -> tuple[ReadScores, Overlap]:
    loaded, corpus = load_bundle(path), Corpus.open(data)
    bundle = loaded.bundle
    rows = labelled_rows(corpus, config.split)
    overlap = overlap_with_warning(loaded, corpus, rows, [config.split], path)
    with progress.task(f"score {path.name}", unit="chunks", total=len(rows)) as task:
        scores = score_model(loaded, corpus, rows, config.batch_size, device, task.advance)
    return read_scores(corpus, rows, scores.p, bundle.two_labels, bundle.threshold_cl), overlap


def _matched(scored: Sequence[ReadScores], paths: Sequence[Path], common_reads: bool) -> tuple[list[ReadScores], int]:
    """Return the reads that all have, in the order of the first, and how many reads only some have."""
    places = []
    for reads, path in zip(scored, paths, strict=True):
        place = {name: number for number, name in enumerate(reads.read_ids)}
        if len(place) < len(reads):
            twice = next(name for number, name in enumerate(reads.read_ids) if place[name] != number)
            raise InputError(
                f"'{path}': read '{twice}' has several scores, so reads cannot be matched by their ids.",
                hint="Compare on a corpus with one chunk per read.",
            )
        places.append(place)
    shared = [name for name in scored[0].read_ids if all(name in place for place in places)]
    everywhere = set().union(*places)
    num_left_out = len(everywhere) - len(shared)
    if not shared or (num_left_out and not common_reads):
        counts = ", ".join(f"{len(place)} in '{path}'" for place, path in zip(places, paths, strict=True))
        raise MismatchError(
            f"The models were not scored on the same reads: {counts}, {len(shared)} in all of them.",
            hint="Use corpora of the same reads and split" + (", or --common-reads." if shared else "."),
        )
    matched = [
        reads.take(np.array([place[name] for name in shared], dtype=np.int64))
        for reads, place in zip(scored, places, strict=True)
    ]
    _require_same_truth(matched, paths)
    return matched, num_left_out


def _require_same_truth(reads: Sequence[ReadScores], paths: Sequence[Path]) -> None:
    first = reads[0]
    for other, path in zip(reads[1:], paths[1:], strict=True):
        if other.positive_label != first.positive_label:
            raise MismatchError(
                f"'{path}' gives the probability of '{other.positive_label}', '{paths[0]}' that of '{first.positive_label}'.",
                hint="Compare models of the same positive label.",
            )
        differing = [number for number, label in enumerate(other.labels) if label != first.labels[number]]
        if differing:
            number = differing[0]
            raise MismatchError(
                f"{len(differing)} reads have another label in '{path}' than in '{paths[0]}', read '{first.read_ids[number]}' "
                f"'{other.labels[number]}' instead of '{first.labels[number]}': there is no one truth to compare with.",
                hint="Prepare both corpora with the same labels.",
            )


def _compare(
    reads: Sequence[ReadScores],
    compared: Sequence[tuple[str, Path, Path | None, Overlap]],
    output: Path,
    num_left_out: int,
    config: CompareConfig,
) -> Comparison:
    positive_label = reads[0].positive_label
    positive = np.array([label == positive_label for label in reads[0].labels])
    called = [np.array([call == positive_label for call in model.calls]) for model in reads]
    parents: NDArray[np.int64] = np.unique(reads[0].parent_ids, return_inverse=True)[1].astype(np.int64)
    figures = _Figures(positive, [model.p for model in reads], called)
    estimates = iter(bootstrap(figures.resampled, parents, config.bootstrap, config.seed))
    own = [{name: next(estimates) for name in FIGURES} for _ in reads]
    differences = [{name: next(estimates) for name in FIGURES} for _ in reads[1:]]
    contrasts = tuple(
        Contrast(
            name=compared[place][0],
            auroc=auroc_difference(positive, reads[0].p, reads[place].p),
            differences=differences[place - 1],
            calls=discordance(called[0] == positive, called[place] == positive),
            num_flips=int((called[0] != called[place]).sum()),
        )
        for place in range(1, len(reads))
    )
    return Comparison(
        path=output,
        positive_label=positive_label,
        num_reads=len(positive),
        num_positive=int(positive.sum()),
        num_left_out=num_left_out,
        models=tuple(Compared(*one, figures) for one, figures in zip(compared, own, strict=True)),
        contrasts=contrasts,
        num_flips=int((np.ptp(np.array(called, dtype=np.int64), axis=0) > 0).sum()),
    )


class _Figures:
    """The figures of every model, and their differences to the first, under weights of the reads."""

    def __init__(self, positive: Bools, scores: Sequence[Floats], called: Sequence[Bools]) -> None:
        self._positive, self._scores, self._called = positive, scores, called
        self._rankings = [Ranking(positive, p) for p in scores]

    def resampled(self, weights: Floats) -> tuple[float | None, ...]:
        every = [self._of_model(place, weights) for place in range(len(self._scores))]
        differences = [
            None if later is None or first is None else later - first
            for model in every[1:]
            for first, later in zip(every[0], model, strict=True)
        ]
        return (*(value for model in every for value in model), *differences)

    def _of_model(self, place: int, weights: Floats) -> tuple[float | None, ...]:
        curve = self._rankings[place].curve(weights)
        counts = metrics.confusion(self._positive, self._called[place], weights)
        return (
            metrics.auroc(curve),
            metrics.average_precision(curve),
            metrics.average_precision(metrics.mirrored(curve)),
            counts.balanced_accuracy,
            counts.mcc,
            metrics.expected_calibration_error(self._positive, self._scores[place], weights),
            metrics.brier(self._positive, self._scores[place], weights),
        )


def _write_flips(path: Path, final: Path, names: Sequence[str], reads: Sequence[ReadScores]) -> None:
    """Write the reads that are not called alike by all, in the order of the first model's."""
    heads = (f"{name}_{what}" for name in names for what in ("p", "cl", "call"))
    write_table(path, final, ["read_id", "reference", "label", *heads], _flips(reads))


def _flips(reads: Sequence[ReadScores]) -> Iterator[list[object]]:
    for number, read_id in enumerate(reads[0].read_ids):
        if len({model.calls[number] for model in reads}) > 1:
            cells = (
                value
                for model in reads
                for value in (repr(float(model.p[number])), int(model.likelihood[number]), model.calls[number])
            )
            yield [read_id, reads[0].references[number], reads[0].labels[number], *cells]
