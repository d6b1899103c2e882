"""Whether a calibration is worth keeping: probabilities before and after it, on reads that it was not fitted on.

Belongs here: the rule, for any number of states; what is measured lies in ``summary.py`` and ``multiclass/summary.py``.
Invariant: kept only when both the calibration error and the Brier score get better.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from leech.console import Table
from leech.evaluation.intervals import Estimate


class Measured(Protocol):
    """How far probabilities are from what is true."""

    @property
    def ece(self) -> Estimate: ...  # noqa: D102
    @property
    def brier(self) -> Estimate: ...  # noqa: D102
    def to_mapping(self) -> dict[str, Any]: ...  # noqa: D102


class Judgement(NamedTuple):
    """Probabilities before and after, on the test split.

    :ivar ece_change: after less before; ``brier_change`` likewise; below 0 is better.
    """

    before: Measured
    after: Measured
    ece_change: Estimate
    brier_change: Estimate

    @property
    def is_better(self) -> bool:
        """Whether both the calibration error and the Brier score got better."""
        return all(change.value is not None and change.value < 0 for change in (self.ece_change, self.brier_change))

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "before": self.before.to_mapping(),
            "after": self.after.to_mapping(),
            "ece_change": self.ece_change.to_mapping(),
            "brier_change": self.brier_change.to_mapping(),
        }

    def table(self) -> Table:
        """Return both figures before and after, and the verdict."""
        verdict = "kept" if self.is_better else "not kept: the model stays uncalibrated"
        rows = (
            ("ECE", *self.before.ece.cells(), *self.after.ece.cells(), *self.ece_change.cells("+")),
            ("Brier", *self.before.brier.cells(), *self.after.brier.cells(), *self.brier_change.cells("+")),
        )
        interval = "95 % interval"
        columns = ("test split", "before", interval, "after", interval, "change", interval)
        return Table(title=f"Calibration {verdict}", columns=columns, rows=rows)
