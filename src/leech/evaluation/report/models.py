"""The parts of the report about models: how good, at which threshold, how honest about it, and how they were trained.

Hides: which tables and figures these are. Belongs here: what is shown of ``leech eval test`` and of a model folder; reading is
``results.py``'s, drawing ``charts.py``'s. Invariants: figures are those of the metrics file; curves follow from its counts by
``cl``, so they have at most 255 steps; what a file does not say is left empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from leech.console import Table
from leech.data.drawing import bare_table, figure, numbers, tsv_link
from leech.evaluation.intervals import wilson
from leech.evaluation.report.charts import Axes, Dot, Line, Mark, Row, curves, dot_plots, key, steps
from leech.evaluation.report.results import NUM_LEVELS, Judged, Sample, estimate
from leech.evaluation.report.section import Section, about_learnt, count, file_name, heading, number, paragraph, span

_GIVE_METRICS = "Give a file that 'leech eval test' wrote, with --metrics."

_GIVE_SCORES = f"{_GIVE_METRICS} Or scores read by read ('leech eval test --scores FILE.tsv'), with --scores."

_GIVE_MODEL = "Give a folder that 'leech model train' wrote, with --model."

_VISIBLE = 0.02
"""Stretch of a curve below which it need not be spoken of."""

_BIN = 8
"""Values of ``cl`` in a bar of the histograms."""

_FIGURES = (
    ("AUROC", ("auroc",)),
    ("AUPRC of the positive class", ("auprc_positive",)),
    ("AUPRC of the negative class", ("auprc_negative",)),
    ("balanced accuracy", ("operating_point", "balanced_accuracy")),
    ("MCC", ("operating_point", "mcc")),
    ("F1", ("operating_point", "f1")),
    ("TPR", ("operating_point", "tpr")),
    ("FPR", ("operating_point", "fpr")),
    ("precision", ("operating_point", "precision")),
    ("callable at 95 %", ("callable_share", "0.95")),
    ("callable at 99 %", ("callable_share", "0.99")),
    ("ECE before calibration", ("uncalibrated", "ece")),
    ("ECE", ("ece",)),
    ("Brier before calibration", ("uncalibrated", "brier")),
    ("Brier", ("brier",)),
)
"""Figures of a metrics file by the way to them."""

_FEWEST_READS = 20
"""Reads of either state below which a group's AUROC is marked."""

_KINDS = ("reference", "isoacceptor", "amino_acid", "flow_cell", "sample", "junction")


def metrics_section(judged: Sequence[Judged]) -> Section:
    """Return the figures of every metrics file."""
    measured = [one for one in judged if "auroc" in one.content]
    body = []
    if measured:
        table = metrics_table(measured)
        body = [
            bare_table(table),
            f"<p>{tsv_link(table, 'metrics.tsv')}</p>",
            paragraph(
                "In brackets the 95 % interval. AUPRC and precision are those at the share of positive reads given above; "
                "with another share they are others."
            ),
            *about_learnt({one.name: one.learnt for one in measured}, "figures"),
        ]
    return Section("metrics", "How good the models are", tuple(body), _GIVE_METRICS)


def metrics_table(judged: Sequence[Judged]) -> Table:
    """Return a row per figure and a column per metrics file."""
    facts: list[tuple[str, list[str]]] = [
        ("split", [str(one.content.get("split", "")) for one in judged]),
        ("model learnt from these reads", [one.learnt.words for one in judged]),
        ("positive label", [one.labels[1] for one in judged]),
        ("reads", [count(one.content.get("num_reads")) for one in judged]),
        ("positive reads", [count(one.content.get("num_positive")) for one in judged]),
        ("share positive", [number(one.content.get("prevalence")) for one in judged]),
        ("called positive at cl >=", [count(one.threshold_cl) for one in judged]),
    ]
    facts += [(name, [_estimated(one.content, way) for one in judged]) for name, way in _FIGURES]
    rows = tuple((name, *cells) for name, cells in facts if any(cells))
    return Table(title="Metrics", columns=("figure", *(one.name for one in judged)), rows=rows)


def _estimated(content: Mapping[str, Any], way: Sequence[str]) -> str:
    found: Any = content
    for step in way:
        found = found.get(step) if isinstance(found, Mapping) else None
    value, interval = estimate(found)
    return number(value) + (f" ({span(interval)})" if interval is not None else "")


def groups_section(judged: Sequence[Judged]) -> Section:
    """Return the AUROC by group of reads, a figure per kind of group."""
    body: list[str] = []
    for kind in _KINDS:
        groups = {place: _groups(one, kind) for place, one in enumerate(judged)}
        names = sorted({name for found in groups.values() for name in found})
        if names and (kind == "reference" or len(names) > 1):
            body += _group_figure(kind, names, groups, [one.name for one in judged])
    if body:
        body.append(
            paragraph(
                "AUROC with its 95 % interval (DeLong), or the share of calls that are right (Wilson) where no group has reads "
                f"of both states. Hollow dots rest on fewer than {_FEWEST_READS} reads, of either state for an AUROC."
            )
        )
    return Section("groups", "How good by group of reads", tuple(body), _GIVE_METRICS)


def _groups(one: Judged, kind: str) -> dict[str, Mapping[str, Any]]:
    groups = one.content.get("groups")
    rows = groups.get(kind) if isinstance(groups, Mapping) else None
    if rows is None and kind == "reference":
        rows = one.content.get("references")
    return {str(row.get("name")): row for row in rows or [] if isinstance(row, Mapping)}


def _group_figure(
    kind: str, names: Sequence[str], groups: Mapping[int, Mapping[str, Mapping[str, Any]]], models: Sequence[str]
) -> Iterator[str]:
    words = kind.replace("_", " ")
    every = [row for found in groups.values() for row in found.values()]
    # Where a group is of one state, as a flow cell or a sample often is, none has an AUROC.
    shown = "auroc" if any(estimate(row.get("auroc"))[0] is not None for row in every) else "accuracy"
    title = "AUROC" if shown == "auroc" else shown
    rows = [
        Row("", name, [one for place in groups if (one := _group_dot(groups, place, name, shown, models)) is not None])
        for name in names
    ]
    yield heading(f"By {words}")
    yield key(models, dots=True)
    for drawing in dot_plots(f"{title} by {words}", rows, len(models), title):
        yield figure(drawing, "")
    cells = tuple(
        _group_cells(name, models[place], found[name])
        for name in names
        for place, found in groups.items()
        if name in found
    )
    columns = (words, "model", "reads", "positive", "AUROC", "interval", "accuracy", "TPR", "FPR", "balanced accuracy")
    yield numbers(Table(title=f"by {words}", columns=columns, rows=cells), f"groups-{kind}.tsv")


def _group_cells(name: str, model: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    value, interval = estimate(row.get("auroc"))
    others = (estimate(row.get(figure))[0] for figure in ("accuracy", "tpr", "fpr", "balanced_accuracy"))
    counts = (count(row.get("num_reads")), count(row.get("num_positive")))
    return (name, model, *counts, number(value), span(interval), *map(number, others))


def _group_dot(
    groups: Mapping[int, Mapping[str, Mapping[str, Any]]], place: int, name: str, shown: str, models: Sequence[str]
) -> Dot | None:
    row = groups[place].get(name, {})
    value, interval = estimate(row.get(shown))
    if value is None:
        return None
    reads, positive = int(row.get("num_reads") or 0), int(row.get("num_positive") or 0)
    enough = (min(positive, reads - positive) if shown == "auroc" else reads) >= _FEWEST_READS
    low, high = interval or (value, value)
    return Dot(place, value, low, high, enough, f"{models[place]}: {value:.3f} ({span(interval)}), {reads} reads")


def scores_section(judged: Sequence[Judged], samples: Sequence[Sample]) -> Section:
    """Return histograms of scores with the threshold: by truth, and of called reads by sample."""
    body: list[str] = []
    for one in judged:
        if one.counts is None:
            continue
        body += _histogram(
            one.name,
            f"{one.name}: reads of known state",
            dict(zip(one.labels, one.counts, strict=True)),
            {one.threshold_cl},
        )
    found = {sample.name: sample.histogram for sample in samples if sample.histogram is not None}
    if found:
        body += _histogram("samples", "Called reads by sample", found, {sample.threshold_cl for sample in samples})
    lacking = f"{_GIVE_SCORES} Or a folder of predict's tables, with --calls."
    return Section("scores", "Scores", tuple(body), lacking)


def _histogram(
    name: str, title: str, counts: Mapping[str, Sequence[int]], thresholds: set[int | None]
) -> Iterator[str]:
    edges = list(range(0, NUM_LEVELS + 1, _BIN))
    binned = {line: [sum(levels[start : start + _BIN]) for start in edges[:-1]] for line, levels in counts.items()}
    drawn = [
        steps([float(edge) for edge in edges], [share / max(sum(levels), 1) for share in levels])
        for levels in binned.values()
    ]
    upright = [(float(cl), f"cl ≥ {cl}") for cl in sorted(cl for cl in thresholds if cl is not None)]
    yield heading(title)
    yield key([f"{line} ({sum(levels)} reads)" for line, levels in binned.items()], dots=False)
    axes = Axes("cl = 255 × P(positive)", "share of reads", (0.0, float(NUM_LEVELS)), (0.0, max(_highest(drawn), 0.01)))
    yield figure(
        curves(title, drawn, axes, upright=upright),
        f"Share of each line's reads in {len(edges) - 1} steps of the score; dashed: from here on reads are called positive.",
    )
    rows = tuple(
        (str(edge), str(edge + _BIN - 1), *(str(levels[place]) for levels in binned.values()))
        for place, edge in enumerate(edges[:-1])
    )
    table = Table(title=f"reads by cl, {title}", columns=("cl_from", "cl_to", *binned), rows=rows)
    yield numbers(table, file_name("scores", name))


def _highest(drawn: Iterable[Line]) -> float:
    return max((height for line in drawn for height in line.ys), default=0.0)


def curves_section(judged: Sequence[Judged]) -> Section:
    """Return ROC and precision-recall curves with the operating points."""
    ranked = [one for one in judged if one.counts is not None and all(sum(side) for side in one.counts)]
    title, lacking = "ROC and precision-recall", f"{_GIVE_SCORES} Reads of both states are needed."
    if not ranked:
        return Section("curves", title, (), lacking)
    rates = [_rates(one) for one in ranked]
    names = [_with_area(one) for one in ranked]
    marks: tuple[list[Mark], list[Mark]] = ([], [])
    for thing, (one, rate) in enumerate(zip(ranked, rates, strict=True)):
        if one.threshold_cl is not None:
            tpr, fpr, precision = rate[one.threshold_cl]
            words = f"{one.name} at cl >= {one.threshold_cl}"
            marks[0].append(Mark(thing, fpr, tpr, words=words))
            if np.isfinite(precision):
                marks[1].append(Mark(thing, tpr, precision, words=words))
    # From the strictest threshold to the one that calls every read.
    order = range(NUM_LEVELS, -1, -1)
    roc = [Line([rate[cl][1] for cl in order], [rate[cl][0] for cl in order]) for rate in rates]
    recall = [_recall_line([rate[cl] for cl in order]) for rate in rates]
    square = ((0.0, 1.0), (0.0, 1.0))
    shares = ", ".join(
        f"{sum(one.counts[1]) / sum(map(sum, one.counts)):.3f} ({one.name})" for one in ranked if one.counts
    )
    body = (
        key(names, dots=False),
        figure(
            curves("ROC curve", roc, Axes("FPR", "TPR", *square), marks=marks[0], diagonal=True),
            "ROC curve; the dot is the operating point, the dashed diagonal is chance.",
        ),
        figure(
            curves("Precision-recall curve", recall, Axes("recall (TPR)", "precision", *square), marks=marks[1]),
            f"Precision and recall of the positive class; guessing gives a precision of {shares}."
            + _level_ends([one.name for one in ranked], recall),
        ),
        numbers(_rates_table(ranked, rates), "curves.tsv"),
    )
    return Section("curves", title, body, lacking)


def _recall_line(rates: Sequence[tuple[float, float, float]]) -> Line:
    """Return precision over recall from recall 0 on.

    Reads that share the highest score are called all or none. Any part of them drawn by chance would have the precision that
    all of them have, so the line is level up to there, as the area below it takes it to be.
    """
    called = [rate for rate in rates if np.isfinite(rate[2])]
    return Line([0.0, *(rate[0] for rate in called)], [called[0][2], *(rate[2] for rate in called)])


def _level_ends(names: Sequence[str], drawn: Sequence[Line]) -> str:
    """Say up to where a line is level because no threshold divides its best reads; nothing where that is hardly seen."""
    ends = [f"{line.xs[1]:.2f} ({name})" for name, line in zip(names, drawn, strict=True) if line.xs[1] >= _VISIBLE]
    return f" Up to recall {', '.join(ends)} reads share the highest score, so the line is level there." if ends else ""


def _with_area(one: Judged) -> str:
    value, _ = estimate(one.content.get("auroc"))
    return one.name if value is None else f"{one.name} (AUROC {value:.3f})"


def _rates(one: Judged) -> list[tuple[float, float, float]]:
    """Return TPR, FPR and precision when reads from each ``cl`` on are called, for 0 to 256; no calls: no precision."""
    assert one.counts is not None
    fp, tp = (np.append(np.cumsum(side[::-1])[::-1], 0).astype(float) for side in one.counts)
    called = tp + fp
    precision = np.divide(tp, called, out=np.full_like(tp, np.nan), where=called > 0)
    return list(zip((tp / tp[0]).tolist(), (fp / fp[0]).tolist(), precision.tolist(), strict=True))


def _rates_table(judged: Sequence[Judged], rates: Sequence[Sequence[tuple[float, float, float]]]) -> Table:
    rows = tuple(
        (one.name, str(cl), *(number(value if np.isfinite(value) else None) for value in rate[cl]))
        for one, rate in zip(judged, rates, strict=True)
        for cl in range(1, NUM_LEVELS)
    )
    return Table(title="rates by threshold", columns=("model", "threshold_cl", "tpr", "fpr", "precision"), rows=rows)


def reliability_section(judged: Sequence[Judged], calibration: Mapping[str, Any]) -> Section:
    """Return the share of positive reads by predicted probability, before and after calibration.

    :param calibration: the model's ``calibration.json``; empty without one.
    """
    body: list[str] = []
    for one in judged:
        before = one.content.get("uncalibrated")
        after_name = "as predicted" if not isinstance(before, Mapping) else "after calibration"
        found = {after_name: one.content.get("reliability")}
        if isinstance(before, Mapping):
            found["before calibration"] = before.get("reliability")
        bins = {name: _bins(rows) for name, rows in found.items() if isinstance(rows, list)}
        if any(bins.values()):
            body += _reliability_figure(one.name, bins)
    judgement = calibration.get("test")
    if isinstance(judgement, Mapping) and {"before", "after"} <= judgement.keys():
        bins = {
            f"{when} calibration": _bins((judgement[when] or {}).get("reliability") or [])
            for when in ("after", "before")
        }
        kept = "which it kept" if calibration.get("kept") else "which was not kept, because it made them no better"
        body += _reliability_figure(f"calibration of the model on its test split, {kept}", bins)
    if body:
        body.append(
            paragraph(
                "On the dashed diagonal, a probability of 0.8 is right 8 times in 10. Vertical lines: Wilson's 95 % interval."
            )
        )
    return Section(
        "reliability",
        "Reliability of the probabilities",
        tuple(body),
        f"{_GIVE_METRICS} Or a calibrated model, with --model.",
    )


def _bins(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    needed = ("mean_p", "share_positive", "num_reads")
    return [row for row in rows if all(row.get(key) is not None for key in needed)]


def _reliability_figure(name: str, bins: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    drawn, marks, rows = [], [], []
    for thing, (what, found) in enumerate(bins.items()):
        drawn.append(Line([row["mean_p"] for row in found], [row["share_positive"] for row in found]))
        for row in found:
            interval = wilson(round(row["share_positive"] * row["num_reads"]), row["num_reads"])
            low, high = interval or (None, None)
            marks.append(Mark(thing, row["mean_p"], row["share_positive"], low, high, f"{row['num_reads']} reads"))
            rows.append(
                (
                    what,
                    number(row.get("low"), 2),
                    number(row.get("high"), 2),
                    count(row["num_reads"]),
                    number(row["mean_p"]),
                    number(row["share_positive"]),
                    number(low),
                    number(high),
                )
            )
    yield heading(name)
    yield key(list(bins), dots=False)
    axes = Axes("mean P(positive)", "share positive", (0.0, 1.0), (0.0, 1.0))
    yield figure(curves(f"Reliability of {name}", drawn, axes, marks=marks, diagonal=True), "")
    columns = ("what", "p_from", "p_to", "reads", "mean_p", "share_positive", "low", "high")
    yield numbers(
        Table(title=f"bins of {name}", columns=columns, rows=tuple(rows)), file_name("reliability", name[:40])
    )


def training_section(history: Sequence[Mapping[str, Any]], model: Mapping[str, Any]) -> Section:
    """Return loss and ranking of the validation reads over training."""
    title = "Training"
    if not history:
        return Section("training", title, (), _GIVE_MODEL)
    body = [
        *_history_figure("Loss", "loss", history, ("train_loss", "validation_loss"), model),
        *_history_figure(
            "Ranking of the validation reads",
            "area under the curve",
            history,
            ("validation_auroc", "validation_auprc_positive", "validation_auprc_negative"),
            model,
        ),
    ]
    columns = tuple(dict.fromkeys(name for row in history for name in row))
    rows = tuple(tuple(_written(row.get(name)) for name in columns) for row in history)
    body.append(numbers(Table(title="history of training", columns=columns, rows=rows), "training.tsv"))
    return Section("training", title, tuple(body), _GIVE_MODEL)


def _history_figure(
    title: str, up: str, history: Sequence[Mapping[str, Any]], names: Sequence[str], model: Mapping[str, Any]
) -> Iterator[str]:
    known = [name for name in names if any(isinstance(row.get(name), (int, float)) for row in history)]
    if not known:
        return
    at = [float(row.get("step", place)) for place, row in enumerate(history)]
    drawn = [Line(at, [_float(row.get(name)) for row in history]) for name in known]
    training = model.get("training")
    kept = training.get("step") if isinstance(training, Mapping) else None
    upright = [(float(kept), "kept")] if isinstance(kept, int) and at[0] < kept <= at[-1] else []
    yield heading(title)
    yield key([name.replace("_", " ") for name in known], dots=False)
    marks = [Mark(thing, line.xs[0], line.ys[0]) for thing, line in enumerate(drawn) if len(history) == 1]
    yield figure(curves(title, drawn, Axes("step", up), upright=upright, marks=marks), "")


def _float(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else float("nan")


def _written(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
