"""From a network's raw logits to probabilities that are right as often as they say.

Hides: the forms that a calibration can take. Belongs here: the numbers in ``model.json`` and what they do to a logit; they
are fitted in ``evaluation/fit.py``, and whether they are kept is decided in ``evaluation/calibrate.py``. Invariants: plain
numbers and no torch; of one logit never decreasing in it, so no two reads change places; the result lies in [0, 1] and is
finite for every finite logit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Method = Literal["temperature", "platt", "isotonic"]

METHODS: tuple[Method, ...] = ("temperature", "platt", "isotonic")
"""From the fewest numbers to the most."""


def sigmoid(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 / (1 + exp(-x)) without overflow."""
    # tanh saturates where exp would overflow.
    return np.asarray(0.5 * (1 + np.tanh(0.5 * logits)))


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return class probabilities (n, K) of raw logits (n, K), without overflow."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A calibration of one logit, and what it was fitted on.

    ``temperature`` is ``sigmoid(scale * logit)`` with scale = 1 / temperature, ``platt`` is ``sigmoid(scale * logit +
    offset)``, ``isotonic`` joins ``knots`` by straight lines and is constant outside them.

    :ivar knots: (logit, probability), logits ascending.
    :ivar num_reads: of the calibration split.
    :ivar prevalence: share of them that is positive; probabilities are right at this prevalence.
    :ivar corpus_digest: of the corpus that they are in.
    """

    method: Method
    scale: float = 1.0
    offset: float = 0.0
    knots: tuple[tuple[float, float], ...] = ()
    num_reads: int = 0
    prevalence: float | None = None
    corpus_digest: str = ""

    def __post_init__(self) -> None:
        numbers = [self.scale, self.offset, *(number for knot in self.knots for number in knot)]
        if not all(map(math.isfinite, numbers)):
            raise ValueError("a calibration consists of finite numbers")
        if self.scale <= 0:
            raise ValueError(f"calibration scale {self.scale} must be above 0: it would turn every call around")
        if (self.method == "isotonic") != bool(self.knots):
            raise ValueError(f"calibration '{self.method}' has {len(self.knots)} knots")
        logits, levels = [knot[0] for knot in self.knots], [knot[1] for knot in self.knots]
        ascending = all(low < high for low, high in pairwise(logits))
        rising = all(low <= high for low, high in pairwise(levels))
        if not ascending or not rising or not all(0 <= level <= 1 for level in levels):
            raise ValueError("knots of a calibration rise from left to right, with probabilities between 0 and 1")

    def apply(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return P(positive) of raw logits of any shape, float64."""
        logits = np.asarray(logits, dtype=np.float64)
        if self.knots:
            places, levels = np.array(self.knots).T
            return np.asarray(np.interp(logits, places, levels), dtype=np.float64)
        return sigmoid(self.scale * logits + self.offset)

    def describe(self) -> str:
        """Return the calibration in words."""
        if self.method == "temperature":
            return f"temperature {1 / self.scale:.3g}"
        if self.method == "platt":
            return f"Platt, scale {self.scale:.3g} and offset {self.offset:.3g}"
        return f"isotonic, {len(self.knots)} knots"


ClassMethod = Literal["temperature", "vector"]

CLASS_METHODS: tuple[ClassMethod, ...] = ("temperature", "vector")
"""Forms for more than two classes, from the fewest numbers to the most."""

_LARGEST = 1e9
"""Scales and offsets beyond this are none that was fitted; below it no logit of single precision overflows."""


@dataclass(frozen=True, kw_only=True)
class ClassCalibration:
    """A calibration of K > 2 logits, and what it was fitted on.

    ``softmax(scales * logits + offsets)``, class by class (Guo et al. 2017): of a ``temperature`` all scales are 1 /
    temperature and all offsets 0, so that no call changes; of a ``vector`` each class has its own.

    :ivar num_reads: of the calibration split, by class; probabilities are right at their shares.
    :ivar corpus_digest: of the corpus that they are in.
    """

    method: ClassMethod
    scales: tuple[float, ...]
    offsets: tuple[float, ...]
    num_reads: tuple[int, ...] = ()
    corpus_digest: str = ""

    def __post_init__(self) -> None:
        if len(self.scales) < 3 or len(self.offsets) != len(self.scales):
            raise ValueError(f"a calibration of classes has {len(self.scales)} scales and {len(self.offsets)} offsets")
        if not all(map(math.isfinite, (*self.scales, *self.offsets))):
            raise ValueError("a calibration consists of finite numbers")
        largest = max(map(abs, (*self.scales, *self.offsets)))
        if largest > _LARGEST:
            raise ValueError(f"a calibration with the number {largest} is too large to be one: at most {_LARGEST:g}")
        if min(self.scales) <= 0:
            raise ValueError(f"calibration scale {min(self.scales)} must be above 0: it would turn calls around")
        if self.method == "temperature" and (len(set(self.scales)) > 1 or any(self.offsets)):
            raise ValueError("a temperature is one scale for all classes, without offsets")

    def apply(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return class probabilities (n, K) of raw logits (n, K), float64."""
        return softmax(np.asarray(logits, dtype=np.float64) * np.array(self.scales) + np.array(self.offsets))

    def describe(self) -> str:
        """Return the calibration in words."""
        if self.method == "temperature":
            return f"temperature {1 / self.scales[0]:.3g}"
        words = ", ".join(f"{scale:.3g} {offset:+.3g}" for scale, offset in zip(self.scales, self.offsets, strict=True))
        return f"vector, scale and offset by class: {words}"


AnyCalibration = Calibration | ClassCalibration


def calibrated(logits: NDArray[np.float64], calibration: AnyCalibration | None) -> NDArray[np.float64]:
    """Return P(positive) (n,) of one raw logit each (n,), all classes (n, K) of K logits each (n, K).

    :param calibration: the model's own; None gives the raw probabilities.
    """
    if calibration is not None:
        return calibration.apply(logits)
    return sigmoid(logits) if logits.ndim == 1 else softmax(logits)
