"""Merging and splitting, for any corpora."""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from corpora import chunks, write
from leech.config import build
from leech.data.assign import Rows, assign, check_choices
from leech.data.compose import merge
from leech.data.config import MergeConfig
from leech.data.corpus import SPLITS, UNUSED_CODE, Corpus
from leech.data.grouping import amino_acid
from leech.data.recipe import Recipe
from leech.data.splits import identify_parents
from leech.errors import ConfigError, InputError, MismatchError
from leech.provenance import Stamp

STAMP = Stamp.make(["test"], "2026-01-01T00:00:00+00:00")


def merged(corpora, output, **config):
    return merge(corpora, build(MergeConfig, config), output, force=False, stamp=STAMP)


REFERENCES = ("tRNA-Ala-GGC-1-1", "tRNA-Ala-TGC-1-1", "tRNA-Ile2-CAT-1-1", "tRNA-fMet-CAT-1-1", "tRNA-Met-CAT-1-1")


class Columns:
    """What a deal looks at of a corpus, in memory; categories are counted in order of first appearance."""

    def __init__(self, **values):
        self.categories = {"label": [], "reference": [], "flow_cell": [], "sample": [], "run": []}
        self.path = Path("corpus")
        self._columns = {name: ids(values.pop(name)) for name in ("parent_id", "read_id")}
        self._columns["focus_raw_sample"] = np.zeros(len(values["label"]), dtype=np.int32)
        for name, column in {**dict.fromkeys(("sample", "run"), ["S"] * len(values["label"])), **values}.items():
            self.categories[name] = list(dict.fromkeys(column))
            self._columns[name] = np.array([self.categories[name].index(value) for value in column])

    def column(self, name):
        return self._columns[name]

    def __len__(self):
        return len(self._columns["read_id"])


def ids(numbers):
    """Return the numbers as 16 bytes each."""
    return np.array([list(int(number).to_bytes(16, "big")) for number in numbers], dtype=np.uint8).reshape(-1, 16)


def assigned(table, config, cuts=(), reads=None):
    """Assign rows given as tuples (parent, label, reference, flow cell), cut into several corpora at the given places.

    :param reads: number of each row's read; by default all differ.
    """
    table = [(read, *row) for read, row in zip(range(len(table)) if reads is None else reads, table, strict=True)]
    names = ("read_id", "parent_id", "label", "reference", "flow_cell")
    pieces = [table[start:end] for start, end in zip([0, *cuts], [*cuts, len(table)], strict=True)]
    corpora = [
        Columns(**dict(zip(names, map(list, zip(*piece, strict=True)), strict=True))) for piece in pieces if piece
    ]
    labels = sorted({row[2] for row in table})
    parents = identify_parents(np.concatenate([corpus.column("parent_id") for corpus in corpora]), config.seed)
    return assign(Rows(corpora, parents, np.array([labels.index(row[2]) for row in table]), labels), config)


rows_of_any_kind = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from("ab"), st.sampled_from(REFERENCES), st.sampled_from("FGHI")),
    min_size=20,
    max_size=120,
)

options_of_any_kind = st.fixed_dictionaries(
    {
        "split": st.sampled_from([(0.7, 0.15, 0.15), (0.5, 0.2, 0.2, 0.1), (0.5, 0.5, 0.0), (1.0, 0.0, 0.0)]),
        "split_by": st.sampled_from(["read", "reference", "isotype", "flow_cell"]),
        "hold_out": st.sampled_from([(), ("flow_cell=F",), ("reference=tRNA-Ala-GGC-1-1", "isotype=Met")]),
        "folds": st.sampled_from([None, 2, 3]),
        "seed": st.sampled_from([0, 1, 2**63 - 1]),
        "subsample": st.sampled_from([None, 15]),
        "balance": st.booleans(),
    }
)

counted_by = st.sampled_from([None, "reference", "flow_cell", "isotype"])


def configuration(options, **changes):
    return build(MergeConfig, {**options, **changes})


@settings(max_examples=200, deadline=None)
@given(table=rows_of_any_kind, options=options_of_any_kind, data=st.data())
def test_whatever_the_options_nothing_that_must_stay_apart_is_shared(table, options, data):
    folds = options["folds"]
    fold = None if folds is None else data.draw(st.integers(1, folds))
    config = configuration(options, fold=fold, balance_by=data.draw(counted_by))
    try:
        result = assigned(table, config)
    except (InputError, ConfigError):
        # Too few groups, all rows held out or a value that no row has: not what this test is about.
        assume(False)
    split = result.split
    used = split != UNUSED_CODE
    assert set(split[used].tolist()) <= {place for place in range(len(SPLITS)) if place != 3 or len(config.split) == 4}
    assert sum(result.left_out.values()) == (~used).sum()

    parents = np.array([row[0] for row in table])
    for parent in set(parents):
        assert len(set(split[used & (parents == parent)].tolist())) <= 1

    held = np.zeros(len(table), dtype=bool)
    for wanted in config.hold_out:
        column, value = wanted.split("=")
        held |= np.array([group(row, column) == value for row in table])
    if config.hold_out and folds is None:
        assert held[split == SPLITS.index("test")].all()
        assert not held[used & (split != SPLITS.index("test"))].any()
        if config.subsample is None and not config.balance:
            assert (split[held] == SPLITS.index("test")).all()
    if config.hold_out and folds is not None:
        assert not used[held].any()

    dealt = used & ~held
    groups = np.array([str(group(row, config.split_by)) for row in table])
    for name in set(groups) if config.split_by != "read" else ():
        assert len(set(split[dealt & (groups == name)].tolist())) <= 1

    labels = {row[1] for row in table}
    cells = [(group(row, config.balance_by), row[1]) for row in table]
    for cell in set(cells) if config.subsample is not None else ():
        assert sum(used[row] for row in range(len(table)) if cells[row] == cell) <= config.subsample
    for place in set(split[used].tolist()) if config.balance else ():
        numbers = Counter(cells[row] for row in range(len(table)) if split[row] == place)
        assert all(len({numbers[name, label] for label in labels}) == 1 for name, _ in cells)

    order = data.draw(st.permutations(range(len(table))))
    cut = data.draw(st.integers(0, len(table)))
    again = assigned([table[row] for row in order], config, cuts=[cut], reads=order)
    assert np.array_equal(again.split, split[np.array(order)])
    assert again.left_out == result.left_out


def group(row, column):
    if column == "isotype":
        return {"Ile2": "Ile", "fMet": "Met"}.get(row[2].split("-")[1], row[2].split("-")[1])
    return None if column is None else row[{"read": 0, "reference": 2, "flow_cell": 3}[column]]


@settings(max_examples=60, deadline=None)
@given(table=rows_of_any_kind, options=options_of_any_kind, num_folds=st.integers(2, 4))
def test_the_test_splits_of_all_folds_are_a_partition(table, options, num_folds):
    try:
        splits = np.array(
            [
                assigned(table, configuration(options, folds=num_folds, fold=fold)).split
                for fold in range(1, num_folds + 1)
            ]
        )
    except (InputError, ConfigError):
        assume(False)
    times = (splits == SPLITS.index("test")).sum(axis=0)
    assert times.max() <= 1
    if options["balance"]:
        # What is left out for balance differs from fold to fold.
        return
    # What is tested in no fold is used in none.
    assert (splits[:, times == 0] == UNUSED_CODE).all()


@settings(max_examples=60, deadline=None)
@given(
    parents=st.lists(st.integers(0, 30), min_size=1, max_size=80),
    shares=st.sampled_from([(0.7, 0.15, 0.15), (0.5, 0.5, 0.0), (0.0, 0.0, 1.0), (0.4, 0.2, 0.2, 0.2)]),
    seed=st.integers(0, 2**32),
)
def test_each_label_meets_each_share_to_within_one_read(parents, shares, seed):
    split = assigned(
        [(parent, "ab"[parent % 2], "r", "F") for parent in parents],
        build(MergeConfig, {"split": shares, "seed": seed}),
    ).split
    numbers = np.array(parents)
    for label in (0, 1):
        members = {parent: split[numbers == parent][0] for parent in set(parents) if parent % 2 == label}
        for place, share in enumerate(shares):
            assert abs(sum(value == place for value in members.values()) - share * len(members)) <= 1


def test_parents_with_children_of_two_labels_stay_whole():
    table = [(parent, label, "r", "F") for parent in range(20) for label in "ab"]
    split = assigned(table, build(MergeConfig, {"split": (0.5, 0.25, 0.25), "seed": 1})).split
    assert (split[::2] == split[1::2]).all()
    assert np.bincount(split).tolist() == [20, 10, 10]


def test_the_split_of_a_read_is_what_it_has_always_been():
    # The hash of id and seed is part of the format: the same corpus and seed must give the same split in every version.
    # A read's rank is the 64-bit BLAKE2b of its id, keyed with the seed in eight bytes.
    table = [(number, "a", "r", "F") for number in range(8)]
    ranks = [hashlib.blake2b(bytes(name), digest_size=8, key=bytes(8)).digest() for name in ids(range(8))]
    order = np.argsort(np.argsort([int.from_bytes(rank, "big") for rank in ranks]))
    # 8 x 0.5 = 4 to train, 2 to validation, 2 to test, in the order of ranks.
    expected = np.array([0, 0, 0, 0, 1, 1, 2, 2])[order]
    assert assigned(table, build(MergeConfig, {"split": (0.5, 0.25, 0.25)})).split.tolist() == expected.tolist()


def test_whole_groups_meet_the_shares_as_well_as_they_can():
    # Ten references of ten reads of either label: 7, 1.5 and 1.5 groups would be right, so 7 or 8, 1 or 2, 1 or 2.
    references = [f"r{number}" for number in range(10)]
    table = [
        (100 * number + 10 * code + read, label, reference, "F")
        for number, reference in enumerate(references)
        for code, label in enumerate("ab")
        for read in range(10)
    ]
    for seed in range(5):
        split = assigned(table, build(MergeConfig, {"split_by": "reference", "seed": seed})).split
        numbers = np.bincount(split, minlength=3) // 20
        assert numbers[0] in (6, 7, 8)
        assert min(numbers[1:]) >= 1
    # Three groups for three splits: one each, whatever the shares.
    split = assigned(
        [row for row in table if row[2] in references[:3]], build(MergeConfig, {"split_by": "reference"})
    ).split
    assert np.bincount(split).tolist() == [20, 20, 20]


def test_another_seed_deals_other_groups():
    table = [(10 * number + read, "a", f"r{number}", "F") for number in range(12) for read in range(10)]
    splits = {
        tuple(assigned(table, build(MergeConfig, {"split_by": "reference", "seed": seed})).split) for seed in range(4)
    }
    assert len(splits) > 1


def test_too_few_groups_are_refused_with_their_numbers():
    table = [(read, "ab"[read % 2], "r", "FG"[read % 2]) for read in range(40)]
    with pytest.raises(InputError, match=r"2 groups cannot be dealt whole to 3 parts.*1 hold 'a', 1 hold 'b'"):
        assigned(table, build(MergeConfig, {"split_by": "flow_cell"}))
    with pytest.raises(InputError, match="--split-by reference: 1 groups cannot be dealt whole to 5 parts"):
        assigned(table, build(MergeConfig, {"split_by": "reference", "folds": 5, "fold": 1}))


def test_a_parent_in_two_groups_is_left_out_and_counted_where_they_are_parted():
    # Parent 0 has a child in each of three references, which lie in three splits.
    table = [(0, "a", f"r{number}", "F") for number in range(3)]
    table += [(1 + 10 * number + read, "a", f"r{number}", "F") for number in range(3) for read in range(10)]
    result = assigned(table, build(MergeConfig, {"split_by": "reference"}))
    assert result.split[:3].tolist() == [UNUSED_CODE] * 3
    assert result.left_out == {"several_groups": 3}


def test_a_sibling_of_a_held_out_read_is_in_no_split():
    table = [(0, "a", "r0", "F"), (0, "a", "r1", "F"), *((number, "a", "r1", "F") for number in range(1, 20))]
    result = assigned(table, build(MergeConfig, {"hold_out": ["reference=r0"], "split": (0.8, 0.2, 0.0)}))
    assert result.split[:2].tolist() == [SPLITS.index("test"), UNUSED_CODE]
    assert result.left_out == {"held_out_parent": 1}
    # 19 reads are left: 15.2 to train, 3.8 to validation.
    assert np.bincount(result.split[2:]).tolist() == [15, 4]


def test_at_most_so_many_of_a_label_and_group_are_kept_and_the_same_ones_each_time():
    # 30 reads of 'a' on F, 10 of 'b' on F, 4 of 'a' on G.
    table = [(number, "ab"[number >= 34], "r", "FG"[30 <= number < 34]) for number in range(44)]
    config = build(MergeConfig, {"subsample": 6, "balance_by": "flow_cell", "split": (0.5, 0.5, 0.0)})
    first, second = assigned(table, config), assigned(table, config)
    kept = [table[row][1:] for row in np.flatnonzero(first.split != UNUSED_CODE)]
    assert Counter(kept) == {("a", "r", "F"): 6, ("b", "r", "F"): 6, ("a", "r", "G"): 4}
    assert first.left_out == {"subsampled": 28}
    assert np.array_equal(first.split, second.split)
    other = assigned(table, build(MergeConfig, {"subsample": 6, "seed": 1}))
    assert not np.array_equal(first.split != UNUSED_CODE, other.split != UNUSED_CODE)


def test_balance_by_reference_leaves_nothing_that_the_reference_alone_tells():
    # x: 20 a, 10 b; y: 8 a, 16 b; z: 10 a, no b.
    kinds = [("a", "x")] * 20 + [("b", "x")] * 10 + [("a", "y")] * 8 + [("b", "y")] * 16 + [("a", "z")] * 10
    table = [(number, label, reference, "F") for number, (label, reference) in enumerate(kinds)]
    result = assigned(table, build(MergeConfig, {"balance": True, "balance_by": "reference", "split": (0.5, 0.5, 0.0)}))
    for place in (0, 1):
        kept = Counter(table[row][1:3] for row in np.flatnonzero(result.split == place))
        assert kept["a", "x"] == kept["b", "x"] > 0
        assert kept["a", "y"] == kept["b", "y"] > 0
        assert ("a", "z") not in kept
    assert result.left_out["unbalanced"] == (result.split == UNUSED_CODE).sum()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"balance_by": "reference"}, "nothing is to be counted"),
        ({"folds": 5}, "--folds and --fold belong together"),
        ({"fold": 5}, "--folds and --fold belong together"),
        ({"folds": 5, "fold": 6}, "--fold 6 is not among the folds 1 to 5"),
        ({"split": (0, 0, 1), "hold_out": ["sample=S"]}, "no share for what is left"),
        ({"split": (0, 0, 1), "folds": 2, "fold": 1}, "no share for what is left"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        check_choices(build(MergeConfig, options))


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("flow_cell", "is not COLUMN=VALUE", "For example"),
        ("flowcell=F", "is not COLUMN=VALUE", "'flow_cell'"),
        ("label=a", "is not COLUMN=VALUE", ""),
        ("reference=tRNA-Ala-GGC-1-2", "no chunk has reference 'tRNA-Ala-GGC-1-2'", "'tRNA-Ala-GGC-1-1'"),
        ("isotype=Xxx", "there are: Ala, Ile", ""),
    ],
)
def test_what_cannot_be_held_out_is_refused_with_what_can(text, words, hint):
    table = [(0, "a", "tRNA-Ala-GGC-1-1", "F"), (1, "a", "tRNA-Ile2-CAT-1-1", "G")]
    with pytest.raises(ConfigError, match=words) as caught:
        assigned(table, build(MergeConfig, {"hold_out": [text]}))
    assert hint in caught.value.hint
    with pytest.raises(InputError, match="takes all 2 chunks"):
        assigned(table, build(MergeConfig, {"hold_out": ["flow_cell=F,G"]}))


def test_a_name_with_a_comma_can_be_held_out():
    table = [(0, "a", "x,y", "F"), (1, "a", "x", "F"), (2, "a", "y", "F"), (3, "a", "z", "F")]
    split = assigned(table, build(MergeConfig, {"hold_out": ["reference=x,y"]})).split
    assert (split == SPLITS.index("test")).tolist() == [True, False, False, False]
    split = assigned(table[1:], build(MergeConfig, {"hold_out": ["reference=x,y"]})).split
    assert (split == SPLITS.index("test")).tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tRNA-Ala-GGC-1-1", "Ala"),
        ("host-tRNA-Gly-GCC-1-1", "Gly"),
        ("tRNA-Ile2-CAT-1-1", "Ile"),
        ("tRNA-fMet-CAT-1-1", "Met"),
        ("nuc_tRNA-iMet-CAT", "Met"),
        ("mito_tRNA-Leu1-TAA", "Leu"),
        ("tRNA-SeC-TCA-1-1", "SeC"),
        ("trna_VAL_aac", "Val"),
    ],
)
def test_the_amino_acid_is_read_from_a_name(name, expected):
    assert amino_acid(name) == expected


@pytest.mark.parametrize("name", ["tRNA-Und-NNN-1-1", "chr1", "Alanine", "tRNA-Ala-or-Gly", ""])
def test_a_name_that_tells_no_amino_acid_is_refused_and_named(name):
    with pytest.raises(InputError, match=f"reference '{name}'"):
        amino_acid(name)


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
    assert [first.counts["charged", split] for split in SPLITS[:3]] == [28, 6, 6]
    assert [first.counts["uncharged", split] for split in SPLITS[:3]] == [21, 5, 4]
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
    third = write(tmp_path / "third", chunks(40, seed=8, label="third"))
    with pytest.raises(ConfigError, match="of more than two none is positive"):
        merged([*two, third], tmp_path / "m", positive_label="charged")
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


def test_four_shares_make_a_calibration_split(tmp_path, two):
    result = merged(two, tmp_path / "m", split=[0.5, 0.2, 0.2, 0.1])
    # 40 reads: 20, 8, 8, 4; 30 reads: 15, 6, 6, 3.
    assert [result.counts["charged", split] for split in SPLITS] == [20, 8, 8, 4]
    assert [result.counts["uncharged", split] for split in SPLITS] == [15, 6, 6, 3]
    corpus = Corpus.open(tmp_path / "m")
    assert len(corpus.rows("calibration")) == 7
    assert "calibration" in result.tables()[0].columns
    for shares in ([0.5, 0.5], [0.2] * 5):
        with pytest.raises(ConfigError, match=r"three shares .* or four"):
            build(MergeConfig, {"split": shares})


def test_a_held_out_flow_cell_is_the_test_split_and_what_is_left_out_is_counted(tmp_path):
    first = chunks(40, seed=1, label="charged", flow_cells=("F", "G"))
    second = chunks(40, seed=2, label="uncharged", flow_cells=("F", "H"))
    # One read of F has a sibling on G.
    first.columns["parent_id"][0] = first.columns["parent_id"][1]
    two = [write(tmp_path / "charged", first), write(tmp_path / "uncharged", second)]
    result = merged(two, tmp_path / "m", hold_out=["flow_cell=F"], split=[0.8, 0.2, 0])
    corpus = Corpus.open(tmp_path / "m")
    names = np.array(corpus.categories["flow_cell"])[corpus.column("flow_cell")]
    assert set(names[corpus.rows("test")]) == {"F"}
    assert (names == "F").sum() == len(corpus.rows("test")) == 40
    assert result.left_out == {"held_out_parent": 1}
    assert result.counts["charged", "unused"] == 1
    # Left over: 19 charged (15 and 4) and 20 uncharged (16 and 4).
    assert [result.counts["charged", split] for split in SPLITS[:3]] == [15, 4, 20]
    assert [result.counts["uncharged", split] for split in SPLITS[:3]] == [16, 4, 20]
    assert corpus.manifest.counts == {"seen": 80, "held_out_parent": 1, "used": 79}
    assert result.to_mapping()["left_out"] == {"held_out_parent": 1}
    assert [table.title for table in result.tables()] == ["Chunks by label and split", "Chunks left out"]


def test_a_split_that_gets_nothing_is_refused_with_all_counts(tmp_path):
    five = [write(tmp_path / "a", chunks(3, seed=1, label="a")), write(tmp_path / "b", chunks(2, seed=2, label="b"))]
    # 3 reads: edges at 2.1, 2.55 and 3, so 2, 1 and 0; 2 reads: edges at 1.4, 1.7 and 2, so 1, 1 and 0.
    words = r"test split\. Chunks by split and label: train: 2 a, 1 b; validation: 1 a, 1 b; test: 0 a, 0 b"
    with pytest.raises(InputError, match=words):
        merged(five, tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_a_split_without_one_of_the_labels_is_warned_of_and_so_is_a_single_label(tmp_path, caplog):
    uneven = [write(tmp_path / "a", chunks(40, seed=1, label="a")), write(tmp_path / "b", chunks(1, seed=2, label="b"))]
    with caplog.at_level(logging.WARNING, logger="leech"):
        merged(uneven, tmp_path / "m")
        merged(uneven[:1], tmp_path / "one")
    assert "The test split has no chunks of 'b'" in caplog.text
    assert "train: 28 a, 1 b" in caplog.text
    assert "All chunks have the label 'a'" in caplog.text


def test_a_read_that_two_corpora_hold_is_used_once_and_counted(tmp_path, two, caplog):
    source = Corpus.open(two[0])
    rows = np.arange(5)
    again = chunks(30, seed=5, label="charged", references=("x",))
    for name in ("read_id", "parent_id", "focus_raw_sample"):
        again.columns[name][:5] = source.column(name)[rows]
    with caplog.at_level(logging.WARNING, logger="leech"):
        result = merged([*two, write(tmp_path / "more", again)], tmp_path / "m")
    assert result.left_out == {"repeated": 5}
    assert "5 chunks are of reads that another corpus holds too" in caplog.text
    corpus = Corpus.open(tmp_path / "m")
    used = np.concatenate([corpus.rows(split) for split in SPLITS])
    assert len(np.unique(corpus.column("read_id")[used], axis=0)) == len(used) == 95
    assert corpus.manifest.counts == {"seen": 100, "repeated": 5, "used": 95}


def test_a_read_with_two_labels_is_refused_and_named(tmp_path, two):
    source = Corpus.open(two[0])
    again = chunks(30, seed=5, label="uncharged")
    for name in ("read_id", "parent_id", "focus_raw_sample"):
        again.columns[name][:3] = source.column(name)[:3]
    with pytest.raises(InputError, match=r"3 reads have two labels: read .* is '.*charged' in '.*' and") as caught:
        merged([two[0], write(tmp_path / "more", again)], tmp_path / "m")
    assert str(tmp_path / "more") in caught.value.message
    assert str(two[0]) in caught.value.message


def test_a_parent_read_with_children_of_two_labels_is_told_of_and_stays_whole(tmp_path, two, caplog):
    source = Corpus.open(two[0])
    again = chunks(30, seed=5, label="uncharged")
    again.columns["parent_id"][:3] = source.column("parent_id")[:3]
    with caplog.at_level(logging.WARNING, logger="leech"):
        merged([two[0], write(tmp_path / "more", again)], tmp_path / "m")
    assert "3 parent reads have chunks of different labels" in caplog.text
    corpus = Corpus.open(tmp_path / "m")
    splits = {}
    for parent, split in zip(corpus.column("parent_id"), corpus.column("split"), strict=True):
        splits.setdefault(parent.tobytes(), set()).add(int(split))
    assert len(splits) == 67
    assert all(len(places) == 1 for places in splits.values())


def test_weights_stand_beside_their_sources_and_are_part_of_the_digest(tmp_path, two, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain = merged(two, tmp_path / "plain")
    merged(two, tmp_path / "m", weight=["charged=2.5"])
    corpus = Corpus.open(tmp_path / "m")
    labels = np.array(corpus.labels)[corpus.column("label")]
    assert corpus.weights(np.arange(70)).tolist() == [2.5 if label == "charged" else 1.0 for label in labels]
    assert corpus.weights(np.array([], dtype=np.int64)).tolist() == []
    assert Corpus.open(two[0]).weights(np.arange(3)).tolist() == [1, 1, 1]
    assert corpus.manifest.digest != Corpus.open(plain.path).manifest.digest
    assert "weight" not in corpus.manifest.settings


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("charged", "is not CORPUS=WEIGHT", "For example"),
        ("charged=0", "with a weight above 0", "Leave a corpus out"),
        ("charged=inf", "with a weight above 0", ""),
        ("charged=much", "is not CORPUS=WEIGHT", ""),
        ("{0}x=2", "not merged here", "charged'?"),
    ],
)
def test_a_weight_that_means_nothing_is_refused(tmp_path, two, text, words, hint):
    text = text.format(two[0])
    with pytest.raises(ConfigError, match=words) as caught:
        merged(two, tmp_path / "m", weight=[text])
    assert hint in caught.value.hint


def test_two_weights_of_one_corpus_are_refused(tmp_path, two, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="for the same corpus"):
        merged(two, tmp_path / "m", weight=["charged=2", "./charged=3"])
    assert not (tmp_path / "m").exists()
