"""How often calls are wrong on each reference, as control libraries of one state show it.

Hides: that a control is a summary of an earlier run. Belongs here: from two summaries to rates by reference; what is corrected
with them is ``fractions.py``'s. Invariant: a reference that the controls hold too few reads of, or on which calls tell nothing,
has no rates of its own.
"""

from __future__ import annotations

from pathlib import Path

from leech.errors import InputError
from leech.prediction.config import PredictConfig
from leech.prediction.fractions import ErrorRates, Rate
from leech.prediction.tsv import read_tsv

MIN_CONTROL_READS = 20
"""Called reads of either control from which on a reference has rates of its own."""

_COLUMNS = ("reference", "n_positive", "n_negative")


def read_controls(config: PredictConfig) -> tuple[ErrorRates, dict[str, ErrorRates]] | None:
    """Return what the controls of a configuration tell; None without controls."""
    if config.negative_control is None or config.positive_control is None:
        return None
    return control_rates(config.negative_control, config.positive_control)


def control_rates(negative: Path, positive: Path) -> tuple[ErrorRates, dict[str, ErrorRates]]:
    """Return the rates over all references and those of each reference.

    :param negative: ``charging_summary`` table of a library in which every molecule is negative; ``positive`` likewise.
    :raises InputError: tables of another form, without calls, or that say nothing about the state.
    """
    negatives, positives = _read(negative), _read(positive)
    everything = _rates(_total(negatives), _total(positives))
    if everything is None:
        raise InputError(
            f"The controls '{negative}' and '{positive}' have no calls, or as many positive ones in either: nothing can be "
            "corrected by them.",
            hint="Give the charging_summary tables of a library of either state, called by this model at this threshold.",
        )
    own = {}
    for reference in negatives.keys() & positives.keys():
        pair = negatives[reference], positives[reference]
        rates = _rates(*pair)
        if rates is not None and min(map(sum, pair)) >= MIN_CONTROL_READS:
            own[reference] = rates
    return everything, own


def _rates(negative: tuple[int, int], positive: tuple[int, int]) -> ErrorRates | None:
    num_negative, num_positive = sum(negative), sum(positive)
    if not num_negative or not num_positive:
        return None
    fpr, tpr = negative[0] / num_negative, positive[0] / num_positive
    return ErrorRates(Rate(fpr, num_negative), Rate(tpr, num_positive)) if tpr > fpr else None


def _total(counts: dict[str, tuple[int, int]]) -> tuple[int, int]:
    return sum(called[0] for called in counts.values()), sum(called[1] for called in counts.values())


def _read(path: Path) -> dict[str, tuple[int, int]]:
    """Return (called positive, called negative) by reference."""
    (_, columns), *lines = read_tsv(path, "a summary of calls by reference")
    missing = [column for column in _COLUMNS if column not in columns]
    if missing or "sample" in columns:
        what = "is a table over several samples" if not missing else f"has no column '{missing[0]}'"
        raise InputError(f"'{path}' {what}, so it is no control.", hint="Give a sample's own charging_summary.tsv.gz.")
    counts = {}
    for number, cells in lines:
        row = dict(zip(columns, cells, strict=True))
        try:
            counts[row["reference"]] = int(row["n_positive"]), int(row["n_negative"])
        except ValueError as error:
            raise InputError(f"'{path}' line {number}: a count is no whole number ({error}).") from error
    return counts
