"""Merging and inspecting the real libraries."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from leech.cli.main import main
from leech.data.corpus import SPLITS, Corpus

SITE = ["--motif", "GTTC", "--motif-offset", "2", "--motif-occurrence", "last"]


@pytest.fixture(scope="module")
def libraries(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the corpora of 135 reads each: with pseudouridine 55 and without, from a flow cell each."""
    folder = tmp_path_factory.mktemp("libraries")
    source = real_data / "ecoli_psi55"
    for name in ("wt", "truB"):
        reads = ["--pod5", f"{source / name / 'reads.pod5'}", "--bam", f"{source / name / 'mappings.bam'}"]
        table = ["--kmer-table", f"{real_data / 'kmer' / 'rna004_9mer_levels_v1.txt.gz'}"]
        rest = ["--reference", f"{source / 'reference.fa'}", "--label", name, "-o", f"{folder / name}"]
        assert main(["data", "prepare", *reads, *table, *SITE, *rest]) == 0
    return [f"{folder / name}" for name in ("wt", "truB")]


def test_a_held_out_reference_is_the_whole_test_split(libraries: list[str], tmp_path: Path) -> None:
    output = tmp_path / "corpus"
    held = "host-tRNA-Gly-GCC-1-1"
    words = ["--hold-out", f"reference={held}", "--split", "0.6", "0.2", "0", "0.2", *libraries, "-o", f"{output}"]
    assert main(["data", "merge", "--weight", f"{libraries[0]}=2", *words]) == 0
    corpus = Corpus.open(output)
    names = np.array(corpus.categories["reference"])[corpus.column("reference")]
    assert set(names[corpus.rows("test")]) == {held}
    assert len(corpus.rows("test")) == (names == held).sum() > 0
    assert sum(len(corpus.rows(split)) for split in SPLITS) == 270


def test_the_isotypes_of_real_names_are_dealt_whole(libraries: list[str], tmp_path: Path) -> None:
    assert main(["data", "merge", *libraries, "-o", f"{tmp_path / 'corpus'}", "--split-by", "isotype"]) == 0
    corpus = Corpus.open(tmp_path / "corpus")
    names = np.array(corpus.categories["reference"])[corpus.column("reference")]
    # Three amino acids, three splits.
    assert sorted(len(set(names[corpus.rows(split)])) for split in SPLITS[:3]) == [1, 1, 1]


def test_a_flow_cell_per_label_cannot_be_dealt_whole(
    libraries: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "merge", *libraries, "-o", f"{tmp_path / 'corpus'}", "--split-by", "flow_cell"]) == 1
    assert "2 groups cannot be dealt whole to 3 parts" in capsys.readouterr().err
    assert not (tmp_path / "corpus").exists()


def test_the_levels_fit_and_the_page_shows_both_libraries(
    libraries: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "merge", *libraries, "-o", f"{tmp_path / 'corpus'}"]) == 0
    capsys.readouterr()
    page = tmp_path / "page.html"
    assert main(["data", "inspect", f"{tmp_path / 'corpus'}", "--json", "--html", f"{page}"]) == 0
    content = json.loads(capsys.readouterr().out)
    for one in content["view"]["labels"]:
        # Measured over 17 bases around the site, boundaries as the basecaller has them: 0.91 and 0.92.
        assert one["level_correlation"]["median"] > 0.85
        assert one["chunks"] == 135
    assert {entry["flow_cell"] for entry in content["chunks"]} == {"PAY39143", "PBA34055"}
    assert page.read_text(encoding="utf-8").count("<svg") == 2 + 6
