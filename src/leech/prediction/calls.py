"""From probabilities to calls: which state a read is in, or why nothing is said about it.

Hides: the rules. Belongs here: what is decided of a read once its probability is known; why a read has none was decided in
``data/``. Invariants: every record has a call or a reason; a call depends on ``cl`` and the threshold alone, so that whoever
reads the BAM finds the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pysam
from numpy.typing import NDArray

from leech.data.reasons import USED
from leech.data.stream import RecordBatch
from leech.models.inference import charging_likelihood, is_positive
from leech.prediction.config import PredictConfig


class Call(NamedTuple):
    """What became of one record.

    :ivar reference: name; empty where unmapped.
    :ivar probability: of the positive label; None where the network was not asked.
    :ivar likelihood: the ``cl`` value; None without a call.
    :ivar positive: whether that lies at the operating point or above; None without a call.
    :ivar reason: why there is no call; empty for a call.
    """

    read_id: str
    reference: str
    probability: float | None
    likelihood: int | None
    positive: bool | None
    reason: str


class CallRules(NamedTuple):
    """When a read is called, and what.

    :ivar threshold_cl: smallest ``cl`` that is called positive.
    :ivar min_confidence: least probability of the state that would be called.
    :ivar needs_clean_junction: whether reads are left uncalled whose alignment has an indel at the motif, or does not cover it.
    """

    threshold_cl: int
    min_confidence: float = 0.0
    needs_clean_junction: bool = False

    @classmethod
    def of(cls, config: PredictConfig, threshold_cl: int) -> CallRules:
        """Return the rules that a configuration asks for.

        :param threshold_cl: the model's, which holds where the configuration gives none.
        """
        threshold = config.threshold_cl or threshold_cl
        if config.threshold is not None:
            # As a read of this very probability is rounded, so that none at it or above is missed.
            threshold = int(charging_likelihood(np.array([config.threshold]))[0])
        return cls(threshold, config.min_confidence or 0.0, config.abstain_junction_indel)

    @property
    def abstains(self) -> bool:
        """Whether reads may be left uncalled although the network gave them a probability."""
        return self.min_confidence > 0 or self.needs_clean_junction


class Verdicts(NamedTuple):
    """What the rules say of chunks, arrays (num_chunks,).

    :ivar likelihoods: their ``cl``, uint8, whether or not they are called.
    :ivar positive: whether that lies at the operating point or above, bool.
    :ivar reasons: why there is no call; empty for a call.
    """

    likelihoods: NDArray[np.uint8]
    positive: NDArray[np.bool_]
    reasons: NDArray[np.str_]


def decide(probabilities: NDArray[np.float64], junction_indel: NDArray[np.uint8], rules: CallRules) -> Verdicts:
    """Apply the rules to chunks.

    :param probabilities: P(positive), float64 (num_chunks,).
    :param junction_indel: the column of that name, uint8 (num_chunks,).
    """
    likelihoods = charging_likelihood(probabilities)
    positive = is_positive(likelihoods, rules.threshold_cl)
    unsure = np.where(positive, probabilities, 1 - probabilities) < rules.min_confidence
    disrupted = (junction_indel != 0) & rules.needs_clean_junction
    reasons = np.where(disrupted, "junction_indel", np.where(unsure, "low_confidence", ""))
    return Verdicts(likelihoods, positive, reasons)


def judge(
    batch: RecordBatch, probabilities: NDArray[np.float64], rules: CallRules
) -> Iterator[tuple[pysam.AlignedSegment, Call]]:
    """Pair each record with its call; every probability is used exactly once.

    :param probabilities: P(positive) of the batch's chunks, float64 (num_chunks,).
    """
    verdicts = decide(probabilities, batch.cut.chunks.columns["junction_indel"], rules)
    asked = zip(probabilities.tolist(), *(column.tolist() for column in verdicts), strict=True)
    for record, outcome in zip(batch.records, batch.outcomes, strict=True):
        name, reference = record.query_name or "", record.reference_name or ""
        if outcome != USED:
            yield record, Call(name, reference, None, None, None, outcome)
            continue
        probability, likelihood, positive, reason = next(asked)
        if reason:
            yield record, Call(name, reference, probability, None, None, reason)
        else:
            yield record, Call(name, reference, probability, likelihood, positive, "")
    assert next(asked, None) is None, "more probabilities than used records"
