"""Results that somebody edited, or another program wrote: a page or a sentence, never a crash."""

from __future__ import annotations

import copy
import json

import pytest

from leech.config import build
from leech.errors import InputError, LeechError
from leech.evaluation.config import ReportConfig
from leech.evaluation.report.form import require_form
from leech.evaluation.report.write import report
from leech.provenance import Stamp
from results_files import metrics_content, put_sample

STAMP = Stamp.make(["leech", "report"], "2026-01-01T00:00:00+00:00")

VALUES = [None, "x", -1, [], {}, [None], True, float("nan"), 10**400]


def places(content, place=()):
    """Yield where a value stands, of lists the first member only."""
    if place:
        yield place
    members = (
        content.items() if isinstance(content, dict) else enumerate(content[:1] if isinstance(content, list) else ())
    )
    for key, value in members:
        yield from places(value, (*place, key))


def put_model(folder):
    folder.mkdir()
    (folder / "model.json").write_text(json.dumps({"format": "leech-model"}))
    row = {"low": 0.0, "high": 0.5, "num_reads": 4, "mean_p": 0.2, "share_positive": 0.25}
    record = {"kept": True, "test": {when: {"reliability": [row]} for when in ("before", "after")}}
    (folder / "calibration.json").write_text(json.dumps(record))
    return folder


@pytest.mark.parametrize("name", ["m.json", "model/calibration.json", "s.predict.json"])
def test_a_value_of_any_kind_at_any_place_is_shown_or_refused(name, tmp_path):
    (tmp_path / "m.json").write_text(json.dumps(metrics_content(prevalence=0.5)))
    put_sample(tmp_path, "s", [("tRNA-Ala-GGC-1-1", "Ala", 3, 4, 1)])
    model = put_model(tmp_path / "model")
    config = build(ReportConfig, {"metrics": [tmp_path / "m.json"], "calls": [tmp_path], "model": model})
    path = tmp_path / name
    content = json.loads(path.read_text())
    num_refused = 0
    for place in places(content):
        for value in VALUES:
            changed = copy.deepcopy(content)
            inner = changed
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = value
            path.write_text(json.dumps(changed))
            try:
                report(config, tmp_path / "page.html", force=True, stamp=STAMP)
            except LeechError:
                num_refused += 1
            except Exception as error:
                raise AssertionError(f"{value!r} at {place}") from error
    assert num_refused > 10


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            {"auroc": {"value": 0.9, "interval": [0.8]}},
            r"auroc\.interval is \[0\.8\], where a pair of numbers should be",
        ),
        ({"groups": {"sample": [{"num_reads": "7"}]}}, r'groups\.sample\[0\]\.num_reads is "7", where a whole number'),
        ({"reliability": [3]}, r"reliability\[0\] is no row"),
        ({"test": {"before": []}}, r"test\.before is \[\], where a part of several"),
    ],
)
def test_what_is_wrong_is_named_by_its_place(content, words, tmp_path):
    with pytest.raises(InputError, match=words):
        require_form(content, tmp_path / "m.json")


def test_keys_of_later_versions_and_figures_without_intervals_pass(tmp_path):
    require_form({"auroc": 0.9, "mcc": None, "new": ["x"], "ungrouped": {"sample": 3}}, tmp_path / "m.json")


def test_calls_by_reference_of_an_operating_point_are_no_damage(tmp_path):
    counts = {"tRNA-Ala-GGC-1-1": {"tp": 1, "fp": 0, "tn": 2, "fn": 0}}
    require_form({"operating_point": {"achieved": {"test": {"references": counts}}}}, tmp_path)
    with pytest.raises(InputError, match=r"test\.references is 3, where a list should be"):
        require_form({"operating_point": {"achieved": {"test": {"references": 3}}}}, tmp_path)
