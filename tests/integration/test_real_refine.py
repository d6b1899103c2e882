"""Refining the boundaries of the real reads, in ``prepare`` and in ``predict``."""

from __future__ import annotations

from dataclasses import replace

import escapepod
import numpy as np
import pysam
import pytest

import leech
from banded_viterbi import best_bounds
from leech.config import build
from leech.console import SilentProgress
from leech.data import chunks, refine
from leech.data.batches import make_inputs
from leech.data.config import PrepareConfig, ReadSources
from leech.data.corpus import Corpus
from leech.data.prepare import prepare
from leech.data.recipe import Recipe
from leech.errors import ConfigError, InputError, MismatchError
from leech.models.bundle import ModelBundle, save_bundle
from leech.models.device import choose_device
from leech.models.inference import Predictor, charging_likelihood
from leech.models.spec import build_network, load_architecture
from leech.prediction.config import PredictConfig
from leech.prediction.predict import predict
from leech.provenance import Stamp

STAMP = Stamp.make(["test"], "2026-01-01T00:00:00+00:00")
SITES = {
    "ecoli_psi55/wt": {"motif": "GTTC", "motif_offset": 2, "motif_occurrence": "last"},
    "ecoli_psi55/truB": {"motif": "GTTC", "motif_offset": 2, "motif_occurrence": "last"},
    "ecoli_ala": {"motif": "CCAGGC", "motif_offset": 2},
}


def sources(real_data, name):
    folder = real_data / name
    reference = (folder if name == "ecoli_ala" else folder.parent) / "reference.fa"
    return build(ReadSources, {"pod5": [folder / "reads.pod5"], "bam": folder / "mappings.bam", "reference": reference})


def run(real_data, name, output, *, recipe=(), table=True, **config):
    config = {"label": "state", **config}
    if table:
        config["kmer_table"] = real_data / "kmer" / "rna004_9mer_levels_v1.txt.gz"
    recipe = build(Recipe, {**SITES[name], "refinement": "kmer", **dict(recipe)})
    settings = build(PrepareConfig, config)
    return prepare(
        sources(real_data, name), recipe, settings, output, force=False, progress=SilentProgress(), stamp=STAMP
    )


@pytest.fixture(scope="module")
def refined_wt(real_data, tmp_path_factory):
    """The wt reads prepared once with refinement: the result and its corpus."""
    result = run(real_data, "ecoli_psi55/wt", tmp_path_factory.mktemp("refined") / "c")
    return result, Corpus.open(result.path)


@pytest.mark.parametrize("name", SITES)
def test_the_correlation_with_the_levels_reaches_095_and_falls_in_no_read(real_data, tmp_path, name, monkeypatch):
    seen = []

    def watched(*arguments):
        seen.append((arguments, refine.refine_bounds(*arguments)))
        return seen[-1][1]

    monkeypatch.setattr(chunks, "refine_bounds", watched)
    result = run(real_data, name, tmp_path / "c")
    told = result.refinement.to_mapping()
    # Measured: 0.778 -> 0.962 (wt), 0.765 -> 0.966 (truB), 0.642 -> 0.958 (alanine).
    assert told["correlation_after"] >= 0.95
    assert told["correlation_before"] < 0.8
    assert told["refined_share"] > 0.97
    assert told["refined"] + told["kept_moves"] + told["unrefinable"] == len(seen) == result.num_chunks
    for (signal, given, levels, focus, spread), refinement in seen:
        unchanged = refine_correlation(signal, given, levels, focus, spread)
        used = refine_correlation(signal, refinement.bounds, levels, focus, spread)
        assert used >= unchanged
    corpus = Corpus.open(tmp_path / "c")
    assert corpus.manifest.settings["refinement"] == told
    assert corpus.column("refined").sum() == told["refined"]


@pytest.mark.parametrize("name", ["ecoli_psi55/wt", "ecoli_psi55/truB"])
def test_boundaries_at_the_steps_fit_levels_better_that_were_not_looked_at(real_data, tmp_path, name):
    def fit(refinement):
        run(real_data, name, tmp_path / refinement, recipe={"refinement": refinement})
        columns = Corpus.open(tmp_path / refinement)
        each = zip(columns.column("level_mean"), columns.column("expected_level"), strict=True)
        known = ((means, levels, np.isfinite(levels) & (means != 0)) for means, levels in each)
        return np.median([np.corrcoef(means[where], levels[where])[0, 1] for means, levels, where in known])

    # Measured over the 17 feature bases: 0.924 -> 0.960 (wt), 0.913 -> 0.962 (truB).
    by_moves, by_steps = fit("none"), fit("step")
    assert by_moves < 0.93
    assert by_steps > 0.955
    assert Corpus.open(tmp_path / "step").manifest.settings.get("refinement") is None


def refine_correlation(signal, bounds, levels, focus, spread):
    """Pearson's correlation over the bases around the focus that have a level and signal, by numpy."""
    current = np.clip((signal.astype(np.float64) - spread[0]) / spread[1], -5, 5)
    usable = np.isfinite(levels) & (np.diff(bounds) > 0)
    first = last = focus
    while first > 0 and usable[first - 1]:
        first -= 1
    while last < len(usable) and usable[last]:
        last += 1
    means = [current[bounds[base] : bounds[base + 1]].mean() for base in range(first, last)]
    return np.corrcoef(means, levels[first:last])[0, 1].round(6)


def test_on_real_reads_the_boundaries_are_those_of_a_plain_banded_viterbi(real_data, tmp_path, monkeypatch):
    stretches = []

    def watched(signal, bounds, levels):
        if len(stretches) < 4:
            stretches.append((signal, bounds, levels))
        return search(signal, bounds, levels)

    search = refine._search
    monkeypatch.setattr(refine, "_search", watched)
    run(real_data, "ecoli_psi55/wt", tmp_path / "c")
    units = np.float32(refine.UNITS)
    for signal, bounds, levels in stretches:
        _, scale, shift, _ = escapepod.refine_signal_map(
            signal * units, bounds.tolist(), levels * units, 8, 0, 4.0, 0.5 * refine.UNITS**2
        )
        fitted = (signal.astype(np.float64) - shift / refine.UNITS) / scale
        best, _ = best_bounds(fitted, bounds, levels.astype(float), half_band=8, dwell_target=4.0, dwell_weight=0.5)
        assert np.array_equal(search(signal, bounds, levels), best)


def test_refinement_changes_boundaries_and_nothing_that_does_not_follow_from_them(real_data, refined_wt, tmp_path):
    run(real_data, "ecoli_psi55/wt", tmp_path / "plain", recipe={"refinement": "none"})
    refined, plain = refined_wt[1], Corpus.open(tmp_path / "plain")
    assert refined.manifest.recipe_digest != plain.manifest.recipe_digest
    assert not plain.has_column("refined")
    for name in ("shift", "scale", "sequence", "expected_level", "median_dwell", "read_id", "mapq", "junction_indel"):
        assert np.array_equal(refined.column(name), plain.column(name), equal_nan=name == "expected_level"), name
    moved = refined.column("focus_raw_sample") != plain.column("focus_raw_sample")
    assert moved.mean() > 0.2
    # Where the focus stayed, so did the signal of the window.
    stayed = np.flatnonzero(~moved)
    assert np.array_equal(refined.column("signal")[stayed], plain.column("signal")[stayed])
    # Read by read: one of them is flat nearly throughout, so that its normalised levels outweigh all others'.
    fits = []
    for corpus in (refined, plain):
        expected, level = corpus.column("expected_level"), corpus.column("level_mean")
        known = np.isfinite(expected) & (corpus.column("dwell")[:, 12:29] > 0)
        fits.append([np.corrcoef(level[row][known[row]], expected[row][known[row]])[0, 1] for row in range(len(level))])
    assert np.median(fits[0]) > np.median(fits[1]) + 0.05


@pytest.mark.parametrize("change", [{"normalisation": "picoamp"}, {"mask_sequence": "after"}])
def test_boundaries_depend_neither_on_the_chunks_normalisation_nor_on_what_they_hide(
    real_data, refined_wt, tmp_path, change
):
    run(real_data, "ecoli_psi55/wt", tmp_path / "c", recipe=change)
    other, corpus = Corpus.open(tmp_path / "c"), refined_wt[1]
    for name in ("focus_raw_sample", "dwell", "refined", "signal"):
        assert np.array_equal(other.column(name), corpus.column(name)), name


def test_sites_in_the_basecall_are_refined_against_the_basecalled_sequence(real_data, tmp_path):
    result = run(real_data, "ecoli_psi55/wt", tmp_path / "c", recipe={"anchor": "basecall"})
    told = result.refinement.to_mapping()
    assert told["refined"] > 50
    assert told["correlation_after"] > 0.95 > told["correlation_before"]


def test_refined_corpora_are_the_same_byte_for_byte_at_any_number_of_workers(real_data, tmp_path):
    for workers in (1, 3):
        run(real_data, "ecoli_psi55/truB", tmp_path / str(workers), workers=workers, batch_reads=20)
    names = sorted(path.name for path in (tmp_path / "1").iterdir())
    assert sorted(path.name for path in (tmp_path / "3").iterdir()) == names
    for name in names:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "3" / name).read_bytes(), name


def test_refinement_without_a_table_is_a_usage_error(real_data, tmp_path):
    with pytest.raises(ConfigError, match="needs the levels of a k-mer table") as caught:
        run(real_data, "ecoli_psi55/wt", tmp_path / "c", table=False)
    assert caught.value.exit_code == 2
    assert "--kmer-table" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_run_in_which_refinement_harms_is_refused_and_leaves_nothing(real_data, tmp_path, monkeypatch):
    # In plain units escapepod's search gives up on real reads and returns nonsense.
    monkeypatch.setattr(refine, "UNITS", 1.0)
    monkeypatch.setattr(refine, "_DWELL_WEIGHT", 0.5)
    with pytest.raises(MismatchError, match="Refinement lowers the median correlation"):
        run(real_data, "ecoli_psi55/wt", tmp_path / "c")
    assert list(tmp_path.iterdir()) == []


def make_model(folder, recipe, table):
    spec = load_architecture("tcn")
    bundle = ModelBundle(spec=spec, recipe=recipe, labels=("truB", "wt"), training={}, stamp={})
    folder.mkdir()
    network = build_network(spec, recipe)
    save_bundle(bundle, network, folder)
    table.save(folder)
    return spec, network


def called(real_data, model, output):
    config = build(PredictConfig, {"device": "cpu", "batch_records": 40, "batch_size": 32})
    result = predict(
        model,
        sources(real_data, "ecoli_psi55/wt"),
        config,
        output,
        force=False,
        progress=SilentProgress(),
        stamp=STAMP,
    )
    with pysam.AlignmentFile(str(output), "rb", check_sq=False) as file:
        return result, [record.get_tag("cl") for record in file.fetch(until_eof=True) if record.has_tag("cl")]


def test_predict_refines_as_prepare_did_with_the_models_own_table(real_data, refined_wt, tmp_path):
    prepared, corpus = refined_wt
    spec, network = make_model(tmp_path / "model", prepared.recipe, corpus.kmer_table())
    result, likelihoods = called(real_data, tmp_path / "model", tmp_path / "calls.bam")
    assert result.refinement.to_mapping() == prepared.refinement.to_mapping()
    columns = {name: np.array(corpus.column(name)) for name in corpus.manifest.columns}
    predictor = Predictor(network, choose_device("cpu"))
    inputs = make_inputs(columns, corpus.recipe, spec.features)
    expected = charging_likelihood(predictor.probabilities(inputs, None)).astype(int)
    # Batches of other sizes may round the last bit of a float otherwise.
    assert np.abs(np.array(likelihoods) - expected).max() <= 1

    # The same network without refinement sees other chunks, so the comparison above could have failed.
    plain = replace(prepared.recipe, refinement="none")
    make_model(tmp_path / "plain", plain, corpus.kmer_table())
    (tmp_path / "plain" / "model.safetensors").write_bytes((tmp_path / "model" / "model.safetensors").read_bytes())
    unrefined, others = called(real_data, tmp_path / "plain", tmp_path / "plain.bam")
    assert unrefined.refinement is None
    assert np.abs(np.array(others) - expected).max() > 1


def test_a_model_folder_without_its_table_cannot_predict(real_data, refined_wt, tmp_path):
    prepared, corpus = refined_wt
    make_model(tmp_path / "model", prepared.recipe, corpus.kmer_table())
    (tmp_path / "model" / "kmer_table.tsv.gz").unlink()
    with pytest.raises(InputError, match="k-mer table"):
        called(real_data, tmp_path / "model", tmp_path / "calls.bam")


def test_calls_of_reads_whose_refinement_harms_are_refused_to_files_and_to_python(
    real_data, refined_wt, tmp_path, monkeypatch
):
    prepared, corpus = refined_wt
    make_model(tmp_path / "model", prepared.recipe, corpus.kmer_table())
    monkeypatch.setattr(refine, "UNITS", 1.0)
    monkeypatch.setattr(refine, "_DWELL_WEIGHT", 0.5)
    with pytest.raises(MismatchError, match="Refinement lowers the median correlation"):
        called(real_data, tmp_path / "model", tmp_path / "calls.bam")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    run = sources(real_data, "ecoli_psi55/wt")
    model = leech.load_model(tmp_path / "model", device="cpu")
    with pytest.raises(MismatchError, match="Refinement lowers the median correlation"):
        model.predict(pod5=run.pod5, bam=run.bam, reference=run.reference)
