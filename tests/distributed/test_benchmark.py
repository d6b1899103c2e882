"""``leech model benchmark``: every number that it promises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ranks import write_material

from leech.config import build
from leech.console import SilentProgress
from leech.training.benchmark import PHASES, benchmark
from leech.training.config import BenchmarkConfig


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
    assert json.loads(json.dumps(result.to_mapping()))["timings"][1]["ranks"] == 2
    (table,) = result.tables()
    assert [row[0] for row in table.rows] == ["1", "2"]
    assert all(len(row) == len(table.columns) for row in table.rows)
    assert table.rows[0][3] == "1.00"
