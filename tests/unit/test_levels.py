"""K-mer tables."""

from __future__ import annotations

import gzip
import itertools

import numpy as np
import pytest

from leech.data.levels import BASE_EFFECTS, KmerTable, additive_levels, encode_bases
from leech.errors import InputError

TWO_MERS = ["".join(pair) for pair in itertools.product("ACGT", repeat=2)]


def table_text(rows=TWO_MERS, ending="\n", header=""):
    return header + ending.join(f"{kmer}\t{index}.5" for index, kmer in enumerate(rows)) + ending


def test_bases_are_coded_in_either_case_with_u_as_t_and_everything_else_unknown():
    assert encode_bases("ACGTUacgtuN-").tolist() == [0, 1, 2, 3, 3, 0, 1, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("header", ["", "kmer\tlevel_mean\n"])
@pytest.mark.parametrize("compress", [False, True])
def test_a_table_is_read_with_any_line_ending_header_and_compression(tmp_path, ending, header, compress):
    text = table_text(ending=ending, header=header).replace("T", "U").encode()
    path = tmp_path / "table.txt"
    path.write_bytes(gzip.compress(text) if compress else text)
    table = KmerTable.load(path)
    # AC is the k-mer number 0 * 4 + 1 = 1, TT is 3 * 4 + 3 = 15.
    assert (table.size, float(table.levels[1]), float(table.levels[15])) == (2, 1.5, 15.5)


def test_the_order_of_rows_does_not_matter(tmp_path):
    rows = [f"{kmer}\t{index}" for index, kmer in enumerate(TWO_MERS)]
    (tmp_path / "a").write_text("\n".join(rows))
    (tmp_path / "b").write_text("\n".join(reversed(rows)))
    assert (KmerTable.load(tmp_path / "a").levels == KmerTable.load(tmp_path / "b").levels).all()


@pytest.mark.parametrize(
    "text",
    [
        "",
        table_text(TWO_MERS[:-1]),
        table_text([*TWO_MERS[:-1], "AA"]),
        table_text().replace("0.5", "nan", 1),
        table_text().replace("0.5", "high", 1),
        table_text().replace("AC", "AX", 1),
        "AA 1\nACC 2\n",
    ],
)
def test_an_incomplete_or_damaged_table_is_refused_by_name(tmp_path, text):
    path = tmp_path / "broken.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=r"broken\.txt"):
        KmerTable.load(path)


def test_a_row_without_a_level_is_not_counted_as_one(tmp_path):
    path = tmp_path / "levels.tsv"
    path.write_text("A\t1\nC\t2\nG\t3\nT\n")
    with pytest.raises(InputError, match="has 3 rows with a level"):
        KmerTable.load(path)


def test_a_level_beyond_float32_is_refused_without_a_warning(tmp_path):
    path = tmp_path / "levels.tsv"
    # The largest float32 is 3.4e38.
    path.write_text("A\t1\nC\t2\nG\t3\nT\t1e39\n")
    with pytest.raises(InputError, match="not finite"):
        KmerTable.load(path)


def test_expected_levels_belong_to_the_centre_and_are_unknown_where_the_kmer_overhangs(tmp_path):
    (tmp_path / "t").write_text(table_text())
    table = KmerTable.load(tmp_path / "t")
    codes = encode_bases("ACGN")
    # Centre 0: base i carries k-mer (i, i+1): AC = 1, CG = 6, GN unknown, N overhangs.
    assert np.array_equal(table.expected(codes, 0), [1.5, 6.5, np.nan, np.nan], equal_nan=True)
    # Centre 1: base i carries k-mer (i-1, i): A overhangs, AC, CG, GN unknown.
    assert np.array_equal(table.expected(codes, 1), [np.nan, 1.5, 6.5, np.nan], equal_nan=True)


def test_a_saved_table_is_the_same_table(tmp_path):
    (tmp_path / "t").write_text(table_text())
    table = KmerTable.load(tmp_path / "t")
    table.save(tmp_path)
    again = KmerTable.load(tmp_path / KmerTable.FILE_NAME)
    assert again.sha256 == table.sha256
    assert (again.levels == table.levels).all()


def test_additive_levels_sum_the_effects_of_a_base_and_those_that_follow():
    # T A: base 0 = effect of T at offset 0 plus A at offset 1; base 1 = A at offset 0 and nothing beyond the end.
    expected = [BASE_EFFECTS[0, 3] + BASE_EFFECTS[1, 0], BASE_EFFECTS[0, 0]]
    assert additive_levels(encode_bases("TA")).tolist() == pytest.approx(expected)
