"""Fitting calibrations, and telling which form of them suits: scikit-learn behind one function each.

Hides: how a calibration is fitted and cross-validated. Belongs here: logits and truth in, a calibration or a loss out; what
a fitted one does is in ``models/calibration.py``, and whether it is kept is decided in ``calibrate.py``. Invariants: the
children of a parent read lie in one fold; no read is certain (see :func:`_targets`), so no probability is 0 or 1; same reads
and seed, same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from leech.errors import InputError
from leech.evaluation.metrics import Bools, Floats, log_loss
from leech.models.calibration import METHODS, Calibration, Method, sigmoid

M = TypeVar("M", bound=str)


class Labelled(NamedTuple):
    """Scored reads of known state.

    :ivar logits: raw, float64 (n,).
    :ivar positive: truth, bool (n,).
    :ivar parents: number of each read's parent, int64 (n,).
    """

    logits: Floats
    positive: Bools
    parents: NDArray[np.int64]

    def take(self, chosen: Bools) -> Labelled:
        """Return some of the reads."""
        return Labelled(self.logits[chosen], self.positive[chosen], self.parents[chosen])


def _targets(positive: Bools) -> tuple[float, float]:
    """Return the probabilities that negative and positive reads are fitted to.

    (N+ + 1) / (N+ + 2) for a positive and 1 / (N- + 2) for a negative read, as Platt (1999) has it: what may be said of a
    state after so many reads, and never that it is certain.
    """
    num_positive = int(positive.sum())
    num_negative = len(positive) - num_positive
    return 1 / (num_negative + 2), (num_positive + 1) / (num_positive + 2)


def fit(method: Method, reads: Labelled) -> Calibration:
    """Fit a calibration of one form by maximum likelihood (isotonic: least squares).

    :param reads: of both classes.
    :raises InputError: scores that do not rise with the labels, or that no calibration of this form fits.
    """
    if reads.positive.all() or not reads.positive.any():
        raise InputError("A calibration is fitted to reads of both states, and these are of one.")
    if reads.logits[reads.positive].mean() <= reads.logits[~reads.positive].mean():
        raise InputError(
            f"The model's scores do not rise with the labels of the {len(reads.logits)} reads to calibrate by, so its calls "
            "are no better than guesses there or turned around, which no calibration cures.",
            hint="Check the labels of the corpus, and how good the model is ('leech eval test').",
        )
    low, high = _targets(reads.positive)
    num_reads, prevalence = len(reads.logits), float(reads.positive.mean())
    if method == "isotonic":
        from sklearn.isotonic import IsotonicRegression

        target = np.where(reads.positive, high, low)
        model = IsotonicRegression(out_of_bounds="clip").fit(reads.logits, target)
        knots = tuple(zip(model.X_thresholds_.tolist(), model.y_thresholds_.tolist(), strict=True))
        return Calibration(method=method, knots=knots, num_reads=num_reads, prevalence=prevalence)
    scale, offset = _fit_logistic(reads, low, high, has_offset=method == "platt")
    if scale <= 0:
        raise InputError(
            f"No {method} calibration fits: the network's logits lie so far to one side that none of them would rise.",
            hint="Use --method isotonic, or auto.",
        )
    return Calibration(method=method, scale=scale, offset=offset, num_reads=num_reads, prevalence=prevalence)


def _fit_logistic(reads: Labelled, low: float, high: float, *, has_offset: bool) -> tuple[float, float]:
    """Return scale and offset of highest likelihood; the offset is 0 where it is not fitted."""
    from sklearn.linear_model import LogisticRegression

    # A target between 0 and 1 is a read that counts in part as positive and in part as negative.
    target = np.where(reads.positive, high, low)
    logits = np.concatenate([reads.logits, reads.logits])[:, None]
    truth = np.repeat([1, 0], len(target))
    model = LogisticRegression(C=np.inf, fit_intercept=has_offset, solver="newton-cholesky", tol=1e-10, max_iter=1000)
    model.fit(logits, truth, sample_weight=np.concatenate([target, 1 - target]))
    return float(model.coef_[0, 0]), float(model.intercept_[0]) if has_offset else 0.0


def cross_validate(reads: Labelled, num_folds: int, seed: int) -> dict[str, float]:
    """Return the log loss on held-out reads of every method, and under ``none`` that of the raw probabilities.

    Parents are dealt to the folds class by class. A method that a fold cannot be fitted with is left out.
    """
    folds = deal(reads.positive.astype(np.int64), reads.parents, num_folds, seed)

    def held_out(method: Method, inside: Bools) -> Floats:
        return fit(method, reads.take(~inside)).apply(reads.logits[inside])

    raw = sigmoid(reads.logits)
    return held_out_losses(METHODS, held_out, folds, num_folds, raw, lambda p: log_loss(reads.positive, p))


def held_out_losses(
    methods: Sequence[M],
    held_out: Callable[[M, Bools], Floats],
    folds: NDArray[np.int64],
    num_folds: int,
    raw: Floats,
    loss: Callable[[Floats], float | None],
) -> dict[str, float]:
    """Return the loss of every method on reads that it was not fitted to, and under ``none`` that of the raw probabilities.

    A method that a fold cannot be fitted with is left out, and so is what the reads do not define.

    :param held_out: fits a method to the reads outside a fold, bool (n,), and returns the probabilities of those inside.
    :param folds: of every read, int64 (n,), from 0 up to ``num_folds``.
    """
    losses = {"none": loss(raw)}
    for method in methods:
        p = np.empty_like(raw)
        try:
            for fold in range(num_folds):
                inside = folds == fold
                p[inside] = held_out(method, inside)
        except InputError:
            continue
        losses[method] = loss(p)
    return {method: value for method, value in losses.items() if value is not None}


def deal(classes: NDArray[np.int64], parents: NDArray[np.int64], num_folds: int, seed: int) -> NDArray[np.int64]:
    """Return the fold of every read: parents are dealt class by class, each with its children.

    :param classes: of the reads, int64 (n,), from 0.
    :param parents: number of each read's parent, int64 (n,).
    """
    generator = np.random.default_rng(seed)
    numbers, first = np.unique(parents, return_index=True)
    fold = np.empty(len(numbers), dtype=np.int64)
    for number in range(int(classes.max()) + 1):
        members = np.flatnonzero(classes[first] == number)
        fold[generator.permutation(members)] = np.arange(len(members)) % num_folds
    return fold[np.searchsorted(numbers, parents)]
