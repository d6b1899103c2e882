"""What a network is trained for.

Hides: labels, class weights and how validation is scored. Belongs here: one class per objective, each a
``leech.training.loop.Task``. The loop that runs them knows none of this; the metrics are those of ``leech.evaluation``.
Invariants: validation rows are scored in ascending order by the code that ``leech eval test`` runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from leech.console import logger
from leech.data.batches import Batch, Inputs, epoch_order
from leech.data.corpus import Corpus
from leech.evaluation.evaluate import score
from leech.evaluation.intervals import auroc_error
from leech.evaluation.metrics import Ranking, auroc, average_precision, mirrored
from leech.training.checkpoints import Judgement
from leech.training.checks import TwoStates
from leech.training.config import TrainConfig
from leech.training.losses import LossSum, binary_cross_entropy, class_weights

_VALIDATION_BATCH = 512


class ClassificationTask:
    """Tells two states apart: one raw logit, cross-entropy, judged by validation AUROC."""

    def __init__(
        self, corpus: Corpus, states: TwoStates, network: nn.Module, features: Sequence[str], config: TrainConfig
    ) -> None:
        self.corpus, self.network, self.features = corpus, network, features
        self._states, self._seed, self._smoothing = states, config.seed, config.label_smoothing
        # Classes are balanced by what their chunks weigh, not by how many they are.
        weight = corpus.weights(states.train)
        positive = corpus.gather(states.train, ["label"])["label"] == states.positive_code
        self._weights = class_weights(
            float(weight[~positive].sum()), float(weight[positive].sum()), config.class_weights
        )
        logger.info(
            "Weight in the loss: %.3f per chunk of '%s', %.3f per chunk of '%s'.",
            self._weights[0],
            states.labels[0],
            self._weights[1],
            states.labels[1],
        )

    @property
    def num_rows(self) -> int:
        """Rows of the training split."""
        return len(self._states.train)

    def epoch_rows(self, epoch: int) -> NDArray[np.int64]:
        """Return the training rows in the order of one epoch."""
        return epoch_order(self._states.train, self._seed, epoch)

    def loss(self, network: nn.Module, inputs: Inputs, batch: Batch) -> LossSum:
        """Return the cross-entropy of a batch, weighted by class and by source."""
        positive = torch.from_numpy(batch.labels == self._states.positive_code).to(inputs.signal.device)
        negative_weight, positive_weight = self._weights
        weights = torch.where(positive, positive_weight, negative_weight).to(torch.float32)
        weights *= torch.from_numpy(self.corpus.weights(batch.rows)).to(weights)
        return binary_cross_entropy(network(inputs), positive, weights, self._smoothing)

    def validate(self, network: nn.Module, device: torch.device) -> Mapping[str, float | None]:
        """Score the validation split: loss weighted as in training, AUROC and the average precision of either class."""
        scores = score(network, self.corpus, self._states.validation, self.features, _VALIDATION_BATCH, device)
        positive = scores.labels == self._states.positive_code
        curve = Ranking(positive, scores.p).curve()
        weights = np.where(positive, self._weights[1], self._weights[0]) * self.corpus.weights(scores.rows)
        return {
            "loss": _cross_entropy(positive, scores.p, weights),
            "auroc": auroc(curve),
            "auprc_positive": average_precision(curve),
            "auprc_negative": average_precision(mirrored(curve)),
        }

    def judge(self, metrics: Mapping[str, float | None]) -> Judgement:
        """Return the AUROC with its standard error."""
        area = metrics["auroc"]
        assert area is not None, "both classes are in the validation split"
        return Judgement(area, auroc_error(area, *self._states.num_validation))


def _cross_entropy(positive: NDArray[np.bool_], p: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    # A probability that rounds to 0 or 1 would cost infinitely much.
    right = np.clip(np.where(positive, p, 1 - p), 1e-12, None)
    return float(np.sum(-np.log(right) * weights) / np.sum(weights))
