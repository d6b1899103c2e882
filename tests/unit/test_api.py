"""The public Python interface: what it says is what the commands say."""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
import sys

import numpy as np
import pytest

import leech
from leech.config import build
from leech.console import SilentProgress
from leech.data.compose import merge
from leech.data.config import MergeConfig, PrepareConfig
from leech.data.prepare import prepare
from leech.data.recipe import Recipe
from leech.errors import ConfigError, InputError, MismatchError
from leech.models.bundle import ModelBundle, save_bundle
from leech.models.learnt import Learnt
from leech.models.spec import build_network, load_architecture
from leech.prediction.config import PredictConfig
from leech.prediction.predict import predict
from leech.provenance import Stamp
from tiny_run import TinyRecord, ramp, read_id, write_run

STAMP = Stamp.make(["leech"], "2026-01-01T00:00:00+00:00")
RECIPE = build(Recipe, {"motif": "GTAC", "motif_offset": 1, "motif_occurrence": "last"})
STATES = ("no", "yes")
REFERENCES = {"tRNA-Ala-GGC-1-1": "ACGTACGTAC", "tRNA-Ala-TGC-1-1": "ACGTACGTAC"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("api")


@pytest.fixture(scope="module")
def sources(folder):
    """Twelve reads; the last one's signal is missing."""
    names = [read_id(number) for number in range(1, 13)]
    records = [TinyRecord(name, reference=int(number >= 8)) for number, name in enumerate(names)]
    signals = {
        name: np.random.default_rng(number).normal(500, 80, 60).astype(np.int16)
        for number, name in enumerate(names[:-1])
    }
    return write_run(folder / "run", records, signals, REFERENCES)


@pytest.fixture(scope="module")
def model_path(folder):
    return make_model(folder / "model", {})


def make_model(path, training):
    spec = load_architecture("tcn")
    bundle = ModelBundle(spec=spec, recipe=RECIPE, labels=STATES, training=training, stamp={})
    path.mkdir()
    save_bundle(bundle, build_network(spec, RECIPE), path)
    return path


def make_corpus(sources, output, recipe=RECIPE):
    settings = build(PrepareConfig, {"label": "yes"})
    prepare(sources, recipe, settings, output, force=False, progress=SilentProgress(), stamp=STAMP)
    return output


@pytest.fixture(scope="module")
def corpus_path(folder, sources):
    return make_corpus(sources, folder / "corpus")


def written(folder, sources, model_path, **options):
    """Return the rows that ``leech predict`` writes of the run, in a folder that is not there yet."""
    config = build(PredictConfig, {"device": "cpu", "format": "tsv", "sample": "s", **options})
    predict(model_path, sources, config, folder, force=False, progress=SilentProgress(), stamp=STAMP)
    with gzip.open(folder / "s.charging_calls.tsv.gz", "rt", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def call(model_path, sources, **options):
    model = leech.load_model(model_path, device="cpu")
    return model.predict(pod5=sources.pod5, bam=sources.bam, reference=sources.reference, **options)


def test_calls_of_a_run_are_those_that_predict_writes(model_path, sources, tmp_path):
    confidences = np.abs(call(model_path, sources).p[:-1] - 0.5) + 0.5
    # Half of the reads are left uncalled, so that a row of every kind is compared: called, unsure, without signal.
    options = {"threshold_cl": 128, "min_confidence": float(np.median(confidences)), "batch_size": 5}
    calls, rows = call(model_path, sources, **options), written(tmp_path / "t", sources, model_path, **options)
    assert set(calls.reason) == {"", "low_confidence", "not_in_pod5"}
    for name in ("read_id", "reference", "reason"):
        assert calls.columns()[name].tolist() == [row[name] for row in rows], name
    assert calls.cl.tolist() == [int(row["cl"] or -1) for row in rows]
    assert [row["p"] for row in rows] == [*(f"{p:.6g}" for p in calls.p[:-1]), ""]
    assert np.isnan(calls.p[-1])
    assert calls.state.tolist() == [row["cl"] and STATES[int(row["cl"]) >= 128] for row in rows]


def test_a_run_that_predict_refuses_or_warns_of_is_refused_and_warned_of(model_path, sources, tmp_path, caplog):
    for refused in (
        lambda: call(model_path, sources, min_confidence=1.0),
        lambda: written(tmp_path / "t", sources, model_path, min_confidence=1.0),
    ):
        with pytest.raises(InputError, match=r"could be used; most often \(11\) because: low_confidence"):
            refused()
    training = {
        "sample_rates": [5000],
        "basecall_models": ["rna004_130bps_sup@v5.1.0"],
        "references": ["tRNA-Ala-GGC-1-1"],
    }
    unlike = make_model(tmp_path / "unlike", training)
    records = [
        TinyRecord(read_id(1), reference=1, tags={"ts": 0, "ns": 60, "RG": "0011_rna004_130bps_sup@v5.3.0_barcode01"})
    ]
    run = write_run(tmp_path / "run", records, {read_id(1): ramp(60)}, REFERENCES)
    said = []
    for call_all in (lambda: written(tmp_path / "u", run, unlike), lambda: call(unlike, run)):
        caplog.clear()
        call_all()
        said.append([record.getMessage() for record in caplog.records if record.levelname == "WARNING"])
    of_predict, of_api = said
    assert of_api == of_predict
    for words in (
        "basecalled with 'rna004_130bps_sup@v5.3.0'",
        "sampled at 4000 Hz",
        "tRNA-Ala-TGC-1-1. Its test figures",
    ):
        assert any(words in message for message in of_api), words


def test_calls_of_a_corpus_are_those_of_its_run(model_path, sources, corpus_path):
    model = leech.load_model(str(model_path), device="cpu")
    of_run, of_corpus = call(model_path, sources), model.predict(corpus_path)
    assert len(of_corpus) == 11
    for name, values in of_corpus.columns().items():
        expected = of_run.columns()[name][:-1]
        if name == "p":
            # Batches of another size round otherwise.
            assert values == pytest.approx(expected, abs=1e-6)
        else:
            assert values.tolist() == expected.tolist(), name
    again = model.predict(leech.open_corpus(corpus_path), batch_size=3)
    assert again.cl.tolist() == of_corpus.cl.tolist()


def test_reads_that_the_model_learnt_from_are_told_of_in_files_and_in_python(sources, corpus_path, tmp_path, caplog):
    corpus = leech.open_corpus(corpus_path).corpus
    parents = corpus.column("parent_id")
    for name, learnt, expected in (
        ("half", Learnt.of(parents[:5], ["another"]), {"state": "yes", "num_compared": 11, "num_found": 5}),
        ("none", Learnt.of(parents[:5] ^ 1, ["run-of-FC1"]), {"state": "no", "num_compared": 11, "num_found": 0}),
    ):
        model = make_model(tmp_path / name, learnt.to_mapping())
        learnt.save(model)
        caplog.clear()
        written(tmp_path / f"{name}-tables", sources, model)
        record = json.loads((tmp_path / f"{name}-tables" / "s.predict.json").read_text())
        assert record["learnt_from"] == expected
        for calls in (call(model, sources), leech.load_model(model, device="cpu").predict(corpus_path)):
            assert calls.learnt.to_mapping() == expected
        told = f"Model '{model}' learnt from 5 of the 11 reads that could be compared"
        assert caplog.text.count(told) == (3 if expected["state"] == "yes" else 0)


def test_options_reach_their_effect_on_runs_and_corpora(model_path, sources, corpus_path):
    model = leech.load_model(model_path, device="cpu")
    for options, states in (({"threshold_cl": 1}, {"yes"}), ({"threshold": 1.0}, {"no"})):
        assert set(call(model_path, sources, **options).state[:-1]) == states
        assert set(model.predict(corpus_path, **options).state) == states
    calls = model.predict(corpus_path, min_confidence=1.0)
    assert set(calls.reason) == {"low_confidence"}
    assert set(calls.cl) == {-1}
    assert set(calls.state) == {""}
    assert np.isfinite(calls.p).all()


def test_a_run_is_read_as_predict_is_told_to_read_it(model_path, sources, corpus_path, tmp_path):
    # The run's reads have a mapping quality of 60.
    with pytest.raises(InputError, match="low_mapq"):
        call(model_path, sources, min_mapq=61)
    with pytest.raises(InputError, match="--strict was given"):
        call(model_path, sources, strict=True)
    with pytest.raises(InputError, match=r"--max-fail-frac allows 5\.0%"):
        call(model_path, sources, max_fail_frac=0.05)
    assert len(call(model_path, sources, min_mapq=60, max_fail_frac=0.5)) == 12
    with pytest.raises(ConfigError, match="a corpus and a run"):
        leech.load_model(model_path, device="cpu").predict(corpus_path, min_mapq=1)
    (tmp_path / "sites.tsv").write_text(f"read_id\tposition\n{read_id(1)}\t5\n")
    with pytest.raises(ConfigError, match="read-sites"):
        call(model_path, sources, read_sites=str(tmp_path / "sites.tsv"))


def test_what_cannot_be_answered_is_refused(model_path, sources, corpus_path, folder):
    model = leech.load_model(model_path, device="cpu")
    with pytest.raises(ConfigError, match="bam is missing"):
        model.predict(pod5=sources.pod5, reference=sources.reference)
    with pytest.raises(ConfigError, match="a corpus and a run"):
        model.predict(corpus_path, bam=sources.bam)
    with pytest.raises(ConfigError, match="Only a corpus has splits"):
        call(model_path, sources, split="test")
    with pytest.raises(ConfigError, match="is about files"):
        model.predict(corpus_path, tables=folder / "t")
    with pytest.raises(ConfigError, match="min_confidence"):
        model.predict(corpus_path, min_confidense=0.5)
    with pytest.raises(InputError, match="no splits"):
        model.predict(corpus_path, split="test")
    other = make_corpus(sources, folder / "other", build(Recipe, {**RECIPE.__dict__, "samples_before": 100}))
    with pytest.raises(MismatchError, match="samples_before"):
        model.predict(other)


def test_a_corpus_shows_its_columns_its_signal_and_its_reads(corpus_path, folder):
    corpus = leech.open_corpus(corpus_path)
    assert (len(corpus), corpus.labels, corpus.splits) == (11, ["yes"], [])
    columns = corpus.numpy(["signal", "shift", "scale", "valid_start", "valid_end"])
    signal = corpus.signal()
    assert signal.dtype == np.float32
    assert signal.shape == columns["signal"].shape
    sample = np.arange(signal.shape[1])
    inside = (sample >= columns["valid_start"][:, None]) & (sample < columns["valid_end"][:, None])
    expected = (columns["signal"] - columns["shift"][:, None]) / columns["scale"][:, None]
    assert signal == pytest.approx(np.where(inside, expected, 0))
    reads = corpus.reads()
    assert reads["read_id"].tolist() == [read_id(number) for number in range(1, 12)]
    assert reads["reference"].tolist() == ["tRNA-Ala-GGC-1-1"] * 8 + ["tRNA-Ala-TGC-1-1"] * 3
    assert set(reads["label"]) == {"yes"}
    with pytest.raises(ConfigError, match="no column 'sgnal'"):
        corpus.numpy(["sgnal"])
    merge([corpus_path], build(MergeConfig, {"split": (0.5, 0.25, 0.25)}), folder / "merged", force=False, stamp=STAMP)
    merged = leech.open_corpus(folder / "merged")
    assert merged.splits == ["train", "validation", "test"]
    assert sorted(merged.reads()["split"]) == sorted(
        name for name in merged.splits for _ in range(len(merged.reads(name)["read_id"]))
    )
    assert len(merged.signal("train")) == len(merged.numpy(["shift"], "train")["shift"]) > 0


def test_data_frames_hold_the_same_rows(model_path, sources, corpus_path):
    calls, reads = call(model_path, sources), leech.open_corpus(corpus_path)
    for frame in (calls.to_pandas(), calls.to_polars()):
        assert list(frame.columns) == ["read_id", "reference", "p", "cl", "state", "reason"]
        assert list(frame["read_id"]) == calls.read_id.tolist()
        assert list(frame["cl"]) == calls.cl.tolist()
    for frame in (reads.to_pandas(), reads.to_polars()):
        assert list(frame["reference"]) == reads.reads()["reference"].tolist()
        assert len(frame) == 11


def test_the_names_are_resolved_on_first_use_and_importing_leech_loads_nothing_heavy():
    code = (
        "import sys, leech; before = {'torch', 'numpy', 'pysam'} & set(sys.modules); "
        "leech.load_model; print(sorted(before), 'torch' in sys.modules, 'load_model' in dir(leech))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "[] True True"
    with pytest.raises(AttributeError, match="no attribute 'load_modle'"):
        leech.load_modle  # noqa: B018
