"""Inputs that go wrong for users, each with its right outcome, through the real command line."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import uuid

import numpy as np
import pysam
import pytest

from leech.cli.main import main
from leech.data.corpus import Corpus
from tiny_run import TinyRecord, ramp, read_id, write_bam, write_pod5, write_run

REFERENCES = {"tRNA-A": "ACGTACGTAC"}
RECIPE = ["--motif", "GTAC", "--motif-offset", "1", "--motif-occurrence", "last", "--label", "x"]
RECIPE += ["--bases-before", "2", "--bases-after", "2", "--feature-start", "-1", "--feature-end", "1"]
GOOD = {"ts": 0, "ns": 60}


def arguments(sources, output, *options, pod5=None, bam=None):
    paths = [str(path) for path in (pod5 or sources.pod5)]
    inputs = ["--pod5", *paths, "--bam", str(bam or sources.bam), "--reference", str(sources.reference)]
    return ["data", "prepare", "-o", str(output), *inputs, *RECIPE, *options]


class Outcome:
    def __init__(self, code, out, err, corpus):
        self.code, self.err, self.corpus = code, err, corpus
        self.counts = json.loads(out)["counts"] if out else None


@pytest.fixture
def prepare(capfd, tmp_path):
    def run(sources, *options, **inputs):
        output = tmp_path / "out" / "corpus"
        code = main(arguments(sources, output, "--json", *options, **inputs))
        out, err = capfd.readouterr()
        assert list((tmp_path / "out").iterdir()) == ([output] if output.exists() else [])
        return Outcome(code, out, err, output if output.exists() else None)

    return run


def library(folder, number=4, records=None, **options):
    names = [read_id(n) for n in range(1, number + 1)]
    return write_run(
        folder / "run", records or [TinyRecord(n) for n in names], {n: ramp(60) for n in names}, REFERENCES, **options
    )


BROKEN = {
    "empty": (lambda good: b"", "is empty (0 bytes)"),
    "pointer": (lambda good: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a git-LFS pointer"),
    "half": (lambda good: good[: len(good) // 2], "is truncated"),
    "stub": (lambda good: good[:3000] + b"\0" * (len(good) - 3000), "is truncated"),
    "joined": (lambda good: good + other_file(), "holds several POD5 files"),
    "fast5": (lambda good: b"\x89HDF\r\n\x1a\n" + b"\0" * 100, "is HDF5, probably fast5"),
    "text": (lambda good: b"read_id,channel\n", "does not start with the POD5 signature"),
    "rotten": (lambda good: good[:-400] + b"\xff" * 300 + good[-100:], "is damaged"),
}
# A file ends with the footer's length in eight bytes, the marker in sixteen, and the signature in eight.
BROKEN["footer"] = (lambda good: good[:-32] + b"\xff" * 8 + good[-24:], "is damaged (the length of its footer")
_other = None


def other_file():
    return _other


@pytest.fixture(scope="module", autouse=True)
def _another_pod5(tmp_path_factory):
    global _other
    _other = write_pod5(tmp_path_factory.mktemp("other") / "x.pod5", {read_id(77): ramp(60)}).read_bytes()


@pytest.mark.parametrize("kind", BROKEN)
def test_a_bad_pod5_is_named_the_others_are_used_and_the_exit_code_tells(prepare, tmp_path, kind):
    sources = library(tmp_path)
    make, words = BROKEN[kind]
    bad = tmp_path / "run" / "bad.pod5"
    bad.write_bytes(make(sources.pod5[0].read_bytes()))
    outcome = prepare(sources, pod5=[tmp_path / "run"])
    assert outcome.code == 1
    assert f"'{bad}' {words}" in outcome.err
    assert "error: 1 of 2 POD5 files cannot be read" in outcome.err
    assert outcome.counts == {"seen": 4, "used": 4}
    assert len(Corpus.open(outcome.corpus)) == 4


def test_strict_stops_at_a_bad_pod5_before_the_bam_is_opened(prepare, tmp_path):
    sources = library(tmp_path)
    (tmp_path / "run" / "bad.pod5").touch()
    outcome = prepare(sources, "--strict", pod5=[tmp_path / "run"], bam=tmp_path / "not-there.bam")
    assert (outcome.code, outcome.corpus, outcome.counts) == (1, None, None)
    assert "bad.pod5' is empty" in outcome.err
    assert "not-there" not in outcome.err


def test_when_every_pod5_is_bad_all_are_named_and_nothing_is_made(prepare, tmp_path):
    sources = library(tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.pod5").touch()
    outcome = prepare(sources, pod5=[tmp_path / "a.pod5", tmp_path / "b.pod5"])
    assert (outcome.code, outcome.corpus) == (1, None)
    assert "2 of 2 POD5 files cannot be read" in outcome.err
    assert "a.pod5" in outcome.err
    assert "b.pod5" in outcome.err


def test_one_damaged_read_fails_alone(prepare, tmp_path):
    noise = np.random.default_rng(0)
    names = [read_id(n) for n in range(1, 11)]
    signals = {name: noise.integers(300, 700, 20_000).astype(np.int16) for name in names}
    tags = {"ts": 0, "ns": 20_000}
    records = [TinyRecord(name, stride=2000, tags=tags, mv_type="h") for name in names]
    sources = write_run(tmp_path / "run", records, signals, REFERENCES)
    content = bytearray(sources.pod5[0].read_bytes())
    # Each read is one zstd frame, which begins with these four bytes.
    frames = [place for place in range(len(content)) if content.startswith(b"\x28\xb5\x2f\xfd", place)]
    assert len(frames) == 10
    content[frames[4] : frames[4] + 4] = b"\0\0\0\0"
    sources.pod5[0].write_bytes(content)
    outcome = prepare(sources)
    assert outcome.code == 0
    assert outcome.counts == {"seen": 10, "signal_unreadable": 1, "used": 9}


def test_zero_overlap_names_both_counts_and_an_id_of_each(prepare, tmp_path):
    sources = library(tmp_path)
    other = write_pod5(tmp_path / "other.pod5", {read_id(n): ramp(60) for n in (50, 51, 52)})
    outcome = prepare(sources, pod5=[other])
    assert (outcome.code, outcome.corpus) == (1, None)
    assert "None of the 4 read ids looked for are among the 3 ids in the POD5" in outcome.err
    assert read_id(1) in outcome.err
    assert read_id(50) in outcome.err


def test_a_few_missing_reads_are_counted_and_strict_makes_them_an_error(prepare, tmp_path):
    sources = library(tmp_path, records=[TinyRecord(read_id(n)) for n in (1, 2, 3, 9)])
    outcome = prepare(sources, "--strict")
    assert (outcome.code, outcome.corpus) == (1, None)
    assert f"1 of 4 candidate records have no signal, and --strict was given (for example {read_id(9)})" in outcome.err
    assert prepare(sources).counts == {"seen": 4, "not_in_pod5": 1, "used": 3}


def test_a_thousand_missing_ids_give_one_line(prepare, tmp_path):
    sources = library(tmp_path, records=[TinyRecord(read_id(n)) for n in range(1, 1005)])
    outcome = prepare(sources)
    assert outcome.code == 0
    assert outcome.counts == {"seen": 1004, "not_in_pod5": 1000, "used": 4}
    assert outcome.err.count("not_in_pod5") == 1


def test_a_read_in_two_files_gives_one_chunk_and_a_warning(prepare, tmp_path):
    sources = library(tmp_path)
    write_pod5(tmp_path / "run" / "z.pod5", {read_id(1): ramp(60, start=1000)})
    outcome = prepare(sources, pod5=[tmp_path / "run"])
    assert (outcome.code, outcome.counts) == (0, {"seen": 4, "used": 4})
    assert "1 read ids lie in the POD5 files more than once" in outcome.err
    # The first file by name counts: reads.pod5, whose ramp begins at 0.
    assert Corpus.open(outcome.corpus).column("signal").max() < 100


def test_every_record_twice_gives_one_chunk_per_read(prepare, tmp_path):
    names = [read_id(n) for n in (1, 2, 3)]
    child = {"pi": read_id(4), "sp": 0, **GOOD}
    records = [TinyRecord(name) for name in names] + [TinyRecord(read_id(9), tags=child)]
    outcome = prepare(library(tmp_path, records=[*records, *records]))
    assert (outcome.code, outcome.counts) == (0, {"seen": 8, "duplicate": 4, "used": 4})
    ids = Corpus.open(outcome.corpus).column("read_id")
    assert sorted(str(uuid.UUID(bytes=row.tobytes())) for row in ids) == sorted([*names, read_id(9)])


def test_uneven_batches_long_chunks_and_repeated_runs_read_right(prepare, tmp_path):
    import escapepod

    sources = library(tmp_path)
    run = escapepod.Reader(str(sources.pod5[0])).run_infos[0]
    path = tmp_path / "uneven.pod5"
    with escapepod.Writer(str(path), max_signal_chunk_size=7, signal_batch_size=3, read_batch_size=3) as writer:
        runs = [writer.add_run_info(run) for _ in range(3)]
        template = escapepod.Reader(str(sources.pod5[0])).get_read(read_id(1))
        fields = ("read_number", "start_sample", "channel", "well", "pore_type", "calibration_offset")
        fields += ("calibration_scale", "median_before", "end_reason", "end_reason_forced", "num_minknow_events")
        for n in range(1, 5):
            values = {name: getattr(template, name) for name in fields}
            signal = ramp(60, start=100 * n)
            writer.add_read(read_id=read_id(n), run_info_index=runs[n % 3], signal=signal, **values)
    outcome = prepare(sources, pod5=[path])
    assert (outcome.code, outcome.counts) == (0, {"seen": 4, "used": 4})
    # Window of 450 around base 7, reversed: the whole read is inside, so its first sample in time is its smallest.
    rows = Corpus.open(outcome.corpus).column("signal")
    assert [int(row[row > 0].min()) for row in rows] == [100, 200, 300, 400]


@pytest.mark.parametrize(("number", "signal"), [(0, ramp(0)), (1, np.full(60, 500)), (2, ramp(3))])
def test_reads_without_usable_signal_get_a_reason(prepare, tmp_path, number, signal):
    sources = write_run(
        tmp_path / "run",
        [TinyRecord(read_id(1)), TinyRecord(read_id(2), tags={})],
        {read_id(1): ramp(60), read_id(2): signal},
        REFERENCES,
    )
    reason = ("no_signal", "constant_signal", "mv_mismatch")[number]
    outcome = prepare(sources)
    assert (outcome.code, outcome.counts) == (0, {"seen": 2, reason: 1, "used": 1})


# --- alignments -----------------------------------------------------------------------------------------------------


def rewritten(sources, name, mode, **options):
    path = sources.bam.with_name(name)
    with (
        pysam.AlignmentFile(str(sources.bam), check_sq=False) as file,
        pysam.AlignmentFile(str(path), mode, template=file, **options) as out,
    ):
        for record in file.fetch(until_eof=True):
            out.write(record)
    return path


def test_sam_and_cram_give_the_bytes_of_bam_and_no_index_is_written(prepare, tmp_path):
    sources = library(tmp_path)
    digests = set()
    cram = rewritten(sources, "reads.cram", "wc", reference_filename=str(sources.reference))
    sources.reference.with_name("reference.fa.fai").unlink(missing_ok=True)
    for bam in (sources.bam, rewritten(sources, "reads.sam", "w"), cram):
        outcome = prepare(sources, "--force", bam=bam)
        assert (outcome.code, outcome.counts) == (0, {"seen": 4, "used": 4})
        digests.add(Corpus.open(outcome.corpus).manifest.digest)
    assert len(digests) == 1
    assert not list((tmp_path / "run").glob("*.fai"))


def test_plain_gzip_gives_the_bytes_of_bam_and_a_cut_is_an_error(prepare, tmp_path):
    sources = library(tmp_path)
    digest = Corpus.open(prepare(sources).corpus).manifest.digest
    path = tmp_path / "plain.bam"
    content = gzip.compress(gzip.decompress(sources.bam.read_bytes()))
    path.write_bytes(content)
    outcome = prepare(sources, "--force", bam=path)
    assert (outcome.code, outcome.counts) == (0, {"seen": 4, "used": 4})
    assert Corpus.open(outcome.corpus).manifest.digest == digest


def test_plain_gzip_that_is_cut_off_is_an_error(prepare, tmp_path):
    sources = library(tmp_path, records=[TinyRecord(read_id(n)) for n in range(1, 3000)])
    path = tmp_path / "plain.bam"
    path.write_bytes(gzip.compress(gzip.decompress(sources.bam.read_bytes()))[:-9])
    outcome = prepare(sources, bam=path)
    assert (outcome.code, outcome.corpus) == (1, None)
    assert f"'{path}' cannot be read to its end" in outcome.err


def test_cram_with_another_reference_is_an_error(prepare, tmp_path):
    sources = library(tmp_path)
    cram = rewritten(sources, "reads.cram", "wc", reference_filename=str(sources.reference))
    sources.reference.write_text(">tRNA-A\nACGTACGTAA\n")
    outcome = prepare(sources, bam=cram)
    assert (outcome.code, outcome.corpus) == (1, None)
    assert "--reference is not what it was compressed with" in outcome.err


def piped(sources, output, content):
    program = [sys.executable, "-c", "from leech.cli.main import entry_point; entry_point()"]
    command = [*program, *arguments(sources, output, "--json", bam="-")]
    return subprocess.run(command, input=content, capture_output=True, timeout=120, check=False)


def test_standard_input_is_read_and_a_cut_is_noticed_even_between_two_blocks(tmp_path):
    sources = library(tmp_path)
    content = sources.bam.read_bytes()
    whole = piped(sources, tmp_path / "whole", content)
    assert whole.returncode == 0, whole.stderr
    assert json.loads(whole.stdout)["counts"] == {"seen": 4, "used": 4}
    # Without the closing block of 28 bytes all records are there, and nothing tells that no more were to come.
    cut = piped(sources, tmp_path / "cut", content[:-28])
    assert cut.returncode == 1
    assert b"'standard input' is truncated" in cut.stderr
    assert not (tmp_path / "cut").exists()
    nothing = piped(sources, tmp_path / "nothing", b"")
    assert nothing.returncode == 1
    assert b"gave no data" in nothing.stderr


@pytest.mark.parametrize(
    ("name", "cut"), [("mappings.bam", 28), ("mappings.bam", 200), ("reads.sam", 3), ("reads.cram", 38)]
)
def test_a_cut_off_alignment_file_is_an_error_and_not_a_short_result(prepare, tmp_path, name, cut):
    sources = library(tmp_path)
    rewritten(sources, "reads.sam", "w")
    rewritten(sources, "reads.cram", "wc", reference_filename=str(sources.reference))
    path = tmp_path / "run" / name
    path.write_bytes(path.read_bytes()[:-cut])
    outcome = prepare(sources, bam=path)
    assert (outcome.code, outcome.corpus) == (1, None)
    assert f"'{path}' is truncated" in outcome.err


def test_a_bam_damaged_in_the_middle_is_an_error(prepare, tmp_path):
    sources = library(tmp_path, records=[TinyRecord(read_id(n)) for n in range(1, 3000)])
    content = bytearray(sources.bam.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 50] = b"\x55" * 50
    sources.bam.write_bytes(content)
    outcome = prepare(sources)
    assert (outcome.code, outcome.corpus) == (1, None)
    assert "cannot be read to its end" in outcome.err


@pytest.mark.parametrize("content", [b"", b"hello\n", b"@read\nACGT\n+\nIIII\n", b">read\nACGT\n"])
def test_what_is_no_alignment_file_is_refused(prepare, tmp_path, content):
    sources = library(tmp_path)
    other = tmp_path / "other.bam"
    other.write_bytes(content)
    outcome = prepare(sources, bam=other)
    assert (outcome.code, outcome.corpus) == (1, None)
    assert str(other) in outcome.err
    assert "not BAM, SAM or CRAM" in outcome.err or "Cannot read" in outcome.err


def test_a_bam_without_records_and_one_without_mapped_ones_say_so(prepare, tmp_path):
    sources = library(tmp_path)
    write_bam(sources.bam, [], REFERENCES)
    assert "holds no records" in prepare(sources).err
    write_bam(sources.bam, [TinyRecord(read_id(n), flag=4) for n in (1, 2, 3)], {})
    outcome = prepare(sources)
    assert (outcome.code, outcome.corpus) == (1, None)
    assert "0 of the 3 records" in outcome.err


def test_a_header_of_fifty_thousand_contigs_is_normal(prepare, tmp_path):
    sources = library(tmp_path)
    many = {**REFERENCES, **{f"contig{n}": "A" for n in range(50_000)}}
    write_bam(sources.bam, [TinyRecord(read_id(1))], many)
    outcome = prepare(sources)
    assert (outcome.code, outcome.counts) == (0, {"seen": 1, "used": 1})


def test_no_move_tables_at_all_say_how_to_get_them(prepare, tmp_path):
    sources = library(tmp_path, records=[TinyRecord(read_id(n), moves=()) for n in (1, 2)])
    outcome = prepare(sources)
    assert (outcome.code, outcome.corpus) == (1, None)
    assert "No record of" in outcome.err
    assert "has a move table" in outcome.err
    assert "--emit-moves" in outcome.err


def test_many_failures_are_a_loud_line_or_an_error_by_option(prepare, tmp_path):
    short = [TinyRecord(read_id(n), moves=[1] * 9 + [0]) for n in range(2, 11)]
    sources = library(tmp_path, number=10, records=[TinyRecord(read_id(1)), *short])
    for allowed, code in (("0.8", 1), ("0.9", 0)):
        outcome = prepare(sources, "--max-fail-frac", allowed, "--force")
        assert outcome.code == code
        assert ("90.0% of 10 candidate records failed: mv_mismatch 9" in outcome.err) == (code == 1)
    loud = prepare(sources, "--force")
    assert loud.code == 0
    assert "90.0% of 10 candidate records failed: mv_mismatch 9" in loud.err
    assert "trimmed after basecalling" in loud.err


def test_all_reads_trimmed_after_basecalling_is_an_error_with_the_reason(prepare, tmp_path):
    records = [TinyRecord(read_id(n), sequence="ACGTACGT", cigar="8M") for n in (1, 2, 3)]
    outcome = prepare(library(tmp_path, records=records))
    assert (outcome.code, outcome.corpus) == (1, None)
    assert "mv_mismatch" in outcome.err
    assert "trimmed after basecalling" in outcome.err


def test_low_mapq_reads_are_used_by_default_and_counted_when_filtered(prepare, tmp_path):
    sources = library(tmp_path, records=[TinyRecord(read_id(n), mapq=mapq) for n, mapq in ((1, 0), (2, 10), (3, 16))])
    assert prepare(sources).counts == {"seen": 3, "used": 3}
    assert prepare(sources, "--min-mapq", "15", "--force").counts == {"seen": 3, "low_mapq": 2, "used": 1}


def test_a_hard_clipped_supplementary_record_changes_nothing(prepare, tmp_path):
    clipped = TinyRecord(read_id(1), flag=2048, sequence="ACGTA", cigar="5H5M", moves=[1] * 10)
    outcome = prepare(library(tmp_path, records=[TinyRecord(read_id(1)), clipped]))
    assert (outcome.code, outcome.counts) == (0, {"seen": 2, "supplementary": 1, "used": 1})


def test_reads_elsewhere_than_in_the_fasta_are_counted(prepare, tmp_path):
    sources = library(tmp_path)
    records = [TinyRecord(read_id(1)), TinyRecord(read_id(2), reference=1)]
    write_bam(sources.bam, records, {**REFERENCES, "elsewhere": "A" * 10})
    outcome = prepare(sources)
    assert (outcome.code, outcome.counts) == (0, {"seen": 2, "reference_not_in_fasta": 1, "used": 1})


@pytest.mark.parametrize("size", [1, 7, 64])
def test_no_batch_is_lost_at_any_batch_size(tmp_path, size):
    from leech.config import build
    from leech.console import SilentProgress
    from leech.data.config import PrepareConfig
    from leech.data.prepare import prepare
    from leech.data.recipe import Recipe
    from leech.provenance import Stamp

    sources = library(tmp_path, number=200)
    recipe = build(Recipe, {"motif": "GTAC", "motif_offset": 1, "motif_occurrence": "last"})
    config = build(PrepareConfig, {"label": "x", "batch_reads": size})
    stamp = Stamp.make(["test"], "2026-01-01T00:00:00+00:00")
    result = prepare(sources, recipe, config, tmp_path / "c", force=False, progress=SilentProgress(), stamp=stamp)
    assert result.num_chunks == len(Corpus.open(tmp_path / "c")) == 200


def test_records_lost_on_the_way_fail_the_run(tmp_path, monkeypatch, capfd):
    from leech.data.stream import ReadStream

    whole = ReadStream.batches
    monkeypatch.setattr(ReadStream, "batches", lambda self, size, workers: list(whole(self, 2, workers))[:-1])
    assert main(arguments(library(tmp_path), tmp_path / "corpus")) == 1
    assert "4 records were read and 2 are accounted for" in capfd.readouterr().err
    assert not (tmp_path / "corpus").exists()


def test_a_named_pipe_is_read_like_standard_input(tmp_path):
    import threading

    sources = library(tmp_path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(sources.bam.read_bytes()))
    writer.start()
    assert main(arguments(sources, tmp_path / "corpus", bam=pipe)) == 0
    writer.join(timeout=10)
    assert len(Corpus.open(tmp_path / "corpus")) == 4


@pytest.mark.parametrize(
    ("sequence", "checksum", "message"),
    [
        # A FASTA with one base more in front, say with another adapter: every site lies one base further on.
        ("TACGTACGTAC", None, "'tRNA-A' has 11 bases there and 10 in the header"),
        # md5 of ACGTACGTAC, by md5sum; with U it is another.
        ("ACGTACGTAC", "45aff2fecf7615d56bc0567dffab9fa8", None),
        ("acguacguac", "45aff2fecf7615d56bc0567dffab9fa8", None),
        ("ACGTACGTAG", "45aff2fecf7615d56bc0567dffab9fa8", "'tRNA-A' has another checksum"),
    ],
)
def test_a_fasta_that_the_reads_were_not_aligned_to_is_refused(prepare, tmp_path, sequence, checksum, message):
    sources = library(tmp_path)
    if checksum is not None:
        with pysam.AlignmentFile(str(sources.bam)) as file:
            content = file.header.to_dict()
            records = [record.to_string() for record in file.fetch(until_eof=True)]
        content["SQ"][0]["M5"] = checksum
        header = pysam.AlignmentHeader.from_dict(content)
        with pysam.AlignmentFile(str(sources.bam), "wb", header=header) as file:
            for record in records:
                file.write(pysam.AlignedSegment.fromstring(record, header))
    sources.reference.write_text(f">tRNA-A\n{sequence}\n")
    outcome = prepare(sources)
    assert outcome.code == (0 if message is None else 1), outcome.err
    if message is not None:
        assert "is not the FASTA that" in outcome.err
        assert message in outcome.err
