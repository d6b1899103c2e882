"""Where to call a read positive: every threshold on the scale of ``cl``, and those that are best at something.

Hides: that all 255 thresholds are counted at once. Belongs here: thresholds from scored reads; which one a model carries
is settled in ``calibrate.py``. Invariants: a read is positive at ``cl >= threshold_cl``, threshold_cl from 1 to 255; of
thresholds that call these reads alike the middle one is taken, being farthest from the reads on either side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leech.errors import InputError
from leech.evaluation.config import Goal, Target
from leech.evaluation.metrics import Bools, Confusion, Floats

NUM_LEVELS = 256
"""Values of ``cl``."""


@dataclass(frozen=True)
class ScoreCounts:
    """Reads by ``cl`` and truth.

    :ivar positive: number of positive reads with each cl, int64 (256,); ``negative`` likewise.
    """

    positive: NDArray[np.int64]
    negative: NDArray[np.int64]

    @classmethod
    def of(cls, positive: Bools, p: Floats) -> ScoreCounts:
        """Count scored reads."""
        # Imported here: it brings torch, seconds that a corpus's check need not pay.
        from leech.models.inference import charging_likelihood

        levels = charging_likelihood(p)
        return cls(
            np.bincount(levels[positive], minlength=NUM_LEVELS), np.bincount(levels[~positive], minlength=NUM_LEVELS)
        )

    def confusions(self) -> list[Confusion]:
        """Return the calls at every threshold; entry i is that of ``cl >= i + 1``."""
        tp, fp = (np.cumsum(counts[::-1])[::-1].astype(float).tolist() for counts in (self.positive, self.negative))
        return [
            Confusion(tp=tp[level], fp=fp[level], tn=fp[0] - fp[level], fn=tp[0] - tp[level])
            for level in range(1, NUM_LEVELS)
        ]

    def to_mapping(self) -> dict[str, list[int]]:
        """Return plain lists, ready for JSON."""
        return {"positive": self.positive.tolist(), "negative": self.negative.tolist()}


@dataclass(frozen=True)
class NamedThreshold:
    """A threshold that is best at something, and the calls there."""

    name: str
    threshold_cl: int
    calls: Confusion

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        figures = ("tpr", "fpr", "precision", "f1", "mcc", "balanced_accuracy")
        return {
            "name": self.name,
            "threshold_cl": self.threshold_cl,
            **{name: getattr(self.calls, name) for name in figures},
        }


def sweep(counts: ScoreCounts, target_fpr: float) -> tuple[NamedThreshold, ...]:
    """Return the thresholds of highest Youden index (TPR - FPR), MCC and F1, and the lowest with the target FPR.

    One that the reads do not define, or that no threshold reaches, is left out. All are chosen on the reads they describe,
    so they flatter.
    """
    every = counts.confusions()
    measures: dict[str, Callable[[Confusion], float | None]] = {
        "Youden": lambda calls: calls.balanced_accuracy,
        "MCC": lambda calls: calls.mcc,
        "F1": lambda calls: calls.f1 if calls.balanced_accuracy is not None else None,
    }
    best: dict[str, int | None] = {}
    for name, measure in measures.items():
        values = [measure(calls) for calls in every]
        best[name] = None if None in values else int(np.argmax(np.array(values, dtype=np.float64)))
    target = Target("fpr", target_fpr)
    best[target.describe()] = _cheapest(every, target)
    return tuple(
        NamedThreshold(name, _middle(every, place) + 1, every[place])
        for name, place in best.items()
        if place is not None
    )


def _middle(every: list[Confusion], place: int) -> int:
    """Return the middle of the thresholds that call all reads as the one at ``place`` does."""
    # Calls only ever get fewer from one threshold to the next, so those alike lie side by side.
    alike = [other for other, calls in enumerate(every) if (calls.tp, calls.fp) == (every[place].tp, every[place].fp)]
    return alike[len(alike) // 2]


def _reached(calls: Confusion, target: Target) -> bool:
    # Compared as products, so that 19 of 20 is 0.95 whatever the division rounds to.
    slack = 1e-12
    if target.goal == "fpr":
        return calls.fp + calls.tn > 0 and calls.fp <= target.value * (calls.fp + calls.tn) * (1 + slack)
    if target.goal == "precision":
        return calls.tp > 0 and calls.tp >= target.value * (calls.tp + calls.fp) * (1 - slack)
    return calls.tp + calls.fn > 0 and calls.tp >= target.value * (calls.tp + calls.fn) * (1 - slack)


def _cheapest(every: list[Confusion], target: Target) -> int | None:
    """Return the threshold that reaches a target at the least cost; None where none does.

    For an FPR or a precision, the one that finds most positive reads, and of those the one with fewest false calls; for a
    recall, the one with fewest false calls, and of those the one that finds most.
    """
    reached = [place for place, calls in enumerate(every) if _reached(calls, target)]
    if target.goal == "recall":
        return max(reached, key=lambda place: (-every[place].fp, every[place].tp), default=None)
    return max(reached, key=lambda place: (every[place].tp, -every[place].fp), default=None)


def choose(counts: ScoreCounts, target: Target) -> int:
    """Return the ``threshold_cl`` that reaches a target at the least cost, see :func:`_cheapest`.

    :raises InputError: no threshold reaches it.
    """
    every = counts.confusions()
    place = _cheapest(every, target)
    if place is None:
        raise InputError(
            f"No threshold reaches {target.describe()} on {int(counts.positive.sum())} positive and "
            f"{int(counts.negative.sum())} negative reads; {_nearest(every, target.goal)}.",
            hint="Ask for less, or train a model that tells the states apart better.",
        )
    return _middle(every, place) + 1


def _nearest(every: list[Confusion], goal: Goal) -> str:
    if goal == "fpr":
        values = [calls.fpr for calls in every if calls.fpr is not None]
        return f"the lowest FPR is {min(values):.3g}" if values else "there are no negative reads"
    values = [value for calls in every if (value := calls.precision if goal == "precision" else calls.tpr) is not None]
    return f"the highest {goal} is {max(values):.3g}" if values else f"no read has a {goal}"
