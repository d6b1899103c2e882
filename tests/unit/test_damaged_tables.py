"""Tables that were damaged on their way: whoever reads them says so, and nothing is taken for what it is not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from leech.data.levels import KmerTable
from leech.data.sites import BedSites
from leech.errors import InputError
from leech.evaluation.report.results import read_samples, read_scores
from leech.evaluation.scores import load_scores
from leech.evaluation.tables import table_rows
from leech.prediction.sheet import read_sheet
from leech.prediction.tally import read_reference_groups
from results_files import put_sample

HEADER = "read_id\tparent_id\treference\tlabel\tpositive_label\tp\tcl\tcall\n"


def put_damaged(path: Path) -> Path:
    """Write a gzip that begins well and whose deflated data then asks for a block type that does not exist."""
    packed = bytearray(gzip.compress(b"sample\tpod5\tbam\n" * 100))
    # Ten bytes of header; the low three bits of the next are the first block's: last one, type 3.
    packed[10] |= 0b111
    path.write_bytes(packed)
    return path


@pytest.mark.parametrize(
    "read",
    [
        read_sheet,
        read_reference_groups,
        load_scores,
        KmerTable.load,
        BedSites.load,
        lambda path: list(table_rows(path, ("sample",))),
        lambda path: read_samples([path.parent]),
    ],
    ids=["sheet", "groups", "scores", "levels", "bed", "table", "folder"],
)
def test_damaged_gzip_is_named_by_every_reader(read, tmp_path):
    path = put_damaged(tmp_path / "a.charging_summary.tsv.gz")
    with pytest.raises(InputError, match=r"a\.charging_summary\.tsv\.gz"):
        read(path)


@pytest.mark.parametrize("row", ["r1\tp1\tref\tcharged\tcharged\t0.9\t230\n", "r1\tp1\tx\tc\tc\t0.9\t230\tc\tmore\n"])
def test_a_row_of_scores_that_was_cut_or_grew_is_no_call(row, tmp_path):
    # Without its last cell the read would count as called negative.
    path = tmp_path / "scores.tsv"
    path.write_text(HEADER + row)
    with pytest.raises(InputError, match="not as wide as the header: line 2"):
        load_scores(path)


def test_a_count_that_only_looks_like_a_number_is_refused(tmp_path):
    # '²' is a digit and no decimal.
    table = tmp_path / "a.charging_summary.tsv.gz"
    columns = "reference\tn_positive\tn_negative\tn_no_call\tenough\n"
    table.write_bytes(gzip.compress(f"{columns}tRNA\t²\t1\t0\t1\n".encode()))
    with pytest.raises(InputError, match="where a number of reads should be"):
        read_samples([tmp_path])


@pytest.mark.parametrize("cells", ["\tcharged\t0.9\t230\tcharged", "uncharged\tcharged\t0.9\t230\t"])
def test_a_read_without_a_label_or_a_call_is_not_counted_as_negative(cells, tmp_path):
    path = tmp_path / "scores.tsv"
    path.write_text(f"{HEADER}r1\tp1\tref\t{cells}\n")
    with pytest.raises(InputError, match="without a label or a call: 'r1'"):
        load_scores(path)
    if cells.startswith("\t"):
        with pytest.raises(InputError, match="without a label"):
            read_scores([path])


@pytest.mark.parametrize("other", ["b\tx\ty\t1", "b\tz\tx\t1"])
def test_scores_of_another_positive_label_or_a_third_state_are_not_counted_with_the_rest(other, tmp_path):
    path = tmp_path / "scores.tsv"
    path.write_text(f"read_id\tlabel\tpositive_label\tcl\na\tx\tx\t9\nc\ty\tx\t9\n{other}\n")
    with pytest.raises(InputError, match="of more than two states"):
        read_scores([path])


def test_a_byte_order_mark_and_carriage_returns_hide_no_column(tmp_path):
    path = tmp_path / "scores.tsv"
    row = "r1\tp1\tref\tcharged\tcharged\t0.9\t230\tcharged\n"
    path.write_bytes(b"\xef\xbb\xbf" + (HEADER + row).replace("\n", "\r\n").encode())
    assert load_scores(path).read_ids == ["r1"]
    assert [row["read_id"] for row in table_rows(path, ("read_id",))] == ["r1"]


@pytest.mark.parametrize("value", [None, "7", -1, 1.5, 10**400, [1]])
@pytest.mark.parametrize("key", ["counts", "cl_histogram"])
def test_a_record_whose_counts_are_none_is_refused(key, value, tmp_path):
    put_sample(tmp_path, "s", [("tRNA-Ala-GGC-1-1", "Ala", 3, 4, 0)])
    path = tmp_path / "s.predict.json"
    record = json.loads(path.read_text())
    record[key] = {"seen": value} if key == "counts" else [value] * 256
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"s\.predict\.json' has .* where a number of reads should be"):
        read_samples([tmp_path])
