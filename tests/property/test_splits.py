"""Merging and splitting, for any corpora."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora import chunks, write
from leech.config import build
from leech.data.compose import assign_splits, merge
from leech.data.config import MergeConfig
from leech.data.corpus import SPLITS, Corpus
from leech.data.recipe import Recipe
from leech.errors import ConfigError, InputError, MismatchError
from leech.provenance import Stamp

STAMP = Stamp.make(["test"], "2026-01-01T00:00:00+00:00")


def merged(corpora, output, **config):
    return merge(corpora, build(MergeConfig, config), output, force=False, stamp=STAMP)


@settings(max_examples=60, deadline=None)
@given(
    parents=st.lists(st.integers(0, 30), min_size=1, max_size=80),
    shares=st.sampled_from([(0.7, 0.15, 0.15), (0.5, 0.5, 0.0), (0.0, 0.0, 1.0), (0.34, 0.33, 0.33)]),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_no_parent_lies_in_two_splits_and_the_order_of_rows_changes_nothing(parents, shares, seed, data):
    numbers = np.array(parents)
    ids = np.zeros((len(numbers), 16), dtype=np.uint8)
    ids[:, 15] = numbers
    labels = numbers % 2
    split = assign_splits(ids, labels, shares, seed)
    for parent in set(parents):
        assert len(set(split[numbers == parent].tolist())) == 1
    order = np.array(data.draw(st.permutations(range(len(parents)))))
    assert np.array_equal(assign_splits(ids[order], labels[order], shares, seed), split[order])
    for label in (0, 1):
        members = {parent: split[numbers == parent][0] for parent in set(parents) if parent % 2 == label}
        for place, share in enumerate(shares):
            assert abs(sum(value == place for value in members.values()) - share * len(members)) <= 1


def test_parents_with_children_of_two_labels_stay_whole():
    ids = np.zeros((40, 16), dtype=np.uint8)
    ids[:, 0] = np.repeat(np.arange(20), 2)
    split = assign_splits(ids, np.tile([0, 1], 20), (0.5, 0.25, 0.25), 1)
    assert (split[::2] == split[1::2]).all()
    assert np.bincount(split).tolist() == [20, 10, 10]


@pytest.fixture
def two(tmp_path):
    return (
        write(tmp_path / "charged", chunks(40, seed=1, label="charged", references=("x", "y"))),
        write(tmp_path / "uncharged", chunks(30, seed=2, label="uncharged", references=("y", "z"))),
    )


def test_a_merged_corpus_reads_like_one_and_copies_nothing(tmp_path, two):
    merged(two, tmp_path / "m", positive_label="charged")
    corpus = Corpus.open(tmp_path / "m")
    assert len(corpus) == 70
    assert corpus.labels == ["uncharged", "charged"]
    assert corpus.manifest.positive_label == "charged"
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == ["manifest.json", "provenance.json", "split.npy"]
    by_id = {}
    for path in two:
        source = Corpus.open(path)
        for row in range(len(source)):
            name = source.categories["reference"][source.column("reference")[row]]
            label = source.labels[source.column("label")[row]]
            by_id[source.column("read_id")[row].tobytes()] = (source.column("signal")[row].tolist(), name, label)
    rows = np.random.default_rng(0).permutation(70)
    got = corpus.gather(rows, ["read_id", "signal", "reference", "label", "split"])
    for index in range(70):
        expected = by_id[got["read_id"][index].tobytes()]
        name = corpus.categories["reference"][got["reference"][index]]
        assert (got["signal"][index].tolist(), name, corpus.labels[got["label"][index]]) == expected
    assert np.array_equal(got["split"], corpus.column("split")[rows])
    assert corpus.gather(rows[:0], ["signal", "label"])["signal"].shape == (0, 10)


def test_splits_are_stratified_and_do_not_depend_on_the_order_of_inputs(tmp_path, two):
    first = merged(two, tmp_path / "m1", positive_label="charged", seed=5)
    second = merged(two[::-1], tmp_path / "m2", positive_label="charged", seed=5)
    assert first.counts == second.counts
    # 40 x 0.7 = 28, 40 x 0.15 = 6; 30 x 0.7 = 21, 25.5 rounds to 26, so 5 and 4.
    assert [first.counts["charged", split] for split in SPLITS] == [28, 6, 6]
    assert [first.counts["uncharged", split] for split in SPLITS] == [21, 5, 4]
    assert (tmp_path / "m1" / "split.npy").read_bytes() == (tmp_path / "m2" / "split.npy").read_bytes()
    assert Corpus.open(tmp_path / "m1").manifest == Corpus.open(tmp_path / "m2").manifest
    other = merged(two, tmp_path / "m3", positive_label="charged", seed=6)
    assert other.counts == first.counts
    assert (tmp_path / "m1" / "split.npy").read_bytes() != (tmp_path / "m3" / "split.npy").read_bytes()


def test_a_merged_corpus_moves_with_its_sources(tmp_path, two):
    merged(two, tmp_path / "m", positive_label="charged")
    new = tmp_path / "elsewhere"
    new.mkdir()
    for name in ("charged", "uncharged", "m"):
        shutil.move(tmp_path / name, new / name)
    assert len(Corpus.open(new / "m").column("signal")) == 70


def test_a_source_that_changed_or_went_away_is_an_error(tmp_path, two):
    merged(two, tmp_path / "m", positive_label="charged")
    shutil.rmtree(two[0])
    with pytest.raises(InputError, match="charged"):
        Corpus.open(tmp_path / "m")
    write(two[0], chunks(40, seed=9, label="charged"))
    with pytest.raises(MismatchError, match="changed since"):
        Corpus.open(tmp_path / "m")


def test_what_cannot_be_merged_is_refused(tmp_path, two):
    with pytest.raises(ConfigError, match="uncharge") as caught:
        merged(two, tmp_path / "m", positive_label="uncharge")
    assert "uncharged" in caught.value.hint
    with pytest.raises(ConfigError, match="sum to"):
        build(MergeConfig, {"split": (0.5, 0.5, 0.5)})
    with pytest.raises(InputError, match="same chunks"):
        merged([two[0], two[0]], tmp_path / "m")
    other = build(Recipe, {"motif": "CCAGGC", "motif_offset": 3, "samples_before": 5, "samples_after": 5})
    write(tmp_path / "other", chunks(5, recipe=other), recipe=other)
    with pytest.raises(MismatchError, match=r"motif_offset \(2 / 3\)|motif_offset \(3 / 2\)"):
        merged([two[0], tmp_path / "other"], tmp_path / "m")
    merged(two, tmp_path / "m")
    with pytest.raises(InputError, match="merged corpus already"):
        merged([tmp_path / "m", two[0]], tmp_path / "mm")
    with pytest.raises(InputError, match="exists already"):
        merged(two, tmp_path / "m")
