"""Fitting calibrations of more than two states, and telling which form of them suits.

Hides: the optimiser. Belongs here: logits and truth in, a calibration or a loss out; two states are in ``evaluation/fit.py``,
and whether a calibration is kept is decided in ``calibrate.py``. Invariants: the children of a parent read lie in one fold; no
read is certain (see :func:`_targets`), so every fit is finite; same reads and seed, same numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.errors import InputError
from leech.evaluation.fit import deal, held_out_losses
from leech.evaluation.metrics import Bools, Floats
from leech.evaluation.multiclass.metrics import Classes, log_loss
from leech.models.calibration import CLASS_METHODS, ClassCalibration, ClassMethod, softmax

_SMALLEST_SCALE = 1e-3
"""A fit that ends here would rather turn the scores around."""


class LabelledClasses(NamedTuple):
    """Scored reads of known class.

    :ivar logits: raw, float64 (n, K).
    :ivar classes: truth, int64 (n,).
    :ivar parents: number of each read's parent, int64 (n,).
    """

    logits: Floats
    classes: Classes
    parents: NDArray[np.int64]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Reads by class, int64 (K,)."""
        return np.bincount(self.classes, minlength=self.logits.shape[1])

    def take(self, chosen: Bools) -> LabelledClasses:
        """Return some of the reads."""
        return LabelledClasses(self.logits[chosen], self.classes[chosen], self.parents[chosen])


def _targets(reads: LabelledClasses) -> Floats:
    """Return the probabilities that every read is fitted to, float64 (n, K).

    (N + 1) / (N + 2) for its own class, of which there are N reads, as Platt (1999) has it for two classes, and of the rest
    an equal part for each other class. The doubt is the same however many classes there are: one more pretended read for each
    of K classes would outweigh the reads themselves where K is as large as N.
    """
    num_classes = reads.logits.shape[1]
    own = (reads.counts + 1) / (reads.counts + 2)
    by_class = np.where(np.eye(num_classes, dtype=bool), own[:, None], ((1 - own) / (num_classes - 1))[:, None])
    return np.asarray(by_class[reads.classes])


def fit(method: ClassMethod, reads: LabelledClasses) -> ClassCalibration:
    """Fit a calibration of one form by maximum likelihood.

    :param reads: of all classes.
    :raises InputError: a class without reads, or logits that would have to be turned around.
    """
    from scipy.optimize import minimize

    num_classes = reads.logits.shape[1]
    if (reads.counts == 0).any():
        raise InputError(
            "A calibration is fitted to reads of all states, and some have none.",
            hint="Add reads of every label to the calibration split.",
        )
    targets, num_scales = _targets(reads), 1 if method == "temperature" else num_classes
    # Without offsets for a temperature; of a vector the last one is 0, since the same number on all of them changes nothing.
    num_offsets = 0 if method == "temperature" else num_classes - 1

    def spread(numbers: Floats) -> tuple[Floats, Floats]:
        scales = np.broadcast_to(numbers[:num_scales], num_classes)
        return scales, np.concatenate([numbers[num_scales:], np.zeros(num_classes - num_offsets)])

    def loss(numbers: Floats) -> tuple[float, Floats]:
        scales, offsets = spread(numbers)
        scaled = reads.logits * scales + offsets
        highest = scaled.max(axis=1, keepdims=True)
        logs = scaled - highest - np.log(np.exp(scaled - highest).sum(axis=1, keepdims=True))
        error = (np.exp(logs) - targets) / len(targets)
        by_scale = (error * reads.logits).sum(axis=0)
        gradient = [by_scale.sum(keepdims=True) if num_scales == 1 else by_scale, error.sum(axis=0)[:num_offsets]]
        return float(-(targets * logs).sum() / len(targets)), np.concatenate(gradient)

    start = np.concatenate([np.ones(num_scales), np.zeros(num_offsets)])
    bounds = [(_SMALLEST_SCALE, None)] * num_scales + [(None, None)] * num_offsets
    # The loss is convex in these numbers, so there is one minimum to find.
    options = {"maxiter": 10000, "maxfun": 100000, "ftol": 1e-15, "gtol": 1e-9}
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    scales, offsets = spread(found.x)
    if scales.min() <= _SMALLEST_SCALE:
        raise InputError(
            f"No {method} calibration fits: the scores of a label do not rise with it in the {len(targets)} reads to calibrate "
            "by, so calls of it are no better than guesses there.",
            hint="Use --method temperature, or see how good the model is ('leech eval test')."
            if method == "vector"
            else "Check the labels of the corpus, and how good the model is ('leech eval test').",
        )
    if num_offsets:
        offsets = offsets - offsets.mean()
    return ClassCalibration(
        method=method,
        scales=tuple(scales.tolist()),
        offsets=tuple(offsets.tolist()),
        num_reads=tuple(reads.counts.tolist()),
    )


def cross_validate(reads: LabelledClasses, num_folds: int, seed: int) -> dict[str, float]:
    """Return the log loss on held-out reads of every method, and under ``none`` that of the raw probabilities.

    Parents are dealt to the folds class by class. A method that a fold cannot be fitted with is left out.
    """
    folds = deal(reads.classes, reads.parents, num_folds, seed)

    def held_out(method: ClassMethod, inside: Bools) -> Floats:
        return fit(method, reads.take(~inside)).apply(reads.logits[inside])

    raw = softmax(reads.logits)
    return held_out_losses(CLASS_METHODS, held_out, folds, num_folds, raw, lambda p: log_loss(reads.classes, p))
