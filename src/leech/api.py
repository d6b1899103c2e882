"""The public Python interface: ``leech.load_model`` and ``leech.open_corpus``.

Hides: which functions, in which order, a notebook would have to call. Belongs here: what somebody asks of one model or one
corpus interactively, as numpy arrays and data frames; whatever writes files is a command's function (see ``docs/api.md``).
Invariants: calls of a run come out of the loop that ``leech predict`` writes files from, with its warnings and errors; results
are held in memory, about 300 bytes per read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.config import build
from leech.console import SilentProgress
from leech.data.batches import iterate_batches
from leech.data.config import ReadSources
from leech.data.corpus import SPLITS, Corpus
from leech.data.pod5 import unpack_read_ids
from leech.data.recipe import Recipe
from leech.errors import ConfigError
from leech.evaluation.evaluate import compare_with_learnt, require_same_recipe, score_model
from leech.models.bundle import ModelBundle, load_bundle
from leech.models.device import choose_device
from leech.models.learnt import Overlap, warn_if_learnt
from leech.prediction.calls import Call, CallRules, decide
from leech.prediction.config import PredictConfig
from leech.prediction.multiclass.calls import ClassCall, ClassRules
from leech.prediction.multiclass.calls import decide as decide_classes
from leech.prediction.multiclass.run import ClassRun
from leech.prediction.run import CallLoop, Run, open_run

if TYPE_CHECKING:
    import pandas
    import polars

Array = NDArray[Any]

_CATEGORIES = ("label", "reference", "flow_cell", "run", "sample")
_NUMBERS = ("mapq", "junction_indel", "median_dwell", "shift", "scale", "focus_raw_sample")


@dataclass(frozen=True)
class Calls:
    """What a model says of reads, one row each, in the order of the records or of the corpus.

    :ivar read_id: text.
    :ivar reference: name; empty where unmapped.
    :ivar labels: names of the states: negative and positive, or all of more than two.
    :ivar p: probability of the positive label, float64 (n,), or of each of K > 2 labels, (n, K); NaN where the network was not
        asked.
    :ivar cl: what the ``cl`` tag holds, int16; -1 without a call, and of more than two states.
    :ivar state: name of the state called; empty without a call.
    :ivar reason: why there is no call; empty for a call.
    :ivar learnt: whether the model learnt from these reads, as ``state`` (yes, no or unknown) and the numbers behind it.
    """

    labels: tuple[str, ...]
    read_id: NDArray[np.object_]
    reference: NDArray[np.object_]
    p: NDArray[np.float64]
    cl: NDArray[np.int16]
    state: NDArray[np.object_]
    reason: NDArray[np.object_]
    learnt: Overlap

    def __len__(self) -> int:
        return len(self.read_id)

    @property
    def positive_label(self) -> str | None:
        """The label whose probability ``p`` is; None of more than two."""
        return self.labels[1] if len(self.labels) == 2 else None

    def columns(self) -> dict[str, Array]:
        """Return the arrays by name; of more than two states there is a ``p_<label>`` for each, and no ``cl``."""
        scores: dict[str, Array]
        if self.positive_label is not None:
            scores = {"p": self.p, "cl": self.cl}
        else:
            scores = {f"p_{label}": column for label, column in zip(self.labels, self.p.T, strict=True)}
        return {
            "read_id": self.read_id,
            "reference": self.reference,
            **scores,
            "state": self.state,
            "reason": self.reason,
        }

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame; needs pandas, which leech does not bring along."""
        return _to_pandas(self.columns())

    def to_polars(self) -> polars.DataFrame:
        """Return a data frame; needs polars, which leech does not bring along."""
        return _to_polars(self.columns())


class OpenCorpus:
    """A corpus to look at; opening maps its files and reads nothing.

    :ivar corpus: for all that is not offered here.
    """

    def __init__(self, path: Path | str) -> None:
        self.corpus = Corpus.open(Path(path))

    def __len__(self) -> int:
        return len(self.corpus)

    @property
    def recipe(self) -> Recipe:
        """By which its chunks were cut."""
        return self.corpus.recipe

    @property
    def labels(self) -> list[str]:
        """Names of the states, by code."""
        return self.corpus.labels

    @property
    def splits(self) -> list[str]:
        """Splits that have chunks; empty where the corpus is not split."""
        if not self.corpus.is_split:
            return []
        present = set(np.unique(self.corpus.column("split")).tolist())
        return [name for code, name in enumerate(SPLITS) if code in present]

    def numpy(self, names: Sequence[str], split: str | None = None) -> dict[str, Array]:
        """Return stored columns of all chunks or of one split, as ``docs/formats.md`` describes them.

        :raises InputError: a split that the corpus does not have.
        :raises ConfigError: a column that it does not have.
        """
        unknown = [name for name in names if not self.corpus.has_column(name)]
        if unknown:
            raise ConfigError(f"Corpus '{self.corpus.path}' has no column '{unknown[0]}'.", hint="See docs/formats.md.")
        return self.corpus.gather(self.corpus.rows(split), names)

    def signal(self, split: str | None = None) -> NDArray[np.float32]:
        """Return normalised signal as networks see it, float32 (num_chunks, num_samples); padding is 0."""
        rows, parts = self.corpus.rows(split), [np.zeros((0, self.recipe.num_samples), dtype=np.float32)]
        parts += [batch.inputs.signal.numpy() for batch in iterate_batches(self.corpus, rows, 4096, [])]
        return np.concatenate(parts)

    def reads(self, split: str | None = None) -> dict[str, Array]:
        """Return what is known of each chunk's read, one value each: ids as text, names in place of codes.

        A label or split that a chunk does not have is empty.
        """
        rows = self.corpus.rows(split)
        found = self.corpus.gather(rows, ["read_id", "parent_id", *_CATEGORIES, *_NUMBERS])
        told: dict[str, Array] = {name: _ids(found[name]) for name in ("read_id", "parent_id")}
        for name in _CATEGORIES:
            # Code -1 is the last one: there is no name.
            told[name] = np.array([*self.corpus.categories[name], ""], dtype=object)[found[name]]
        if self.corpus.is_split:
            code = self.corpus.gather(rows, ["split"])["split"]
            told["split"] = np.array([*SPLITS, ""], dtype=object)[np.minimum(code, len(SPLITS))]
        return {**told, **{name: found[name] for name in _NUMBERS}}

    def to_pandas(self, split: str | None = None) -> pandas.DataFrame:
        """Return :meth:`reads` as a data frame; needs pandas, which leech does not bring along."""
        return _to_pandas(self.reads(split))

    def to_polars(self, split: str | None = None) -> polars.DataFrame:
        """Return :meth:`reads` as a data frame; needs polars, which leech does not bring along."""
        return _to_polars(self.reads(split))


class Model:
    """A trained model, ready to call reads.

    :param path: model folder; loading it runs no code from it.
    :param device: ``auto``, ``cpu`` or ``cuda``.
    """

    def __init__(self, path: Path | str, device: str = "auto") -> None:
        self.path = Path(path)
        self._loaded = load_bundle(self.path)
        self._device = device

    @property
    def bundle(self) -> ModelBundle:
        """All that the folder says: network, recipe, training, calibration, operating point."""
        return self._loaded.bundle

    @property
    def recipe(self) -> Recipe:
        """By which its chunks are cut."""
        return self.bundle.recipe

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the states: negative and positive, or all of more than two."""
        return self.bundle.labels

    @property
    def threshold_cl(self) -> int | None:
        """Smallest ``cl`` that is called positive, where no other is asked for; None of more than two states."""
        point = self.bundle.operating_point
        return None if point is None else point.threshold_cl

    @cached_property
    def num_parameters(self) -> int:
        """Trained numbers of the network."""
        return sum(parameter.numel() for parameter in self._loaded.network.parameters())

    def predict(
        self,
        corpus: OpenCorpus | Path | str | None = None,
        *,
        split: str | None = None,
        pod5: Path | str | Sequence[Path | str] | None = None,
        bam: Path | str | None = None,
        reference: Path | str | None = None,
        **options: Any,
    ) -> Calls:
        """Call the reads of a corpus, or those of a run given as POD5, BAM and reference.

        A run gives a row per record of the BAM, called or with a reason, as ``leech predict`` does; use that function for
        runs of millions of reads, which it streams to files.

        :param split: of the corpus; all chunks for None.
        :param options: of ``leech predict``, by their names in ``PredictConfig``, such as ``threshold``, ``min_confidence``,
            ``workers``, ``batch_size``; of a run those of ``ReadSources`` too, such as ``min_mapq`` and ``read_sites``.
        :raises ConfigError: neither a corpus nor a run, or both; unknown options, and those that only files can answer.
        :raises MismatchError: a corpus cut by another recipe, reads that contradict the recipe's frame, or a refinement that
            lowers their fit to the levels.
        :raises InputError: files that cannot be used, or no read that could be called.
        """
        run = {"pod5": pod5, "bam": bam, "reference": reference}
        reading = {name: options.pop(name) for name in _READING if name in options}
        config = _options(options, self._device)
        rules = (
            CallRules.of(config, self.bundle.threshold_cl)
            if self.bundle.has_two_states
            else ClassRules.of(config, self.bundle)
        )
        if corpus is not None:
            if reading or any(value is not None for value in run.values()):
                raise ConfigError(
                    "Model.predict was given a corpus and a run, and calls one of them.",
                    hint="Leave out the corpus, or pod5, bam, reference and how they are read.",
                )
            opened = corpus if isinstance(corpus, OpenCorpus) else OpenCorpus(corpus)
            return self._of_corpus(opened.corpus, split, config, rules)
        missing = [name for name, value in run.items() if value is None]
        if missing:
            raise ConfigError(
                f"Nothing to call: there is no corpus, and of a run {missing[0]} is missing.",
                hint="Give a corpus, or pod5, bam and reference.",
            )
        if split is not None:
            raise ConfigError("Only a corpus has splits, and a run was given.", hint="Leave split out.")
        assert pod5 is not None
        paths = [pod5] if isinstance(pod5, (str, Path)) else pod5
        sources = {"pod5": [Path(path) for path in paths], "bam": Path(bam or ""), "reference": Path(reference or "")}
        return self._of_run(build(ReadSources, {**sources, **reading}), config, rules)

    def _of_corpus(
        self, corpus: Corpus, split: str | None, config: PredictConfig, rules: CallRules | ClassRules
    ) -> Calls:
        require_same_recipe(self.recipe, corpus, self.path)
        rows, device = corpus.rows(split), choose_device(config.device)
        p = score_model(self._loaded, corpus, rows, config.batch_size, device, on_batch=lambda number: None).p
        overlap = compare_with_learnt(self._loaded, corpus, rows, [split or "all"])
        warn_if_learnt(overlap, self.path)
        found = corpus.gather(rows, ["read_id", "reference", "junction_indel"])
        likelihoods = np.full(len(rows), -1, dtype=np.int16)
        if isinstance(rules, CallRules):
            verdicts = decide(p, found["junction_indel"], rules)
            states, reasons = verdicts.positive.astype(np.int64), verdicts.reasons
            likelihoods = verdicts.likelihoods.astype(np.int16)
        else:
            states, reasons = decide_classes(p, found["junction_indel"], rules)
        called = reasons == ""
        return Calls(
            self.labels,
            _ids(found["read_id"]),
            np.array(corpus.categories["reference"], dtype=object)[found["reference"]],
            p,
            np.where(called, likelihoods, np.int16(-1)),
            np.where(called, np.array(self.labels, dtype=object)[states], ""),
            reasons.astype(object),
            overlap,
        )

    def _of_run(self, sources: ReadSources, config: PredictConfig, rules: CallRules | ClassRules) -> Calls:
        rows: list[_Row] = []
        with (
            open_run(self.path, self.recipe, sources) as stream,
            SilentProgress().task("predict", unit="reads") as task,
        ):
            whole: CallLoop[Any]
            if isinstance(rules, CallRules):
                whole = Run(self.path, self._loaded, rules, stream)
            else:
                whole = ClassRun(self.path, self._loaded, rules, stream)
            whole.go(config, lambda _, call: rows.append(self._row(call)), task, time.monotonic)
        return Calls(
            self.labels,
            np.array([row.read_id for row in rows], dtype=object),
            np.array([row.reference for row in rows], dtype=object),
            np.array([row.p for row in rows], dtype=np.float64),
            np.array([row.cl for row in rows], dtype=np.int16),
            np.array([row.state for row in rows], dtype=object),
            np.array([row.reason for row in rows], dtype=object),
            whole.learnt,
        )

    def _row(self, call: Call | ClassCall) -> _Row:
        if isinstance(call, Call):
            p: Any = np.nan if call.probability is None else call.probability
            code: int | None = call.positive
            likelihood = call.likelihood
        else:
            p = np.full(len(self.labels), np.nan) if call.probabilities is None else call.probabilities
            code, likelihood = call.state, None
        state = "" if code is None else self.labels[code]
        return _Row(call.read_id, call.reference, p, -1 if likelihood is None else likelihood, state, call.reason)


class _Row(NamedTuple):
    """One record's part of :class:`Calls`."""

    read_id: str
    reference: str
    p: Any
    cl: int
    state: str
    reason: str


def load_model(path: Path | str, device: str = "auto") -> Model:
    """Load a model folder.

    :raises InputError: no model folder, or one that was changed.
    """
    return Model(path, device)


def open_corpus(path: Path | str) -> OpenCorpus:
    """Open a corpus of ``leech data prepare`` or ``leech data merge``.

    :raises InputError: no corpus, or a damaged one.
    """
    return OpenCorpus(path)


_READING = tuple(field.name for field in fields(ReadSources) if field.name not in ("pod5", "bam", "reference"))
"""Options of ``leech predict`` about which reads of a run are taken."""

_ANSWERED = frozenset(
    (
        "device", "gpus", "workers", "batch_size", "batch_records",
        "threshold", "threshold_cl", "min_confidence", "abstain_junction_indel",
    )
)  # fmt: skip
"""Options of ``leech predict`` that do not concern files."""


def _options(options: Mapping[str, Any], device: str) -> PredictConfig:
    config = build(PredictConfig, {"device": device, **options})
    for name in options:
        if name not in _ANSWERED:
            raise ConfigError(
                f"Option '{name}' is about files, which Model.predict does not write.",
                hint="Call leech.prediction.predict.predict, or run 'leech predict'.",
            )
    config.refuse_contradictions()
    return config


def _ids(packed: Array) -> NDArray[np.object_]:
    return np.array(unpack_read_ids(packed), dtype=object)


def _to_pandas(columns: Mapping[str, Array]) -> pandas.DataFrame:
    import pandas

    return pandas.DataFrame(dict(columns))


def _to_polars(columns: Mapping[str, Array]) -> polars.DataFrame:
    import polars

    return polars.DataFrame(
        {name: values.tolist() if values.dtype == object else values for name, values in columns.items()}
    )
