"""Whether a model saw reads in its training: what it keeps of them, and comparing others with that.

Hides: what counts as evidence, and of what. Belongs here: what prediction and evaluation must judge alike; how a set of reads
is kept in little room is ``data/sketch.py``'s. Invariants: "yes" takes a read that was found, "no" takes proof (every read of
the training is kept, no run is shared, or the splits of one corpus keep them apart); everything else is "unknown", so that a
model of an earlier version never passes for one that did not see the reads. Learnt from means the training split and the
validation split, by which the weights that are kept were chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.console import logger
from leech.data.sketch import ReadSketch

State = Literal["yes", "no", "unknown"]

STATES: tuple[State, ...] = ("yes", "no", "unknown")


class Overlap(NamedTuple):
    """Whether reads are among those that a model learnt from.

    :ivar state: ``yes`` for at least one of them.
    :ivar num_compared: reads that could be told to be among them or not, a random share of all.
    :ivar num_found: those that are.
    """

    state: State
    num_compared: int = 0
    num_found: int = 0

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return self._asdict()

    @property
    def words(self) -> str:
        """The state with the numbers behind it."""
        if self.state == "yes":
            return f"yes: {self.num_found} of {self.num_compared} reads compared"
        if self.state == "unknown" and self.num_compared:
            return f"unknown: none of {self.num_compared} reads compared"
        return self.state


class Learnt(NamedTuple):
    """What a model folder tells of the reads that it learnt from.

    :ivar sketch: of the ids of parent reads; None where the folder has none.
    :ivar runs: their sequencing runs; None where the folder does not say, or not of every read.
    """

    sketch: ReadSketch | None = None
    runs: frozenset[str] | None = None

    @classmethod
    def of(cls, parent_ids: NDArray[np.uint8], runs: Iterable[str]) -> Learnt:
        """Return what is kept of reads.

        :param parent_ids: uint8 (n, 16).
        """
        return cls(ReadSketch.of(parent_ids), _known(runs))

    @classmethod
    def load(cls, folder: Path, training: Mapping[str, Any]) -> Learnt:
        """Return what a model folder tells; of folders of earlier versions nothing.

        :param training: what the description says.
        :raises InputError: a file that was changed.
        """
        reads, runs = training.get("learnt_reads"), training.get("runs")
        sketch = None
        if isinstance(reads, Mapping):
            sketch = ReadSketch.load(folder, int(reads["num_reads"]), str(reads["sha256"]))
        return cls(sketch, _known(map(str, runs)) if isinstance(runs, list) else None)

    def to_mapping(self) -> dict[str, Any]:
        """Return what goes into the description of a model; :meth:`save` writes the rest."""
        assert self.sketch is not None, "only what training made is written"
        return {
            "runs": None if self.runs is None else sorted(self.runs),
            "learnt_reads": {"num_reads": self.sketch.num_reads, "sha256": self.sketch.sha256},
        }

    def save(self, folder: Path) -> None:
        """Write the sketch into the model folder."""
        assert self.sketch is not None, "only what training made is written"
        self.sketch.save(folder)


class Comparison:
    """Reads compared with those that a model learnt from, some at a time."""

    def __init__(self, learnt: Learnt) -> None:
        self._learnt = learnt
        self._runs: set[str] = set()
        self._num_reads = self._num_compared = self._num_found = 0

    def see(self, parent_ids: NDArray[np.uint8], runs: Iterable[str]) -> None:
        """Take more reads in.

        :param parent_ids: uint8 (n, 16).
        :param runs: names of their runs.
        """
        self._runs.update(runs)
        self._num_reads += len(parent_ids)
        if self._learnt.sketch is not None:
            compared, found = self._learnt.sketch.look_up(parent_ids)
            self._num_compared += compared
            self._num_found += found

    def result(self, *, kept_apart: bool = False) -> Overlap:
        """Return what is known of the reads seen so far.

        :param kept_apart: whether they are of a split that the training kept apart from what it learnt from.
        """
        state: State = "unknown"
        if self._num_found:
            state = "yes"
        elif self._num_reads and (kept_apart or self._all_compared() or self._of_other_runs()):
            state = "no"
        return Overlap(state, self._num_compared, self._num_found)

    def _all_compared(self) -> bool:
        return self._learnt.sketch is not None and self._learnt.sketch.is_complete

    def _of_other_runs(self) -> bool:
        here, there = _known(self._runs), self._learnt.runs
        return bool(here and there and not here & there)


def warn_if_learnt(overlap: Overlap, model: Path) -> None:
    """Say that a model learnt from reads that it is asked about."""
    if overlap.state == "yes":
        logger.warning(
            "Model '%s' learnt from %d of the %d reads that could be compared with those of its training, or was chosen by "
            "them: it calls them better than it will call others, and figures made of them flatter it.",
            model,
            overlap.num_found,
            overlap.num_compared,
        )


def read_overlap(content: Any) -> Overlap | None:
    """Return an overlap as :meth:`Overlap.to_mapping` wrote it; None for anything else.

    Where nothing was recorded, nothing is known.
    """
    if content is None:
        return Overlap("unknown")
    if not isinstance(content, Mapping) or content.get("state") not in STATES:
        return None
    compared, found = content.get("num_compared"), content.get("num_found")
    if not _is_count(compared) or not _is_count(found):
        return None
    return Overlap(content["state"], int(compared or 0), int(found or 0))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _known(runs: Iterable[str]) -> frozenset[str] | None:
    """Return names of runs; None where one has none, so that nothing could be told by names."""
    names = frozenset(runs)
    return None if "" in names else names
