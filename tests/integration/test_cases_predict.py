"""Predicting from inputs that go wrong: the same stream as prepare, and outputs that must not lie either."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pysam
import pytest

from leech.cli.main import main
from leech.config import build
from leech.data.recipe import Recipe
from leech.models.bundle import ModelBundle, save_bundle
from leech.models.spec import build_network, load_architecture
from tiny_run import TinyRecord, ramp, read_id, write_pod5, write_run


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    spec = load_architecture("tcn")
    recipe = build(Recipe, {"motif": "GTAC", "motif_offset": 1, "motif_occurrence": "last"})
    bundle = ModelBundle(spec=spec, recipe=recipe, labels=("no", "yes"), training={}, stamp={})
    folder = tmp_path_factory.mktemp("predict") / "model"
    folder.mkdir()
    save_bundle(bundle, build_network(spec, recipe), folder)
    return folder


def library(folder, number=6, last=None):
    names = [read_id(n) for n in range(1, number + 1)]
    records = [TinyRecord(name) for name in names] + [TinyRecord(names[0])]
    return write_run(folder / "run", records, {n: ramp(60) for n in names[:last]}, {"tRNA-A": "ACGTACGTAC"})


def arguments(model, sources, output, *options, bam=None, pod5=None):
    inputs = ["--pod5", str(pod5 or sources.pod5[0]), "--bam", str(bam or sources.bam), "--model", str(model)]
    return ["predict", "-o", str(output), *inputs, "--reference", str(sources.reference), "--device", "cpu", *options]


def calls(path):
    with pysam.AlignmentFile(str(path), check_sq=False) as file:
        return [(record.query_name, record.has_tag("cl")) for record in file.fetch(until_eof=True)]


def test_a_record_written_twice_has_one_call(model, tmp_path):
    assert main(arguments(model, library(tmp_path), tmp_path / "calls.bam")) == 0
    assert calls(tmp_path / "calls.bam") == [*((read_id(n), True) for n in range(1, 7)), (read_id(1), False)]


def test_a_bad_pod5_leaves_the_calls_of_the_others_and_exit_code_1(model, tmp_path, capfd):
    sources = library(tmp_path, last=4)
    whole = write_pod5(tmp_path / "whole.pod5", {read_id(n): ramp(60) for n in (5, 6)})
    (tmp_path / "run" / "cut.pod5").write_bytes(whole.read_bytes()[:-100])
    assert main(arguments(model, sources, tmp_path / "calls.bam", "--json", pod5=tmp_path / "run")) == 1
    out, err = capfd.readouterr()
    result = json.loads(out)
    assert result["counts"] == {"seen": 7, "duplicate": 1, "not_in_pod5": 2, "used": 4}
    assert list(result["unreadable_pod5"]) == [str(tmp_path / "run" / "cut.pod5")]
    assert "1 of 2 POD5 files cannot be read" in err
    assert sum(called for _, called in calls(tmp_path / "calls.bam")) == 4
    assert main(arguments(model, sources, tmp_path / "strict.bam", "--strict", pod5=tmp_path / "run")) == 1
    assert not (tmp_path / "strict.bam").exists()


def test_too_many_failures_leave_no_bam(model, tmp_path, capfd):
    sources = library(tmp_path, last=4)
    assert main(arguments(model, sources, tmp_path / "calls.bam", "--max-fail-frac", "0.3")) == 1
    assert "33.3% of 6 candidate records failed: not_in_pod5 2" in capfd.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_cram_comes_out_as_bam_with_all_records(model, tmp_path):
    sources = library(tmp_path)
    cram = tmp_path / "run" / "reads.cram"
    with (
        pysam.AlignmentFile(str(sources.bam)) as file,
        pysam.AlignmentFile(str(cram), "wc", template=file, reference_filename=str(sources.reference)) as out,
    ):
        for record in file.fetch(until_eof=True):
            out.write(record)
    assert main(arguments(model, sources, tmp_path / "calls.bam", bam=cram)) == 0
    assert len(calls(tmp_path / "calls.bam")) == 7


def spoilt(model, sources, output, content=None, limit=None):
    import resource

    program = [sys.executable, "-c", "from leech.cli.main import entry_point; entry_point()"]
    bam = None if content is None else "-"
    return subprocess.run(
        [*program, *arguments(model, sources, output, bam=bam)],
        input=content,
        capture_output=True,
        timeout=120,
        preexec_fn=None if limit is None else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_a_cut_pipe_and_a_full_disk_leave_no_bam(model, tmp_path):
    sources = library(tmp_path, number=400)
    cut = spoilt(model, sources, tmp_path / "calls.bam", content=sources.bam.read_bytes()[:-28])
    assert cut.returncode == 1
    assert b"is truncated" in cut.stderr
    # The limit is met at the header, at the records and when the file is closed.
    for limit in (1, 500, 1000):
        full = spoilt(model, sources, tmp_path / "calls.bam", limit=limit)
        assert full.returncode == 1, limit
        assert b"Cannot write" in full.stderr, full.stderr
        assert b"Traceback" not in full.stderr, full.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
