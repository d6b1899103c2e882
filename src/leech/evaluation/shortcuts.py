"""Whether a corpus gives its label away by other means than the site: ``leech data check``.

Hides: which columns are a read's identity, and where the control window comes from. Belongs here: what is probed; what
follows from it is ``verdict.py``'s, the quick model ``probe.py``'s, the cutting of the control window ``data/recut.py``'s.
Invariants: all windows are probed on the same reads and folds; the corpus's chunks are not touched.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.console import Progress, Task, logger
from leech.data.corpus import UNUSED_CODE, Corpus
from leech.data.features import LEVEL_COLUMNS, feature_channels
from leech.data.recipe import CONTEXT_BASES, Recipe
from leech.data.recut import recut
from leech.errors import ConfigError, InputError, LeechError
from leech.evaluation.config import CheckConfig
from leech.evaluation.intervals import Estimate, parent_codes
from leech.evaluation.probe import Codes, Predictors, deal_folds, join, readability
from leech.evaluation.verdict import FILE_NAME, TOGETHER, CheckResult, Kind, Probe, judge
from leech.provenance import Stamp, atomic_file

MIN_CLASS_PARENTS = 20
"""Parent reads of a label below which no probe is made: an AUROC of so few says nothing."""

MIN_DISTANCE = 20
"""Bases between the site and the nearest base of the control window."""

MEASURED = ("log_dwell", "level_mean", "level_median", "level_sd", "level_range")
"""Channels per base of a window."""

_WINDOW_COLUMNS = ("dwell", "median_dwell", "shift", "scale", *LEVEL_COLUMNS)
_CONSEQUENCE = "junction_indel"


class _Reads(NamedTuple):
    """The reads that are probed; arrays of one length, in row order."""

    rows: NDArray[np.int64]
    labels: Codes
    names: tuple[str, ...]
    parents: Codes
    folds: Codes

    def per_label(self) -> tuple[int, ...]:
        return tuple(np.bincount(self.labels, minlength=len(self.names)).tolist())

    def select(self, chosen: NDArray[np.int64]) -> _Reads:
        # Parents are numbered again without gaps, as the bootstrap draws them by number.
        parents = np.unique(self.parents[chosen], return_inverse=True)[1].reshape(-1).astype(np.int64)
        return _Reads(self.rows[chosen], self.labels[chosen], self.names, parents, self.folds[chosen])


def check(
    path: Path, config: CheckConfig, output: Path | None, *, force: bool, progress: Progress, stamp: Stamp
) -> CheckResult:
    """Probe a corpus for shortcuts, and record the result as ``check.json`` in its folder.

    :param output: a second file for the record; None for none.
    :raises InputError: fewer than two labels, too few reads of one, or a damaged corpus.
    :raises ConfigError: a control window that lies too near to the site.
    """
    corpus = Corpus.open(path)
    corpus.verify()
    given = _open_control(corpus, config)
    reads = _draw(corpus, config)
    with ExitStack() as stack:
        # Entered first, so that an output that may not be written is refused before the work.
        copy = None if output is None else stack.enter_context(atomic_file(output, force=force))
        with progress.task("control window", unit="records") as task:
            control = _find_control(corpus, reads, given, config, task)
        with progress.task("check", unit="probes", total=len(_IDENTITY) + 4) as task:
            probes = _identity_probes(corpus, reads, config, task)
            probes.append(_control_probe(control, reads, config))
            task.advance()
            site = _window(corpus.gather(reads.rows, _WINDOW_COLUMNS), corpus.recipe)
            probes.append(_probe(reads, "site", "site", False, site, config))
            task.advance()
        result = CheckResult(
            path=path,
            corpus_digest=corpus.manifest.digest,
            labels=reads.names,
            probes=tuple(probes),
            verdict=judge(probes),
            lost=control.lost,
            config=config,
        )
        text = json.dumps({**result.to_mapping(), "provenance": stamp.to_mapping()}, indent=2, allow_nan=False) + "\n"
        if copy is not None:
            copy.write_text(text, encoding="utf-8")
    _record(path, text)
    return result


def _record(corpus: Path, text: str) -> None:
    try:
        with atomic_file(corpus / FILE_NAME, force=True) as partial:
            partial.write_text(text, encoding="utf-8")
    except InputError as error:
        # A corpus of somebody else's may lie in a folder that is read only.
        logger.warning("The check is not recorded with the corpus, so training will ask for it: %s", error.message)


def _require_distance(recipe: Recipe, offset: int) -> None:
    first, last = offset + recipe.feature_start, offset + recipe.feature_end
    distance = 0 if first <= 0 <= last else min(abs(first), abs(last))
    if distance < MIN_DISTANCE:
        raise ConfigError(
            f"Control {offset:+} bases from the site: its window, bases {first} to {last}, comes within {distance} bases of "
            f"the site, where the state itself may show; at least {MIN_DISTANCE} are needed.",
            hint=f"Use an offset of {-MIN_DISTANCE - recipe.feature_end} or less, or of "
            f"{MIN_DISTANCE - recipe.feature_start} or more.",
        )


def _draw(corpus: Corpus, config: CheckConfig) -> _Reads:
    """Choose labelled reads, at most ``max_reads`` of each label, and deal them to folds."""
    label = np.asarray(corpus.column("label")).astype(np.int64)
    if (label < 0).any():
        logger.warning("%d chunks have no label and are left out.", int((label < 0).sum()))
    if corpus.is_split:
        # What balancing or subsampling left out is never trained on, so what it says is no shortcut.
        label[np.asarray(corpus.column("split")) == UNUSED_CODE] = -1
    present = [code for code in range(len(corpus.labels)) if (label == code).any()]
    counts = ", ".join(f"{int((label == code).sum())} {corpus.labels[code]}" for code in present) or "none with a label"
    if len(present) < 2:
        raise InputError(
            f"Corpus '{corpus.path}' has chunks of fewer than two labels ({counts}), so there is nothing to tell apart.",
            hint="Check the corpus that 'leech data merge' makes of the libraries.",
        )
    generator = np.random.default_rng(config.seed)
    drawn = [generator.permutation(np.flatnonzero(label == code))[: config.max_reads] for code in present]
    rows = np.sort(np.concatenate(drawn)).astype(np.int64)
    if config.group_by != "parent":
        rows = _one_per_parent(corpus, rows)
    columns = corpus.gather(rows, ["parent_id", "flow_cell", "reference"])
    parents = parent_codes(columns["parent_id"])
    codes = np.searchsorted(present, label[rows]).astype(np.int64)
    names = tuple(corpus.labels[code] for code in present)
    for code, name in enumerate(names):
        number = len(np.unique(parents[codes == code]))
        if number < MIN_CLASS_PARENTS:
            raise InputError(
                f"Corpus '{corpus.path}' has {number} reads of '{name}', and a probe needs {MIN_CLASS_PARENTS} of each label. "
                f"Chunks by label: {counts}.",
                hint="Add reads of that label.",
            )
    groups = parents if config.group_by == "parent" else columns[config.group_by].astype(np.int64)
    reads = _Reads(rows, codes, names, parents, deal_folds(codes, groups, config.folds, config.seed))
    if not _has_all_labels(reads.labels, reads.folds):
        raise InputError(
            f"Corpus '{corpus.path}' cannot be cross-validated by {config.group_by}: holding some out leaves no reads of a "
            f"label to learn from ({len(np.unique(groups))} different; chunks by label: {counts}).",
            hint="Use --group-by parent.",
        )
    return reads


def _one_per_parent(corpus: Corpus, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Keep one child of each parent: two may lie on two references, and must not meet across folds."""
    parents = parent_codes(corpus.gather(rows, ["parent_id"])["parent_id"])
    return rows[np.sort(np.unique(parents, return_index=True)[1])]


def _has_all_labels(labels: Codes, folds: Codes) -> bool:
    """Whether every label occurs outside of every fold."""
    number = len(np.unique(labels))
    return all(len(np.unique(labels[folds != fold])) == number for fold in np.unique(folds))


def _names(column: NDArray[Any]) -> Predictors:
    """Return one column of names; rows of several values are names too."""
    flat = np.ascontiguousarray(column).reshape(len(column), -1)
    codes = np.unique(flat, axis=0, return_inverse=True)[1].reshape(-1, 1).astype(np.int64)
    return Predictors(np.zeros((len(column), 0)), codes)


def _numbers(column: NDArray[Any]) -> Predictors:
    flat = np.asarray(column).reshape(len(column), -1).astype(np.float64)
    return Predictors(flat, np.zeros((len(column), 0), dtype=np.int64))


_IDENTITY = ("reference", "flow_cell", "run", "adapter", "mapq", "speed")


def _identity_columns(corpus: Corpus, rows: NDArray[np.int64]) -> dict[str, Predictors]:
    columns = corpus.gather(rows, ["reference", "flow_cell", "run", "sequence", "mapq", "median_dwell", _CONSEQUENCE])
    # The reference's bases behind the focus; for a charging site they are the 3' adapter's.
    behind = columns["sequence"][:, CONTEXT_BASES + corpus.recipe.bases_before + 1 :]
    return {
        "reference": _names(columns["reference"]),
        "flow_cell": _names(columns["flow_cell"]),
        "run": _names(columns["run"]),
        "adapter": _names(behind),
        "mapq": _numbers(columns["mapq"]),
        "speed": _numbers(columns["median_dwell"]),
        _CONSEQUENCE: _names(columns[_CONSEQUENCE]),
    }


def _identity_probes(corpus: Corpus, reads: _Reads, config: CheckConfig, task: Task) -> list[Probe]:
    columns = _identity_columns(corpus, reads.rows)
    counted = [name for name in _IDENTITY if name not in config.allow]
    probes = []
    for name, predictors in columns.items():
        kind: Kind = "consequence" if name == _CONSEQUENCE else "identity"
        probes.append(_probe(reads, name, kind, name in counted, predictors, config, predictors.num_values()))
        task.advance()
    if counted:
        together = join([columns[name] for name in counted])
        probes.insert(-1, _probe(reads, TOGETHER, "identity", True, together, config, together.num_values()))
    task.advance()
    return probes


def _probe(
    reads: _Reads,
    name: str,
    kind: Kind,
    counts: bool,
    predictors: Predictors,
    config: CheckConfig,
    num_values: int | None = None,
) -> Probe:
    estimate = readability(
        predictors,
        reads.labels,
        reads.folds,
        reads.parents,
        num_resamplings=config.bootstrap,
        seed=config.seed,
    )
    reason = None if estimate.value is not None else f"no two reads of one fold of {config.group_by} differ in label"
    return Probe(name, kind, counts, estimate, reads.per_label(), num_values, reason)


def _window(columns: Mapping[str, NDArray[Any]], recipe: Recipe) -> Predictors:
    """Return dwell and level of the bases around the focus."""
    channels = feature_channels(columns, recipe, MEASURED)
    return _numbers(channels)


class _Control(NamedTuple):
    """The control window of those reads that have one.

    :ivar reads: a selection of the reads that are probed; None where the window cannot be probed.
    :ivar window: dwell and level of its bases, a row per read.
    :ivar reason: why it cannot be probed.
    :ivar lost: records that could not be cut there, by reason.
    """

    reads: _Reads | None
    window: Predictors | None
    reason: str | None
    lost: dict[str, int]


def _find_control(corpus: Corpus, reads: _Reads, control: Corpus | None, config: CheckConfig, task: Task) -> _Control:
    """Take the control window from the corpus that was given, or cut it, or say why there is none."""
    ids = corpus.gather(reads.rows, ["read_id"])["read_id"]
    lost: dict[str, int] = {}
    try:
        if control is not None:
            found = {name: np.asarray(control.column(name)) for name in ("read_id", *_WINDOW_COLUMNS)}
        else:
            found, lost = _cut_control(corpus, ids, config.control_offset, task)
        places, chosen = _match(ids, found["read_id"])
        kept = reads.select(chosen)
        number = min(len(np.unique(kept.parents[kept.labels == code])) for code in range(len(kept.names)))
        if number < MIN_CLASS_PARENTS or not _has_all_labels(kept.labels, kept.folds):
            counts = ", ".join(f"{count} {name}" for count, name in zip(kept.per_label(), kept.names, strict=True))
            raise InputError(f"too few reads have a control window ({counts})")
    except LeechError as error:
        return _Control(None, None, error.message.rstrip("."), lost)
    recipe = corpus.recipe if control is None else control.recipe
    return _Control(kept, _window({name: found[name][places] for name in _WINDOW_COLUMNS}, recipe), None, lost)


def _control_probe(control: _Control, reads: _Reads, config: CheckConfig) -> Probe:
    if control.reads is None or control.window is None:
        none = (0,) * len(reads.names)
        return Probe("control window", "control", True, Estimate(None), none, reason=control.reason)
    return _probe(control.reads, "control window", "control", True, control.window, config)


def _cut_control(
    corpus: Corpus, ids: NDArray[np.uint8], offset: int, task: Task
) -> tuple[dict[str, NDArray[Any]], dict[str, int]]:
    if corpus.recipe.motif_offset is None:
        raise InputError("the site comes from a file and cannot be moved; prepare a control corpus and give --control")
    result = recut(corpus, ids, corpus.recipe.motif_offset + offset, _WINDOW_COLUMNS, task)
    return result.columns, dict(result.lost)


def _open_control(corpus: Corpus, config: CheckConfig) -> Corpus | None:
    """Open the control corpus that was given, and see that the control window is far enough from the site.

    :raises ConfigError: it is not.
    """
    recipe = corpus.recipe
    if config.control is None:
        if recipe.motif_offset is not None:
            _require_distance(recipe, config.control_offset)
        return None
    control = Corpus.open(config.control)
    if control.recipe.digest() == recipe.digest():
        raise ConfigError(
            f"--control '{config.control}' is cut at the site itself.", hint="Prepare it with another --motif-offset."
        )
    alike = (control.recipe.motif, control.recipe.motif_occurrence) == (recipe.motif, recipe.motif_occurrence)
    if alike and recipe.motif_offset is not None and control.recipe.motif_offset is not None:
        _require_distance(control.recipe, control.recipe.motif_offset - recipe.motif_offset)
    return control


def _match(ids: NDArray[np.uint8], found: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return positions in ``found`` and in ``ids`` of the ids that are in both, each once, in the order of ``ids``."""
    places = {row.tobytes(): number for number, row in enumerate(found)}
    pairs = [(places[row.tobytes()], number) for number, row in enumerate(ids) if row.tobytes() in places]
    matched = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return matched[:, 0], matched[:, 1]
