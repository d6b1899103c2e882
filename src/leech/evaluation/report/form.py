"""Whether a file of results has the form in which leech writes it.

Hides: which keys hold numbers, intervals and lists of rows. Belongs here: form alone, by the names of keys, so that one rule
holds wherever a name occurs; what the values mean is for the parts of the page. Invariants: what passes can be formatted and
drawn; keys that this version does not know are passed over, so that files of later versions can be shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from leech.errors import InputError

_LARGEST = 2**53
"""Above it, whole numbers are no longer told apart in double precision; nothing that is counted here is as many."""

_COUNTS = ("num_reads", "num_positive", "num_parents", "threshold_cl")

_FIGURES = (
    *("auroc", "auprc_positive", "auprc_negative", "ece", "brier", "balanced_accuracy", "accuracy", "mcc", "f1"),
    *("tpr", "fpr", "precision"),
)

_NUMBERS = ("prevalence", "value", "low", "high")

_SHARES = ("share_positive", "mean_p")

_ROWS = ("reliability", "references", "reference", "isoacceptor", "amino_acid", "flow_cell", "sample", "junction")
"""Lists whose members are mappings; in ``ungrouped`` and ``worst_groups`` the same names hold something else."""

_OTHERWISE = ("ungrouped", "worst_groups", "settings", "provenance", "worst_group")


def require_form(content: Mapping[str, Any], path: Path) -> None:
    """Refuse results that no version of leech has written so, for instance because somebody edited them.

    :raises InputError: naming the file and the place.
    """
    for place, what in _faults(content, ""):
        raise InputError(f"'{path}' is damaged: {place} is {what}.", hint="Make it again; such files are not edited.")


def _faults(content: Mapping[str, Any], place: str) -> Iterator[tuple[str, str]]:
    for key, value in content.items():
        here = f"{place}.{key}" if place else str(key)
        # The record of a calibration has its reads by split and label.
        is_by_split = key == "num_reads" and isinstance(value, Mapping) and not place
        if key in _OTHERWISE or value is None or is_by_split:
            continue
        fault = _fault(key, value)
        if fault:
            yield here, f"{json.dumps(value):.40}, where {fault} should be"
        elif isinstance(value, Mapping):
            yield from _faults(value, here)
        elif key in _ROWS:
            for number, row in enumerate(value):
                if not isinstance(row, Mapping):
                    yield f"{here}[{number}]", "no row"
                else:
                    yield from _faults(row, f"{here}[{number}]")


def _fault(key: str, value: Any) -> str:
    """Return what should stand under a key in place of a value; empty where the value will do."""
    if key == "interval":
        is_pair = isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))
        return "" if is_pair else "a pair of numbers"
    if key in _SHARES:
        return "" if _is_number(value) and 0 <= value <= 1 else "a share"
    if key in _NUMBERS:
        return "" if _is_number(value) else "a number"
    # Versions and places differ in whether a figure stands alone or with its interval.
    if key in _FIGURES:
        return "" if _is_number(value) or isinstance(value, Mapping) else "a number"
    if key in _COUNTS:
        is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST
        return "" if is_count else "a whole number"
    if key in _ROWS:
        # What a calibration achieved has its counts by name of the reference.
        by_name = key == "references" and isinstance(value, Mapping)
        return "" if isinstance(value, list) or by_name else "a list"
    return (
        "a part of several" if key in ("before", "after", "test", "groups") and not isinstance(value, Mapping) else ""
    )


def _is_number(value: Any) -> bool:
    # NaN is unlike itself in every comparison.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -_LARGEST < value < _LARGEST


def refuse_class_metrics(content: Mapping[str, Any], path: Path) -> None:
    """Refuse metrics of a model of more than two states.

    :raises InputError: the file holds some.
    """
    if content.get("format") == "leech-class-metrics":
        raise InputError(
            f"Metrics '{path}' are of a model of more than two states, which the page does not show.",
            hint="'leech eval test' shows them as tables; leave them out here.",
        )


def refuse_class_calls(folder: Path) -> None:
    """Refuse a folder of calls by a model of more than two states.

    :raises InputError: the folder holds some.
    """
    if any(folder.glob("*.states_summary.tsv.gz")):
        raise InputError(
            f"'{folder}' holds calls by a model of more than two states, which the page does not show.",
            hint="Leave it out; its tables are '<sample>.states_summary.tsv.gz'.",
        )
