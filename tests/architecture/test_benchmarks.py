"""Benchmarks run by hand, so what they import from leech is looked at here."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "benchmarks").glob("bench_*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_what_a_benchmark_imports_is_there(script: Path) -> None:
    imported = [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(script.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "leech"
        for alias in node.names
    ]
    assert [pair for pair in imported if not hasattr(importlib.import_module(pair[0]), pair[1])] == []
