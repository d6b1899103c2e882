"""The table of scores: what is written reads back, and what is no such table is refused in words."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from corpora import chunks, write
from leech.data.corpus import ChunkArrays, Corpus
from leech.errors import ConfigError, InputError
from leech.evaluation.scores import COLUMNS, load_scores, read_scores, require_tsv, write_scores
from leech.evaluation.tables import table_rows

LABELS = ("uncharged", "charged")


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus.open(write(tmp_path / "corpus", chunks(12), chunks(8, seed=1, label="uncharged")))


@pytest.mark.parametrize("suffix", [".tsv", ".tsv.gz"])
def test_scores_read_back_as_they_were(corpus: Corpus, tmp_path: Path, suffix: str) -> None:
    rows = np.arange(2, 20)
    p = np.random.default_rng(0).random(18)
    scores = read_scores(corpus, rows, p, LABELS, 128)
    name = tmp_path / f"scores{suffix}"
    write_scores(tmp_path / "partial", name, scores, corpus, rows, 1 - p)
    (tmp_path / "partial").rename(name)
    read = load_scores(name)
    assert (read.p == p).all()
    assert (read.likelihood == np.rint(255 * p)).all()
    assert read.calls == [LABELS[int(value >= 128)] for value in np.rint(255 * p)]
    assert read.labels == ["charged"] * 10 + ["uncharged"] * 8
    assert read.read_ids == scores.read_ids
    assert read.positive_label == "charged"
    opener = gzip.open if suffix.endswith("gz") else open
    with opener(name, "rt") as file:
        table = list(csv.DictReader(file, delimiter="\t"))
    assert tuple(table[0]) == COLUMNS
    assert [float(row["p_uncalibrated"]) for row in table] == (1 - p).tolist()
    assert {row["junction"] for row in table} <= {"exact", "disrupted", "unmapped"}
    assert table[0]["read_id"].replace("-", "") == corpus.column("read_id")[2].tobytes().hex()
    assert [row["flow_cell"] for row in table] == ["F"] * 18


def test_names_with_quotation_marks_read_back_as_they_were_and_separators_become_blanks(tmp_path: Path) -> None:
    part = chunks(3, label='5" cap', references=('"r"',))
    corpus = Corpus.open(
        write(tmp_path / "corpus", ChunkArrays(part.columns, {**part.categories, "sample": ["a\tb\nc"]}))
    )
    rows, name = np.arange(3), tmp_path / "scores.tsv"
    scores = read_scores(corpus, rows, np.array([0.1, 0.5, 1.0]), ("none", '5" cap'), 200)
    write_scores(name, name, scores, corpus, rows, None)
    read = load_scores(name)
    assert (read.labels, read.references, read.positive_label) == (['5" cap'] * 3, ['"r"'] * 3, '5" cap')
    assert [row["sample"] for row in table_rows(name, COLUMNS)] == ["a b c"] * 3


def test_without_a_calibration_the_column_is_empty_and_equal_scores_give_equal_bytes(
    corpus: Corpus, tmp_path: Path
) -> None:
    rows = np.arange(3)
    scores = read_scores(corpus, rows, np.array([0.1, 0.5, 1.0]), LABELS, 200)
    for name in ("a", "b"):
        write_scores(tmp_path / name, tmp_path / "scores.tsv.gz", scores, corpus, rows, None)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    lines = gzip.decompress((tmp_path / "a").read_bytes()).decode().splitlines()
    assert [line.split("\t")[10] for line in lines] == ["p_uncalibrated", "", "", ""]


def test_parquet_is_refused_plainly() -> None:
    with pytest.raises(ConfigError, match="Parquet is not written"):
        require_tsv(Path("scores.parquet"))
    with pytest.raises(ConfigError, match=r"must end in .tsv or .tsv.gz"):
        require_tsv(Path("scores.csv"))
    require_tsv(Path("scores.tsv.gz"))


HEADER = "read_id\tparent_id\treference\tlabel\tpositive_label\tp\tcl\tcall\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("read_id\tp\n", "no column 'parent_id'"),
        (HEADER, "hold no read"),
        (HEADER + "a\ta\tr\tx\tx\thigh\t3\tx\n", "high"),
        (HEADER + "a\ta\tr\tx\tx\t0.5\t300\tx\n", "column 'p' or 'cl'"),
        (HEADER + "a\ta\tr\tx\tx\t1.5\t3\tx\n", "no probability"),
        (HEADER + "a\ta\n", "not as wide as the header: line 2"),
        ("", "no column 'read_id'"),
        (HEADER + "a\ta\tr\tx\tx\t0.5\t3\tx\n" + "b\tb\tr\tx\ty\t0.5\t3\tx\n", "several positive labels: x, y"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_in_words(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "s.tsv").write_text(text)
    with pytest.raises(InputError, match=words) as caught:
        load_scores(tmp_path / "s.tsv")
    assert "s.tsv" in caught.value.message


def test_a_file_that_is_no_gzip_and_one_that_is_missing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "s.tsv.gz").write_text("plain")
    for name in ("s.tsv.gz", "none.tsv"):
        with pytest.raises(InputError, match="Cannot read table of scores"):
            load_scores(tmp_path / name)
