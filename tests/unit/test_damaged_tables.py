"""Tables that were damaged on their way: whoever reads them says so, and nothing is taken for what it is not."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from leech.data.levels import KmerTable
from leech.data.sites import BedSites
from leech.errors import InputError
from leech.evaluation.report.results import read_samples, table_rows
from leech.evaluation.scores import load_scores
from leech.prediction.samples import read_sheet
from leech.prediction.tally import read_reference_groups

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
