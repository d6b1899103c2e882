"""The order of the records and the number of workers change nothing in a sorted corpus."""

from __future__ import annotations

import random

import numpy as np
import pysam
import pytest

from leech.cli.main import main
from leech.data.corpus import Corpus

REQUIRED = ["--motif", "CCAGGC", "--motif-offset", "2", "--label", "charged", "-q"]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shuffled") / "library"
    assert main(["data", "simulate", "-o", str(folder), "--reads", "700", "--duplicate-fraction", "0.05", "-q"]) == 0
    with pysam.AlignmentFile(str(folder / "mappings.bam"), check_sq=False) as file:
        records = list(file.fetch(until_eof=True))
        header = file.header
    random.Random(5).shuffle(records)
    with pysam.AlignmentFile(str(folder / "shuffled.bam"), "wb", header=header) as file:
        for record in records:
            file.write(record)
    return folder


def prepare(folder, output, bam, *options):
    inputs = ["--pod5", str(folder / "reads.pod5"), "--bam", str(bam), "--reference", str(folder / "reference.fa")]
    assert main(["data", "prepare", "-o", str(output), *inputs, *REQUIRED, *options]) == 0
    # What remains tells of this run alone (command line, first records' votes) and is in no digest.
    return {
        path.name: path.read_bytes() for path in output.iterdir() if path.stem not in ("provenance", "frame", "inputs")
    }


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_sorted_by_read_id_a_shuffled_bam_gives_the_same_bytes_at_any_number_of_workers(library, tmp_path, workers):
    first = prepare(library, tmp_path / "a", library / "mappings.bam", "--sort", "read_id")
    options = ["--sort", "read_id", "--workers", str(workers)]
    assert prepare(library, tmp_path / "b", library / "shuffled.bam", *options) == first
    assert Corpus.open(tmp_path / "a").manifest.digest == Corpus.open(tmp_path / "b").manifest.digest
    ids = [row.tobytes() for row in Corpus.open(tmp_path / "b").column("read_id")]
    assert ids == sorted(ids)
    assert len(ids) == len(set(ids)) > 600


def test_sorting_moves_rows_and_changes_none(library, tmp_path):
    prepare(library, tmp_path / "plain", library / "mappings.bam")
    prepare(library, tmp_path / "sorted", library / "mappings.bam", "--sort", "read_id")
    plain, ordered = Corpus.open(tmp_path / "plain"), Corpus.open(tmp_path / "sorted")
    place = {row.tobytes(): number for number, row in enumerate(plain.column("read_id"))}
    rows = np.array([place[row.tobytes()] for row in ordered.column("read_id")])
    assert (rows[1:] < rows[:-1]).any()
    for name in plain.manifest.columns:
        if name in ("reference", "flow_cell", "run", "sample", "label"):
            names = [[corpus.categories[name][code] for code in corpus.column(name)] for corpus in (plain, ordered)]
            assert [names[0][row] for row in rows] == names[1]
        else:
            assert np.array_equal(plain.column(name)[rows], ordered.column(name)), name
