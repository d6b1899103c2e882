"""What a network is trained for.

Hides: labels, class weights and how validation is scored. Belongs here: one class per objective, each a
``leech.training.step.Task``. The loop that runs them knows none of this; the metrics are those of ``leech.evaluation``.
Invariants: validation rows are scored by the code that ``leech eval test`` runs, in batches that are the same at any number of
ranks, so that the scores are the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from leech.console import logger
from leech.data.batches import Batch, Inputs
from leech.data.corpus import Corpus
from leech.evaluation.evaluate import score
from leech.evaluation.intervals import auroc_influences
from leech.evaluation.metrics import Ranking, auroc, average_precision, mirrored
from leech.evaluation.multiclass.metrics import OneVersusRest, confusion_matrix, mean_of
from leech.models.heads import NetworkWithHeads, make_heads
from leech.models.network import Network
from leech.models.noise import Draw
from leech.training.auxiliary import choose_auxiliaries, reversal_strength
from leech.training.checkpoints import Judgement, Validation
from leech.training.checks import States
from leech.training.config import TrainConfig
from leech.training.losses import binary_cross_entropy, class_weights, softmax_cross_entropy
from leech.training.samplers import Weights, balanced_weights, epoch_rows
from leech.training.world import World

_VALIDATION_BATCH = 128

_BATCHES_OF_ROUND = 8
"""Batches that a rank scores between two answers to whether it was asked to end: a second or less."""


class ClassificationTask(ABC):
    """Tells the states of a corpus apart: cross-entropy, weighted by class and by source, judged by validation AUROC.

    What depends on how many states there are is left to the classes below; :func:`make_task` chooses one of them.
    """

    def __init__(
        self, corpus: Corpus, states: States, network: Network, features: Sequence[str], config: TrainConfig
    ) -> None:
        self.corpus, self.features = corpus, features
        self.network: nn.Module = network
        self._states, self._config = states, config
        self._place = np.full(len(corpus.labels), -1, dtype=np.int64)
        self._place[list(states.codes)] = np.arange(len(states.codes))
        self._auxiliaries = choose_auxiliaries(config, corpus, states.train)
        heads = {one.name: (one.num_outputs, one.is_adversary) for one in self._auxiliaries}
        self.module: nn.Module = NetworkWithHeads(
            network, make_heads(network.output.in_features, heads, seed=config.seed)
        )
        self.columns: Sequence[str] = [one.column for one in self._auxiliaries]
        self.terms: Sequence[str] = ["loss", *(one.name for one in self._auxiliaries)]
        self.factors: Sequence[float] = [1.0, *(one.factor for one in self._auxiliaries)]
        self._draw = self._draw_weights()
        self._validation_classes = self._classes_of(states.validation)
        # Classes are balanced by what their chunks weigh, not by how many they are.
        self._weights = np.array(class_weights(self._expected_weights(), config.class_weights))
        logger.info(
            "Weight in the loss: %s.",
            ", ".join(
                f"{weight:.3f} per chunk of '{label}'"
                for weight, label in zip(self._weights, states.labels, strict=True)
            ),
        )

    @property
    def num_rows(self) -> int:
        """Rows of an epoch: as many as the training split has, in a weighted draw too."""
        return len(self._states.train)

    def _classes(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the class of each label code."""
        return self._place[labels]

    def _classes_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._classes(self.corpus.gather(rows, ["label"])["label"])

    def _draw_weights(self) -> Weights | None:
        """Return by which weights training rows are drawn; None for each once."""
        groups, rows = [], self._states.train
        if self._config.oversample_minority:
            groups.append(self._classes_of(rows))
        if self._config.balance_by is not None:
            groups.append(self.corpus.gather(rows, [self._config.balance_by])[self._config.balance_by].astype(np.int64))
        if self._config.oversample_minority and self._config.balance_by is not None:
            self._warn_of_missing_classes(self._config.balance_by, groups[0], groups[1])
        return balanced_weights(groups) if groups else None

    def _warn_of_missing_classes(self, column: str, classes: NDArray[np.int64], codes: NDArray[np.int64]) -> None:
        """Say which values of a column lack chunks of a class: no draw can balance what is not there."""
        num_classes = len(self._states.labels)
        found = [set(np.unique(codes[classes == number]).tolist()) for number in range(num_classes)]
        lonely = [
            str(self.corpus.categories[column][code])
            for code in sorted(set.union(*found) - set.intersection(*found))
            if code >= 0
        ]
        if lonely:
            logger.warning(
                "Training chunks of %s have %s only, so the network can tell their class by what they are: %s.",
                column,
                "one class" if num_classes == 2 else "some of the classes",
                ", ".join(f"'{name}'" for name in lonely[:10]) + (" ..." if len(lonely) > 10 else ""),
            )

    def _expected_weights(self) -> list[float]:
        """Return what the chunks of each class of an epoch weigh together, on average, before classes are balanced."""
        rows = self._states.train
        weight = self.corpus.weights(rows)
        if self._draw is not None:
            weight = weight * self._draw.share * len(rows)
        classes = self._classes_of(rows)
        return [float(weight[classes == number].sum()) for number in range(len(self._states.labels))]

    def _row_weights(self, classes: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what each row weighs in the loss: by class and by source."""
        return self._weights[classes] * self.corpus.weights(rows)

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
        goal = self._row_weights(self._classes(batch.labels), batch.rows).sum()
        return np.array([goal, *(one.num_targets(batch) for one in self._auxiliaries)], dtype=np.float64)

    def losses(self, module: nn.Module, inputs: Inputs, batch: Batch, draw: Draw, progress: float) -> Tensor:
        """Return the cross-entropy of a batch, weighted by class and by source, and the loss of each head, as sums."""
        classes, device = self._classes(batch.labels), inputs.signal.device
        weights = torch.from_numpy(self._row_weights(classes, batch.rows)).to(device, torch.float32)
        outputs = module(inputs, draw, reversal_strength(progress, self._config.adversary_weight))
        goal = self._cross_entropy(outputs["logits"], torch.from_numpy(classes).to(device), weights)
        return torch.stack([goal, *(one.loss(outputs[one.name], batch) for one in self._auxiliaries)])

    def validate(
        self, network: nn.Module, world: World, is_asked_to_end: Callable[[], bool] = lambda: False
    ) -> Validation | None:
        """Score the validation split: loss weighted as in training, and how well the states are told apart."""
        rows, classes = self._states.validation, self._validation_classes
        p = _scored_together(network, self.corpus, rows, self.features, world, is_asked_to_end, self._width)
        if p is None:
            return None
        loss = _mean_cross_entropy(self._right(classes, p), self._row_weights(classes, rows))
        metrics = {"loss": loss, **self._measure(classes, p)}
        area = metrics["auroc"]
        assert area is not None, "all classes are in the validation split"
        return Validation(metrics, Judgement(area, self._influences(classes, p)))

    @property
    @abstractmethod
    def _width(self) -> int:
        """Logits of the network."""

    @abstractmethod
    def _cross_entropy(self, logits: Tensor, classes: Tensor, weights: Tensor) -> Tensor:
        """Return the weighted sum over the rows."""

    @abstractmethod
    def _right(self, classes: NDArray[np.int64], p: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability that each row gives to its own class."""

    @abstractmethod
    def _measure(self, classes: NDArray[np.int64], p: NDArray[np.float64]) -> dict[str, float | None]:
        """Return the metrics of validation rows beside the loss; ``auroc`` is among them."""

    @abstractmethod
    def _influences(self, classes: NDArray[np.int64], p: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how far each row moves that AUROC, float64 (n,)."""


class TwoStateTask(ClassificationTask):
    """One raw logit, that of the positive class."""

    _width = 1

    def _cross_entropy(self, logits: Tensor, classes: Tensor, weights: Tensor) -> Tensor:
        return binary_cross_entropy(logits, classes == 1, weights, self._config.label_smoothing).total

    def _right(self, classes: NDArray[np.int64], p: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(classes == 1, p, 1 - p)

    def _measure(self, classes: NDArray[np.int64], p: NDArray[np.float64]) -> dict[str, float | None]:
        curve = Ranking(classes == 1, p).curve()
        return {
            "auroc": auroc(curve),
            "auprc_positive": average_precision(curve),
            "auprc_negative": average_precision(mirrored(curve)),
        }

    def _influences(self, classes: NDArray[np.int64], p: NDArray[np.float64]) -> NDArray[np.float64]:
        return auroc_influences(classes == 1, p)


class ManyStateTask(ClassificationTask):
    """K > 2 raw logits, one a class; AUROC is that of each class against the rest, averaged over the classes."""

    @property
    def _width(self) -> int:
        return len(self._states.labels)

    def _cross_entropy(self, logits: Tensor, classes: Tensor, weights: Tensor) -> Tensor:
        return softmax_cross_entropy(logits, classes, weights, self._config.label_smoothing).total

    def _right(self, classes: NDArray[np.int64], p: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(p[np.arange(len(p)), classes])

    def _measure(self, classes: NDArray[np.int64], p: NDArray[np.float64]) -> dict[str, float | None]:
        curves = OneVersusRest(classes, p).curves()
        confusion = confusion_matrix(classes, p.argmax(axis=1), self._width)
        areas = [auroc(curve) for curve in curves]
        return {
            "auroc": mean_of(areas),
            "auprc": mean_of([average_precision(curve) for curve in curves]),
            "balanced_accuracy": confusion.balanced_accuracy,
            **{f"auroc_{label}": area for label, area in zip(self._states.labels, areas, strict=True)},
        }

    def _influences(self, classes: NDArray[np.int64], p: NDArray[np.float64]) -> NDArray[np.float64]:
        each = [auroc_influences(classes == number, p[:, number]) for number in range(self._width)]
        mean: NDArray[np.float64] = np.mean(each, axis=0)
        return mean


def make_task(
    corpus: Corpus, states: States, network: Network, features: Sequence[str], config: TrainConfig
) -> ClassificationTask:
    """Return the task of telling these states apart."""
    kind = TwoStateTask if len(states.labels) == 2 else ManyStateTask
    return kind(corpus, states, network, features, config)


def _scored_together(
    network: nn.Module,
    corpus: Corpus,
    rows: NDArray[np.int64],
    features: Sequence[str],
    world: World,
    is_asked_to_end: Callable[[], bool],
    width: int = 1,
) -> NDArray[np.float64] | None:
    """Return P(positive) of the rows, float64 (n,), of which each rank scores every ``size``-th batch.

    :param width: logits of the network; of more than one, the result is all classes, (n, width).
    :return: None on all ranks if one was asked to end; they ask each other every few batches.
    """
    p = np.zeros(len(rows) if width == 1 else (len(rows), width))
    of_round = _VALIDATION_BATCH * _BATCHES_OF_ROUND * world.size
    for start in range(0, len(rows), of_round):
        places = np.arange(start, min(start + of_round, len(rows)))
        own = places[places // _VALIDATION_BATCH % world.size == world.rank]
        if len(own):
            p[own] = score(network, corpus, rows[own], features, _VALIDATION_BATCH, world.device).p
        if world.sum_array(np.array([float(is_asked_to_end())]))[0]:
            return None
    return world.sum_array(p)


def _mean_cross_entropy(right: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    # A probability that rounds to 0 or 1 would cost infinitely much.
    return float(np.sum(-np.log(np.clip(right, 1e-12, None)) * weights) / np.sum(weights))
