"""The shortcut probe on planted corpora: what is found, named, refused and recorded."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import numpy as np
import pytest

from leech.config import build
from leech.console import SilentProgress
from leech.data.compose import merge
from leech.data.config import MergeConfig
from leech.data.corpus import Corpus
from leech.data.recipe import Recipe
from leech.errors import ConfigError, InputError
from leech.evaluation.config import CheckConfig
from leech.evaluation.intervals import Estimate, Interval
from leech.evaluation.shortcuts import check
from leech.evaluation.verdict import Probe, judge, warn_unchecked
from planted import RECIPE, STAMP, planted_chunks, write_chunks

CONTROL = build(
    Recipe,
    {
        "motif": "CCAGGC",
        "motif_offset": -33,
        "samples_before": 100,
        "samples_after": 100,
        "bases_before": 10,
        "bases_after": 10,
    },
)


def libraries(folder, changes=None, *, count=100, labels=("uncharged", "charged"), recipe=RECIPE, strength=0.0):
    """Write one library per label, whose chunks ``changes(number, columns, names)`` may alter, and merge them."""
    sources = []
    for number, label in enumerate(labels):
        chunks = planted_chunks(count, label=label, strength=strength * number, seed=number, recipe=recipe)
        if changes is not None:
            changes(number, chunks.columns, chunks.categories)
        sources.append(write_chunks(folder / label, chunks, recipe))
    config = build(MergeConfig, {"positive_label": labels[-1] if len(labels) == 2 else None})
    merge(sources, config, folder / "merged", force=False, stamp=STAMP)
    return folder / "merged"


def run(corpus, output=None, **config):
    settings = build(CheckConfig, {"bootstrap": 100, **config})
    return check(corpus, settings, output, force=False, progress=SilentProgress(), stamp=STAMP)


def auroc(result, name):
    return {probe.name: probe.estimate.value for probe in result.probes}[name]


def skewed_references(number, columns, _):
    # Nine of ten uncharged reads are of tRNA-A and nine of ten charged ones of tRNA-B: area 0.9 x 0.9 + 0.09 = 0.9.
    columns["reference"][:] = np.where(np.arange(len(columns["reference"])) % 10 == 0, 1 - number, number)


def other_adapter(number, columns, _):
    # The focus base lies behind the 10 + 4 bases before it.
    columns["sequence"][:, 15:] = number


def own_flow_cell(number, _, names):
    names["flow_cell"] = [f"FC{number}"]


def slower(number, columns, _):
    columns["median_dwell"][:] = np.random.default_rng(number).normal(12 + 3 * number, 1, len(columns["median_dwell"]))


def lower_mapq(number, columns, _):
    columns["mapq"][:] = np.random.default_rng(number).integers(0, 40 + 200 * number, len(columns["mapq"]))


@pytest.mark.parametrize(
    ("changes", "name", "value"),
    [
        (skewed_references, "reference", 0.9),
        (other_adapter, "adapter", 1.0),
        (own_flow_cell, "flow_cell", 1.0),
        (slower, "speed", 0.98),
        (lower_mapq, "mapq", 0.9),
    ],
)
def test_a_planted_shortcut_is_found_and_it_alone_is_named(tmp_path, changes, name, value):
    result = run(libraries(tmp_path, changes))
    assert auroc(result, name) == pytest.approx(value, abs=0.03)
    assert result.verdict.status == "shortcut"
    assert result.verdict.text.startswith(f"label readable from {name} alone: AUROC {auroc(result, name):.2f} [")
    assert result.verdict.text.count("label readable") + result.verdict.text.count("; from ") == 1
    readable = {probe.name for probe in result.probes if probe.is_readable}
    assert readable == {name, "identity together"}


def test_an_allowed_column_is_shown_but_counts_neither_alone_nor_together(tmp_path):
    result = run(libraries(tmp_path, own_flow_cell), allow=["flow_cell"])
    assert auroc(result, "flow_cell") == 1
    assert auroc(result, "identity together") == pytest.approx(0.5, abs=0.08)
    assert result.verdict.status == "incomplete"


def test_without_a_shortcut_the_missing_control_window_is_said_and_why(tmp_path):
    result = run(libraries(tmp_path, strength=3.0))
    assert result.verdict.status == "incomplete"
    assert "control window not possible: corpus '" in result.verdict.text
    assert "does not say what it was cut from (no inputs.json)" in result.verdict.text
    assert auroc(result, "site") > 0.95
    assert auroc(result, "control window") is None
    assert "not possible" in result.tables()[1].rows[-2][-1]


def test_an_indel_at_the_junction_is_shown_apart_as_the_state_itself_may_cause_it(tmp_path):
    def indels(number, columns, _):
        columns["junction_indel"][:] = number

    result = run(libraries(tmp_path, indels))
    assert auroc(result, "junction_indel") == 1
    assert auroc(result, "identity together") == pytest.approx(0.5, abs=0.08)
    assert result.verdict.status == "incomplete"


def control_corpus(folder, site, strength):
    """Write the site corpus's reads, cut elsewhere; a strength gives the label away there."""

    def same_reads(number, columns, _):
        source = Corpus.open(site.parent / ("uncharged", "charged")[number])
        for name in ("read_id", "parent_id"):
            # In another order, so that rows must be matched by id.
            columns[name][:] = np.asarray(source.column(name))[::-1]

    return libraries(folder, same_reads, recipe=CONTROL, strength=strength)


@pytest.mark.parametrize(("strength", "status"), [(0.0, "clean"), (3.0, "shortcut")])
def test_a_given_control_corpus_of_the_same_reads_is_probed(tmp_path, strength, status):
    site = libraries(tmp_path / "site", strength=3.0)
    result = run(site, control=control_corpus(tmp_path / "control", site, strength))
    assert result.verdict.status == status
    if strength:
        assert auroc(result, "control window") > 0.95
        assert result.verdict.text.startswith("label readable from the control window: AUROC ")
    else:
        assert auroc(result, "control window") == pytest.approx(0.5, abs=0.12)
        assert result.verdict.text.startswith("no shortcut found")


def test_a_control_corpus_of_other_reads_is_no_control(tmp_path):
    result = run(libraries(tmp_path / "a"), control=libraries(tmp_path / "b", recipe=CONTROL, count=30))
    # planted_chunks draws ids after dwell and noise, so other numbers of reads give other ids.
    assert "too few reads have a control window (0 uncharged, 0 charged)" in result.verdict.text


def test_a_control_at_or_near_the_site_is_refused_with_the_offsets_that_are_legal(tmp_path):
    corpus = libraries(tmp_path)
    with pytest.raises(ConfigError, match="cut at the site itself"):
        run(corpus, control=corpus)
    # The features reach 8 bases to either side: -27 + 8 = -19.
    with pytest.raises(ConfigError, match="bases -35 to -19, comes within 19 bases") as caught:
        run(corpus, control_offset=-27)
    assert caught.value.hint == "Use an offset of -28 or less, or of 28 or more."
    with pytest.raises(ConfigError, match="comes within 0 bases"):
        run(corpus, control_offset=5)
    near = build(Recipe, {**vars(CONTROL), "motif_offset": 20})
    with pytest.raises(ConfigError, match=r"Control \+18 bases from the site"):
        run(corpus, control=libraries(tmp_path / "near", recipe=near))


def test_one_label_is_an_error_with_the_counts(tmp_path):
    corpus = write_chunks(tmp_path / "c", planted_chunks(30, label="charged", strength=0, seed=0))
    with pytest.raises(InputError, match=r"fewer than two labels \(30 charged\)"):
        run(corpus)


def test_too_few_reads_are_an_error_with_the_counts(tmp_path):
    with pytest.raises(InputError, match=r"19 reads of 'uncharged'.*needs 20.*19 uncharged, 19 charged"):
        run(libraries(tmp_path, count=19))


def test_children_of_one_parent_count_as_one_read(tmp_path):
    def siblings(_, columns, __):
        columns["parent_id"][:] = columns["parent_id"][np.arange(len(columns["parent_id"])) // 3]

    with pytest.raises(InputError, match="10 reads of 'uncharged'"):
        run(libraries(tmp_path, siblings, count=30))


def test_three_labels_are_probed_too(tmp_path):
    result = run(libraries(tmp_path, own_flow_cell, count=40, labels=("a", "b", "c")))
    assert result.labels == ("a", "b", "c")
    assert auroc(result, "flow_cell") == 1
    assert [probe.num_reads for probe in result.probes if probe.name == "site"] == [(40, 40, 40)]


def test_a_held_out_flow_cell_needs_two_of_each_label(tmp_path):
    with pytest.raises(InputError, match="cannot be cross-validated by flow_cell"):
        run(libraries(tmp_path / "one", own_flow_cell), group_by="flow_cell")

    def two(number, columns, names):
        names["flow_cell"] = [f"FC{2 * number}", f"FC{2 * number + 1}"]
        columns["flow_cell"][:] = np.arange(len(columns["flow_cell"])) % 2

    # A flow cell that was never seen says nothing, however well it went with the label.
    result = run(libraries(tmp_path / "two", two), group_by="flow_cell")
    assert auroc(result, "flow_cell") == 0.5


def test_a_held_out_reference_is_never_seen_by_the_model(tmp_path):
    result = run(libraries(tmp_path, skewed_references, strength=3.0), group_by="reference")
    assert auroc(result, "reference") == 0.5
    assert auroc(result, "site") > 0.9


def test_as_many_reads_of_each_label_are_drawn_as_asked_for(tmp_path):
    result = run(libraries(tmp_path), max_reads=40)
    assert {probe.num_reads for probe in result.probes if probe.estimate.value is not None} == {(40, 40)}


def test_what_balancing_left_out_is_no_shortcut(tmp_path):
    merged = libraries(tmp_path, skewed_references)
    balanced = build(MergeConfig, {"positive_label": "charged", "balance": True, "balance_by": "reference"})
    sources = [tmp_path / "uncharged", tmp_path / "charged"]
    merge(sources, balanced, tmp_path / "balanced", force=False, stamp=STAMP)
    assert auroc(run(merged), "reference") > 0.85
    result = run(tmp_path / "balanced")
    assert auroc(result, "reference") < 0.6
    # Ten of a hundred are of the rarer reference, and as many are kept of the other label; a split rounds each.
    assert all(14 <= number <= 26 for number in result.probes[0].num_reads)


def test_the_result_is_recorded_in_the_corpus_which_stays_the_same(tmp_path):
    corpus = libraries(tmp_path)
    before = {path.name: path.read_bytes() for path in corpus.iterdir()}
    result = run(corpus, tmp_path / "copy.json", seed=3)
    after = {path.name: path.read_bytes() for path in corpus.iterdir()}
    record = json.loads(after.pop("check.json"))
    assert after == before
    assert record == json.loads((tmp_path / "copy.json").read_text())
    assert record == {**json.loads(json.dumps(result.to_mapping())), "provenance": STAMP.to_mapping()}
    assert record["corpus_digest"] == Corpus.open(corpus).manifest.digest
    assert record["settings"]["seed"] == 3
    assert run(corpus, seed=3).to_mapping() == result.to_mapping()
    with pytest.raises(InputError, match="exists already"):
        run(corpus, tmp_path / "copy.json")


def test_a_folder_that_cannot_be_written_is_warned_of_and_the_result_still_given(tmp_path, monkeypatch, caplog):
    corpus = libraries(tmp_path)

    def refuse(path, *, force):
        raise InputError(f"Cannot write beside '{path}'.")

    monkeypatch.setattr("leech.evaluation.shortcuts.atomic_file", refuse)
    with caplog.at_level(logging.WARNING, logger="leech"):
        assert run(corpus).verdict.status == "incomplete"
    assert "The check is not recorded with the corpus" in caplog.text


def warnings_of_training(corpus, caplog):
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="leech"):
        warn_unchecked(Corpus.open(corpus))
    return caplog.text


def test_training_is_warned_of_a_corpus_that_was_never_checked_or_not_found_clean(tmp_path, caplog):
    site = libraries(tmp_path / "site")
    assert "was never checked for shortcuts" in warnings_of_training(site, caplog)
    run(site)
    assert "says: no shortcut found, but not all was probed" in warnings_of_training(site, caplog)
    run(site, control=control_corpus(tmp_path / "control", site, 0.0))
    assert warnings_of_training(site, caplog) == ""
    run(site, control=control_corpus(tmp_path / "bad", site, 3.0))
    assert "says: label readable from the control window" in warnings_of_training(site, caplog)


def test_a_record_of_another_corpus_is_no_check(tmp_path, caplog):
    one, other = libraries(tmp_path / "one"), libraries(tmp_path / "other", count=30)
    run(one)
    (other / "check.json").write_bytes((one / "check.json").read_bytes())
    assert "was never checked for shortcuts" in warnings_of_training(other, caplog)


@pytest.mark.parametrize(("limit", "fails"), [(None, False), (0.95, False), (0.85, True)])
def test_fail_above_is_met_or_not_by_what_should_be_near_a_half(tmp_path, limit, fails):
    site = libraries(tmp_path / "site", skewed_references, strength=3.0)
    result = run(site, control=control_corpus(tmp_path / "control", site, 0.0), fail_above=limit)
    assert (result.failure is not None) == fails
    if fails:
        assert "reference: AUROC 0.9" in result.failure.message
        assert "site: AUROC" not in result.failure.message


def test_fail_above_does_not_pass_where_the_control_window_was_not_probed(tmp_path):
    failure = run(libraries(tmp_path), fail_above=0.9).failure
    assert "control window: not possible" in failure.message


def probe(name, kind, value, half=0.05, *, counts=True):
    interval = None if value is None else Interval(value - half, value + half)
    return Probe(name, kind, counts, Estimate(value, interval), (50, 50), reason="why" if value is None else None)


def test_the_verdict_is_one_line_with_all_that_is_guilty():
    probes = [
        probe("reference", "identity", 0.8),
        probe("mapq", "identity", 0.7),
        probe("identity together", "identity", 0.9),
        probe("control window", "control", 0.52),
        probe("site", "site", 0.95, counts=False),
    ]
    assert judge(probes).text == (
        "label readable from reference alone: AUROC 0.80 [0.75, 0.85]; from mapq alone: AUROC 0.70 [0.65, 0.75]; "
        "control window AUROC 0.52 [0.47, 0.57]"
    )


def test_columns_that_give_the_label_away_only_together_are_said_to():
    probes = [probe("reference", "identity", 0.55), probe("identity together", "identity", 0.9)]
    assert judge(probes).text == (
        "label readable from identity together, though from no column alone: AUROC 0.90 [0.85, 0.95]"
    )


@pytest.mark.parametrize(
    ("value", "half", "status"), [(0.61, 0.05, "shortcut"), (0.61, 0.12, "clean"), (0.59, 0.01, "clean")]
)
def test_readable_is_above_0_6_with_an_interval_above_a_half(value, half, status):
    assert judge([probe("mapq", "identity", value, half)]).status == status


def test_too_few_reads_to_exclude_a_shortcut_are_said_to_be():
    few = [probe("identity together", "identity", 0.55, 0.2), probe("control window", "control", 0.5, 0.1)]
    assert judge(few).text.startswith(
        "no shortcut found (too few reads to see one below AUROC 0.75): identity together"
    )
    assert "too few" not in judge([probe("control window", "control", 0.5)]).text


def test_the_probe_needs_no_torch():
    program = "import sys, leech.evaluation.shortcuts; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


def test_a_damaged_record_is_named_and_counts_as_none(tmp_path, caplog):
    corpus = libraries(tmp_path)
    (corpus / "check.json").write_text("{}")
    told = warnings_of_training(corpus, caplog)
    assert "is not a leech check" in told
    assert "was never checked" in told
