"""What is refused before training starts, in words that name the counts and the way out."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leech.config import build
from leech.data.compose import merge
from leech.data.config import MergeConfig
from leech.data.corpus import Corpus
from leech.errors import ConfigError, InputError
from leech.training.checks import examine
from planted import STAMP, planted_chunks, write_chunks, write_planted


def test_a_good_corpus_gives_rows_and_counts_of_either_class(tmp_path: Path) -> None:
    corpus = Corpus.open(write_planted(tmp_path, (50, 100)))
    states = examine(corpus, None)
    assert states.labels == ("uncharged", "charged")
    assert corpus.labels[states.codes[1]] == "charged"
    # Shares 0.6, 0.2, 0.2 of 50 and of 100.
    assert states.num_train == (30, 60)
    assert states.num_validation == (10, 20)
    assert len(states.train) == 90
    assert not set(states.train) & set(states.validation)
    assert (np.diff(states.train) > 0).all()


def test_an_unsplit_corpus_is_refused_with_the_command_that_splits(tmp_path: Path) -> None:
    chunks = planted_chunks(20, label="charged", strength=1, seed=0)
    corpus = Corpus.open(write_chunks(tmp_path / "one", chunks))
    with pytest.raises(InputError, match="not split") as caught:
        examine(corpus, "charged")
    assert "leech data merge" in str(caught.value)


def test_nobody_guesses_which_label_is_positive(tmp_path: Path) -> None:
    corpus = Corpus.open(write_planted(tmp_path, positive_label=None))
    with pytest.raises(ConfigError) as caught:
        examine(corpus, None)
    for word in ("'charged'", "'uncharged'", "--positive-label"):
        assert word in str(caught.value)
    assert examine(corpus, "uncharged").labels == ("charged", "uncharged")


def test_a_positive_label_that_is_not_there_is_refused(tmp_path: Path) -> None:
    corpus = Corpus.open(write_planted(tmp_path, positive_label=None))
    with pytest.raises(ConfigError, match="'chargd' is not in corpus") as caught:
        examine(corpus, "chargd")
    assert "'uncharged'" in str(caught.value)


def test_a_positive_label_that_contradicts_the_corpus_is_refused(tmp_path: Path) -> None:
    corpus = Corpus.open(write_planted(tmp_path))
    with pytest.raises(ConfigError, match="contradicts"):
        examine(corpus, "uncharged")
    assert examine(corpus, "charged").labels == ("uncharged", "charged")


def test_one_class_alone_is_refused(tmp_path: Path) -> None:
    sources = [
        write_chunks(tmp_path / str(seed), planted_chunks(40, label="a", strength=1, seed=seed)) for seed in (0, 1)
    ]
    merge(sources, build(MergeConfig, {"positive_label": "a"}), tmp_path / "merged", force=False, stamp=STAMP)
    with pytest.raises(InputError, match=r"1 labels \(a\)"):
        examine(Corpus.open(tmp_path / "merged"), None)


@pytest.mark.parametrize(
    ("counts", "split", "place"),
    [
        (
            (100, 1),
            (0.6, 0.2, 0.2),
            "1 chunks of 'charged' in its train split|0 chunks of 'charged' in its train split",
        ),
        ((100, 100), (1.0, 0.0, 0.0), "0 chunks of 'uncharged' in its validation split"),
        ((100, 100), (0.0, 0.5, 0.5), "0 chunks of 'uncharged' in its train split"),
        ((100, 4), (0.6, 0.2, 0.2), "1 chunks of 'charged' in its validation split"),
    ],
)
def test_an_empty_class_or_split_is_refused_with_all_counts(
    tmp_path: Path, counts: tuple[int, int], split: tuple[float, float, float], place: str
) -> None:
    corpus = Corpus.open(write_planted(tmp_path, counts, split=split))
    with pytest.raises(InputError, match=place) as caught:
        examine(corpus, None)
    for name in ("train", "validation", "test"):
        assert f"{name}: " in caught.value.message


def test_a_small_class_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    corpus = Corpus.open(write_planted(tmp_path, (100, 20)))
    with caplog.at_level(logging.WARNING, logger="leech"):
        examine(corpus, None)
    assert "Only 12 chunks of 'charged' in the train split" in caplog.text
    assert "Only 4 chunks of 'charged' in the validation split" in caplog.text


@pytest.mark.parametrize(
    ("column", "value"), [("shift", np.nan), ("level_mean", np.inf), ("scale", 0.0), ("median_dwell", np.nan)]
)
def test_values_that_are_not_finite_are_refused_and_their_row_named(tmp_path: Path, column: str, value: float) -> None:
    corpus = Corpus.open(write_planted(tmp_path, (50, 50)))
    part = corpus.parts[1]
    # The writer refuses such values; a damaged file does not ask it.
    path = part.path / f"{column}.npy"
    values = np.load(path)
    local = int(np.flatnonzero(np.isin(np.arange(50) + 50, corpus.rows("train")))[3])
    values[local] = value
    np.save(path, values)
    with pytest.raises(InputError, match=f"column '{column}' of 1 train chunks") as caught:
        examine(Corpus.open(corpus.path), None)
    assert f"the first row is {50 + local}" in caught.value.message


def three_labels(folder: Path, labels: tuple[str, str, str] = ("a", "b", "c")) -> Corpus:
    sources = [
        write_chunks(folder / str(seed), planted_chunks(20, label=label, strength=1, seed=seed))
        for seed, label in enumerate(labels)
    ]
    merge(sources, build(MergeConfig, {}), folder / "merged", force=False, stamp=STAMP)
    return Corpus.open(folder / "merged")


def test_more_than_two_labels_have_no_positive_one(tmp_path: Path) -> None:
    corpus = three_labels(tmp_path)
    with pytest.raises(ConfigError, match=r"3 labels \(a, b, c\), and of more than two none is positive"):
        examine(corpus, "a")
    states = examine(corpus, None)
    assert (states.labels, states.codes, states.positive_label) == (("a", "b", "c"), (0, 1, 2), None)
    # Shares 0.7, 0.15, 0.15 of 20.
    assert (states.num_train, states.num_validation) == ((14, 14, 14), (3, 3, 3))
    # As earlier versions merged three libraries.
    corpus.manifest = replace(corpus.manifest, positive_label="b")
    with pytest.raises(ConfigError, match="names 'b' as positive"):
        examine(corpus, None)


def test_names_of_more_than_two_labels_that_no_table_can_hold_are_refused_before_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match="'n_no_call'"):
        examine(three_labels(tmp_path / "one", ("a", "b", "no_call")), None)
    examine(three_labels(tmp_path / "two", ("a", "b", "Ψ")), None)
    assert "cannot be written into a BAM" in caplog.text
    assert "--format tsv" in caplog.text
