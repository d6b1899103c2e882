"""How well a label can be read from a table of numbers and names: a quick model under grouped cross-validation.

Hides: scikit-learn, folds, and how predictions of several models become one AUROC. Belongs here: what holds for any table;
which tables are made of a corpus and what follows from them is in ``shortcuts.py``. Invariants: a group never lies on both
sides; a table that says nothing gets 0.5, because reads are compared within a fold only: over folds, a fold with more
positive reads is predicted by a model that saw fewer, and the pooled AUROC of a blind model falls below 0.5. Same tables and
seed, same numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.evaluation.intervals import Estimate, Interval, bootstrap_intervals
from leech.evaluation.metrics import Floats, Ranking, auroc

Codes = NDArray[np.int64]

_TREES = 100
_LEAVES = 8
_PARTS = 5
_SMOOTHING = 5.0
"""Reads with the labels' overall shares that are added to the reads of each name."""


class Predictors(NamedTuple):
    """What a label is to be read from; rows are reads.

    :ivar numbers: float64 (n, number of numeric columns).
    :ivar names: codes of names without order, int64 (n, number of such columns).
    """

    numbers: Floats
    names: Codes

    @property
    def is_constant(self) -> bool:
        """Whether all reads have the same values."""
        return not (np.ptp(self.numbers, axis=0).any() or np.ptp(self.names, axis=0).any())

    def num_values(self) -> int:
        """Return how many different rows there are."""
        rows = np.concatenate([self.numbers, self.names.astype(np.float64)], axis=1)
        return len(np.unique(rows, axis=0))


def join(predictors: list[Predictors]) -> Predictors:
    """Put columns side by side."""
    return Predictors(
        np.concatenate([item.numbers for item in predictors], axis=1),
        np.concatenate([item.names for item in predictors], axis=1),
    )


def deal_folds(labels: Codes, groups: Codes, num_folds: int, seed: int) -> Codes:
    """Deal groups to folds so that every fold has about the same share of each label.

    :param labels: codes from 0, all of which occur.
    :returns: fold of each read; fewer folds than asked for where a label lies in fewer groups, and one fold where a label
        lies in one group, so that nothing can be held out.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    num_groups = [len(np.unique(groups[labels == code])) for code in range(int(labels.max()) + 1)]
    folds = np.zeros(len(labels), dtype=np.int64)
    if min(num_groups) < 2:
        return folds
    splitter = StratifiedGroupKFold(min(num_folds, *num_groups), shuffle=True, random_state=seed)
    for number, (_, held_out) in enumerate(splitter.split(np.zeros((len(labels), 1)), labels, groups)):
        folds[held_out] = number
    return folds


def readability(
    predictors: Predictors, labels: Codes, folds: Codes, parents: Codes, *, num_resamplings: int, seed: int
) -> Estimate:
    """Return the cross-validated AUROC of a quick model, with a bootstrap interval over parent reads.

    Trees under gradient boosting; names enter as the labels' shares in the training folds. Pairs of reads are compared within
    their fold and averaged; of more than two labels, the mean over each one against the rest.

    :param labels: codes from 0, all of which occur, int64 (n,).
    :param folds: fold of each read, int64 (n,); every label must occur outside of every fold.
    :param parents: number of each read's parent, from 0, int64 (n,).
    :returns: value None where no fold holds reads of two labels.
    """
    if predictors.is_constant:
        return Estimate(0.5, Interval(0.5, 0.5))
    p = _predict_held_out(predictors, labels, folds, seed)
    # With two labels, one against the rest is the other the other way round.
    codes = [1] if p.shape[1] == 2 else range(p.shape[1])
    members = [np.flatnonzero(folds == fold) for fold in np.unique(folds)]
    rankings = [[(rows, Ranking(labels[rows] == code, p[rows, code])) for rows in members] for code in codes]

    def measure(weights: Floats) -> tuple[float | None]:
        areas = [_within_folds(ranked, weights) for ranked in rankings]
        defined = [area for area in areas if area is not None]
        return (float(np.mean(defined)) if len(defined) == len(areas) else None,)

    (value,) = measure(np.ones(len(labels)))
    (interval,) = bootstrap_intervals(measure, parents, num_resamplings, seed)
    return Estimate(value, None if value is None else interval)


def _within_folds(ranked: list[tuple[Codes, Ranking]], weights: Floats) -> float | None:
    """Return the share of pairs in the right order among pairs of one fold."""
    ordered = pairs = 0.0
    for rows, ranking in ranked:
        curve = ranking.curve(weights[rows])
        area = auroc(curve)
        if area is not None:
            number = float(curve.tp[-1] * curve.fp[-1])
            ordered, pairs = ordered + area * number, pairs + number
    return ordered / pairs if pairs else None


def _predict_held_out(predictors: Predictors, labels: Codes, folds: Codes, seed: int) -> Floats:
    """Return each read's probability of each label by a model that saw no read of its fold, float64 (n, labels)."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    p = np.empty((len(labels), int(labels.max()) + 1))
    for fold in np.unique(folds):
        train, test = folds != fold, folds == fold
        inputs, held_out = predictors.numbers[train], predictors.numbers[test]
        for names in predictors.names.T:
            known, unseen = _label_shares(names[train], labels[train], names[test], p.shape[1], seed)
            inputs = np.concatenate([inputs, known], axis=1)
            held_out = np.concatenate([held_out, unseen], axis=1)
        model = HistGradientBoostingClassifier(
            max_iter=_TREES, max_leaf_nodes=_LEAVES, early_stopping=False, random_state=seed
        )
        p[test] = model.fit(inputs, labels[train]).predict_proba(held_out)
    return p


def _label_shares(names: Codes, labels: Codes, others: Codes, num_labels: int, seed: int) -> tuple[Floats, Floats]:
    """Turn names into numbers: the share of each label among the reads of that name, pulled towards the share among all.

    Any number of names is legal, and one that was never seen gets the share among all. A read's own label does not enter its
    share, or a name that occurs once would give its label away: shares come from the other parts of the reads.

    :returns: for ``names`` and for ``others``, float64 (n, num_labels).
    """
    size = int(max(names.max(), others.max())) + 1

    def shares(known: NDArray[np.bool_]) -> Floats:
        prior = np.bincount(labels[known], minlength=num_labels) / known.sum()
        table = np.zeros((size, num_labels))
        np.add.at(table, (names[known], labels[known]), 1.0)
        smoothed: Floats = (table + _SMOOTHING * prior) / (table.sum(axis=1, keepdims=True) + _SMOOTHING)
        return smoothed

    result = np.empty((len(names), num_labels))
    part = np.random.default_rng(seed).permutation(len(names)) % _PARTS
    for number in range(_PARTS):
        result[part == number] = shares(part != number)[names[part == number]]
    return result, shares(np.ones(len(names), dtype=np.bool_))[others]
