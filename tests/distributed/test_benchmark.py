"""``leech model benchmark``: every number that it promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from ranks import write_material

from leech.config import build
from leech.console import SilentProgress
from leech.errors import ConfigError
from leech.training.benchmark import PHASES, benchmark
from leech.training.config import BenchmarkConfig


@pytest.mark.skipif(torch.cuda.device_count() > 8, reason="there are more GPUs than are asked for")
def test_what_cannot_be_had_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # There is no corpus: nothing was looked at.
    with pytest.raises(ConfigError, match=r"^--up-to 9: torch .* usable GPU"):
        benchmark(build(BenchmarkConfig, {"up_to": 9}), tmp_path / "none", progress=SilentProgress())
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "h",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="starts its own") as caught:
        benchmark(build(BenchmarkConfig, {"device": "cpu"}), tmp_path / "none", progress=SilentProgress())
    assert "without torchrun" in str(caught.value)


@pytest.mark.timeout(120)
def test_each_number_of_ranks_is_timed_by_phase(tmp_path: Path) -> None:
    data, network = write_material(tmp_path)
    config = build(
        BenchmarkConfig,
        {"model": str(network), "up_to": 2, "steps": 2, "batch_size": 16, "grad_accum": 2, "device": "cpu"},
    )
    result = benchmark(config, data, progress=SilentProgress())
    assert [timing.ranks for timing in result.timings] == [1, 2]
    assert (result.batch_size, result.steps, result.device) == (16, 2, "cpu")
    for timing in result.timings:
        assert timing.chunks_per_second > 0
        assert timing.first_step_s > 0
        assert set(timing.shares) == set(PHASES)
        assert sum(timing.shares.values()) == pytest.approx(1)
        assert all(share >= 0 for share in timing.shares.values())
        assert timing.memory_mb is None or len(timing.memory_mb) == timing.ranks
        assert timing.gpu_memory_mb is None
    content = json.loads(json.dumps(result.to_mapping()))
    assert set(content) == {"device", "batch_size", "num_parameters", "steps", "timings"}
    assert [set(timing) for timing in content["timings"]] == 2 * [
        {"ranks", "threads", "chunks_per_second", "shares", "memory_mb", "gpu_memory_mb", "first_step_s"}
    ]
    (table,) = result.tables()
    assert [row[0] for row in table.rows] == ["1", "2"]
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert table.rows[0][3] == "1.00"
