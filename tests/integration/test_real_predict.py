"""Predicting the real alanine reads with an untrained network: what matters here is that nothing is lost or changed."""

from __future__ import annotations

from pathlib import Path

import pysam
import pytest

from leech.config import build
from leech.console import SilentProgress
from leech.data.config import ReadSources
from leech.data.recipe import Recipe
from leech.models.bundle import ModelBundle, save_bundle
from leech.models.spec import build_network, load_architecture
from leech.prediction.config import PredictConfig
from leech.prediction.predict import predict
from leech.provenance import Stamp

STAMP = Stamp.make(["leech", "predict"], "2026-01-01T00:00:00+00:00")


def records(path: Path) -> list[pysam.AlignedSegment]:
    with pysam.AlignmentFile(str(path), "rb", check_sq=False) as file:
        return list(file.fetch(until_eof=True))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    spec, recipe = load_architecture("tcn"), build(Recipe, {"motif": "CCAGGC", "motif_offset": 2})
    bundle = ModelBundle(spec=spec, recipe=recipe, labels=("uncharged", "charged"), training={}, stamp={})
    (tmp_path / "model").mkdir()
    save_bundle(bundle, build_network(spec, recipe), tmp_path / "model")
    return tmp_path / "model"


def test_every_record_comes_out_unchanged_but_for_its_call_at_any_batch_size(real_data, model, tmp_path):
    folder = real_data / "ecoli_ala"
    files = {"pod5": [folder / "reads.pod5"], "bam": folder / "mappings.bam", "reference": folder / "reference.fa"}
    before = records(folder / "mappings.bam")
    calls = []
    for size in (1, 7, 64):
        output = tmp_path / f"calls{size}.bam"
        config = build(PredictConfig, {"batch_size": size, "device": "cpu", "batch_records": 9})
        result = predict(
            model,
            build(ReadSources, files),
            config,
            output,
            force=False,
            progress=SilentProgress(),
            stamp=STAMP,
        )
        assert result.counts.ladder() == {"seen": 60, "not_in_pod5": 40, "used": 20}
        after = records(output)
        assert len(after) == len(before) == 60
        for old, new in zip(before, after, strict=True):
            tags = [tag for tag in new.get_tags(with_value_type=True) if tag[0] != "cl"]
            assert tags == old.get_tags(with_value_type=True)
            new.set_tag("cl", None)
            assert new.to_string() == old.to_string()
        calls.append([dict(record.get_tags()).get("cl") for record in records(output)])
        assert sum(call is not None for call in calls[-1]) == 20
    assert calls[0] == calls[1] == calls[2]


def test_files_are_the_same_byte_by_byte_at_any_number_of_copies_and_workers(real_data, model, tmp_path):
    folder = real_data / "ecoli_psi55" / "wt"
    files = {
        "pod5": [folder / "reads.pod5"],
        "bam": folder / "mappings.bam",
        "reference": folder.parent / "reference.fa",
    }
    found = []
    for gpus, workers in ((None, 1), (1, 2), (2, 1), (3, 2)):
        output = tmp_path / f"{gpus}-{workers}"
        parallel = {"gpus": gpus, "workers": workers, "device": "cpu", "batch_records": 20, "batch_size": 16}
        config = build(PredictConfig, {**parallel, "format": "both"})
        predict(
            model,
            build(ReadSources, files),
            config,
            output / "s.bam",
            force=False,
            progress=SilentProgress(),
            stamp=STAMP,
        )
        # The record holds the settings.
        found.append({path.name: path.read_bytes() for path in output.iterdir() if path.name != "s.predict.json"})
    assert len(found[0]) == 8
    assert found[0] == found[1] == found[2] == found[3]
