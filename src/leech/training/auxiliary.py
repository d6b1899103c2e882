"""What auxiliary heads are to tell, and how wrong they are.

Hides: targets, and which rows have one. Belongs here: one class per kind of head, each over one column of the corpus; the
heads themselves are in ``leech.models.heads``. Invariants: a row without a target weighs nothing, and takes part all the same,
so that every rank computes every gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from leech.data.batches import Batch
from leech.data.corpus import CATEGORICAL, Corpus
from leech.errors import ConfigError, InputError
from leech.training.config import TrainConfig

_MAPQ_UNKNOWN = 255
"""What SAM writes for a mapping quality that is not available."""


class Auxiliary(Protocol):
    """One auxiliary goal.

    :ivar name: of the head and of its loss.
    :ivar column: of the corpus, where its targets are.
    :ivar num_outputs: numbers that the head gives.
    :ivar is_adversary: whether the network is to hide what the head looks for.
    :ivar factor: how much its loss counts.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def column(self) -> str: ...  # noqa: D102
    @property
    def num_outputs(self) -> int: ...  # noqa: D102
    @property
    def is_adversary(self) -> bool: ...  # noqa: D102
    @property
    def factor(self) -> float: ...  # noqa: D102

    def num_targets(self, batch: Batch) -> int:
        """Return how many rows have a target."""

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return the sum of losses over the rows that have a target, float32 scalar.

        :param outputs: of the head, float32 (n, num_outputs).
        """


@dataclass(frozen=True)
class Confound:
    """A categorical column that the summary should not give away."""

    column: str
    num_outputs: int
    name: str = "adversary"
    is_adversary: bool = True
    factor: float = 1.0

    def num_targets(self, batch: Batch) -> int:
        """Return how many rows have a value."""
        return int((batch.columns[self.column] >= 0).sum())

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return the cross-entropy."""
        codes = torch.from_numpy(batch.columns[self.column].astype(np.int64)).to(outputs.device)
        losses = functional.cross_entropy(outputs.float(), codes.clamp(min=0), reduction="none")
        return (losses * (codes >= 0)).sum()


@dataclass(frozen=True)
class Measurement:
    """A numeric column that the summary should tell, in standard deviations of the training rows."""

    column: str
    mean: float
    deviation: float
    factor: float
    name: str = "regression"
    num_outputs: int = 1
    is_adversary: bool = False

    def num_targets(self, batch: Batch) -> int:
        """Return how many rows have a value."""
        return int(np.isfinite(_numbers(self.column, batch.columns[self.column])).sum())

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return the Huber loss (1964), which a few wild values do not rule."""
        scaled = (_numbers(self.column, batch.columns[self.column]) - self.mean) / self.deviation
        present = np.isfinite(scaled)
        target = torch.from_numpy(np.where(present, scaled, 0).astype(np.float32)).to(outputs.device)
        losses = functional.smooth_l1_loss(outputs.float().reshape(-1), target, reduction="none")
        return (losses * torch.from_numpy(present).to(outputs.device)).sum()


def _numbers(column: str, values: NDArray[np.generic]) -> NDArray[np.float64]:
    """Return a column as float64, NaN where there is no value."""
    numbers = values.astype(np.float64)
    if column == "mapq":
        numbers[numbers == _MAPQ_UNKNOWN] = np.nan
    return np.where(np.isfinite(numbers), numbers, np.nan)


def reversal_strength(progress: float, highest: float) -> float:
    """Return how strongly an adversary's gradient is reversed: from 0 to ``highest`` (Ganin and Lempitsky 2015).

    :param progress: share of the run that is over, 0 to 1.
    """
    return highest * (2 / (1 + math.exp(-10 * progress)) - 1)


def choose_auxiliaries(config: TrainConfig, corpus: Corpus, rows: NDArray[np.int64]) -> Sequence[Auxiliary]:
    """Return the auxiliary goals that were asked for.

    :param rows: of the training split.
    :raises ConfigError: a column that is not there or cannot be a target.
    :raises InputError: a column whose training rows all have one value, or none.
    """
    chosen: list[Auxiliary] = []
    if config.adversary is not None:
        codes = corpus.gather(rows, [config.adversary])[config.adversary]
        num_values = len(np.unique(codes[codes >= 0]))
        if num_values < 2:
            raise InputError(
                f"--adversary {config.adversary}: the training chunks of corpus '{corpus.path}' have {num_values} value of it, "
                "so there is nothing to hide.",
                hint="Leave --adversary out, or name another column.",
            )
        chosen.append(Confound(config.adversary, len(corpus.categories[config.adversary])))
    if config.regress is not None:
        chosen.append(_measurement(config.regress, config.regress_weight, corpus, rows))
    return chosen


def _measurement(column: str, factor: float, corpus: Corpus, rows: NDArray[np.int64]) -> Measurement:
    if not corpus.has_column(column) or column in CATEGORICAL:
        raise ConfigError(
            f"--regress {column}: corpus '{corpus.path}' has no such numeric column.",
            hint="Name one with a number per chunk, for example median_dwell, shift, scale or mapq.",
        )
    values = corpus.gather(rows, [column])[column]
    if values.ndim != 1:
        raise ConfigError(
            f"--regress {column}: the column has {values[0].size} numbers per chunk, and a target is one.",
            hint="Name a column with a number per chunk, for example median_dwell, shift, scale or mapq.",
        )
    numbers = _numbers(column, values)
    present = numbers[np.isfinite(numbers)]
    if len(present) < 2 or present.std() == 0:
        raise InputError(
            f"--regress {column}: the training chunks of corpus '{corpus.path}' hold no two different values of it.",
            hint="Leave --regress out, or name another column.",
        )
    return Measurement(column, float(present.mean()), float(present.std()), factor)
