"""What ``leech report`` shows: the numbers of its inputs, escaped, without network, and lines for what is missing."""

from __future__ import annotations

import json
import re
import struct
import sys
import uuid
import zlib
from html.parser import HTMLParser
from urllib.parse import unquote

import numpy as np
import pytest

from corpora import RECIPE, chunks, write
from leech.cli.main import main
from leech.config import build
from leech.data import pixels
from leech.data.compose import merge
from leech.data.config import MergeConfig, ViewConfig
from leech.data.corpus import Corpus
from leech.data.examples import examples_at
from leech.data.portrait import portray, rows_of_read
from leech.errors import ConfigError, InputError, MissingExtraError
from leech.evaluation.config import ReportConfig
from leech.evaluation.report.charts import Axes, HeatCell, Line, curves, dot, heat_map, shorten
from leech.evaluation.report.results import calls_by_read, read_metrics, read_samples, read_scores
from leech.evaluation.report.signal import view_by_call
from leech.evaluation.report.write import report
from leech.models.learnt import Overlap
from leech.provenance import Stamp
from results_files import SUMMARY, metrics_content, put_sample, put_table

STAMP = Stamp.make(["leech", "report"], "2026-01-01T00:00:00+00:00")


class Page(HTMLParser):
    """Reads a page: its tables as rows of text, its tags with their attributes, and whether tags are closed."""

    VOID = frozenset(("meta", "br", "rect", "line", "circle", "polyline", "polygon", "link", "img", "hr"))

    def __init__(self, text):
        super().__init__()
        self.tags, self.rows, self.words, self.open = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def downloads(self):
        """Return the TSVs that can be taken away, as rows, by name."""
        found = {}
        for tag, attributes in self.tags:
            if tag == "a" and "download" in attributes:
                content = unquote(attributes["href"].split(",", 1)[1])
                found[attributes["download"]] = [line.split("\t") for line in content.splitlines()]
        return found


REFERENCES = [("tRNA-Ala-AGC-1-1", "Ala", 30, 70, 5), ("tRNA-Ala-TGC-1-1", "Ala", 10, 10, 0), ("spike", "", 0, 0, 3)]


def put_metrics(path, **changes):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(metrics_content(**changes)))
    return path


def made(folder, **options):
    output = folder / "report.html"
    result = report(build(ReportConfig, options), output, force=True, stamp=STAMP)
    return result, Page(output.read_text(encoding="utf-8"))


def test_samples_and_fractions_are_those_of_the_tables(tmp_path):
    put_sample(tmp_path / "t", "one", REFERENCES, corrected=True)
    result, page = made(tmp_path, calls=[tmp_path / "t"])
    downloads = page.downloads()
    # 40 of 120 called; Wilson's interval of 40/120: 0.2553 to 0.4217. 8 of 128 reads on references have no call.
    assert downloads["samples.tsv"][1] == [
        "one", "0.3333", "0.2553", "0.4217", "0.4200", "0.3000", "0.5500", "40", "80", "8", "0.0625", "135", "200",
        "unknown",
    ]  # fmt: skip
    assert downloads["samples.tsv"][0][4:7] == ["error_corrected", "error_corrected_low", "error_corrected_high"]
    assert downloads["samples.tsv"][1] in page.rows
    charging = {row[1]: row for row in downloads["charging.tsv"]}
    assert charging["reference"][-3:] == ["error_corrected", "error_corrected_low", "error_corrected_high"]
    assert charging["tRNA-Ala-AGC-1-1"] == [
        "Ala", "tRNA-Ala-AGC-1-1", "one", "30", "70", "5", "0.3000", "0.2189", "0.3958", "yes", "0.4000", "0.3000", "0.5000"
    ]  # fmt: skip
    assert charging["tRNA-Ala-TGC-1-1"][9] == "few reads"
    assert any("has error_corrected too" in words and "Rates: somewhere." in words for words in page.words)
    assert charging["spike"][6:9] == ["", "", ""]
    # The dot is the corrected fraction, beside it faintly the raw one of 30 in 100.
    assert any(
        words == "one: error_corrected 0.400 (0.300 to 0.500); raw: 30 of 100 called reads" for words in page.words
    )
    assert sum(dict(attributes).get("stroke-opacity") == "0.4" for _, attributes in page.tags) == 2
    # The amino acid's row has predict's own correction of both references.
    assert ["Ala", "all Ala", "45.00"] in downloads["heatmap.tsv"]
    assert ["tRNA-Ala-AGC-1-1", "40"] in page.rows
    assert page.open == []
    assert {section.anchor for section in result.sections if section.body} == {
        "samples", "attrition", "charging", "heatmap", "scores"
    }  # fmt: skip


def test_without_corrections_the_raw_fraction_is_drawn_and_nothing_faint(tmp_path):
    put_sample(tmp_path / "t", "one", REFERENCES)
    _, page = made(tmp_path, calls=[tmp_path / "t"])
    assert not any("stroke-opacity" in attributes for _, attributes in page.tags)
    # The amino acid's row adds up both references: 40 of 120.
    assert ["Ala", "all Ala", "33.33"] in page.downloads()["heatmap.tsv"]
    assert ["tRNA-Ala-AGC-1-1", "30"] in page.rows
    assert "error_corrected" not in page.downloads()["samples.tsv"][0]


@pytest.mark.parametrize(("rates", "shown"), [((0.9, 0.9), "error_corrected"), ((0.8, 0.9), "no_call_corrected")])
def test_a_fraction_corrected_by_equal_call_rates_is_not_shown_twice(tmp_path, rates, shown):
    put_sample(tmp_path / "t", "one", REFERENCES[:1], corrected=True)
    table, record = tmp_path / "t" / "one.charging_summary.tsv.gz", tmp_path / "t" / "one.predict.json"
    row = ["a", "", "", "Ala", 30, 70, 5, "", "", "", "", 1, "0.4", "0.3", "0.5", "0.6", "0.5", "0.7"]
    put_table(table, SUMMARY, [row])
    content = json.loads(record.read_text())
    content["corrections"]["call_rates"] = dict(zip(("positive", "negative"), rates, strict=True))
    record.write_text(json.dumps(content))
    (sample,) = read_samples([tmp_path / "t"])
    assert sample.references[0].best[0] == shown
    assert ("no_call_corrected" in sample.references[0].corrected) == (rates[0] != rates[1])


def test_the_page_says_which_samples_the_model_learnt_from_and_which_nobody_knows_of(tmp_path):
    overlaps = {
        "one": Overlap("yes", 40, 30),
        "two": Overlap("no", 40, 0),
        "three": Overlap("unknown", 5, 0),
        "old": None,
    }
    for name, overlap in overlaps.items():
        put_sample(tmp_path / "t", name, REFERENCES)
        path = tmp_path / "t" / f"{name}.predict.json"
        if overlap is not None:
            path.write_text(json.dumps({**json.loads(path.read_text()), "learnt_from": overlap.to_mapping()}))
    _, page = made(tmp_path, calls=[tmp_path / "t"])
    assert {row[0]: row[-1] for row in page.downloads()["samples.tsv"]} == {
        "sample": "model learnt from its reads",
        "one": "yes: 30 of 40 reads compared",
        "two": "no",
        "three": "unknown: none of 5 reads compared",
        "old": "unknown",
    }
    warnings = [words for words in page.words if words.startswith("The model learnt from reads behind these")]
    assert all("by them: one (30 of 40 reads compared). It calls" in words for words in warnings)
    # Over the samples, the dots, the heat map and the histograms of scores.
    assert [words.split(",")[0].rsplit(" ", 1)[-1] for words in warnings] == ["fractions"] * 3 + ["scores"]
    assert sum("is not known of old, three:" in words for words in page.words) == 1


def test_samples_that_were_not_called_alike_are_not_compared_without_a_word(tmp_path):
    alike = {
        "labels": ["uncharged", "charged"],
        "model_digest": "sha256:1",
        "threshold_cl": 200,
        "min_confidence": None,
    }
    for name, changes in (
        ("one", {}),
        ("two", {}),
        ("other", {"labels": ["charged", "uncharged"], "threshold_cl": 128}),
    ):
        put_sample(tmp_path / name, name, REFERENCES)
        path = tmp_path / name / f"{name}.predict.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **alike, **changes}))
    told = {}
    for names in (("one", "two"), ("one", "two", "other")):
        _, page = made(tmp_path, calls=[tmp_path / name for name in names])
        told[len(names)] = [words for words in page.words if words.startswith("The samples were not called alike")]
    assert told[2] == []
    # Over the samples, the dots, the heat map and the histograms.
    assert len(told[3]) == 4
    assert set(told[3]) == {
        "The samples were not called alike: they differ in states, threshold. Their fractions cannot be compared."
    }


@pytest.mark.parametrize(
    ("overlap", "words"),
    [(Overlap("yes", 40, 30), "yes: 30 of 40 reads compared"), (Overlap("no", 40, 0), "no"), (None, "unknown")],
)
def test_the_page_says_of_figures_whether_the_model_learnt_from_their_reads(tmp_path, overlap, words):
    changes = {} if overlap is None else {"learnt_from": overlap.to_mapping()}
    _, page = made(tmp_path, metrics=[put_metrics(tmp_path / "m.json", **changes)])
    assert ["model learnt from these reads", words] in page.rows
    warned = [text for text in page.words if text.startswith("The model learnt from reads behind these")]
    assert bool(warned) == (overlap is not None and overlap.state == "yes")
    # Over every part with figures of these reads: metrics, groups, scores, curves and reliability.
    assert len(warned) in (0, 5)
    assert any("is not known of m:" in text for text in page.words) == (overlap is None)


def test_a_record_that_does_not_say_whether_the_model_learnt_from_its_reads_is_damaged(tmp_path):
    path = put_metrics(tmp_path / "m.json", learnt_from={"state": "never"})
    with pytest.raises(InputError, match="is damaged: learnt_from"):
        read_metrics([path])


def test_raw_cells_among_corrected_ones_stand_in_brackets(tmp_path):
    put_sample(tmp_path / "t", "one", REFERENCES, corrected=True)
    put_sample(tmp_path / "t", "two", REFERENCES)
    _, page = made(tmp_path, calls=[tmp_path / "t"])
    assert ["tRNA-Ala-AGC-1-1", "40", "(30)"] in page.rows
    assert page.downloads()["samples.tsv"][2][4:7] == ["", "", ""]


def test_records_by_outcome_add_up_and_say_what_to_do(tmp_path):
    put_sample(tmp_path / "t", "one", REFERENCES)
    table = made(tmp_path, calls=[tmp_path / "t"])[1].downloads()["attrition.tsv"]
    by_outcome = {row[0]: row for row in table}
    assert list(by_outcome) == ["outcome", "seen", "unmapped", "not_in_pod5", "used"]
    assert by_outcome["used"][1:3] == ["120", "88.9%"]
    assert "--pod5" in by_outcome["not_in_pod5"][-1]


def test_reasons_that_this_version_does_not_know_are_shown_too(tmp_path):
    put_sample(tmp_path / "t", "one", REFERENCES, ladder={"seen": 120, "from_the_future": 20, "used": 100})
    table = made(tmp_path, calls=[tmp_path / "t"])[1].downloads()["attrition.tsv"]
    assert ["from_the_future", "20", "16.7%", "", ""] in table


def test_tables_of_an_earlier_version_are_read_from_counts_and_calls(tmp_path):
    folder = tmp_path / "t"
    put_table(
        folder / "s.charging.cpm.tsv.gz", ["tRNA", "counts_charged", "counts_uncharged"], [["tRNA-Ala-AGC-1-1", 1, 2]]
    )
    calls = [["a", "tRNA-Ala-AGC-1-1", 0.9, 230, ""], ["b", "tRNA-Ala-AGC-1-1", 0.1, 26, ""]]
    calls += [["c", "tRNA-Ala-AGC-1-1", 0.0, 0, ""], ["d", "tRNA-Gly-GCC-1-1", "", "", "no_signal"]]
    put_table(folder / "s.charging_calls.tsv.gz", ["read_id", "reference", "p", "cl", "reason"], calls)
    (sample,) = read_samples([folder])
    assert [(one.reference, one.amino_acid, one.positive, one.negative, one.no_call) for one in sample.references] == [
        ("tRNA-Ala-AGC-1-1", "Ala", 1, 2, 0),
        ("tRNA-Gly-GCC-1-1", "Gly", 0, 0, 1),
    ]
    assert sample.ladder == {"seen": 4, "no_signal": 1, "used": 3}
    assert [level for level, reads in enumerate(sample.histogram) if reads] == [0, 26, 230]


def test_a_table_of_all_samples_is_not_taken_for_a_sample(tmp_path):
    put_sample(tmp_path / "t", "one", REFERENCES)
    put_table(tmp_path / "t" / "samples.charging_summary.tsv.gz", ["sample", *SUMMARY], [])
    assert [sample.name for sample in read_samples([tmp_path / "t"])] == ["one"]


def test_a_sample_that_is_given_twice_is_refused(tmp_path):
    put_sample(tmp_path / "t", "one", REFERENCES)
    put_sample(tmp_path / "u", "one", REFERENCES)
    with pytest.raises(InputError, match=r"'one' is in .* count twice"):
        read_samples([tmp_path / "t", tmp_path / "u"])


def test_metrics_curves_and_bins_are_those_of_the_file(tmp_path):
    result, page = made(tmp_path, metrics=[put_metrics(tmp_path / "m.json")])
    downloads = page.downloads()
    assert ["AUROC", "0.8750 (0.500 to 0.970)"] in downloads["metrics.tsv"]
    assert ["ECE", "0.1234"] in downloads["metrics.tsv"]
    # At cl >= 200 three of four positives and one of four negatives are called; at 251 nothing is, so no precision.
    rates = {row[1]: row[2:] for row in downloads["curves.tsv"]}
    assert rates["200"] == ["0.7500", "0.2500", "0.7500"]
    assert rates["1"] == ["1.0000", "1.0000", "0.5000"]
    assert rates["251"] == ["0.0000", "0.0000", ""]
    caption = next(word for word in page.words if word.startswith("Precision and recall"))
    assert caption.endswith(" Up to recall 0.50 (m) reads share the highest score, so the line is level there.")
    # The first of the curve's points is that at recall 0: the left side of the frame, 54, as high as the next one.
    drawing = (tmp_path / "report.html").read_text().split("<title>Precision-recall curve</title>")[1]
    first, second = re.search(r'<polyline points="([^"]*)"', drawing)[1].split()[:2]
    assert first.split(",")[0] == "54.0" != second.split(",")[0]
    assert first.split(",")[1] == second.split(",")[1]
    # 200 // 8 * 8 = 200: no positive there but one at 210 in 208-215.
    assert ["208", "215", "0", "1"] in downloads["scores-m.tsv"]
    assert [row[3:6] for row in downloads["reliability-m.tsv"]] == [
        ["reads", "mean_p", "share_positive"],
        ["4", "0.2000", "0.2500"],
    ]
    assert downloads["groups-reference.tsv"][1][:5] == ["tRNA<x>", "m", "8", "4", "0.8750"]
    assert "cl ≥ 200" in page.words
    assert [section.anchor for section in result.sections if section.body] == [
        "metrics", "groups", "scores", "curves", "reliability"
    ]  # fmt: skip


def test_metrics_of_the_first_version_are_shown_without_what_they_lack(tmp_path):
    content = metrics_content(schema_version=1, ece=0.1234)
    content["references"] = content.pop("groups")["reference"]
    del content["score_counts"], content["uncalibrated"]
    path = tmp_path / "m.json"
    path.write_text(json.dumps(content))
    result, page = made(tmp_path, metrics=[path])
    assert ["ECE", "0.1234"] in page.downloads()["metrics.tsv"]
    assert "groups-reference.tsv" in page.downloads()
    assert {"scores", "curves"} <= {section.anchor for section in result.sections if not section.body}


def test_scores_read_by_read_give_the_same_curves_as_counts_in_the_metrics(tmp_path):
    rows = [[cl, "charged"] for cl in (250, 250, 210, 100)] + [[cl, "uncharged"] for cl in (5, 5, 90, 220)]
    put_table(tmp_path / "m.tsv.gz", ["cl", "label", "positive_label"], [[*row, "charged"] for row in rows])
    (scores,) = read_scores([tmp_path / "m.tsv.gz"])
    (metrics,) = read_metrics([put_metrics(tmp_path / "m.json")])
    assert scores.counts == metrics.counts
    assert scores.labels == ("uncharged", "charged")
    # Shown once where both are given.
    table = made(tmp_path, metrics=[tmp_path / "m.json"], scores=[tmp_path / "m.tsv.gz"])[1].downloads()["curves.tsv"]
    assert len(table) == 1 + 255


def test_figures_of_reads_of_one_state_are_left_out_and_say_why(tmp_path):
    content = metrics_content(
        num_positive=0,
        auroc={"value": None, "interval": None},
        score_counts={"positive": [0] * 256, "negative": [8, *([0] * 255)]},
    )
    path = tmp_path / "m.json"
    path.write_text(json.dumps(content))
    result, page = made(tmp_path, metrics=[path])
    lacking = {section.anchor: section.lacking for section in result.sections if not section.body}
    assert "Reads of both states are needed" in lacking["curves"]
    assert not any(row[0] == "AUROC" for row in page.downloads()["metrics.tsv"])


def test_what_was_not_given_is_named_and_nothing_at_all_is_refused(tmp_path):
    put_sample(tmp_path / "t", "one", REFERENCES)
    _, page = made(tmp_path, calls=[tmp_path / "t"])
    lines = [words for words in page.words if words.startswith("Give ")]
    assert any("--metrics" in line for line in lines)
    assert any("--corpus" in line for line in lines)
    assert any("--model" in line for line in lines)
    with pytest.raises(ConfigError, match="nothing to report"):
        made(tmp_path)


def test_the_page_needs_no_network_and_no_script(tmp_path):
    put_sample(tmp_path / "t", "one", REFERENCES)
    made(tmp_path, calls=[tmp_path / "t"], metrics=[put_metrics(tmp_path / "m.json")])
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in page.tags}
    assert not re.search(r"https?:|//[a-z]|@import|url\(", re.sub(r'href="data:[^"]*"', "", text))
    for _, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")]
        assert attributes.get("href", "#").startswith(("#", "data:"))
        assert "src" not in attributes


def test_names_from_files_are_escaped_everywhere(tmp_path):
    evil = '<script>alert("1")</script>&'
    put_sample(tmp_path / "t", 'a"b', [(evil, evil, 30, 70, 5)])
    _, page = made(
        tmp_path,
        calls=[tmp_path / "t"],
        metrics=[put_metrics(tmp_path / "m.json", positive_label=evil, negative_label=evil + "0")],
        title=evil,
    )
    assert "script" not in {tag for tag, _ in page.tags}
    assert page.downloads()["charging.tsv"][1][1] == evil
    assert evil in "".join(page.words)
    assert page.open == []


def test_a_tab_or_line_end_in_a_name_does_not_break_a_tsv(tmp_path):
    put_metrics(tmp_path / "m.json", split="te\tst\nx")
    rows = made(tmp_path, metrics=[tmp_path / "m.json"])[1].downloads()["metrics.tsv"]
    assert ["split", "te st x"] in rows


def test_many_samples_stay_small_and_can_be_told_apart(tmp_path):
    references = [(f"tRNA-Ala-AGC-{number}-1", "Ala", number, 100, 1) for number in range(1, 51)]
    for number in range(20):
        put_sample(tmp_path / "t", f"s{number:02}", references)
    _, page = made(tmp_path, calls=[tmp_path / "t"])
    assert (tmp_path / "report.html").stat().st_size < 4e6
    assert len(page.downloads()["charging.tsv"]) == 1 + 20 * 50
    assert len(page.downloads()["heatmap.tsv"]) == 1 + 50 + 1
    # Colours repeat after six, and the shape is another then.
    marks = {
        re.sub(r'(cx|cy|points)="[^"]*"', lambda m: m[1], dot(0, 0, thing)) + dot(0, 0, thing) for thing in range(20)
    }
    assert len(marks) == 20


def test_of_very_many_references_those_with_most_calls_are_shown_and_it_is_said(tmp_path):
    references = [(f"r{number:04}", "", 0, number, 0) for number in range(1000)]
    put_sample(tmp_path / "t", "one", references)
    _, page = made(tmp_path, calls=[tmp_path / "t"])
    shown = [row[1] for row in page.downloads()["charging.tsv"][1:]]
    assert shown == [f"r{number:04}" for number in range(600, 1000)]
    assert any("Of 1000 references the 400 with most calls" in words for words in page.words)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "Cannot read metrics"),
        ("[]", "holds no JSON object"),
        ('{"format": "leech-model"}', "holds no metrics"),
        ('{"format": "leech-metrics", "schema_version": 99}', "schema version 99"),
        ('{"format": "leech-metrics", "schema_version": 2, "score_counts": {"positive": [1]}}', "256 counts"),
    ],
)
def test_metrics_that_are_none_are_refused(tmp_path, content, message):
    (tmp_path / "m.json").write_text(content)
    with pytest.raises(InputError, match=message):
        made(tmp_path, metrics=[tmp_path / "m.json"])
    assert not (tmp_path / "report.html").exists()


def test_folders_without_tables_and_broken_tables_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no table of calls"):
        read_samples([tmp_path / "empty"])
    with pytest.raises(InputError, match="no folder"):
        read_samples([tmp_path / "nothing"])
    put_table(tmp_path / "t" / "s.charging_summary.tsv.gz", SUMMARY, [["a", "b"]])
    with pytest.raises(InputError, match="not as wide as the header: line 2"):
        read_samples([tmp_path / "t"])
    put_table(tmp_path / "t" / "s.charging_summary.tsv.gz", ["reference"], [])
    with pytest.raises(InputError, match="no column 'n_positive'"):
        read_samples([tmp_path / "t"])
    (tmp_path / "t" / "s.charging_summary.tsv.gz").write_bytes(b"no gzip")
    with pytest.raises(InputError, match="Cannot read table"):
        read_samples([tmp_path / "t"])


def test_an_output_of_another_form_or_one_that_exists_is_refused(tmp_path):
    config = build(ReportConfig, {"metrics": [put_metrics(tmp_path / "m.json")]})
    with pytest.raises(ConfigError, match=r"must end in \.html"):
        report(config, tmp_path / "r.pdf", force=False, stamp=STAMP)
    (tmp_path / "r.html").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        report(config, tmp_path / "r.html", force=False, stamp=STAMP)
    assert (tmp_path / "r.html").read_text() == "mine"


def test_multiqc_gets_corrected_figures_beside_raw_ones(tmp_path):
    put_sample(tmp_path / "t", "one", REFERENCES, corrected=True)
    result, _ = made(tmp_path, calls=[tmp_path / "t"], multiqc=True)
    table, _, heat = (json.loads(path.read_text()) for path in result.multiqc)
    assert table["data"]["one"]["percent"] == pytest.approx(100 / 3)
    corrected = [table["data"]["one"][f"error_corrected{suffix}"] for suffix in ("", "_low", "_high")]
    assert corrected == pytest.approx([42, 30, 55])
    assert set(table["data"]["one"]) <= set(table["headers"])
    assert heat["data"] == {"tRNA-Ala-AGC-1-1": {"one": 40.0}}
    assert "error-corrected" in heat["section_name"]
    # A sample without leaves nothing corrected, for one map cannot hold both.
    put_sample(tmp_path / "t", "two", REFERENCES)
    result, _ = made(tmp_path, calls=[tmp_path / "t"], multiqc=True)
    heat = json.loads(result.multiqc[2].read_text())
    assert heat["data"] == {"tRNA-Ala-AGC-1-1": {"one": 30.0, "two": 30.0}}
    assert "corrected" not in heat["section_name"]


def test_multiqc_gets_the_numbers_of_the_page(tmp_path):
    put_sample(tmp_path / "t", "one", REFERENCES)
    result, _ = made(tmp_path, calls=[tmp_path / "t"], multiqc=True)
    assert [path.name for path in result.multiqc] == [
        "report_mqc.json",
        "report_attrition_mqc.json",
        "report_charging_mqc.json",
    ]
    table, bars, heat = (json.loads(path.read_text()) for path in result.multiqc)
    assert table["data"]["one"]["percent"] == pytest.approx(100 / 3)
    assert table["data"]["one"]["records"] == 135
    assert set(table["data"]["one"]) <= set(table["headers"])
    assert bars["data"] == {"one": {"used": 120, "unmapped": 7, "not_in_pod5": 8}}
    # 20 calls are too few for the second, and the third has none.
    assert heat["data"] == {"tRNA-Ala-AGC-1-1": {"one": 30.0}}
    assert len({content["id"] for content in (table, bars, heat)}) == 3
    with pytest.raises(ConfigError, match="--calls"):
        made(tmp_path, metrics=[put_metrics(tmp_path / "m.json")], multiqc=True)


@pytest.fixture(scope="module")
def merged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    parts = [write(folder / label, chunks(20, seed=seed, label=label)) for seed, label in enumerate(("yes", "no"))]
    merge(parts, build(MergeConfig, {"positive_label": "yes"}), folder / "m", force=False, stamp=STAMP)
    return folder / "m"


def test_signal_and_examples_come_from_the_corpus(tmp_path, merged):
    result, page = made(tmp_path, corpus=merged, examples=1)
    shown = {section.anchor for section in result.sections if section.body}
    assert shown == {"attrition", "signal", "examples"}
    reads = [name for name in page.downloads() if name.startswith("read-")]
    assert len(reads) == 2
    # As many rows as the window has samples.
    assert all(len(page.downloads()[name]) == 1 + RECIPE.num_samples for name in reads)
    assert page.open == []


def test_libraries_whose_folders_have_one_name_are_all_shown(tmp_path):
    # Replicates often lie in folders of their own: a/charged and b/charged, 4 and 6 records.
    parts = [write(tmp_path / name / "charged", chunks(n, seed=n)) for name, n in (("a", 4), ("b", 6))]
    parts.append(write(tmp_path / "no", chunks(5, label="no")))
    merge(parts, build(MergeConfig, {"positive_label": "charged"}), tmp_path / "m", force=False, stamp=STAMP)
    _, page = made(tmp_path, corpus=tmp_path / "m")
    head, seen = page.downloads()["attrition.tsv"][:2]
    shares = [name for name in head if name.startswith("corpus ")]
    records = {name: seen[head.index(name)] for name in shares}
    assert records == {
        "corpus a/charged (charged)": "4",
        "corpus b/charged (charged)": "6",
        f"corpus {tmp_path.name}/no (no)": "5",
    }


def put_calls(path, corpus, call):
    """Write scores with the call that ``call(row, label)`` gives for every row of a corpus."""
    labels = [corpus.labels[code] for code in np.asarray(corpus.column("label"))]
    rows = [
        [read_id_of(corpus, row), label, "yes", 200 if call(row, label) == "yes" else 10, call(row, label)]
        for row, label in enumerate(labels)
    ]
    put_table(path, ["read_id", "label", "positive_label", "cl", "call"], rows)


def test_signal_is_shown_by_call_beside_truth_where_calls_are_given(tmp_path):
    levels = {"yes": 40, "no": 25}
    parts = [write(tmp_path / label, chunks(count, seed=count, label=label)) for label, count in levels.items()]
    merge(parts, build(MergeConfig, {"positive_label": "yes"}), tmp_path / "m", force=False, stamp=STAMP)
    corpus = Corpus.open(tmp_path / "m")
    of_yes = [row for row in range(len(corpus)) if corpus.labels[corpus.column("label")[row]] == "yes"]
    # Half of the 40 reads of "yes" are called so; of "no" 2 are called wrongly, too few for a mean of their own.
    wrong = set(of_yes[:20]) | set([row for row in range(len(corpus)) if row not in of_yes][:2])
    other = {"yes": "no", "no": "yes"}
    put_calls(tmp_path / "s.tsv", corpus, lambda row, label: other[label] if row in wrong else label)
    calls = calls_by_read(tmp_path / "s.tsv")
    seen = view_by_call(corpus, calls, 1000, 0)
    assert {one.label: one.num_chunks for one in seen.labels} == {
        "yes, called yes": 20,
        "yes, called no": 20,
        "no, called no": 23,
    }
    _, page = made(tmp_path, corpus=tmp_path / "m", scores=[tmp_path / "s.tsv"])
    columns = page.downloads()["dwell-by-call.tsv"][0]
    assert {f"{what} {one.label}" for one in seen.labels for what in ("dwell", "reads")} <= set(columns)


def test_training_curves_and_provenance_come_from_the_model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    rows = [{"step": 10, "train_loss": 0.7, "validation_loss": 0.6, "validation_auroc": 0.8}]
    rows.append({**rows[0], "step": 20, "train_loss": 0.5, "extra": None})
    (folder / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    stamp = {"command": ["leech", "model", "train"], "time_utc": "2026-02-03", "versions": {"leech": "1.2"}}
    content = {"format": "leech-model", "training": {"step": 20}, "recipe": {"motif": "CCA"}, "digest": "sha256:ab"}
    (folder / "model.json").write_text(json.dumps({**content, "stamp": stamp}))
    bins = [{"low": 0.0, "high": 1.0, "num_reads": 10, "mean_p": 0.4, "share_positive": 0.5}]
    test = {"before": {"reliability": bins}, "after": {"reliability": [{**bins[0], "mean_p": 0.5}]}}
    (folder / "calibration.json").write_text(json.dumps({"kept": False, "test": test}))
    _, page = made(tmp_path, model=folder)
    table = page.downloads()["training.tsv"]
    assert table[0] == ["step", "train_loss", "validation_loss", "validation_auroc", "extra"]
    assert table[2] == ["20", "0.5", "0.6", "0.8", ""]
    (reliability,) = [rows for name, rows in page.downloads().items() if name.startswith("reliability")]
    assert [row[0:5:4] for row in reliability[1:]] == [
        ["after calibration", "0.5000"],
        ["before calibration", "0.4000"],
    ]
    assert any("which was not kept" in words for words in page.words)
    origin = next(row for row in page.downloads()["provenance.tsv"] if row[0] == "model")
    assert origin[2:6] == ["sha256:ab", "leech model train", "2026-02-03", "leech 1.2"]
    assert ["motif", "CCA"] in page.rows
    # A model from before boundaries were refined and indels kept says nothing of either, and that means neither was done.
    assert ["refinement", "none"] in page.rows
    assert ["indels", "false"] in page.rows


def test_the_same_inputs_give_the_same_page(tmp_path, merged):
    put_sample(tmp_path / "t", "one", REFERENCES)
    texts = set()
    for _ in range(2):
        made(tmp_path, calls=[tmp_path / "t"], corpus=merged)
        texts.add((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert len(texts) == 1


def test_curves_without_points_and_of_one_value_can_be_drawn():
    for ys in ([], [0.5], [float("nan")]):
        assert "nan" not in curves("t", [Line([1.0] * len(ys), ys)], Axes("x", "y"))


def test_long_names_are_shortened_in_the_middle_and_short_ones_are_not():
    assert shorten("tRNA-Ala-AGC-1-1") == "tRNA-Ala-AGC-1-1"
    assert shorten("x" * 40 + "-AGC-1-1") == "x" * 21 + "…-AGC-1-1"


def test_a_heat_map_says_its_numbers_in_words_too():
    page = Page(heat_map(["s"], [("Ala", "a", [HeatCell(0.5, True, "one")]), ("Ala", "b", [None])]))
    assert page.rows == [["", "s"], ["Ala"], ["a", "50"], ["b", "–"]]


def read_id_of(corpus, row):
    return str(uuid.UUID(bytes=np.asarray(corpus.column("read_id"))[row].tobytes()))


def test_a_read_is_found_by_its_id_in_any_case(merged):
    corpus = Corpus.open(merged)
    for row in (0, 19, 39):
        assert rows_of_read(corpus, read_id_of(corpus, row).upper()).tolist() == [row]
    with pytest.raises(InputError, match="has no chunk of read"):
        rows_of_read(corpus, str(uuid.UUID(int=0)))
    with pytest.raises(ConfigError, match="no read id"):
        rows_of_read(corpus, "read1")


def test_a_drawn_read_is_a_file_of_its_own_with_every_base(tmp_path, merged):
    read_id = read_id_of(Corpus.open(merged), 3)
    result = portray(merged, ViewConfig(read_id=read_id), tmp_path / "r.svg", force=False, stamp=STAMP)
    text = (tmp_path / "r.svg").read_text()
    assert text.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    drawn = Page(text)
    assert drawn.open == []
    letters = "".join(base.letter for base in result.chunks[0].bases)
    assert "".join(word for word in drawn.words if word in set("ACGTN")) == letters
    # The file stands without a caption: which read it is, what the lines are and what is counted can be read on it.
    words = " ".join(drawn.words)
    shown = [attributes for tag, attributes in drawn.tags if tag == "text"]
    assert any(read_id in word and "row 3" in word for word in drawn.words)
    assert "Shaded: the focus base." in words
    assert "samples from the start of the window" in words
    # A word of n characters is about 6.7 n wide; the last number stands whole within the drawing.
    last = max(float(attributes["x"]) for attributes in shown if attributes["text-anchor"] == "middle")
    assert last + 6.7 * 3 / 2 < 900 - 10
    # The run has 4000 samples a second, so a base of n samples lasts n / 4 ms.
    (table,) = result.tables()
    assert all(float(row[5]) == pytest.approx(int(row[4]) / 4, abs=0.01) for row in table.rows)


def test_a_drawn_page_has_the_numbers_and_other_forms_are_refused_plainly(tmp_path, merged, capsys):
    read_id = read_id_of(Corpus.open(merged), 3)
    command = ["-q", "data", "view", str(merged), "--read-id", read_id, "-o"]
    assert main([*command, str(tmp_path / "r.html")]) == 0
    assert read_id in capsys.readouterr().out
    page = Page((tmp_path / "r.html").read_text())
    assert len(page.downloads()[f"read-{read_id}.tsv"]) == 1 + RECIPE.num_samples
    refused = (
        ("r.pdf", (), "rsvg-convert"),
        ("r.txt", (), ".svg, .png or .html"),
        ("r.svg", ("--width", "500"), "--width"),
    )
    for name, options, message in refused:
        assert main([*command, str(tmp_path / name), *options]) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / name).exists()


def pixels_of(path):
    """Return the pixels of a PNG of eight bits and four channels, uint8 (height, width, 4), by the format's own rules."""
    content, place, packed = path.read_bytes(), 8, b""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    while place < len(content):
        length, kind = struct.unpack(">I4s", content[place : place + 8])
        body = content[place + 8 : place + 8 + length]
        assert zlib.crc32(kind + body) == struct.unpack(">I", content[place + 8 + length : place + 12 + length])[0]
        if kind == b"IHDR":
            width, height, *form = struct.unpack(">IIBBBBB", body)
            assert form == [8, 6, 0, 0, 0]
        packed += body if kind == b"IDAT" else b""
        place += 12 + length
    lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + 4 * width)
    above, pixels = np.zeros(4 * width, np.int64), []
    for line in lines.astype(np.int64):
        values = line[1:].copy()
        if line[0] == 2:
            values += above
        elif line[0]:
            for at in range(4 * width):
                left, up, corner = (values[at - 4], above[at], above[at - 4]) if at >= 4 else (0, above[at], 0)
                guess = left + up - corner
                paeth = min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))[2]
                values[at] = (values[at] + {1: left, 3: (left + up) // 2, 4: paeth}[line[0]]) % 256
        above = values % 256
        pixels.append(above.astype(np.uint8).reshape(width, 4))
    return np.stack(pixels)


def test_an_image_shows_what_the_drawing_shows_at_the_width_that_is_asked_for(tmp_path, merged):
    corpus = Corpus.open(merged)
    # The random chunk with most signal: its trace is long.
    signals = [example.signal for example in examples_at(corpus, corpus.rows())]
    row = max(range(len(corpus)), key=lambda row: np.isfinite(signals[row]).sum())
    read_id = read_id_of(corpus, row)
    command = ["-q", "data", "view", str(merged), "--read-id", read_id, "-o"]
    assert main([*command, str(tmp_path / "r.svg")]) == 0
    drawn = Page((tmp_path / "r.svg").read_text())
    width, height = (int(drawn.tags[0][1][name]) for name in ("width", "height"))
    assert main([*command, str(tmp_path / "r.png")]) == 0
    assert main([*command, str(tmp_path / "small.PNG"), "--width", str(width)]) == 0
    header = (tmp_path / "r.png").read_bytes()[:24]
    assert struct.unpack(">8s4x4sII", header) == (b"\x89PNG\r\n\x1a\n", b"IHDR", 2 * width, 2 * height)
    image = pixels_of(tmp_path / "small.PNG").astype(int)
    assert image.shape == (height, width, 4)
    assert (image[..., 3] == 255).all()
    trace, words = (np.abs(image[..., :3] - colour).max(axis=-1) < 40 for colour in ((0, 0x72, 0xB2), (0x33,) * 3))
    # The trace lies where the drawing has its points, from the first to the last.
    pairs = [pair.split(",") for tag, found in drawn.tags if tag == "polyline" for pair in found["points"].split()]
    places = np.array(pairs, dtype=float)
    rows, columns = np.nonzero(trace)
    assert [columns.min(), rows.min()] == pytest.approx(places.min(axis=0), abs=3)
    assert [columns.max(), rows.max()] == pytest.approx(places.max(axis=0), abs=3)
    # Words stand above the plotted area, below it and on its left; the corner is white.
    lines_with_words = np.flatnonzero(words.any(axis=1))
    assert lines_with_words.min() < 25
    assert lines_with_words.max() > height - 25
    assert words[:, :45].any()
    assert (image[2, 2] == 255).all()
    portray(merged, ViewConfig(read_id=read_id), tmp_path / "again.png", force=False, stamp=STAMP)
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "r.png").read_bytes()


def test_an_image_without_its_package_or_without_a_font_is_refused_with_what_to_do(tmp_path, merged, monkeypatch):
    config = ViewConfig(read_id=read_id_of(Corpus.open(merged), 3))
    with monkeypatch.context() as patched:
        patched.setattr(pixels, "_STYLE", "svg text { font-family: 'No Such Font' }")
        with pytest.raises(InputError, match="would lack its letters"):
            portray(merged, config, tmp_path / "r.png", force=False, stamp=STAMP)
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(MissingExtraError, match="resvg_py") as caught:
        portray(merged, config, tmp_path / "r.png", force=False, stamp=STAMP)
    assert "leech[png]" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_it_left_out(tmp_path, capsys):
    put_metrics(tmp_path / "m.json")
    command = ["-q", "report", "--metrics", str(tmp_path / "m.json"), "-o", str(tmp_path / "r.html"), "--json"]
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out)
    assert "metrics" in told["shown"]
    assert "--calls" in told["left_out"]["samples"]
    assert main(command) == 1
    assert "exists already" in capsys.readouterr().err
