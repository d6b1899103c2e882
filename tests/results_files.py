"""Files as eval and predict write them, with numbers that can be worked out by hand."""

from __future__ import annotations

import gzip
import json

SUMMARY = [
    *("reference", "isodecoder", "isoacceptor", "amino_acid"),
    *(
        "n_positive",
        "n_negative",
        "n_no_call",
        "no_call_reasons",
        "fraction",
        "fraction_low",
        "fraction_high",
        "enough",
    ),
    *("error_corrected", "error_corrected_low", "error_corrected_high"),
    *("no_call_corrected", "no_call_corrected_low", "no_call_corrected_high"),
]


def put_table(path, columns, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8") as file:
        file.writelines("\t".join(map(str, row)) + "\n" for row in [columns, *rows])


def put_sample(folder, name, references, *, histogram=None, corrected=False, ladder=None):
    """Write what predict writes; references are (name, amino acid, positive, negative, no call)."""
    rows = []
    for reference, amino_acid, positive, negative, no_call in references:
        extra = ["0.4", "0.3", "0.5"] if corrected else ["", "", ""]
        enough = int(positive + negative >= 50)
        rows.append(
            [reference, "", "", amino_acid, positive, negative, no_call, "", "", "", "", enough, *extra, "", "", ""]
        )
    put_table(folder / f"{name}.charging_summary.tsv.gz", SUMMARY, rows)
    if corrected:
        groups = {row[1] for row in references if row[1]}
        put_table(
            folder / f"{name}.charging_summary.amino_acid.tsv.gz",
            SUMMARY[3:],
            [[group, *[""] * 8, "0.45", "0.35", "0.55", "", "", ""] for group in sorted(groups)],
        )
    put_table(folder / f"{name}.charging.cpm.tsv.gz", ["tRNA", "counts_charged", "counts_uncharged"], [])
    used = sum(row[2] + row[3] for row in references)
    lost = sum(row[4] for row in references)
    record = {
        "format": "leech-predict",
        "schema_version": 1,
        "counts": ladder or {"seen": used + lost + 7, "unmapped": 7, "not_in_pod5": lost, "used": used},
        "threshold_cl": 200,
        "corrections": {"error_rates_from": "somewhere" if corrected else None, "call_rates_from": None},
        "total": {
            "fraction": {"value": 1 / 3, "interval": [0.25, 0.42]},
            "error_corrected": {"value": 0.42, "interval": [0.3, 0.55]} if corrected else None,
            "no_call_corrected": None,
        },
        "labels": ["uncharged", "charged"],
        "cl_histogram": histogram or [used, *([0] * 255)],
        "provenance": {"command": ["leech", "predict", "<b>"], "time_utc": "2026", "versions": {"leech": "9.9"}},
    }
    (folder / f"{name}.predict.json").write_text(json.dumps(record))


def metrics_content(**changes):
    """Four positive and four negative reads, by hand: cl of positives 250 250 210 100, of negatives 5 5 90 220."""
    positive, negative = [0] * 256, [0] * 256
    for level in (250, 250, 210, 100):
        positive[level] += 1
    for level in (5, 5, 90, 220):
        negative[level] += 1
    content = {
        "format": "leech-metrics",
        "schema_version": 2,
        "split": "test",
        "positive_label": "charged",
        "negative_label": "uncharged",
        "num_reads": 8,
        "num_positive": 4,
        "prevalence": 0.5,
        "auroc": {"value": 0.875, "interval": [0.5, 0.97]},
        "ece": {"value": 0.1234, "interval": None},
        "operating_point": {"threshold_cl": 200, "mcc": {"value": 0.5, "interval": [0.1, 0.8]}},
        "reliability": [
            {"low": 0.0, "high": 0.5, "num_reads": 4, "mean_p": 0.2, "share_positive": 0.25},
            {"low": 0.5, "high": 1.0, "num_reads": 0, "mean_p": None, "share_positive": None},
        ],
        "uncalibrated": None,
        "score_counts": {"positive": positive, "negative": negative},
        "groups": {
            "reference": [
                {
                    "name": "tRNA<x>",
                    "num_reads": 8,
                    "num_positive": 4,
                    "auroc": {"value": 0.875, "interval": None},
                    "accuracy": {"value": None, "interval": None},
                }
            ]
        },
    }
    return {**content, **changes}
