"""What ``leech predict`` leaves: BAM and tables say the same, nothing half done stands, and odd headers are kept whole."""

from __future__ import annotations

import csv
import gzip
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pysam
import pytest

from leech.config import build
from leech.console import SilentProgress
from leech.data.config import ReadSources
from leech.data.recipe import Recipe
from leech.data.simulate.config import SimulateConfig
from leech.data.simulate.write import simulate
from leech.errors import ConfigError, InputError
from leech.models.bundle import ModelBundle, OperatingPoint, copy_bundle, save_bundle
from leech.models.calibration import Calibration
from leech.models.inference import Predictor
from leech.models.spec import build_network, load_architecture
from leech.prediction.calls import Call
from leech.prediction.config import PredictConfig
from leech.prediction.predict import PredictResult, predict
from leech.prediction.writers import CallBam, header_with_program
from leech.provenance import Stamp

STAMP = Stamp.make(["leech", "predict"], "2026-01-01T00:00:00+00:00")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated") / "library"
    settings = {"reads": 40, "num_references": 3, "duplicate_fraction": 0.2, "missing_fraction": 0.1}
    simulate(build(SimulateConfig, settings), folder, force=False, stamp=STAMP, progress=SilentProgress())
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("untrained")
    spec, recipe = load_architecture("tcn"), build(Recipe, {"motif": "CCAGGC", "motif_offset": 2})
    bundle = ModelBundle(spec=spec, recipe=recipe, labels=("uncharged", "charged"), training={}, stamp={})
    save_bundle(bundle, build_network(spec, recipe), folder)
    return folder


def run(model: Path, library: Path, output: Path, bam: Path | None = None, **config: Any) -> PredictResult:
    files = {"pod5": [library / "reads.pod5"], "reference": library / "reference.fa"}
    return predict(
        model,
        build(ReadSources, {**files, "bam": bam or library / "mappings.bam"}),
        build(PredictConfig, {"device": "cpu", **config}),
        output,
        force=False,
        progress=SilentProgress(),
        stamp=STAMP,
    )


def rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def records(path: Path) -> list[pysam.AlignedSegment]:
    with pysam.AlignmentFile(str(path), "rb", check_sq=False) as file:
        return list(file.fetch(until_eof=True))


def test_tables_say_what_the_bam_says(model: Path, library: Path, tmp_path: Path) -> None:
    # A threshold that an untrained network, whose calls lie about 127, has calls on either side of.
    result = run(model, library, tmp_path / "calls.bam", tables=tmp_path / "t", sample="s ü", threshold_cl=128)
    found = records(tmp_path / "calls.bam")
    calls = rows(tmp_path / "t" / "s ü.charging_calls.tsv.gz")
    tags = [(record.query_name, record.reference_name or "", dict(record.get_tags()).get("cl")) for record in found]
    assert [(row["read_id"], row["reference"], int(row["cl"]) if row["cl"] else None) for row in calls] == tags
    assert all((row["reason"] == "") == (row["cl"] != "") == (row["p"] != "") for row in calls)
    called = [tag for tag in tags if tag[2] is not None]
    likelihoods = rows(tmp_path / "t" / "s ü.charging_prob.tsv.gz")
    assert [(row["read_id"], row["tRNA"], int(row["charging_likelihood"])) for row in likelihoods] == called
    sides = Counter((reference, cl >= 128) for _, reference, cl in called)
    totals = rows(tmp_path / "t" / "s ü.charging.cpm.tsv.gz")
    assert {row["tRNA"]: (int(row["counts_charged"]), int(row["counts_uncharged"])) for row in totals} == {
        name: (sides[name, True], sides[name, False]) for name in {reference for _, reference, _ in called}
    }
    assert {name: group[:2] for name, group in result.groups.items()} == {
        row["tRNA"]: (int(row["counts_charged"]), int(row["counts_uncharged"])) for row in totals
    }


def test_calls_are_made_of_calibrated_probabilities(model: Path, library: Path, tmp_path: Path) -> None:
    (tmp_path / "calibrated").mkdir()
    calibration = Calibration(method="platt", scale=3.0, offset=0.5)
    copy_bundle(model, tmp_path / "calibrated", calibration=calibration, operating_point=OperatingPoint(100, "test"))
    result = run(tmp_path / "calibrated", library, tmp_path / "calls.bam", tables=tmp_path / "t", sample="after")
    run(model, library, tmp_path / "raw.bam", tables=tmp_path / "t", sample="before")
    after, before = (
        [row for row in rows(tmp_path / "t" / f"{name}.charging_calls.tsv.gz") if row["p"]]
        for name in ("after", "before")
    )
    raw = np.array([float(row["p"]) for row in before])
    expected = 1 / (1 + np.exp(-(3 * np.log(raw / (1 - raw)) + 0.5)))
    np.testing.assert_allclose([float(row["p"]) for row in after], expected, rtol=1e-4)
    assert result.threshold == 100
    assert sum(group[0] for group in result.groups.values()) == (np.rint(255 * expected) >= 100).sum()


def test_references_that_the_model_never_learnt_from_are_named(
    library: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pysam.FastaFile(str(library / "reference.fa")) as file:
        known, *new = sorted(file.references)
    spec, recipe = load_architecture("tcn"), build(Recipe, {"motif": "CCAGGC", "motif_offset": 2})
    training = {"references": [known]}
    bundle = ModelBundle(spec=spec, recipe=recipe, labels=("uncharged", "charged"), training=training, stamp={})
    (tmp_path / "model").mkdir()
    save_bundle(bundle, build_network(spec, recipe), tmp_path / "model")
    run(tmp_path / "model", library, tmp_path / "calls.bam")
    assert f"2 of 3 references called were not in the model's training split: {', '.join(new)}." in caplog.text


def test_a_name_that_is_taken_is_told_before_any_file_is_looked_at(model: Path, tmp_path: Path) -> None:
    (tmp_path / "calls.bam").touch()
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "new.charging_prob.tsv.gz").touch()
    # There is no library: whoever opened it first would complain of that.
    for name in ("calls", "new"):
        with pytest.raises(InputError, match="exists already"):
            run(model, tmp_path / "nowhere", tmp_path / f"{name}.bam", tables=tmp_path / "t")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["calls.bam", "new.charging_prob.tsv.gz", "t"]


def test_a_network_that_fails_half_way_leaves_no_output(
    model: Path, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def failing(self: Predictor, inputs: Any) -> Any:
        asked.append(inputs)
        if len(asked) == 3:
            raise RuntimeError("out of memory")
        return genuine(self, inputs)

    genuine = Predictor.logits
    monkeypatch.setattr(Predictor, "logits", failing)
    with pytest.raises(RuntimeError, match="out of memory"):
        run(model, library, tmp_path / "calls.bam", tables=tmp_path / "t", batch_size=7)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("sample", ["../elsewhere", "a/b", "", ".hidden", "a\tb", "a\nb", "a\x85b", "a\x7f"])
def test_a_sample_is_a_name_and_no_path(sample: str) -> None:
    with pytest.raises(ConfigError, match="without '/'"):
        build(PredictConfig, {"sample": sample})


def test_what_cannot_be_written_is_said_whatever_error_number_is_left(tmp_path, monkeypatch):
    # htslib writes in threads that do not keep why a write failed: the number is 0 or that of something else.
    class Full:
        def write(self, record):
            raise OSError(0, "sam_write1 failed")

        def close(self):
            raise BlockingIOError(11, "Closing failed: Resource temporarily unavailable")

    monkeypatch.setattr(pysam, "AlignmentFile", lambda *_, **__: Full())
    file = CallBam(tmp_path / "calls.bam.partial-7", tmp_path / "calls.bam", pysam.AlignmentHeader())
    with pytest.raises(InputError, match=r"Cannot write '[^']*calls\.bam': a write failed"):
        file.write(pysam.AlignedSegment(), Call("r", "", None, None, None, "unmapped"))
    with pytest.raises(InputError, match=r"Cannot write '[^']*calls\.bam': a write failed"):
        file.close()
    file.abandon()


def with_header(source: Path, target: Path, text: bytes) -> Path:
    """Write a BAM again with other header text; what its binary part says of the references stays."""
    raw = gzip.decompress(source.read_bytes())
    length = struct.unpack("<i", raw[4:8])[0]
    with pysam.BGZFile(str(target), "wb") as file:
        file.write(raw[:4] + struct.pack("<i", len(text)) + text + raw[8 + length :])
    return target


def test_references_that_the_header_text_leaves_out_are_kept(model: Path, library: Path, tmp_path: Path) -> None:
    bam = with_header(library / "mappings.bam", tmp_path / "bare.bam", b"@HD\tVN:1.6\n")
    run(model, library, tmp_path / "calls.bam", bam)
    before, after = records(library / "mappings.bam"), records(tmp_path / "calls.bam")
    assert [record.reference_name for record in after] == [record.reference_name for record in before]


def test_a_header_that_is_not_utf8_is_refused_in_words(tmp_path: Path) -> None:
    source = tmp_path / "plain.bam"
    pysam.AlignmentFile(str(source), "wb", header={"SQ": [{"SN": "a", "LN": 9}]}).close()
    bam = with_header(source, tmp_path / "latin.bam", "@SQ\tSN:a\tLN:9\n@CO\tGröße\n".encode("latin-1"))
    with pysam.AlignmentFile(str(bam), "rb") as file, pytest.raises(InputError, match="header is not UTF-8"):
        header_with_program(file.header, "1", "leech")
