"""How often calls are wrong on each reference, as control libraries of one state show it.

Hides: that a control is a summary of an earlier run. Belongs here: from two summaries to counts by reference; rates are made of
them in ``rates.py``, and what is corrected with those is ``fractions.py``'s. Invariant: a reference that one control lacks
counts with the reads of the other.
"""

from __future__ import annotations

from pathlib import Path

from leech.errors import InputError
from leech.models.bundle import CallCounts
from leech.prediction.config import PredictConfig
from leech.prediction.rates import ReferenceRates
from leech.prediction.tsv import read_tsv

_COLUMNS = ("reference", "n_positive", "n_negative")


def read_controls(config: PredictConfig) -> ReferenceRates | None:
    """Return what the controls of a configuration tell; None without controls."""
    if config.negative_control is None or config.positive_control is None:
        return None
    return control_rates(config.negative_control, config.positive_control)


def control_rates(negative: Path, positive: Path) -> ReferenceRates:
    """Return the rates over all references and those of each reference.

    :param negative: ``charging_summary`` table of a library in which every molecule is negative; ``positive`` likewise.
    :raises InputError: tables of another form, without calls, or that say nothing about the state.
    """
    negatives, positives = _read(negative), _read(positive)
    counts = {}
    for reference in negatives.keys() | positives.keys():
        (fp, tn), (tp, fn) = (called.get(reference, (0, 0)) for called in (negatives, positives))
        counts[reference] = CallCounts(tp=tp, fp=fp, tn=tn, fn=fn)
    rates = ReferenceRates.of(counts)
    if rates is None:
        raise InputError(
            f"The controls '{negative}' and '{positive}' have no calls, or no more positive ones in the latter: nothing can be "
            "corrected by them.",
            hint="Give the charging_summary tables of a library of either state, called by this model at this threshold.",
        )
    return rates


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
        found = [row[column] for column in ("n_positive", "n_negative")]
        if not all(text.isdecimal() for text in found):
            raise InputError(
                f"'{path}' line {number}: a count is no whole number ({', '.join(found)}).",
                hint="Give the table as leech wrote it.",
            )
        if row["reference"] in counts:
            raise InputError(
                f"'{path}' line {number} names reference '{row['reference']}' a second time.",
                hint="Give the table of one library; add up those of several before.",
            )
        counts[row["reference"]] = int(found[0]), int(found[1])
    return counts
