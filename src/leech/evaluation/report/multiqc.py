"""What MultiQC shows of a report: custom content, one JSON file per section.

Hides: MultiQC's words for tables, bars and heat maps. Belongs here: the same numbers as on the page, by sample; nothing is
worked out here that the page does not show. Invariants: a section's id is that of no other, so that reports of several runs
come together in one; what is not known is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leech.data.reasons import REASONS, USED
from leech.evaluation.report.results import CORRECTED, MIN_DEPTH, Sample

_SUFFIX = "_mqc.json"
"""MultiQC finds custom content by it."""


def custom_content(samples: Sequence[Sample], positive: str) -> dict[str, dict[str, Any]]:
    """Return the content of each file by what its name ends in.

    :param positive: name of the positive state.
    """
    return {
        _SUFFIX: _table(samples, positive),
        f"_attrition{_SUFFIX}": _bars(samples),
        f"_charging{_SUFFIX}": _heat_map(samples, positive),
    }


def _table(samples: Sequence[Sample], positive: str) -> dict[str, Any]:
    percent = {"min": 0, "max": 100, "suffix": "%", "format": "{:,.1f}"}
    whole = {"format": "{:,.0f}"}
    return {
        "id": "leech_samples",
        "section_name": "leech: samples",
        "description": f"Reads called by leech, and the share of called reads that are {positive} with its 95 % interval; "
        "corrected for wrong calls and for no-calls, where predict could work that out.",
        "plot_type": "table",
        "pconfig": {"id": "leech_samples_table", "title": "leech: samples"},
        "headers": {
            "records": {"title": "Records", **whole},
            "called": {"title": "Called", **whole},
            "no_call": {"title": "No call", **whole},
            "percent": {"title": f"% {positive}", **percent},
            "percent_low": {"title": "low", **percent},
            "percent_high": {"title": "high", **percent},
            "learnt": {"title": "Model learnt from its reads"},
            **{
                f"{name}{suffix}": {
                    "title": f"% {positive} {name.replace('_', '-')}{suffix.replace('_', ' ')}",
                    **percent,
                }
                for name in CORRECTED
                if any(name in sample.total.corrected for sample in samples)
                for suffix in ("", "_low", "_high")
            },
        },
        "data": {sample.name: _known(sample) for sample in samples},
    }


def _known(sample: Sample) -> dict[str, float | str]:
    total = sample.total
    fraction = total.fraction
    cells: dict[str, float | str | None] = {
        "learnt": sample.learnt.words,
        "records": sample.ladder.get("seen"),
        "called": total.called,
        "no_call": total.no_call,
        "percent": None if fraction is None else 100 * fraction.value,
        "percent_low": None if fraction is None else 100 * fraction.interval.low,
        "percent_high": None if fraction is None else 100 * fraction.interval.high,
    }
    for name, corrected in total.corrected.items():
        for suffix, value in zip(("", "_low", "_high"), (corrected.value, *corrected.interval), strict=True):
            cells[f"{name}{suffix}"] = 100 * value
    return {name: value for name, value in cells.items() if value is not None}


def _bars(samples: Sequence[Sample]) -> dict[str, Any]:
    ladders: dict[str, Mapping[str, int]] = {
        sample.name: {outcome: records for outcome, records in sample.ladder.items() if outcome != "seen"}
        for sample in samples
        if sample.ladder
    }
    occurring = {outcome for ladder in ladders.values() for outcome in ladder}
    order = [USED, *(reason for reason in REASONS if reason in occurring), *sorted(occurring - {USED, *REASONS})]
    return {
        "id": "leech_attrition",
        "section_name": "leech: what became of the records",
        "description": "Records of the alignment files by outcome.",
        "plot_type": "bargraph",
        "pconfig": {"id": "leech_attrition_plot", "title": "leech: records by outcome", "ylab": "records"},
        "data": {name: {outcome: ladder.get(outcome, 0) for outcome in order} for name, ladder in ladders.items()},
    }


def _heat_map(samples: Sequence[Sample], positive: str) -> dict[str, Any]:
    """Return the percentages by reference; those of few reads are left out, because MultiQC cannot mark them.

    Nor can it mark what is corrected: they are where all of them can be, and raw else.
    """
    shown = [(sample.name, one) for sample in samples for one in sample.references if one.called and one.enough]
    kind = next((name for name in CORRECTED if shown and all(name in one.corrected for _, one in shown)), None)
    data: dict[str, dict[str, float]] = {}
    for sample_name, one in shown:
        fraction = one.fraction if kind is None else one.corrected[kind]
        if fraction is not None:
            data.setdefault(one.reference, {})[sample_name] = 100 * fraction.value
    what = f"% {positive}" if kind is None else f"% {positive} ({kind.replace('_', '-')})"
    of = (
        f"Percent of called reads that are {positive}"
        if kind is None
        else f"Percent {positive}, {kind.replace('_', '-')}"
    )
    return {
        "id": "leech_charging",
        "section_name": f"leech: {what} by tRNA",
        "description": f"{of}, where a tRNA has enough calls (by default {MIN_DEPTH}).",
        "plot_type": "heatmap",
        "pconfig": {"id": "leech_charging_plot", "title": f"leech: {what} by tRNA", "min": 0, "max": 100},
        "data": dict(sorted(data.items())),
    }
