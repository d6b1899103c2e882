"""Predicting several samples from a sheet: each on its own, and tables over all of them."""

from __future__ import annotations

import csv
import gzip
import json
import shutil

import pytest

from leech.cli.main import main
from leech.config import build
from leech.console import SilentProgress
from leech.data.config import ReadSources
from leech.data.recipe import Recipe
from leech.errors import InputError
from leech.models.bundle import ModelBundle, load_bundle, save_bundle
from leech.models.spec import build_network, load_architecture
from leech.prediction import predict
from leech.prediction.config import PredictConfig
from leech.prediction.samples import predict_samples
from leech.prediction.sheet import read_sheet
from leech.provenance import Identity, Stamp
from tiny_run import TinyRecord, ramp, read_id, write_run

REFERENCES = {"tRNA-Ala-GGC-1-1": "ACGTACGTAC", "tRNA-Ala-TGC-1-1": "ACGTACGTAC"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    spec = load_architecture("tcn")
    recipe = build(Recipe, {"motif": "GTAC", "motif_offset": 1, "motif_occurrence": "last"})
    bundle = ModelBundle(spec=spec, recipe=recipe, labels=("no", "yes"), training={}, stamp={})
    folder = tmp_path_factory.mktemp("samples") / "model"
    folder.mkdir()
    save_bundle(bundle, build_network(spec, recipe), folder)
    return folder


def library(folder, references):
    """Write four reads per number in ``references``, the number of the reference."""
    records = [
        TinyRecord(read_id(4 * place + n + 1), reference=number)
        for place, number in enumerate(references)
        for n in range(4)
    ]
    return write_run(folder, records, {record.name: ramp(60) for record in records}, REFERENCES)


@pytest.fixture
def sheet(tmp_path):
    """Two good samples, the second without a read on the first reference, and one whose BAM is missing."""
    library(tmp_path / "a", [0, 1])
    library(tmp_path / "b", [1])
    library(tmp_path / "c", [0])
    (tmp_path / "c" / "mappings.bam").rename(tmp_path / "c" / "later.bam")
    path = tmp_path / "sheet.tsv"
    lines = ["# three samples", "bam\tcondition\tsample\tpod5", ""]
    lines += [f"{name}/mappings.bam\tx\t{name}\t{name}/reads.pod5; {name}" for name in "abc"]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode() + b"\r\n")
    return path


def arguments(model, sheet, *options):
    return [
        "predict",
        *("--model", str(model), "--samples", str(sheet), "--reference", str(sheet.parent / "a" / "reference.fa")),
        *("-o", str(sheet.parent / "out"), "--device", "cpu", *options),
    ]


def rows(path):
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_a_sample_that_fails_is_named_and_does_not_lose_the_others(model, sheet, capfd):
    out = sheet.parent / "out"
    assert main(arguments(model, sheet, "--json")) == 1
    printed, said = capfd.readouterr()
    assert "1 of 3 samples failed. 'c': BAM " in said
    result = json.loads(printed)
    assert list(result["samples"]) == ["a", "b"]
    assert list(result["failed"]) == ["c"]
    names = {path.name for path in out.iterdir()}
    assert {"a.bam", "a.charging_calls.tsv.gz", "a.predict.json", "b.bam", "b.charging_summary.tsv.gz"} <= names
    assert not [name for name in names if name.startswith("c.") or "partial" in name]
    combined = rows(out / "samples.charging_summary.tsv.gz")
    called = [
        (row["reference"], row["sample"], int(row["n_positive"]) + int(row["n_negative"]), row["fraction"] == "")
        for row in combined
    ]
    assert called == [
        ("tRNA-Ala-GGC-1-1", "a", 4, False),
        ("tRNA-Ala-GGC-1-1", "b", 0, True),
        ("tRNA-Ala-TGC-1-1", "a", 4, False),
        ("tRNA-Ala-TGC-1-1", "b", 4, False),
    ]
    own = rows(out / "a.charging_summary.tsv.gz")
    assert [{"sample": "a", **row} for row in own] == [row for row in combined if row["sample"] == "a"]
    amino = rows(out / "samples.charging_summary.amino_acid.tsv.gz")
    assert [(row["amino_acid"], row["sample"]) for row in amino] == [("Ala", "a"), ("Ala", "b")]


def test_the_same_command_again_runs_only_what_is_not_complete(model, sheet, capfd):
    out = sheet.parent / "out"
    assert main(arguments(model, sheet)) == 1
    written = {name: (out / f"{name}.bam").stat().st_mtime_ns for name in "ab"}
    shutil.copy(sheet.parent / "c" / "later.bam", sheet.parent / "c" / "mappings.bam")
    capfd.readouterr()
    # How the work is spread is no other run.
    assert main(arguments(model, sheet, "--json", "--batch-size", "3")) == 0
    result = json.loads(capfd.readouterr().out)
    assert (result["complete_already"], list(result["samples"])) == (["a", "b"], ["c"])
    assert {name: (out / f"{name}.bam").stat().st_mtime_ns for name in "ab"} == written
    assert {row["sample"] for row in rows(out / "samples.charging_summary.tsv.gz")} == {"a", "b", "c"}


@pytest.mark.parametrize("lost", ["a.bam", "a.charging_prob.tsv.gz"])
def test_a_sample_of_which_a_file_was_lost_is_not_complete(model, sheet, capfd, lost):
    out = sheet.parent / "out"
    assert main(arguments(model, sheet)) == 1
    content = (out / "a.charging_prob.tsv.gz").read_bytes()
    (out / lost).unlink()
    capfd.readouterr()
    assert main(arguments(model, sheet, "--json")) == 1
    result = json.loads(capfd.readouterr().out)
    assert (result["complete_already"], list(result["samples"]), list(result["failed"])) == (["b"], ["a"], ["c"])
    assert (out / "a.bam").is_file()
    assert (out / "a.charging_prob.tsv.gz").read_bytes() == content


def test_a_sample_that_lacked_a_pod5_is_run_again_once_it_is_mended(model, sheet, capfd):
    pod5 = sheet.parent / "a" / "more.pod5"
    good = (sheet.parent / "b" / "reads.pod5").read_bytes()
    pod5.write_bytes(good[: len(good) // 2])
    assert main(arguments(model, sheet)) == 1
    assert "'a': 1 of 2 POD5 files" in capfd.readouterr().err
    pod5.write_bytes(good)
    shutil.copy(sheet.parent / "c" / "later.bam", sheet.parent / "c" / "mappings.bam")
    assert main(arguments(model, sheet, "--json")) == 0
    assert list(json.loads(capfd.readouterr().out)["samples"]) == ["a", "c"]


def test_another_threshold_is_another_run_and_replaces_nothing_unasked(model, sheet, capfd):
    out = sheet.parent / "out"
    assert main(arguments(model, sheet)) == 1
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    capfd.readouterr()
    # Sample c could be run now; the tables over all samples would then hold it alone.
    shutil.copy(sheet.parent / "c" / "later.bam", sheet.parent / "c" / "mappings.bam")
    assert main(arguments(model, sheet, "--threshold", "0.4", "--min-mapq", "1")) == 1
    told = " ".join(capfd.readouterr().err.split())
    assert "holds 2 of the 3 samples as a run with other settings" in told
    assert "'a', 'b' differ in: threshold_cl (200 there, 102 here); min_mapq (0 there, 1 here)" in told
    assert "--force" in told
    assert "failed" not in told
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert main(arguments(model, sheet, "--threshold", "0.4", "--force", "--json")) == 0
    assert json.loads(capfd.readouterr().out)["samples"]["a"]["threshold_cl"] == 102
    # A threshold in other words is no other one.
    assert main(arguments(model, sheet, "--threshold-cl", "102", "--json")) == 0
    assert json.loads(capfd.readouterr().out)["complete_already"] == ["a", "b", "c"]


def test_a_sample_whose_input_changed_is_told_of_as_such(model, sheet, capfd):
    main(arguments(model, sheet))
    shutil.copy(sheet.parent / "c" / "later.bam", sheet.parent / "b" / "mappings.bam")
    capfd.readouterr()
    assert main(arguments(model, sheet)) == 1
    assert "'b' differ in: its input files" in " ".join(capfd.readouterr().err.split())


def test_a_sample_that_lacks_reads_is_run_again_unasked(model, sheet, capfd):
    shutil.copy(sheet.parent / "c" / "later.bam", sheet.parent / "c" / "mappings.bam")
    bad = sheet.parent / "b" / "bad.pod5"
    bad.write_bytes(b"no POD5")
    assert main(arguments(model, sheet)) == 1
    assert "1 of 3 samples failed. 'b':" in capfd.readouterr().err
    bad.unlink()
    assert main(arguments(model, sheet, "--json")) == 0
    result = json.loads(capfd.readouterr().out)
    assert (result["complete_already"], list(result["samples"])) == (["a", "c"], ["b"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--pod5", "x.pod5"), "leave out --pod5 and --bam"),
        (("--sample", "s"), "--sample is for one run"),
        (("--tables", "t"), "--tables is for one run"),
        (("--format", "bam"), "leaves nothing to combine"),
    ],
)
def test_options_of_a_single_run_are_refused(model, sheet, capfd, options, message):
    assert main(arguments(model, sheet, *options)) == 2
    assert message in " ".join(capfd.readouterr().err.split())
    assert not (sheet.parent / "out").exists()


def test_no_sample_s_outputs_replace_what_another_is_made_from(model, sheet, capfd):
    # Sample 'a' would be written to b.bam's folder as a.bam, which is the input of sample 'b'.
    folder = sheet.parent / "out"
    folder.mkdir()
    for name, source in (("a", "b"), ("b", "a")):
        shutil.copy(sheet.parent / source / "mappings.bam", folder / f"{name}.bam")
    lines = [f"a\t{sheet.parent / 'a'}\tout/b.bam", f"b\t{sheet.parent / 'b'}\tout/a.bam"]
    sheet.write_text("\n".join(["sample\tpod5\tbam", *lines, ""]))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert main(arguments(model, sheet, "--force")) == 2
    assert "which would be lost" in capfd.readouterr().err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_tables_alone_need_no_bam(model, sheet):
    main(arguments(model, sheet, "--format", "tsv"))
    assert not list((sheet.parent / "out").glob("*.bam"))
    assert (sheet.parent / "out" / "b.charging_prob.tsv.gz").is_file()


def test_a_sheet_gives_paths_from_its_own_folder_in_any_order_of_columns(sheet):
    first = read_sheet(sheet)[0]
    assert first == ("a", (sheet.parent / "a" / "reads.pod5", sheet.parent / "a"), sheet.parent / "a" / "mappings.bam")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty, so it is not a sample sheet"),
        ("sample\tpod5\tbam\n", "lists no sample"),
        ("name\tpod5\n", "no column 'sample' and no column 'bam'; it has name, pod5"),
        ("sample,pod5,bam\n", "no column 'sample'"),
        ("sample\tpod5\tbam\na\t\tb.bam\n", "line 2: column 'pod5' is empty"),
        ("sample\tpod5\tbam\na\tp\n", "line 2 has 2 cells and the header 3"),
        ("sample\tpod5\tbam\n# x\na\tp\tb\na\tp\tb\n", "line 4: column 'sample' holds 'a' a second time"),
        ("sample\tpod5\tbam\na/b\tp\tb\n", "line 2: column 'sample' holds 'a/b'"),
        # U+2028 breaks a line of text and no line of a table, where it would break the line of whoever reads it.
        ("sample\tpod5\tbam\na\u2028b\tp\tb\n", "line 2: column 'sample' holds"),
        ("sample\tpod5\tbam\nsamples\tp\tb\n", "column 'sample' holds 'samples'"),
        ("sample\tpod5\tbam\na\tp\t-\n", "column 'bam' is standard input"),
    ],
)
def test_a_sheet_that_cannot_be_right_is_refused_by_line_and_column(tmp_path, text, message):
    path = tmp_path / "sheet.tsv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_sheet(path)


def test_what_samples_share_is_read_once(model, sheet, tmp_path, monkeypatch):
    read = []
    genuine = Identity.of.__func__
    monkeypatch.setattr(Identity, "of", classmethod(lambda cls, path: read.append(path) or genuine(cls, path)))
    loads = []
    monkeypatch.setattr(predict, "load_bundle", lambda path: loads.append(path) or load_bundle(path))
    (tmp_path / "c" / "later.bam").rename(tmp_path / "c" / "mappings.bam")
    groups = tmp_path / "groups.tsv"
    groups.write_text("reference\tamino_acid\ntRNA-Ala-GGC-1-1\tAla\n")
    sources = build(ReadSources, {"pod5": [tmp_path], "bam": tmp_path, "reference": tmp_path / "a" / "reference.fa"})
    shown = {"force": False, "progress": SilentProgress(), "stamp": Stamp.make(["leech"], "2026-01-01T00:00:00+00:00")}
    config = build(PredictConfig, {"device": "cpu", "reference_groups": groups})
    result = predict_samples(model, read_sheet(sheet), sources, config, tmp_path / "out", **shown)
    assert list(result.called.finished) == ["a", "b", "c"]
    # The POD5 column names a sample's file and the folder around it.
    own = [tmp_path / name / file for name in "abc" for file in ("reads.pod5", "", "mappings.bam")]
    assert sorted(read) == sorted([model, sources.reference, groups, *own])
    assert loads == [model]
