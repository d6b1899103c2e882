"""Real reads turned round in time, as DNA would be measured: the 5' end first."""

from __future__ import annotations

import array

import numpy as np
import pysam
import pytest

from leech.config import build
from leech.console import SilentProgress
from leech.data.config import PrepareConfig, ReadSources
from leech.data.corpus import Corpus
from leech.data.pod5 import Pod5Index, SignalSource, pack_read_id
from leech.data.prepare import prepare
from leech.data.recipe import Recipe
from leech.errors import MismatchError
from leech.provenance import Stamp
from tiny_run import write_pod5

PSI = {"motif": "GTTC", "motif_offset": 2, "motif_occurrence": "last"}
NUM_READS = 40


def turned_moves(tag):
    """Return a move table whose bases come in the opposite order of time and keep their blocks."""
    stride, moves = tag[0], np.asarray(tag[1:])
    ends = np.append(np.flatnonzero(moves)[1:], len(moves))
    turned = np.zeros_like(moves)
    turned[len(moves) - ends] = 1
    return array.array("b", [stride, *turned.tolist()])


@pytest.fixture(scope="module")
def forward(real_data, tmp_path_factory):
    """Return the first reads of the wild type with their raw signal backwards and their tags to match."""
    folder, source = tmp_path_factory.mktemp("forward"), real_data / "ecoli_psi55"
    index = Pod5Index.build([source / "wt" / "reads.pod5"])
    signals = {}
    with pysam.AlignmentFile(str(source / "wt" / "mappings.bam"), "rb", check_sq=False) as bam:
        records = [r for r in bam.fetch(until_eof=True) if not (r.is_unmapped or r.is_secondary or r.is_supplementary)]
        records = records[:NUM_READS]
        ids = [pack_read_id(record.query_name) for record in records]
        decoded = SignalSource(index.files).fetch((0, read_id) for read_id in ids)
        with pysam.AlignmentFile(str(folder / "mappings.bam"), "wb", header=bam.header) as out:
            for record, read_id in zip(records, ids, strict=True):
                assert not record.has_tag("pi")
                raw = decoded[read_id].signal
                # Whole blocks only, so that the bases keep their samples exactly when turned round.
                start, blocks = record.get_tag("ts"), len(record.get_tag("mv")) - 1
                end = start + blocks * record.get_tag("mv")[0]
                record.set_tag("mv", turned_moves(record.get_tag("mv")))
                record.set_tag("ts", len(raw) - end)
                record.set_tag("ns", len(raw) - start)
                signals[record.query_name] = raw[::-1].copy()
                out.write(record)
    files = {"pod5": [write_pod5(folder / "reads.pod5", signals)], "bam": folder / "mappings.bam"}
    return build(ReadSources, {**files, "reference": source / "reference.fa"})


def run(sources, output, **changes):
    recipe, stamp = build(Recipe, {**PSI, **changes}), Stamp.make(["test"], "2026-01-01T00:00:00+00:00")
    config = build(PrepareConfig, {"label": "state"})
    return prepare(sources, recipe, config, output, force=False, progress=SilentProgress(), stamp=stamp)


def test_forward_signal_is_confirmed_and_the_rna_frame_refused(forward, tmp_path):
    result = run(forward, tmp_path / "dna", reverse_signal=False)
    assert result.num_chunks == NUM_READS
    assert result.frame.votes_for > 0.9 * NUM_READS
    assert result.frame.votes_against == 0
    assert result.frame.correlation > 0.7
    with pytest.raises(MismatchError, match="--no-reverse-signal"):
        run(forward, tmp_path / "rna")


def test_forward_signal_gives_the_chunks_of_the_same_reads_backwards(forward, real_data, tmp_path):
    # Steps are looked for later in time than the moves, and time runs the other way here.
    run(forward, tmp_path / "dna", reverse_signal=False, refinement="none")
    folder = real_data / "ecoli_psi55"
    files = {"pod5": [folder / "wt" / "reads.pod5"], "bam": folder / "wt" / "mappings.bam"}
    run(build(ReadSources, {**files, "reference": folder / "reference.fa"}), tmp_path / "rna", refinement="none")
    dna, rna = Corpus.open(tmp_path / "dna"), Corpus.open(tmp_path / "rna")
    place = {name.tobytes(): row for row, name in enumerate(rna.column("read_id"))}
    rows = [place[name.tobytes()] for name in dna.column("read_id")]
    # The last base in time owns up to a stride of left-over samples, which turning round takes away; it is the first of
    # SEQ and far from the site.
    for name in ("signal", "dwell", "level_mean", "sequence", "focus_base_start"):
        assert np.array_equal(dna.column(name), rna.column(name)[rows]), name
