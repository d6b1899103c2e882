"""Two runs that want the same output."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from leech.errors import InputError
from leech.training.claim import claimed


def test_a_second_run_of_one_output_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with claimed(tmp_path / "model"), claimed(tmp_path / "other"):
        with (
            pytest.raises(InputError, match=r"Another run is making '.*model': it holds '.*model\.lock'"),
            claimed(tmp_path / "model"),
        ):
            raise AssertionError
        assert (tmp_path / "model.lock").exists()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_a_killed_run_left_claims_nothing(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys; from leech.training.claim import claimed\n"
        "with claimed(pathlib.Path(sys.argv[1])): os._exit(3)"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path / "model"]).returncode == 3
    assert [path.name for path in tmp_path.iterdir()] == ["model.lock"]
    with claimed(tmp_path / "model"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_removed_between_opening_and_locking_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, calls = fcntl.flock, []

    def flock(file: object, operation: int) -> None:
        calls.append(operation)
        usual(file, operation)  # type: ignore[arg-type]
        if len(calls) == 1:
            (tmp_path / "model.lock").unlink()

    monkeypatch.setattr(fcntl, "flock", flock)
    with claimed(tmp_path / "model"):
        assert (tmp_path / "model.lock").exists()
    assert len(calls) == 2


def test_a_file_system_without_locks_lets_everyone_pass_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def flock(file: object, operation: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr("leech.console.logger.propagate", True)
    with caplog.at_level("INFO", logger="leech"), claimed(tmp_path / "model"):
        pass
    assert "cannot be locked (" in caplog.text


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="Cannot write beside"), claimed(tmp_path / "file" / "model"):
        raise AssertionError
