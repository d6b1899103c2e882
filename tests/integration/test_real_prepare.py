"""Preparing the real reads: frame, counts, workers, level correlation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from leech.config import build
from leech.console import SilentProgress
from leech.data.config import PrepareConfig, ReadSources
from leech.data.corpus import Corpus
from leech.data.prepare import prepare
from leech.data.recipe import Recipe
from leech.errors import MismatchError
from leech.provenance import Stamp

STAMP = Stamp.make(["test"], "2026-01-01T00:00:00+00:00")
PSI = {"motif": "GTTC", "motif_offset": 2, "motif_occurrence": "last"}
ALA = {"motif": "CCAGGC", "motif_offset": 2}


def sources(folder: Path, reference: Path) -> ReadSources:
    return build(ReadSources, {"pod5": [folder / "reads.pod5"], "bam": folder / "mappings.bam", "reference": reference})


def psi(real_data, name="wt"):
    return sources(real_data / "ecoli_psi55" / name, real_data / "ecoli_psi55" / "reference.fa")


def run(sources, output, recipe, **config):
    return prepare(
        sources,
        build(Recipe, recipe),
        build(PrepareConfig, {"label": "state", **config}),
        output,
        force=False,
        progress=SilentProgress(),
        stamp=STAMP,
    )


@pytest.mark.parametrize("with_table", [False, True])
def test_the_reads_vote_for_the_rna_frame_with_and_without_a_table(real_data, tmp_path, with_table, caplog):
    caplog.set_level("INFO", logger="leech")
    table = real_data / "kmer" / "rna004_9mer_levels_v1.txt.gz" if with_table else None
    result = run(psi(real_data), tmp_path / "c", PSI, kmer_table=table)
    assert result.num_chunks == 135
    # Whoever gave no table is told whose levels those were.
    words = "the levels of the k-mer table" if with_table else "built-in levels of single bases"
    assert f"reads confirm it (median correlation with {words} 0." in caplog.text
    assert result.frame.votes_against == 0
    assert result.frame.votes_for >= 130
    # Measured: 0.76 with additive effects, 0.84 with the 9-mer table at centre 2; the other frame stays under 0.16.
    assert result.frame.correlation > (0.8 if with_table else 0.7)
    assert abs(result.frame.other_correlation) < 0.16
    assert result.recipe.kmer_centre == (2 if with_table else None)


@pytest.mark.parametrize("with_table", [False, True])
def test_the_wrong_frame_is_refused_before_anything_is_cut(real_data, tmp_path, with_table):
    table = real_data / "kmer" / "rna004_9mer_levels_v1.txt.gz" if with_table else None
    with pytest.raises(MismatchError, match="Every chunk would hold another base's current"):
        run(psi(real_data), tmp_path / "c", {**PSI, "reverse_signal": False}, kmer_table=table)
    assert list(tmp_path.iterdir()) == []


def test_with_a_table_residuals_are_there_and_small_in_the_right_frame(real_data, tmp_path):
    table = real_data / "kmer" / "rna004_9mer_levels_v1.txt.gz"
    run(psi(real_data), tmp_path / "c", PSI, kmer_table=table)
    corpus = Corpus.open(tmp_path / "c")
    level = (corpus.column("level_mean") - corpus.column("shift")[:, None]) / corpus.column("scale")[:, None]
    expected = corpus.column("expected_level")
    known = np.isfinite(expected) & (corpus.column("dwell")[:, 12:29] > 0)
    assert np.corrcoef(level[known], expected[known])[0, 1] > 0.6
    assert corpus.kmer_table().sha256 == "1d366c9e060f31be1d6489b88b415666fba42f1c4006e1e549666f4a50f13e63"


def test_of_the_alanine_reads_those_without_signal_are_counted(real_data, tmp_path):
    folder = real_data / "ecoli_ala"
    result = run(sources(folder, folder / "reference.fa"), tmp_path / "c", ALA)
    assert result.counts.ladder() == {"seen": 60, "not_in_pod5": 40, "used": 20}


def test_the_corpus_is_the_same_byte_for_byte_at_any_number_of_workers(real_data, tmp_path):
    for workers in (1, 2, 4):
        run(psi(real_data), tmp_path / str(workers), PSI, workers=workers, batch_reads=20)
    names = sorted(path.name for path in (tmp_path / "1").iterdir())
    for workers in ("2", "4"):
        assert sorted(path.name for path in (tmp_path / workers).iterdir()) == names
        for name in names:
            assert (tmp_path / workers / name).read_bytes() == (tmp_path / "1" / name).read_bytes(), name
