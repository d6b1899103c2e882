"""Windows by bases, hidden sequence, shifted dwell, forward signal and normalisations, through ``prepare``, by hand."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from leech.config import build
from leech.console import SilentProgress
from leech.data.batches import INPUT_COLUMNS, make_inputs
from leech.data.config import PrepareConfig
from leech.data.context import ContextTally
from leech.data.corpus import Corpus
from leech.data.levels import encode_bases
from leech.data.prepare import prepare, warn_context_cut
from leech.data.recipe import Recipe
from leech.errors import ConfigError
from leech.provenance import Stamp
from tiny_run import STAMP_TIME, TinyRecord, ramp, read_id, write_run

REFERENCES = {"tRNA-A": "ACGTACGTAC"}
"""GTAC occurs at 2 and 6; the last one's offset 1 makes reference base 7 the focus."""

# Dwell by base of SEQ, 5'->3': 6 6 6 6 6 12 6 18 6 6, that is 78 samples. Moves run in time, so from the last base.
DWELL = [6, 6, 6, 6, 6, 12, 6, 18, 6, 6]
MOVES = [block for dwell in reversed(DWELL) for block in (1, *[0] * (dwell // 6 - 1))]
# Reversed, base i starts at the sum of what lies before: 0 6 12 18 24 30 42 48 66 72, end 78. The focus is [48, 66).
UNEVEN = TinyRecord(read_id(1), moves=MOVES, tags={"ts": 0, "ns": 78})


def recipe(**changes):
    values = {"motif": "GTAC", "motif_offset": 1, "motif_occurrence": "last", "samples_before": 20, "samples_after": 30}
    values |= {"bases_before": 3, "bases_after": 2, "feature_start": -1, "feature_end": 1}
    # Boundaries as the move table has them, so that they can be worked out by hand.
    return build(Recipe, {"refinement": "none", **values, **changes})


def run_result(tmp_path, **config):
    sources = write_run(tmp_path / "run", [UNEVEN], {UNEVEN.name: ramp(78)}, REFERENCES)
    settings, stamp = build(PrepareConfig, config), Stamp.make(["test"], STAMP_TIME)
    return prepare(sources, recipe(), settings, tmp_path / "c", force=False, progress=SilentProgress(), stamp=stamp)


def run(tmp_path, recipe, *, record=UNEVEN, signal=None, name="corpus", **config):
    signal = ramp(78) if signal is None else signal
    sources = write_run(tmp_path / f"run-{name}", [record], {record.name: signal}, REFERENCES)
    settings, stamp = build(PrepareConfig, {"label": "state", **config}), Stamp.make(["test"], STAMP_TIME)
    out = tmp_path / name
    prepare(sources, recipe, settings, out, force=False, progress=SilentProgress(), stamp=stamp)
    corpus = Corpus.open(out)
    return corpus, {name: corpus.column(name).copy() for name in corpus.manifest.columns}


def test_a_window_by_bases_holds_their_samples_and_pads_the_rest(tmp_path):
    corpus, found = run(tmp_path, recipe(context_bases=[1, 1]))
    # Bases 6..8 are reversed [42, 72); the window is [28, 78), so samples 14..44 of it are signal: raw 77 - 42 = 35 down.
    assert (found["valid_start"][0], found["valid_end"][0]) == (14, 44)
    assert found["signal"][0].tolist() == [*[0] * 14, *range(35, 5, -1), *[0] * 6]
    assert corpus.manifest.settings["num_context_cut"] == 0
    inputs = make_inputs({name: found[name] for name in INPUT_COLUMNS}, corpus.recipe, ["level_mean"])
    assert (inputs.signal[0] == 0).tolist() == [*[True] * 14, *[False] * 30, *[True] * 6]


def test_the_focus_stays_where_it_is_and_measurements_do_not_depend_on_the_context(tmp_path):
    _, by_samples = run(tmp_path, recipe(), name="samples")
    _, by_bases = run(tmp_path, recipe(context_bases=[0, 0]), name="bases")
    for name in by_samples:
        if name not in ("signal", "valid_start", "valid_end"):
            assert np.array_equal(by_samples[name], by_bases[name]), name
    # The focus base alone: 18 samples from the focus position on.
    assert (by_bases["valid_start"][0], by_bases["valid_end"][0]) == (20, 38)


@pytest.mark.parametrize(
    ("context", "valid", "cut"),
    [
        ([1, 2], (14, 50), 0),  # reversed [42, 78) ends with the window [28, 78)
        ([3, 0], (0, 38), 1),  # bases 4..7 are [24, 66): four samples do not fit in front
        ([2, 0], (2, 38), 0),  # bases 5..7 are [30, 66)
    ],
)
def test_what_does_not_fit_is_cut_off_at_its_end_counted_and_told(tmp_path, caplog, context, valid, cut):
    with caplog.at_level(logging.WARNING, logger="leech"):
        corpus, found = run(tmp_path, recipe(context_bases=context))
    assert (found["valid_start"][0], found["valid_end"][0]) == valid
    assert corpus.manifest.settings["num_context_cut"] == cut
    assert ("1 of 1 chunks hold more samples" in caplog.text) == bool(cut)
    # The context spans 24 samples in front of the focus, and the window has 20: in steps of 25, 25 hold them.
    assert ("--samples-before 25 --samples-after 30 would show at least 95% of them whole" in caplog.text) == bool(cut)


def test_the_window_advised_holds_the_share_of_chunks_that_it_says():
    # 100 chunks need 1..100 samples in front; behind it all need 10. 97.5 % of them need at most 98: four steps of 25.
    tally = ContextTally.of(np.arange(1, 61), np.full(60, 10), (50, 10))
    tally.merge(ContextTally.of(np.arange(61, 101), np.full(40, 10), (50, 10)))
    assert tally.num_cut == 50
    assert tally.window_for(0.95) == (100, 25)
    # 75 % need at most 75 samples, which is three steps.
    assert tally.window_for(0.5) == (75, 25)
    assert ContextTally().window_for(0.95) == (0, 0)


def test_a_window_that_cannot_be_had_is_not_advised(caplog):
    with caplog.at_level(logging.WARNING, logger="leech"):
        spans = ContextTally.of(np.array([20000]), np.array([5]), (20, 30))
        warn_context_cut(spans, recipe(context_bases=[1, 1]), 1)
    assert "even --samples-before 16000 --samples-after 16000, the widest there is" in caplog.text
    assert "20000" not in caplog.text


def test_chunks_without_a_label_are_told_of_and_their_cell_is_not_empty(tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger="leech"):
        result = run_result(tmp_path, label=None)
    assert result.tables()[1].rows == (("(none)", "1", "0", "0", "100.0%"),)
    assert "The chunks have no label" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="leech"):
        run_result(tmp_path / "labelled", label="state")
    assert "no label" not in caplog.text


def test_bases_of_the_context_that_are_not_aligned_are_padding(tmp_path):
    # 8M2S: the alignment ends with the focus base, so the context ends with it too.
    record = TinyRecord(read_id(1), moves=MOVES, tags={"ts": 0, "ns": 78}, cigar="8M2S")
    _, found = run(tmp_path, recipe(context_bases=[1, 2]), record=record)
    assert (found["valid_start"][0], found["valid_end"][0]) == (14, 38)


def test_a_context_wider_than_the_base_window_is_refused():
    with pytest.raises(ConfigError, match=r"context_bases 4 0 reach beyond the base window -3\.\.2"):
        recipe(context_bases=[4, 0])


@pytest.mark.parametrize(("side", "visible"), [("none", (0, 10)), ("after", (0, 8)), ("before", (7, 10))])
def test_sequence_on_one_side_of_the_focus_can_be_hidden(tmp_path, side, visible):
    _, found = run(tmp_path, recipe(mask_sequence=side))
    # Base window 4..9 with four of context: 0..13; the reference ends at 10.
    codes = [4] * 14
    codes[slice(*visible)] = encode_bases("ACGTACGTAC")[slice(*visible)].tolist()
    assert found["sequence"][0].tolist() == codes


def levels_table(tmp_path):
    """Write a table of 3-mers whose level is the number that the k-mer is in base 4."""
    path = tmp_path / "levels.tsv"
    kmers = ["ACGT"[a] + "ACGT"[b] + "ACGT"[c] for a in range(4) for b in range(4) for c in range(4)]
    path.write_text("".join(f"{kmer}\t{number}\n" for number, kmer in enumerate(kmers)))
    return path


@pytest.mark.parametrize(
    ("side", "expected"),
    [
        # Bases 6 7 8 of ACGTACGTAC with the level on the k-mer's middle: CGT, GTA, TAC = 16+8+3, 32+12+0, 48+0+1.
        ("none", [27, 44, 49]),
        ("after", [27, np.nan, np.nan]),  # GTA and TAC need base 8
        ("before", [np.nan, np.nan, 49]),  # CGT and GTA need base 6
    ],
)
def test_expected_levels_do_not_betray_hidden_sequence(tmp_path, side, expected):
    table = levels_table(tmp_path)
    _, found = run(tmp_path, recipe(mask_sequence=side, kmer_centre=1), kmer_table=table)
    assert np.array_equal(found["expected_level"][0], np.array(expected, np.float32), equal_nan=True)


def test_dwell_channels_can_show_another_base_than_level_channels(tmp_path):
    names = ["log_dwell", "relative_log_dwell", "dwell_local_mean", "level_mean"]
    shifted, found = run(tmp_path, recipe(dwell_offset=-2), name="shifted")
    columns = {name: found[name] for name in INPUT_COLUMNS}
    here = make_inputs(columns, recipe(), names).features[0]
    there = make_inputs(columns, shifted.recipe, names).features[0]
    # Feature bases 6 7 8 show the dwell of bases 4 5 6: 6 12 6; unshifted 6 18 6. The median over the read is 6.
    assert there[0].numpy() == pytest.approx(np.log(np.array([6, 12, 6]) / 36), abs=1e-6)
    assert there[1].numpy() == pytest.approx(np.log([1, 2, 1]), abs=1e-6)
    assert here[0].numpy() == pytest.approx(np.log(np.array([6, 18, 6]) / 36), abs=1e-6)
    # Around base 4, the first of the window: 6 12 6.
    assert float(there[2, 0]) == pytest.approx(np.log([6, 12, 6]).mean() - np.log(6), abs=1e-6)
    assert there[3].tolist() == here[3].tolist()


def test_a_dwell_channel_is_empty_where_the_base_it_shows_has_no_signal(tmp_path):
    # 8M2S: bases 8 and 9 have no signal. Feature bases 6 7 8 show the dwell of 7 8 9.
    record = TinyRecord(read_id(1), moves=MOVES, tags={"ts": 0, "ns": 78}, cigar="8M2S")
    corpus, found = run(tmp_path, recipe(dwell_offset=1), record=record)
    got = make_inputs({name: found[name] for name in INPUT_COLUMNS}, corpus.recipe, ["log_dwell", "level_sd"])
    assert got.features[0, 0].numpy() == pytest.approx([np.log(18 / 36), 0, 0], abs=1e-6)
    assert (got.features[0, 1] != 0).tolist() == [True, True, False]


def test_dwell_beyond_the_base_window_is_refused():
    with pytest.raises(ConfigError, match=r"dwell of bases 1\.\.3, beyond the base window -3\.\.2"):
        recipe(dwell_offset=2)


def test_zero_is_a_legal_offset_of_features_and_windows(tmp_path):
    zero = {"feature_start": 0, "feature_end": 0, "bases_before": 0, "bases_after": 0, "samples_before": 0}
    corpus, found = run(tmp_path, recipe(**zero, samples_after=5, context_bases=[0, 0]))
    # The focus base is reversed [48, 66) = raw 29..12: mean 20.5, range 17.
    assert found["dwell"].tolist() == [[18]]
    assert (found["level_mean"].tolist(), found["level_range"].tolist()) == ([[20.5]], [[17]])
    assert found["signal"][0].tolist() == [29, 28, 27, 26, 25]
    assert corpus.manifest.settings["num_context_cut"] == 1


def test_the_same_molecule_measured_forward_in_time_gives_the_same_chunk(tmp_path):
    # DNA runs through the pore 5' end first: the same samples, and the same moves, in the opposite order of time.
    noise = np.random.default_rng(1).integers(200, 900, 78).astype(np.int16)
    forward = TinyRecord(read_id(1), moves=forward_moves(), tags={"ts": 0, "ns": 78})
    changes = {"context_bases": [1, 1]}
    _, rna = run(tmp_path, recipe(**changes), signal=noise, name="rna")
    _, dna = run(
        tmp_path, recipe(**changes, reverse_signal=False), record=forward, signal=noise[::-1].copy(), name="dna"
    )
    for name in rna:
        if name != "focus_raw_sample":
            assert np.array_equal(rna[name], dna[name]), name
    # Reversed 48 is raw 77 - 48 for RNA and raw 48 for DNA.
    assert (rna["focus_raw_sample"].tolist(), dna["focus_raw_sample"].tolist()) == ([29], [48])


def forward_moves():
    return [block for dwell in DWELL for block in (1, *[0] * (dwell // 6 - 1))]


def test_the_stored_signal_does_not_depend_on_the_normalisation(tmp_path):
    columns = {}
    for name in ("mad", "zscore", "quantile", "picoamp"):
        _, columns[name] = run(tmp_path, recipe(normalisation=name), name=name)
    for name, found in columns.items():
        assert np.array_equal(found["signal"], columns["mad"]["signal"])
        assert np.array_equal(found["level_mean"], columns["mad"]["level_mean"])
        assert np.isfinite(found["scale"]).all(), name
    assert len({float(found["scale"][0]) for found in columns.values()}) == 4


def test_in_picoamperes_the_network_sees_the_current(tmp_path):
    # The POD5 of a tiny run has offset 0 and scale 0.1462: ADC 29 is 4.24 pA.
    corpus, found = run(tmp_path, recipe(normalisation="picoamp"))
    assert (found["shift"].tolist(), found["scale"].tolist()) == ([0], [pytest.approx(1 / 0.1462)])
    signal = make_inputs({name: found[name] for name in INPUT_COLUMNS}, corpus.recipe, ["level_mean"]).signal[0]
    assert float(signal[20]) == pytest.approx(29 * 0.1462, rel=1e-6)


def test_picoamperes_beside_a_kmer_table_are_warned_about(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger="leech"):
        run(tmp_path, recipe(normalisation="picoamp", kmer_centre=1), kmer_table=levels_table(tmp_path))
    assert "only if the k-mer table is in pA too" in caplog.text
