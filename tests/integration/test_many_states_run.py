"""Three states from reads to calls by the commands: simulated, cut, joined, learnt, calibrated, judged and called."""

from __future__ import annotations

import csv
import gzip
import json

import numpy as np
import pysam
import pytest

import leech as public
from leech.cli.main import main
from leech.data.proportion import wilson

LABELS = ["charged", "strong", "uncharged"]
"""In the order of the model: sorted."""

LIBRARIES = {"uncharged": ("--charged-fraction", 0), "charged": (), "strong": ("--effect", 3)}

# The run that is called holds uncharged and weakly charged reads, and some that cannot be called.
RUN = ("--charged-fraction", 0.5, "--seed", 9)


def leech(*words):
    return main(["-q", *(str(word) for word in words)])


def simulate(folder, *words):
    common = ("--num-references", 4, "--sample", folder.name, "-o", folder)
    assert leech("data", "simulate", "--charged-fraction", 1, *words, *common) == 0


def files_of(folder):
    return (
        *("--pod5", folder / "reads.pod5", "--bam", folder / "mappings.bam"),
        *("--reference", folder / "reference.fa"),
    )


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("states")
    for seed, (label, words) in enumerate(LIBRARIES.items()):
        simulate(folder / label, "--reads", 260, "--seed", seed, *words)
        site = ("--motif", "CCAGGC", "--motif-offset", 2)
        assert (
            leech("data", "prepare", *files_of(folder / label), *site, "--label", label, "-o", folder / f"{label}.c")
            == 0
        )
    corpora = [folder / f"{label}.c" for label in LIBRARIES]
    assert leech("data", "merge", *corpora, "-o", folder / "corpus", "--split", 0.5, 0.15, 0.2, 0.15) == 0
    data, model = ("--data", folder / "corpus", "--device", "cpu"), folder / "model"
    assert leech("model", "train", *data, "-o", model, "--epochs", 8) == 0
    assert leech("model", "calibrate", "--model", model, *data, "-o", folder / "calibrated", "--bootstrap", 20) == 0
    scores = ("--scores", folder / "scores.tsv.gz")
    words = ("--model", folder / "calibrated", *data, "-o", folder / "metrics.json", "--bootstrap", 50)
    assert leech("eval", "test", *words, *scores) == 0
    simulate(folder / "run", "--reads", 200, *RUN)
    called = ("-o", folder / "calls.bam", "--tables", folder / "tables", "--min-confidence", 0.5, "--min-depth", 40)
    words = ("--model", folder / "calibrated", *files_of(folder / "run"), "--device", "cpu")
    assert leech("predict", *words, *called, "--index") == 0
    return folder


def rows_of(path):
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_three_simulated_states_are_told_apart(work):
    content = json.loads((work / "metrics.json").read_text())
    assert content["labels"] == LABELS
    # 150 held-out reads; measured at this size, macro AUROC 0.93 to 0.95 and accuracy 0.78 to 0.82.
    assert content["macro_auroc"]["value"] > 0.85
    assert content["accuracy"]["value"] > 0.65
    low, high = content["macro_auroc"]["interval"]
    assert low < content["macro_auroc"]["value"] < high
    assert sum(sum(row.values()) for row in content["confusion"].values()) == content["num_reads"]
    # Each library is a flow cell of one label: shares are known there, ranks are not.
    cells = content["groups"]["sample"]
    assert [cell["macro_auroc"] for cell in cells] == [None] * 3
    assert all(cell["accuracy"]["value"] is not None for cell in cells)
    assert content["learnt_from"]["state"] == "no"
    scores = rows_of(work / "scores.tsv.gz")
    right = np.mean([row["label"] == row["call"] for row in scores])
    assert content["accuracy"]["value"] == pytest.approx(right)


def test_the_corpus_can_be_checked_and_shown(work, capsys):
    words = ("--bootstrap", 50, "--max-reads", 100, "--allow", "run", "flow_cell", "--json")
    capsys.readouterr()
    assert leech("data", "check", work / "corpus", *words) == 0
    found = {probe["name"]: probe["auroc"] for probe in json.loads(capsys.readouterr().out)["probes"]}
    assert found["site"] > 0.7
    assert leech("model", "inspect", work / "calibrated") == 0
    assert "the most probable label" in capsys.readouterr().out


def test_every_record_comes_out_and_called_ones_have_both_tags(work):
    with pysam.AlignmentFile(str(work / "run" / "mappings.bam")) as before:
        records = list(before.fetch(until_eof=True))
    with pysam.AlignmentFile(str(work / "calls.bam")) as after:
        comment = after.header.to_dict()["CO"][-1]
        program = after.header.to_dict()["PG"][-1]["ID"]
        written = list(after)
    told = json.loads(comment.removeprefix("leech:"))
    assert told == {"program": program, "tag": "lp", "labels": LABELS}
    rows = rows_of(work / "tables" / "calls.states.tsv.gz")
    assert len(written) == len(records) == len(rows)
    called = 0
    for old, new, row in zip(records, written, rows, strict=True):
        tags = [tag for tag in new.get_tags(with_value_type=True) if tag[0] not in ("lc", "lp")]
        assert tags == old.get_tags(with_value_type=True)
        assert new.to_string().split("\t")[:11] == old.to_string().split("\t")[:11]
        assert row["read_id"] == new.query_name
        assert not new.has_tag("cl")
        p = [row[f"p_{label}"] for label in LABELS]
        if not row["call"]:
            assert row["reason"]
            assert not new.has_tag("lc")
            assert not new.has_tag("lp")
            if row["reason"] == "low_confidence":
                assert max(map(float, p)) < 0.5
            continue
        called += 1
        numbers = np.array(p, dtype=float)
        assert row["reason"] == ""
        assert row["call"] == LABELS[numbers.argmax()] == new.get_tag("lc")
        values, kind = new.get_tag("lp", with_value_type=True)
        assert kind == "BC"
        np.testing.assert_allclose(values, 255 * numbers, atol=0.501)
        assert numbers.sum() == pytest.approx(1, abs=1e-5)
    assert called > 150
    assert (work / "calls.bam.bai").is_file()


def test_the_table_by_reference_adds_up(work):
    calls = rows_of(work / "tables" / "calls.states.tsv.gz")
    for row in rows_of(work / "tables" / "calls.states_summary.tsv.gz"):
        own = [call for call in calls if call["reference"] == row["reference"]]
        numbers = [sum(call["call"] == label for call in own) for label in LABELS]
        assert [int(row[f"n_{label}"]) for label in LABELS] == numbers
        reasons = dict(pair.split("=") for pair in row["no_call_reasons"].split(",") if pair)
        assert int(row["n_no_call"]) == sum(map(int, reasons.values()))
        assert row["enough"] == str(int(sum(numbers) >= 40))
        for label, number in zip(LABELS, numbers, strict=True):
            interval = wilson(number, sum(numbers))
            found = [float(row[f"fraction_{label}{end}"]) for end in ("", "_low", "_high")]
            assert found == pytest.approx([number / sum(numbers), *interval], rel=1e-5)
    record = json.loads((work / "tables" / "calls.predict.json").read_text())
    assert (record["format"], record["labels"], record["min_confidence"]) == ("leech-class-predict", LABELS, 0.5)
    assert sum(record["total"]["called"].values()) == sum(bool(call["call"]) for call in calls)
    names = {path.name for path in (work / "tables").iterdir()}
    assert names == {"calls.states.tsv.gz", "calls.states_summary.tsv.gz", "calls.predict.json"}


def test_calls_are_near_the_truth(work):
    with (work / "run" / "truth.tsv").open(newline="") as file:
        truth = {row["read_id"]: row["charged"] for row in csv.DictReader(file, delimiter="\t")}
    calls = [row for row in rows_of(work / "tables" / "calls.states.tsv.gz") if row["call"]]
    # Nothing in the run is strong; weakly charged and uncharged reads are half and half.
    right = np.mean([(truth[row["read_id"]] == "1") == (row["call"] != "uncharged") for row in calls])
    assert right > 0.65


def test_workers_and_batches_change_no_call(work, tmp_path):
    words = ("--model", work / "calibrated", *files_of(work / "run"), "--device", "cpu", "--min-confidence", 0.5)
    many = ("--workers", 2, "--batch-size", 7, "--gpus", 2, "--format", "tsv", "--sample", "calls")
    assert leech("predict", *words, *many, "-o", tmp_path / "tables") == 0
    ours, theirs = (rows_of(folder / "calls.states.tsv.gz") for folder in (work / "tables", tmp_path / "tables"))
    assert [(row["read_id"], row["call"], row["reason"]) for row in ours] == [
        (row["read_id"], row["call"], row["reason"]) for row in theirs
    ]


def called(work):
    return [row for row in rows_of(work / "tables" / "calls.states.tsv.gz") if row["call"]]


def test_earlier_calls_are_replaced_and_those_of_two_states_stay(work, tmp_path):
    with (
        pysam.AlignmentFile(str(work / "calls.bam")) as before,
        pysam.AlignmentFile(str(tmp_path / "before.bam"), "wb", template=before) as tagged,
    ):
        for record in before:
            record.set_tag("cl", 7, value_type="C")
            tagged.write(record)
    words = ("--pod5", work / "run" / "reads.pod5", "--bam", tmp_path / "before.bam")
    words = (*words, "--reference", work / "run" / "reference.fa", "--model", work / "calibrated", "--device", "cpu")
    surest = sorted((max(float(row[f"p_{label}"]) for label in LABELS) for row in called(work)), reverse=True)
    assert leech("predict", *words, "-o", tmp_path / "after.bam", "--min-confidence", sum(surest[19:21]) / 2) == 0
    with pysam.AlignmentFile(str(tmp_path / "after.bam")) as after:
        assert [json.loads(line.removeprefix("leech:"))["program"] for line in after.header.to_dict()["CO"]] == [
            "leech",
            "leech.1",
        ]
        records = list(after)
    assert {record.get_tag("cl") for record in records} == {7}
    left = [record for record in records if record.has_tag("lc")]
    assert len(left) == 20
    assert all(max(record.get_tag("lp")) >= int(255 * surest[20]) for record in left)
    assert all(record.has_tag("lc") == record.has_tag("lp") for record in records)


def test_python_gives_the_same_calls(work):
    model = public.load_model(work / "calibrated", device="cpu")
    assert (model.labels, model.threshold_cl) == (tuple(LABELS), None)
    run = {"pod5": work / "run" / "reads.pod5", "bam": work / "run" / "mappings.bam"}
    calls = model.predict(**run, reference=work / "run" / "reference.fa", min_confidence=0.5)
    rows = rows_of(work / "tables" / "calls.states.tsv.gz")
    assert calls.p.shape == (len(rows), 3)
    assert calls.state.tolist() == [row["call"] for row in rows]
    assert calls.reason.tolist() == [row["reason"] for row in rows]
    assert set(calls.cl.tolist()) == {-1}
    columns = calls.columns()
    assert list(columns) == ["read_id", "reference", "p_charged", "p_strong", "p_uncharged", "state", "reason"]
    asked = np.array([bool(row["p_strong"]) for row in rows])
    assert np.isnan(calls.p[~asked]).all()
    np.testing.assert_allclose(
        calls.p[asked, 1], [float(row["p_strong"]) for row in rows if row["p_strong"]], rtol=1e-4
    )
    # Of a corpus as eval test has them.
    of_corpus = model.predict(work / "corpus", split="test")
    scores = rows_of(work / "scores.tsv.gz")
    assert of_corpus.state.tolist() == [row["call"] for row in scores]
    np.testing.assert_allclose(of_corpus.p[:, 2], [float(row["p_uncharged"]) for row in scores], rtol=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--threshold", 0.5), "--threshold is about a positive state"),
        (("--threshold-cl", 100), "--threshold-cl is about a positive state"),
        (("--fpr", 0.1, "--tpr", 0.9), "--fpr is about a positive state"),
        (("--call-rates", 0.9, 0.9), "--call-rates is about a positive state"),
    ],
)
def test_options_about_a_positive_state_are_refused(work, tmp_path, capsys, words, message):
    given = ("--model", work / "calibrated", *files_of(work / "run"), "-o", tmp_path / "out.bam")
    assert leech("predict", *given, *words) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_sheet_of_samples_is_called_once_and_has_a_table_over_all(work, tmp_path, capsys):
    sheet, output = tmp_path / "sheet.tsv", tmp_path / "out"
    lines = [f"{name}\t{work}/{name}/reads.pod5\t{work}/{name}/mappings.bam" for name in ("run", "strong")]
    missing = f"lost\t{work}/nowhere.pod5\t{work}/run/mappings.bam"
    sheet.write_text("\n".join(["sample\tpod5\tbam", *lines, missing, ""]))
    words = ("--model", work / "calibrated", "--samples", sheet, "--reference", work / "run" / "reference.fa")
    words = (*words, "--device", "cpu", "--min-confidence", 0.5, "--min-depth", 40, "-o", output)
    # One fails, by name, and the others are there.
    assert leech("predict", *words) == 1
    assert "1 of 3 samples failed. 'lost'" in capsys.readouterr().err
    own = {
        f"{name}.{kind}"
        for name in ("run", "strong")
        for kind in ("bam", "states.tsv.gz", "states_summary.tsv.gz", "predict.json")
    }
    assert {path.name for path in output.iterdir()} == {*own, "samples.states_summary.tsv.gz"}
    # The same calls as of the run alone.
    assert (output / "run.states.tsv.gz").read_bytes() == (work / "tables" / "calls.states.tsv.gz").read_bytes()
    together = rows_of(output / "samples.states_summary.tsv.gz")
    alone = {name: rows_of(output / f"{name}.states_summary.tsv.gz") for name in ("run", "strong")}
    assert len(together) == 8
    for name, rows in alone.items():
        assert [{**row, "sample": name} for row in rows] == [row for row in together if row["sample"] == name]
    # Without the broken one, what is there is taken as it is, and another rule is refused.
    sheet.write_text("\n".join(["sample\tpod5\tbam", *lines, ""]))
    before = {path.name: path.stat().st_mtime_ns for path in output.iterdir() if path.name in own}
    capsys.readouterr()
    assert leech("predict", *words, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["complete_already"], told["samples"]) == (["run", "strong"], {})
    assert {path.name: path.stat().st_mtime_ns for path in output.iterdir() if path.name in own} == before
    assert rows_of(output / "samples.states_summary.tsv.gz") == together
    (output / "strong.bam").unlink()
    assert leech("predict", *words) == 0
    assert (output / "strong.bam").is_file()
    assert (output / "run.bam").stat().st_mtime_ns == before["run.bam"]
    assert leech("predict", *words, "--abstain-junction-indel") == 1
    assert "holds 2 of the 2 samples as a run with another model" in capsys.readouterr().err
    assert leech("predict", *words, "--threshold", 0.3) == 2
    assert "--threshold is about a positive state" in capsys.readouterr().err


def test_a_report_of_such_calls_is_refused_in_words(work, tmp_path, capsys):
    assert leech("report", "--calls", work / "tables", "-o", tmp_path / "page.html") == 1
    assert "more than two states" in capsys.readouterr().err


def test_a_positive_label_is_refused(work, tmp_path, capsys):
    words = ("--data", work / "corpus", "-o", tmp_path / "model", "--positive-label", "charged")
    assert leech("model", "train", *words) == 2
    assert "of more than two none is positive" in capsys.readouterr().err
