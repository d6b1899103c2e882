"""The basecaller model's name, from read groups as basecallers write them."""

from __future__ import annotations

import json

import pysam
import pytest

from leech.cli.main import main
from leech.data.alignments import open_alignments
from leech.data.basecaller import BasecallModels
from tiny_run import TinyRecord, ramp, read_id, write_bam, write_run

REFERENCES = {"tRNA-A": "ACGTACGTAC"}


def models(header, groups=()):
    found = BasecallModels(pysam.AlignmentHeader.from_dict({"HD": {"VN": "1.6"}, **header}))
    records = []
    for group in groups:
        record = pysam.AlignedSegment()
        if group is not None:
            record.set_tag("RG", group)
        records.append(record)
    found.see(records)
    return found.names


def test_a_read_group_of_the_header_describes_its_model():
    header = {"RG": [{"ID": "x", "DS": "basecall_model=rna004_130bps_sup@v5.1.0 runid=77"}, {"ID": "y"}]}
    assert models(header, ["x"]) == {"rna004_130bps_sup@v5.1.0"}


@pytest.mark.parametrize(
    ("group", "names"),
    [
        ("01587b74-2987-41ae-b4bd-ccfc8d829b7c_rna004_130bps_sup@v5.3.0", {"rna004_130bps_sup@v5.3.0"}),
        ("0011_rna004_130bps_sup@v5.3.0_SQK-NBD114-24_barcode01", {"rna004_130bps_sup@v5.3.0"}),
        ("0011_rna004_130bps_hac@v5_m6A", {"rna004_130bps_hac@v5"}),
        ("0011_dna_r10.4.1_e8.2_400bps_sup@v4.3.0", {"dna_r10.4.1_e8.2_400bps_sup@v4.3.0"}),
        ("library 3", set()),
        (None, set()),
    ],
)
def test_a_read_group_without_a_line_in_the_header_tells_by_its_name(group, names):
    assert models({}, [group, group]) == names


def test_prepare_keeps_the_names_in_the_manifest(tmp_path):
    names = [read_id(n) for n in (1, 2)]
    tags = {"ts": 0, "ns": 60, "RG": "0011_rna004_130bps_sup@v5.3.0"}
    sources = write_run(tmp_path, [TinyRecord(n, tags=tags) for n in names], {n: ramp(60) for n in names}, REFERENCES)
    site = ["--motif", "GTAC", "--motif-offset", "1", "--motif-occurrence", "last"]
    files = ["--pod5", str(sources.pod5[0]), "--bam", str(sources.bam), "--reference", str(sources.reference)]
    assert main(["data", "prepare", *files, *site, "--label", "yes", "-o", str(tmp_path / "corpus")]) == 0
    manifest = json.loads((tmp_path / "corpus" / "manifest.json").read_text())
    assert manifest["settings"]["basecall_models"] == ["rna004_130bps_sup@v5.3.0"]


def test_the_share_of_a_bam_that_is_read_grows_to_its_end(tmp_path):
    bam = write_bam(tmp_path / "a.bam", [TinyRecord(read_id(n)) for n in range(1, 20001)], REFERENCES)
    shares = []
    with open_alignments(bam, tmp_path / "none.fa") as alignments:
        for number, _ in enumerate(alignments.records(), start=1):
            if number in (1, 10_000, 20_000):
                shares.append(alignments.share_read)
    assert shares[0] == 0
    assert 0.3 < shares[1] < 0.7
    assert 0.8 < shares[2] <= 1


def test_the_share_of_sam_text_is_not_known(tmp_path):
    sam = tmp_path / "a.sam"
    sam.write_text("@HD\tVN:1.6\n@SQ\tSN:a\tLN:9\n")
    with open_alignments(sam, tmp_path / "none.fa") as alignments:
        assert list(alignments.records()) == []
        assert alignments.share_read is None
