"""``leech data check`` on simulated and on real libraries: the control window is cut again from the recorded inputs."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from leech.cli.main import main
from leech.console import SilentTask
from leech.data.corpus import Corpus
from leech.data.recut import find_inputs, recut
from leech.errors import InputError

NUM_READS = 300


def leech(*words):
    return main([str(word) for word in words])


def prepare(inputs, output, label, offset=2, motif=("CCAGGC",)):
    files = ("--pod5", inputs / "reads.pod5", "--bam", inputs / "mappings.bam", "--reference")
    reference = next(path for path in (inputs / "reference.fa", inputs.parent / "reference.fa") if path.is_file())
    site = ("--motif", *motif, "--motif-offset", offset)
    assert leech("-q", "data", "prepare", *files, reference, *site, "--label", label, "-o", output) == 0
    return output


def merge(folder, *corpora):
    assert leech("-q", "data", "merge", *corpora, "-o", folder) == 0
    return folder


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """Two libraries with their corpora and the merged one: reads/0, reads/1, corpora/0, corpora/1, corpora/merged."""
    folder = tmp_path_factory.mktemp("check")
    for charged in (0, 1):
        words = ("--reads", NUM_READS, "--charged-fraction", charged, "--num-references", 4, "--seed", charged)
        assert leech("-q", "data", "simulate", *words, "-o", folder / "reads" / str(charged)) == 0
        prepare(folder / "reads" / str(charged), folder / "corpora" / str(charged), ("uncharged", "charged")[charged])
    merge(folder / "corpora" / "merged", folder / "corpora" / "0", folder / "corpora" / "1")
    return folder


def check(corpus, capsys, *words):
    capsys.readouterr()
    code = leech("-q", "data", "check", corpus, "--json", "--bootstrap", 200, *words)
    return code, json.loads(capsys.readouterr().out)


def auroc(result):
    return {probe["name"]: probe["auroc"] for probe in result["probes"]}


def test_a_clean_simulation_says_nothing_in_the_control_window_and_much_at_the_site(simulated, capsys):
    code, result = check(simulated / "corpora" / "merged", capsys, "--allow", "run")
    assert code == 0
    assert result["verdict"]["status"] == "clean"
    # About 300 reads a class: the standard error of 0.5 is 0.024.
    assert auroc(result)["control window"] == pytest.approx(0.5, abs=0.08)
    assert auroc(result)["identity together"] == pytest.approx(0.5, abs=0.08)
    assert auroc(result)["site"] > 0.85


def test_two_runs_are_told_apart_and_exit_1_only_where_that_is_asked_for(simulated, capsys):
    few = ("--max-reads", 60)
    code, result = check(simulated / "corpora" / "merged", capsys, *few)
    assert code == 0
    assert result["verdict"]["text"].startswith("label readable from run alone: AUROC 1.00")
    code, _ = check(simulated / "corpora" / "merged", capsys, *few, "--fail-above", 0.7)
    assert code == 1
    code, _ = check(simulated / "corpora" / "merged", capsys, *few, "--fail-above", 0.7, "--allow", "run", "flow_cell")
    assert code == 0


def test_the_state_s_own_bases_taken_as_control_are_readable_so_the_probe_can_fail(simulated, tmp_path, capsys):
    # Here the site is the control and the control the site: the roles are swapped by offsets alone.
    away = [
        prepare(simulated / "reads" / str(charged), tmp_path / str(charged), ("no", "yes")[charged], offset=-33)
        for charged in (0, 1)
    ]
    code, result = check(merge(tmp_path / "merged", *away), capsys, "--control-offset", 35, "--allow", "run")
    assert code == 0
    assert result["verdict"]["text"].startswith("label readable from the control window: AUROC 0.9")
    assert auroc(result)["site"] == pytest.approx(0.5, abs=0.08)


def test_reads_cut_again_elsewhere_are_what_prepare_cuts_there(simulated, tmp_path):
    merged = Corpus.open(simulated / "corpora" / "merged")
    ids = merged.column("read_id")[::3]
    columns = ("dwell", "median_dwell", "shift", "scale", "level_mean", "level_sd", "signal")
    again = recut(merged, ids, -33, columns, SilentTask())
    there = [Corpus.open(prepare(simulated / "reads" / n, tmp_path / n, "x", offset=-33)) for n in ("0", "1")]
    places = {row.tobytes(): number for number, row in enumerate(np.concatenate([c.column("read_id") for c in there]))}
    order = [places[row.tobytes()] for row in again.columns["read_id"]]
    assert len(order) + sum(again.lost.values()) == len(ids)
    assert len(order) > 0.8 * len(ids)
    for name in columns:
        expected = np.concatenate([np.asarray(corpus.column(name)) for corpus in there])[order]
        np.testing.assert_array_equal(again.columns[name], expected)


def test_inputs_are_found_when_all_moved_together_or_the_corpora_alone(simulated, tmp_path, capsys):
    together = tmp_path / "together"
    shutil.copytree(simulated, together)
    (simulated / "reads").rename(simulated / "hidden")
    try:
        assert find_inputs(together / "corpora" / "0").bam == together / "reads" / "0" / "mappings.bam"
        _, found = check(together / "corpora" / "merged", capsys)
        _, missing = check(simulated / "corpora" / "merged", capsys)
    finally:
        (simulated / "hidden").rename(simulated / "reads")
    assert auroc(found)["control window"] is not None
    assert auroc(missing)["control window"] is None
    reason = next(probe["reason"] for probe in missing["probes"] if probe["kind"] == "control")
    assert "is not there any more" in reason
    assert reason in missing["verdict"]["text"]
    alone = tmp_path / "deep" / "alone"
    shutil.copytree(simulated / "corpora" / "0", alone)
    assert find_inputs(alone).bam == simulated / "reads" / "0" / "mappings.bam"


def test_standard_input_cannot_be_read_again_and_the_probe_says_so(simulated, tmp_path, capsys):
    corpus = tmp_path / "c"
    shutil.copytree(simulated / "corpora" / "0", corpus)
    record = json.loads((corpus / "inputs.json").read_text())
    record["sources"]["bam"] = "-"
    (corpus / "inputs.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match="was read from standard input"):
        find_inputs(corpus)


def test_on_real_reads_the_site_is_readable_and_the_control_window_is_not(real_data, tmp_path, capsys):
    corpora = []
    for label in ("wt", "truB"):
        motif = ("GTTC", "--motif-occurrence", "last")
        corpora.append(prepare(real_data / "ecoli_psi55" / label, tmp_path / label, label, motif=motif))
    _, result = check(merge(tmp_path / "merged", *corpora), capsys, "--allow", "run", "flow_cell")
    found = auroc(result)
    # Measured: site 0.918, control 0.553 with an interval from 0.48 to 0.62, identity 0.49.
    assert found["site"] > 0.85
    assert found["control window"] < 0.63
    assert found["identity together"] < 0.6
    assert found["flow_cell"] == 1
    assert result["verdict"]["status"] == "clean"
