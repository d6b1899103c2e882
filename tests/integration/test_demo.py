"""What ``leech demo`` leaves behind, trained for one epoch only."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from leech.config import build
from leech.console import SilentProgress
from leech.data.recut import find_inputs
from leech.demo import DemoConfig, run_demo
from leech.provenance import Stamp
from leech.training import loop

STAMP = Stamp.make(["leech", "demo"], "2026-01-01T00:00:00+00:00")


def test_the_demo_names_nothing_by_the_folder_that_it_was_made_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop, "EPOCHS", 1)
    monkeypatch.setattr(loop, "MIN_STEPS", 1)
    caplog.set_level(logging.INFO, logger="leech")
    folder = tmp_path / "demo"
    result = run_demo(build(DemoConfig, {"reads": 50}), folder, force=False, progress=SilentProgress(), stamp=STAMP)
    assert all(path.exists() for path in result.paths.values())
    # Texts and binary files alike; zipped ones hold calls and figures, not paths.
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 30
    assert [path for path in files if b".partial-" in path.read_bytes()] == []
    assert ".partial-" not in caplog.text
    assert f"'leech data check {folder / 'corpus'}'" in caplog.text
    inputs = json.loads((folder / "charged.corpus" / "inputs.json").read_text())["sources"]["bam"]
    assert inputs == {"relative": "../charged/mappings.bam", "absolute": str(folder / "charged" / "mappings.bam")}
    # A corpus that moves alone is cut again from where the demo lies.
    (folder / "charged.corpus").rename(tmp_path / "elsewhere")
    assert find_inputs(tmp_path / "elsewhere").bam == folder / "charged" / "mappings.bam"
