"""From the probabilities of more than two states to calls: which state a read is in, or why nothing is said about it.

Hides: the rules. Belongs here: what is decided of a read once its probabilities are known, and which options make sense of it;
two states are in ``prediction/calls.py``. Invariants: every record has a call or a reason; called is the most probable state,
of equally probable ones the first of the labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pysam
from numpy.typing import NDArray

from leech.config import flag_of
from leech.data.reasons import USED
from leech.data.stream import RecordBatch
from leech.errors import ConfigError
from leech.models.bundle import ModelBundle
from leech.prediction.config import PredictConfig

_OF_TWO = (
    *("threshold", "threshold_cl", "fpr", "tpr", "call_rates"),
    *("negative_control", "positive_control", "reference_groups"),
)
"""Options about a positive state, and about fractions that are made of it."""


class ClassCall(NamedTuple):
    """What became of one record.

    :ivar reference: name; empty where unmapped.
    :ivar probabilities: of the labels, float64 (K,); None where the network was not asked.
    :ivar state: position of the label that is called; None without a call.
    :ivar reason: why there is no call; empty for a call.
    """

    read_id: str
    reference: str
    probabilities: NDArray[np.float64] | None
    state: int | None
    reason: str

    @property
    def is_called(self) -> bool:
        """Whether something is said of it."""
        return self.state is not None


class ClassRules(NamedTuple):
    """When a read is called.

    :ivar min_confidence: least probability of the state that would be called.
    :ivar needs_clean_junction: whether reads are left uncalled whose alignment has an indel at the motif, or does not cover it.
    """

    min_confidence: float = 0.0
    needs_clean_junction: bool = False

    @classmethod
    def of(cls, config: PredictConfig, bundle: ModelBundle) -> ClassRules:
        """Return the rules that a configuration asks for.

        :raises ConfigError: options that two states alone can answer.
        """
        for name in _OF_TWO:
            if getattr(config, name) is not None:
                flag = flag_of(PredictConfig.__dataclass_fields__[name])
                raise ConfigError(
                    f"{flag} is about a positive state, and this model tells {len(bundle.labels)} states apart of which none "
                    f"is: {', '.join(bundle.labels)}.",
                    hint="Leave it out; the most probable state is called, and --min-confidence leaves out calls that are not "
                    "sure enough.",
                )
        return cls(config.min_confidence or 0.0, config.abstain_junction_indel)


class ClassVerdicts(NamedTuple):
    """What the rules say of chunks, arrays (num_chunks,).

    :ivar states: positions of the most probable labels, int64, whether or not they are called.
    :ivar reasons: why there is no call; empty for a call.
    """

    states: NDArray[np.int64]
    reasons: NDArray[np.str_]


def decide(probabilities: NDArray[np.float64], junction_indel: NDArray[np.uint8], rules: ClassRules) -> ClassVerdicts:
    """Apply the rules to chunks.

    :param probabilities: of the labels, float64 (num_chunks, K).
    :param junction_indel: the column of that name, uint8 (num_chunks,).
    """
    unsure = probabilities.max(axis=1) < rules.min_confidence
    disrupted = (junction_indel != 0) & rules.needs_clean_junction
    reasons = np.where(disrupted, "junction_indel", np.where(unsure, "low_confidence", ""))
    return ClassVerdicts(probabilities.argmax(axis=1), reasons)


def judge(
    batch: RecordBatch, probabilities: NDArray[np.float64], rules: ClassRules
) -> Iterator[tuple[pysam.AlignedSegment, ClassCall]]:
    """Pair each record with its call; the probabilities of every chunk are used exactly once.

    :param probabilities: of the batch's chunks, float64 (num_chunks, K).
    """
    verdicts = decide(probabilities, batch.cut.chunks.columns["junction_indel"], rules)
    asked = zip(probabilities, *(column.tolist() for column in verdicts), strict=True)
    for record, outcome in zip(batch.records, batch.outcomes, strict=True):
        name, reference = record.query_name or "", record.reference_name or ""
        if outcome != USED:
            yield record, ClassCall(name, reference, None, None, outcome)
            continue
        given, state, reason = next(asked)
        yield record, ClassCall(name, reference, given, None if reason else state, reason)
    assert next(asked, None) is None, "more probabilities than used records"
