"""What a network is trained for.

Hides: labels, class weights and how validation is scored. Belongs here: one class per objective, each a
``leech.training.step.Task``. The loop that runs them knows none of this; the metrics are those of ``leech.evaluation``.
Invariants: validation rows are scored by the code that ``leech eval test`` runs, in batches that are the same at any number of
ranks, so that the scores are the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from leech.console import logger
from leech.data.batches import Batch, Inputs
from leech.data.corpus import Corpus
from leech.evaluation.evaluate import score
from leech.evaluation.intervals import auroc_error
from leech.evaluation.metrics import Ranking, auroc, average_precision, mirrored
from leech.models.heads import NetworkWithHeads, make_heads
from leech.models.network import Network
from leech.models.noise import Draw
from leech.training.auxiliary import choose_auxiliaries, reversal_strength
from leech.training.checkpoints import Judgement
from leech.training.checks import TwoStates
from leech.training.config import TrainConfig
from leech.training.losses import binary_cross_entropy, class_weights
from leech.training.samplers import Weights, balanced_weights, epoch_rows
from leech.training.world import World

_VALIDATION_BATCH = 128

_BATCHES_OF_ROUND = 8
"""Batches that a rank scores between two answers to whether it was asked to end: a second or less."""


class ClassificationTask:
    """Tells two states apart: one raw logit, cross-entropy, judged by validation AUROC."""

    def __init__(
        self, corpus: Corpus, states: TwoStates, network: Network, features: Sequence[str], config: TrainConfig
    ) -> None:
        self.corpus, self.features = corpus, features
        self.network: nn.Module = network
        self._states, self._config = states, config
        self._auxiliaries = choose_auxiliaries(config, corpus, states.train)
        heads = {one.name: (one.num_outputs, one.is_adversary) for one in self._auxiliaries}
        self.module: nn.Module = NetworkWithHeads(
            network, make_heads(network.output.in_features, heads, seed=config.seed)
        )
        self.columns: Sequence[str] = [one.column for one in self._auxiliaries]
        self.terms: Sequence[str] = ["loss", *(one.name for one in self._auxiliaries)]
        self.factors: Sequence[float] = [1.0, *(one.factor for one in self._auxiliaries)]
        self._draw = self._draw_weights()
        self._validation_labels = corpus.gather(states.validation, ["label"])["label"]
        # Classes are balanced by what their chunks weigh, not by how many they are.
        self._weights = class_weights(*self._expected_weights(), config.class_weights)
        logger.info(
            "Weight in the loss: %.3f per chunk of '%s', %.3f per chunk of '%s'.",
            self._weights[0],
            states.labels[0],
            self._weights[1],
            states.labels[1],
        )

    @property
    def num_rows(self) -> int:
        """Rows of an epoch: as many as the training split has, in a weighted draw too."""
        return len(self._states.train)

    def _is_positive(self, labels: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.equal(labels, self._states.positive_code)

    def _draw_weights(self) -> Weights | None:
        """Return by which weights training rows are drawn; None for each once."""
        groups, rows = [], self._states.train
        if self._config.oversample_minority:
            groups.append(self._is_positive(self.corpus.gather(rows, ["label"])["label"]).astype(np.int64))
        if self._config.balance_by is not None:
            groups.append(self.corpus.gather(rows, [self._config.balance_by])[self._config.balance_by].astype(np.int64))
        if self._config.oversample_minority and self._config.balance_by is not None:
            self._warn_of_missing_classes(self._config.balance_by, groups[0], groups[1])
        return balanced_weights(groups) if groups else None

    def _warn_of_missing_classes(self, column: str, positive: NDArray[np.int64], codes: NDArray[np.int64]) -> None:
        """Say which values of a column have chunks of one class only: no draw can balance what is not there."""
        sides = [set(np.unique(codes[positive == side]).tolist()) for side in (0, 1)]
        lonely = [str(self.corpus.categories[column][code]) for code in sorted(sides[0] ^ sides[1]) if code >= 0]
        if lonely:
            logger.warning(
                "Training chunks of %s have one class only, so the network can tell their class by what they are: %s.",
                column,
                ", ".join(f"'{name}'" for name in lonely[:10]) + (" ..." if len(lonely) > 10 else ""),
            )

    def _expected_weights(self) -> tuple[float, float]:
        """Return what negative and positive chunks of an epoch weigh together, on average, before classes are balanced."""
        rows = self._states.train
        weight = self.corpus.weights(rows)
        if self._draw is not None:
            weight = weight * self._draw.share * len(rows)
        positive = self._is_positive(self.corpus.gather(rows, ["label"])["label"])
        return float(weight[~positive].sum()), float(weight[positive].sum())

    def _row_weights(self, positive: NDArray[np.bool_], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what each row weighs in the loss: by class and by source."""
        return np.where(positive, self._weights[1], self._weights[0]) * self.corpus.weights(rows)

    def epoch_rows(self, epoch: int) -> NDArray[np.int64]:
        """Return the training rows in the order of one epoch."""
        return epoch_rows(
            self._states.train,
            seed=self._config.seed,
            epoch=epoch,
            weights=self._draw,
            shuffle=self._config.shuffle,
        )

    def weights(self, batch: Batch) -> NDArray[np.float64]:
        """Return what the rows weigh together, and the number of targets of each head."""
        goal = self._row_weights(self._is_positive(batch.labels), batch.rows).sum()
        return np.array([goal, *(one.num_targets(batch) for one in self._auxiliaries)], dtype=np.float64)

    def losses(self, module: nn.Module, inputs: Inputs, batch: Batch, draw: Draw, progress: float) -> Tensor:
        """Return the cross-entropy of a batch, weighted by class and by source, and the loss of each head, as sums."""
        is_positive, device = self._is_positive(batch.labels), inputs.signal.device
        positive = torch.from_numpy(is_positive).to(device)
        weights = torch.from_numpy(self._row_weights(is_positive, batch.rows)).to(device, torch.float32)
        outputs = module(inputs, draw, reversal_strength(progress, self._config.adversary_weight))
        goal = binary_cross_entropy(outputs["logits"], positive, weights, self._config.label_smoothing).total
        return torch.stack([goal, *(one.loss(outputs[one.name], batch) for one in self._auxiliaries)])

    def validate(
        self, network: nn.Module, world: World, is_asked_to_end: Callable[[], bool] = lambda: False
    ) -> Mapping[str, float | None] | None:
        """Score the validation split: loss weighted as in training, AUROC and the average precision of either class."""
        rows = self._states.validation
        p = _scored_together(network, self.corpus, rows, self.features, world, is_asked_to_end)
        if p is None:
            return None
        positive = self._is_positive(self._validation_labels)
        curve = Ranking(positive, p).curve()
        return {
            "loss": _cross_entropy(positive, p, self._row_weights(positive, rows)),
            "auroc": auroc(curve),
            "auprc_positive": average_precision(curve),
            "auprc_negative": average_precision(mirrored(curve)),
        }

    def judge(self, metrics: Mapping[str, float | None]) -> Judgement:
        """Return the AUROC with its standard error."""
        area = metrics["auroc"]
        assert area is not None, "both classes are in the validation split"
        return Judgement(area, auroc_error(area, *self._states.num_validation))


def _scored_together(
    network: nn.Module,
    corpus: Corpus,
    rows: NDArray[np.int64],
    features: Sequence[str],
    world: World,
    is_asked_to_end: Callable[[], bool],
) -> NDArray[np.float64] | None:
    """Return P(positive) of the rows, float64 (n,), of which each rank scores every ``size``-th batch.

    :return: None on all ranks if one was asked to end; they ask each other every few batches.
    """
    p = np.zeros(len(rows))
    of_round = _VALIDATION_BATCH * _BATCHES_OF_ROUND * world.size
    for start in range(0, len(rows), of_round):
        places = np.arange(start, min(start + of_round, len(rows)))
        own = places[places // _VALIDATION_BATCH % world.size == world.rank]
        p[own] = score(network, corpus, rows[own], features, _VALIDATION_BATCH, world.device).p
        if world.sum_array(np.array([float(is_asked_to_end())]))[0]:
            return None
    return world.sum_array(p)


def _cross_entropy(positive: NDArray[np.bool_], p: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    # A probability that rounds to 0 or 1 would cost infinitely much.
    right = np.clip(np.where(positive, p, 1 - p), 1e-12, None)
    return float(np.sum(-np.log(right) * weights) / np.sum(weights))
