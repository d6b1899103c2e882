"""How often calls are wrong on each reference, as control libraries of one state show it.

Hides: that a control is a summary of an earlier run with its record beside it. Belongs here: from two such runs to counts by
reference, and whether they were called as this run is; rates are made of counts in ``rates.py``, and what is corrected with
those is ``fractions.py``'s. Invariants: a control was called by the same model, threshold and abstention; a reference that one
control lacks counts with the reads of the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from leech.console import logger
from leech.errors import InputError, MismatchError
from leech.models.bundle import CallCounts
from leech.models.learnt import read_overlap
from leech.prediction.config import PredictConfig
from leech.prediction.names import RECORD, SUMMARY
from leech.prediction.rates import CallRates, ReferenceRates, call_rate
from leech.prediction.record import Calling, read_record
from leech.prediction.tally import Tally
from leech.prediction.tsv import read_tsv

_COLUMNS = ("reference", "n_positive", "n_negative")

_TABLE = f"{SUMMARY}.tsv"

_AGAIN = (
    "Call the control library by this model with the options of this run, --threshold-cl and abstention among them, or give "
    "--fpr and --tpr."
)


class Controls(NamedTuple):
    """What controls tell.

    :ivar rates: how often calls are wrong.
    :ivar calls: how often reads are called at all, under the same abstention.
    :ivar paths: the tables, negative and positive.
    """

    rates: ReferenceRates
    calls: CallRates
    paths: tuple[Path, Path]

    def refuse_others(self, references: Iterable[str]) -> None:
        """Refuse controls without a read on any of these references.

        :raises MismatchError: naming examples of both.
        """
        here = sorted(references)
        if not self.rates.own.keys() & set(here):
            negative, positive = self.paths
            raise MismatchError(
                f"None of the {len(self.rates.own)} references of the controls '{negative}' and '{positive}' "
                f"({', '.join(sorted(self.rates.own)[:3])}) is among the {len(here)} of this run ({', '.join(here[:3])}): "
                "they say nothing of its calls.",
                hint="Give controls that were aligned to the references of this run.",
            )

    def warn_of_uncovered(self, called: Iterable[str]) -> None:
        """Name called references that the controls hold no read of."""
        every = sorted(called)
        others = [name for name in every if name not in self.rates.own]
        if others:
            logger.warning(
                "The controls hold no read of %d of %d references called, whose fractions are corrected by the mean of the "
                "others' rates: %s%s.",
                len(others),
                len(every),
                ", ".join(others[:5]),
                f" and {len(others) - 5} more" if len(others) > 5 else "",
            )


def read_controls(config: PredictConfig, calling: Calling) -> Controls | None:
    """Return what the controls of a configuration tell; None without controls.

    :param calling: by what the reads of this run are called.
    :raises InputError: tables of another form, without record, without calls, or that say nothing about the state.
    :raises MismatchError: a control that was called by something else.
    """
    if config.negative_control is None or config.positive_control is None:
        return None
    paths = config.negative_control, config.positive_control
    negative, positive = (_called(path, calling) for path in paths)
    rates = control_rates(negative, positive, paths)
    totals = [tally.total() for tally in (positive, negative)]
    c1, c0 = (call_rate(total.num_called, total.no_calls) for total in totals)
    assert c1, "a control without calls gives no rates"
    assert c0, "a control without calls gives no rates"
    return Controls(rates, CallRates(c1, c0), paths)


def control_rates(negative: Tally, positive: Tally, paths: tuple[Path, Path]) -> ReferenceRates:
    """Return the rates over all references and those of each reference.

    :param negative: calls of a library in which every molecule is negative; ``positive`` likewise.
    :param paths: of their tables, for messages.
    :raises InputError: no calls, or calls that say nothing about the state.
    """
    negatives, positives = negative.by_reference(), positive.by_reference()
    counts = {}
    for name in negatives.keys() | positives.keys():
        fp, tn = (negatives[name].num_positive, negatives[name].num_negative) if name in negatives else (0, 0)
        tp, fn = (positives[name].num_positive, positives[name].num_negative) if name in positives else (0, 0)
        if fp + tn + tp + fn:
            counts[name] = CallCounts(tp=tp, fp=fp, tn=tn, fn=fn)
    rates = ReferenceRates.of(counts)
    if rates is None:
        raise _no_rates(negative, positive, paths)
    return rates


def _no_rates(negative: Tally, positive: Tally, paths: tuple[Path, Path]) -> InputError:
    for tally, path, state in ((negative, paths[0], "negative"), (positive, paths[1], "positive")):
        if not tally.total().num_called:
            return InputError(
                f"The {state} control '{path}' has no called read: nothing can be corrected by it.",
                hint="Give the table of a library of that state in which reads were called.",
            )
    fp, negatives, tp, positives = (
        number for tally in (negative, positive) for number in (tally.total().num_positive, tally.total().num_called)
    )
    counts = f"{fp} of {negatives} in '{paths[0]}', {tp} of {positives} in '{paths[1]}'"
    if fp * positives > tp * negatives:
        return InputError(
            f"The negative control has more positive calls ({fp} of {negatives} in '{paths[0]}') than the positive one "
            f"({tp} of {positives} in '{paths[1]}'); are they swapped?",
            hint="--negative-control is the library whose every molecule is negative.",
        )
    return InputError(
        f"Both controls have the same share of positive calls ({counts}): they do not tell the states apart, so nothing can be "
        "corrected by them.",
        hint="Give the charging_summary tables of a library of either state.",
    )


def _called(path: Path, calling: Calling) -> Tally:
    """Return the calls of a control, once its table and its record agree and it was called as this run is."""
    table = _read(path)
    name = path.name.removesuffix(".gz")
    beside = path.with_name(f"{name.removesuffix(_TABLE)}{RECORD}")
    if name.endswith(f".{_TABLE}"):
        missing = f"has no '{beside.name}' beside it"
    else:
        missing = f"is not named SAMPLE.{_TABLE}.gz as predict names it, by which its record is found"
    if not name.endswith(f".{_TABLE}") or not beside.is_file():
        raise InputError(
            f"Control '{path}' {missing}, so nothing says by which model and at which threshold it was called: it might "
            "correct this run by the errors of another.",
            hint="Keep the table and the record together as 'leech predict' wrote them, or give --fpr and --tpr instead.",
        )
    record = read_record(beside, _AGAIN)
    if "model_digest" not in record:
        raise InputError(
            f"'{beside}' was written by an earlier version of leech and does not say by which model the control was called.",
            hint=_AGAIN,
        )
    differing = list(calling.differences(record))
    if differing:
        raise MismatchError(
            f"Control '{path}' was not called as this run is, so it says nothing of its calls: {'; '.join(differing)}.",
            hint=_AGAIN,
        )
    overlap = read_overlap(record.get("learnt_from"))
    if overlap is not None and overlap.state == "yes":
        logger.warning(
            "Control '%s' holds reads that the model learnt from, or was chosen by (%d of %d compared): it calls them better "
            "than others, so fractions are corrected too little. Give a library that it was not trained on.",
            path,
            overlap.num_found,
            overlap.num_compared,
        )
    tally = Tally.from_mapping(record["tally"])
    if {name: (one.num_positive, one.num_negative) for name, one in tally.by_reference().items()} != table:
        raise MismatchError(
            f"Control '{path}' and the record '{beside}' hold different counts, so they are not of one run.",
            hint="Use both as 'leech predict' wrote them.",
        )
    return tally


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
                hint="Give the table as leech wrote it.",
            )
        counts[row["reference"]] = int(found[0]), int(found[1])
    return counts
