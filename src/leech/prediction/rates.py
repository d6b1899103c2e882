"""How often calls are wrong, over all references and on each of them, from counted calls of reads whose state is known.

Hides: how the few reads of one reference borrow from those of the others. Belongs here: from counts to rates; where counts come
from is ``controls.py``'s and the model folder's, what is corrected with rates is ``fractions.py``'s. Invariants: a reference's
rates lie between its own share and that of all; the fewer its reads, the nearer to the latter and the less sure; no reference
is left out for having few.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.data.reasons import STATE_MAY_CAUSE
from leech.models.bundle import CallCounts

Floats = NDArray[np.float64]


class Rate(NamedTuple):
    """A share that was measured or is taken as known.

    :ivar num_trials: reads that it was counted on; None where it was not.
    :ivar variance: of what is known about it, where that is more than its own count; None else. With neither it is exact.
    """

    value: float
    num_trials: int | None = None
    variance: float | None = None

    def moments(self) -> tuple[float, float]:
        """Return mean and variance of what is known about it.

        A plain count is taken with one success and one failure more (Lang and Reiczigel 2014), so that 0 of 5 is not certain.
        """
        if self.variance is not None:
            return self.value, self.variance
        if self.num_trials is None:
            return self.value, 0.0
        total = self.num_trials + 2
        mean = (self.value * self.num_trials + 1) / total
        return mean, mean * (1 - mean) / total


class ErrorRates(NamedTuple):
    """How often calls are wrong: shares of the called reads of either state that are called positive."""

    fpr: Rate
    tpr: Rate


class CallRates(NamedTuple):
    """Shares of the reads of either state that are called at all."""

    positive: float
    negative: float


class ReferenceRates(NamedTuple):
    """Error rates by reference.

    :ivar pooled: of all reads together, as counted.
    :ivar own: of each reference that was counted.
    :ivar unseen: of any other: the mean over references, as unsure as they differ.
    """

    pooled: ErrorRates
    own: Mapping[str, ErrorRates]
    unseen: ErrorRates

    @classmethod
    def of(cls, counts: Mapping[str, CallCounts]) -> ReferenceRates | None:
        """Return the rates that counted calls tell; None where there are none of either state, or calls tell nothing."""
        pooled = pooled_rates(counts.values())
        if pooled is None:
            return None
        names = sorted(counts)
        false = _shrunk([(counts[name].fp, counts[name].num_negative) for name in names])
        true = _shrunk([(counts[name].tp, counts[name].num_positive) for name in names])
        rates = [ErrorRates(*pair) for pair in zip(false, true, strict=True)]
        return cls(pooled, dict(zip(names, rates, strict=False)), rates[-1])


def pooled_rates(counts: Iterable[CallCounts]) -> ErrorRates | None:
    """Return the rates of all counts together; None without reads of either state, or where calls tell nothing of it."""
    tp = fp = positive = negative = 0
    for one in counts:
        tp, fp = tp + one.tp, fp + one.fp
        positive, negative = positive + one.num_positive, negative + one.num_negative
    if not positive or not negative or tp * negative <= fp * positive:
        return None
    return ErrorRates(Rate(fp / negative, negative), Rate(tp / positive, positive))


def call_rate(called: int, lost: Mapping[str, int]) -> float | None:
    """Return the share of reads that are called; None where none is.

    :param lost: reads without a call by reason. Those that a file lacks, or whose reference has no site, are missing whatever
        their state, and do not count.
    """
    num_lost = sum(number for reason, number in lost.items() if reason in STATE_MAY_CAUSE)
    return called / (called + num_lost) if called else None


def mean_rate(rates: Sequence[tuple[Rate, float]]) -> Rate:
    """Return the mean of rates, each with its weight; weights sum to 1.

    Equal rates are one and the same, known once, so that their errors add up; others are independent.
    """
    weights: dict[Rate, float] = {}
    for rate, weight in rates:
        weights[rate] = weights.get(rate, 0.0) + weight
    if len(weights) == 1:
        return next(iter(weights))
    moments = [(*rate.moments(), weight) for rate, weight in weights.items()]
    return Rate(
        sum(weight * mean for mean, _, weight in moments),
        variance=sum(weight**2 * variance for _, variance, weight in moments),
    )


_GRID = 80
"""Points of either axis of the grid of :func:`_shrunk`."""


def _shrunk(counts: Sequence[tuple[int, int]]) -> list[Rate]:
    """Return the rate of every reference, and last that of one that was not seen.

    The beta-binomial model of Gelman et al., Bayesian Data Analysis, 3rd ed. 2013, section 5.3: rates of references are drawn
    from one beta distribution of mean m and size s (m s successes in s trials), uniform beforehand in m and in 1 / sqrt(s),
    here from 0 to 1; a reference with k of n then has the mean of (k + m s) / (n + s) over what all references tell about m
    and s. The integral is a sum over a grid of logit(m) and 1 / sqrt(s) that is drawn together around its mass.

    :param counts: successes and trials by reference.
    """
    total = sum(successes for successes, _ in counts), sum(trials for _, trials in counts)
    middle, half = math.log((total[0] + 0.5) / (total[1] - total[0] + 0.5)), 4.0
    alike = Counter(pair for pair in counts if pair[1])
    top = 1.0
    for _ in range(3):
        logit: Floats = np.linspace(middle - half, middle + half, _GRID, dtype=np.float64)
        root: Floats = (np.arange(_GRID, dtype=np.float64) + 0.5) * (top / _GRID)
        weights = _posterior(alike, logit, root)
        along_logit, along_root = weights.sum(1), weights.sum(0)
        middle = float(along_logit @ logit)
        spread = float(along_logit @ (logit - middle) ** 2) ** 0.5
        # Never below the grid's own step, within which all of a narrow mass may lie.
        half = min(half, 6 * max(spread, 2 * half / _GRID))
        centre = float(along_root @ root)
        top = min(top, centre + 6 * max(float(along_root @ (root - centre) ** 2) ** 0.5, top / _GRID))
    mean, size = _mean_and_size(logit, root)
    seen = [_rate(weights, successes + mean * size, trials + size) for successes, trials in counts]
    return [*seen, _rate(weights, mean * size, size)]


def _mean_and_size(logit: Floats, root: Floats) -> tuple[Floats, Floats]:
    return 1 / (1 + np.exp(-logit))[:, None], root[None, :] ** -2


def _posterior(alike: Mapping[tuple[int, int], int], logit: Floats, root: Floats) -> Floats:
    """Return the weight of every grid point, float64 (logits, roots), of sum 1.

    :param alike: how many references have the same successes and trials.
    """
    # Imported here: a run that corrects nothing need not wait for it.
    from scipy.special import betaln

    mean, size = _mean_and_size(logit, root)
    alpha, beta = mean * size, (1 - mean) * size
    # A uniform density of the mean is one of m (1 - m) of its logit.
    log_weight = np.log(mean * (1 - mean)) + np.zeros_like(size)
    before = betaln(alpha, beta)
    for (successes, trials), number in alike.items():
        log_weight = log_weight + number * (betaln(alpha + successes, beta + trials - successes) - before)
    weights = np.exp(log_weight - log_weight.max())
    return np.asarray(weights / weights.sum())


def _rate(weights: Floats, alpha: Floats, total: Floats) -> Rate:
    """Return mean and variance of a mixture of beta distributions of ``alpha`` successes in ``total`` trials."""
    means = alpha / total
    mean = float((weights * means).sum())
    inner = means * (1 - means) / (total + 1)
    variance = float((weights * (inner + (means - mean) ** 2)).sum())
    return Rate(mean, variance=variance)
