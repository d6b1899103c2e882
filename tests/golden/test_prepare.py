"""The whole of ``prepare`` on runs small enough to work out by hand."""

from __future__ import annotations

import uuid

import numpy as np
import pytest

from leech.config import build
from leech.console import SilentProgress
from leech.data.config import PrepareConfig
from leech.data.corpus import Corpus
from leech.data.prepare import prepare
from leech.data.recipe import Recipe
from leech.errors import InputError
from leech.provenance import Stamp
from tiny_run import STAMP_TIME, TinyRecord, ramp, read_id, write_run

REFERENCES = {"tRNA-A": "ACGTACGTAC"}
"""GTAC occurs at 2 and 6; the last one's offset 1 makes reference base 7 the focus."""


def recipe(**changes):
    values = {"motif": "GTAC", "motif_offset": 1, "motif_occurrence": "last", "samples_before": 10, "samples_after": 8}
    values |= {"bases_before": 2, "bases_after": 2, "feature_start": -1, "feature_end": 1}
    # Boundaries as the move table has them, so that they can be worked out by hand.
    return build(Recipe, {"refinement": "none", **values, **changes})


def run(sources, output, recipe, **config):
    stamp = Stamp.make(["test"], STAMP_TIME)
    settings = build(PrepareConfig, {"label": "state", **config})
    return prepare(sources, recipe, settings, output, force=False, progress=SilentProgress(), stamp=stamp)


def chunk(path, row=0):
    corpus = Corpus.open(path)
    return {name: corpus.column(name)[row] for name in corpus.manifest.columns}


def test_a_plain_read_is_cut_where_the_move_table_says(tmp_path):
    # 60 used samples from raw 5: ten bases of six samples. Reversed, base i of SEQ covers [6i, 6i + 6), and reversed
    # sample s is raw sample 5 + 59 - s = 64 - s. The focus, base 7, starts at reversed 42 = raw 22.
    sources = write_run(
        tmp_path / "run",
        [TinyRecord(read_id(1), tags={"ts": 5, "ns": 65})],
        {read_id(1): ramp(80)},
        REFERENCES,
    )
    result = run(sources, tmp_path / "corpus", recipe())
    found = chunk(tmp_path / "corpus")
    # Window: reversed [32, 50) = raw 32 down to 15.
    assert found["signal"].tolist() == list(range(32, 14, -1))
    assert (found["valid_start"], found["valid_end"]) == (0, 18)
    assert found["focus_base_start"] == 10
    assert found["focus_raw_sample"] == 22
    assert found["dwell"].tolist() == [6, 6, 6, 6, 6]
    assert found["median_dwell"] == 6
    # Bases 5..9 of ACGTACGTAC are C G T A C; four bases of context before (1..4) and none behind the end.
    assert found["sequence"].tolist() == [1, 2, 3, 0, 1, 2, 3, 0, 1, 4, 4, 4, 4]
    # Used samples are raw 5..64: median 34.5; deviations 0.5 .. 29.5, each twice, their median 15.
    assert (found["shift"], found["scale"]) == (34.5, pytest.approx(15 * 1.4826))
    # Base 6 covers reversed [36, 42) = raw 28..23: mean 25.5, median 25.5, range 5, population variance 35/12.
    assert found["level_mean"].tolist() == [25.5, 19.5, 13.5]
    assert found["level_median"].tolist() == [25.5, 19.5, 13.5]
    assert found["level_range"].tolist() == [5, 5, 5]
    assert found["level_sd"].tolist() == pytest.approx([np.sqrt(35 / 12)] * 3)
    assert found["read_id"].tobytes() == found["parent_id"].tobytes() == uuid.UUID(read_id(1)).bytes
    assert (found["mapq"], found["junction_indel"], found["label"]) == (60, 0, 0)
    assert result.counts.ladder() == {"seen": 1, "used": 1}


def test_without_reversal_the_first_move_is_the_first_base(tmp_path):
    sources = write_run(
        tmp_path / "run", [TinyRecord(read_id(1), tags={"ts": 5, "ns": 65})], {read_id(1): ramp(80)}, REFERENCES
    )
    run(sources, tmp_path / "corpus", recipe(reverse_signal=False))
    # Base 7 starts at raw 5 + 42 = 47; the window is raw 37..54.
    found = chunk(tmp_path / "corpus")
    assert found["signal"].tolist() == list(range(37, 55))
    assert found["focus_raw_sample"] == 47


@pytest.mark.parametrize(("justify", "first"), [("start", 32), ("center", 29), ("end", 26)])
def test_the_window_is_placed_by_the_chosen_point_of_the_focus_base(tmp_path, justify, first):
    sources = write_run(
        tmp_path / "run", [TinyRecord(read_id(1), tags={"ts": 5, "ns": 65})], {read_id(1): ramp(80)}, REFERENCES
    )
    run(sources, tmp_path / "corpus", recipe(base_justify=justify))
    assert chunk(tmp_path / "corpus")["signal"][0] == first


def test_a_window_that_overhangs_the_used_samples_is_padded_and_says_where(tmp_path):
    # Focus base 7 starts at reversed 42; 30 samples before and after give [12, 72), and the read has 60.
    sources = write_run(
        tmp_path / "run", [TinyRecord(read_id(1), tags={"ts": 5, "ns": 65})], {read_id(1): ramp(80)}, REFERENCES
    )
    run(sources, tmp_path / "corpus", recipe(samples_before=30, samples_after=30))
    found = chunk(tmp_path / "corpus")
    assert (found["valid_start"], found["valid_end"]) == (0, 48)
    assert found["signal"].tolist() == [*range(52, 4, -1), *[0] * 12]


def test_a_focus_in_a_deletion_keeps_its_read_and_shares_the_signal_before_it(tmp_path):
    # 6M2D2M: reference 5 is query 5 (reversed 30..36) and shared by the deleted 6, 7: starts 30, 32, 34; 8 is query 6.
    record = TinyRecord(read_id(1), sequence="ACGTACAC", moves=[1] * 8, cigar="6M2D2M", tags={"ts": 0, "ns": 48})
    sources = write_run(tmp_path / "run", [record], {read_id(1): ramp(48)}, REFERENCES)
    run(sources, tmp_path / "corpus", recipe())
    found = chunk(tmp_path / "corpus")
    # Reversed 34 is raw 47 - 34 = 13; bases 5..9 have 2, 2, 2, 6, 6 samples.
    assert found["focus_raw_sample"] == 13
    assert found["dwell"].tolist() == [2, 2, 2, 6, 6]
    assert found["junction_indel"] == 1


def test_bases_beyond_the_alignment_have_no_dwell_but_their_samples_stay(tmp_path):
    # 8M2S: the alignment ends with the focus base 7; samples of the clipped bases are still signal of the read.
    record = TinyRecord(read_id(1), cigar="8M2S")
    sources = write_run(tmp_path / "run", [record], {read_id(1): ramp(60)}, REFERENCES)
    run(sources, tmp_path / "corpus", recipe())
    found = chunk(tmp_path / "corpus")
    assert found["dwell"].tolist() == [6, 6, 6, 0, 0]
    assert found["signal"].tolist() == list(range(27, 9, -1))
    assert found["junction_indel"] == 2


def test_children_of_a_split_read_take_their_part_of_the_parents_signal(tmp_path):
    # The parent has 140 samples; child 2 begins at sp = 0 (ts 3, ns 63), child 3 at sp = 70 (ts 5, ns 65: raw 75..135).
    children = [
        TinyRecord(read_id(2), tags={"pi": read_id(1), "sp": 0, "ts": 3, "ns": 63}),
        TinyRecord(read_id(3), tags={"pi": read_id(1), "sp": 70, "ts": 5, "ns": 65}),
    ]
    sources = write_run(tmp_path / "run", children, {read_id(1): ramp(140)}, REFERENCES)
    run(sources, tmp_path / "corpus", recipe())
    # Reversed 42 of 60 is raw start + 17: 3 + 17 and 75 + 17.
    assert [chunk(tmp_path / "corpus", row)["focus_raw_sample"] for row in (0, 1)] == [20, 92]
    assert chunk(tmp_path / "corpus", 1)["signal"].tolist() == list(range(102, 84, -1))
    second = chunk(tmp_path / "corpus", 1)
    assert second["read_id"].tobytes() == uuid.UUID(read_id(3)).bytes
    assert second["parent_id"].tobytes() == uuid.UUID(read_id(1)).bytes


def test_every_record_is_counted_once_under_its_reason(tmp_path):
    good = {"ts": 0, "ns": 60}
    signals = {read_id(n): ramp(60) for n in range(1, 40)}
    signals[read_id(30)] = np.full(60, 500)
    records = [
        TinyRecord(read_id(1)),
        TinyRecord(read_id(1)),  # same id again
        TinyRecord(read_id(2), flag=4),
        TinyRecord(read_id(3), flag=256, sequence=None, moves=()),
        TinyRecord(read_id(4), flag=2048),
        TinyRecord(read_id(5), flag=1024),
        TinyRecord(read_id(6), flag=16),
        TinyRecord(read_id(7), mapq=3),
        TinyRecord("not-a-uuid"),
        TinyRecord(read_id(8), moves=()),
        TinyRecord(read_id(9), moves=[1, 2, 1, 1, 1, 1, 1, 1, 1, 1]),
        TinyRecord(read_id(10), tags={**good, "pi": read_id(1)}),
        TinyRecord(read_id(11), reference=1),  # header only, not in the FASTA
        TinyRecord(read_id(12), reference=2),  # without motif
        TinyRecord(read_id(13), cigar="5M5S"),
        TinyRecord(read_id(99)),
        TinyRecord(read_id(14), tags={"ts": 0, "ns": 61}),
        TinyRecord(read_id(15), moves=[1] * 9 + [0]),  # nine moves for ten bases
        TinyRecord(read_id(16), tags={"ts": 0, "ns": 53}),  # blocks reach beyond the used samples
        TinyRecord(read_id(17), tags={"ts": 60, "ns": 60}),
        TinyRecord(read_id(30)),
        TinyRecord(read_id(18), tags={}),  # neither ts nor ns: the whole raw signal
        TinyRecord(read_id(19), mv_type="h"),  # any integer array will do
    ]
    references = {**REFERENCES, "unknown": "A" * 10, "no-site": "A" * 10}
    sources = write_run(tmp_path / "run", records, signals, references, min_mapq=5)
    fasta = sources.reference.read_text().replace(">unknown\nAAAAAAAAAA\n", "")
    sources.reference.write_text(fasta)
    result = run(sources, tmp_path / "corpus", recipe())
    ones = (
        "unmapped",
        "secondary",
        "supplementary",
        "reverse_strand",
        "low_mapq",
        "bad_read_id",
        "no_moves",
        "bad_moves",
    )
    ones += ("split_without_offset", "reference_not_in_fasta", "no_motif", "focus_not_aligned", "not_in_pod5")
    ones += ("ns_beyond_signal", "no_signal", "constant_signal")
    expected = {"seen": len(records), **dict.fromkeys(ones, 1), "duplicate": 2, "mv_mismatch": 2, "used": 3}
    assert result.counts.ladder() == expected
    assert Corpus.open(tmp_path / "corpus").manifest.counts == expected


def test_of_two_tags_named_ts_the_integer_one_counts(tmp_path):
    record = TinyRecord(read_id(1), tags={"ns": 65})
    sources = write_run(tmp_path / "run", [record], {read_id(1): ramp(80)}, REFERENCES)
    # pysam replaces a tag of the same name, so the strand tag is put in by way of SAM text.
    import pysam

    with pysam.AlignmentFile(str(sources.bam), "rb") as file:
        text = str(file.header) + "".join(record.to_string() + "\tts:A:+\tts:i:5\n" for record in file)
    sam = tmp_path / "run" / "two.sam"
    sam.write_text(text)
    run(build(type(sources), {**vars(sources), "bam": sam}), tmp_path / "corpus", recipe())
    assert chunk(tmp_path / "corpus")["focus_raw_sample"] == 22


def test_when_nothing_can_be_used_the_top_reason_and_a_remedy_are_said_and_nothing_is_left(tmp_path):
    records = [TinyRecord(read_id(n), moves=()) for n in range(1, 4)] + [TinyRecord(read_id(9))]
    sources = write_run(tmp_path / "run", records, {read_id(1): ramp(60)}, REFERENCES)
    with pytest.raises(InputError, match=r"None of the 4 records.*no_moves") as caught:
        run(sources, tmp_path / "out" / "corpus", recipe())
    assert "--emit-moves" in caught.value.hint
    assert list((tmp_path / "out").iterdir()) == []


def test_chunks_stay_within_the_promised_size(tmp_path):
    sources = write_run(tmp_path / "run", [TinyRecord(read_id(1))], {read_id(1): ramp(60)}, REFERENCES)
    default = build(Recipe, {"motif": "GTAC", "motif_offset": 1, "motif_occurrence": "last"})
    run(sources, tmp_path / "corpus", default)
    corpus = Corpus.open(tmp_path / "corpus")
    assert sum(corpus.column(name)[0].nbytes for name in corpus.manifest.columns) <= 1400
