"""What the files of a sample are called, behind its name.

Belongs here: names alone, so that whoever reads one file can find another; the files are written in ``writers.py``,
``summary.py`` and ``predict.py``. They are a stable interface that downstream tools know.
"""

from __future__ import annotations

from leech.data.grouping import LEVELS

TABLES = ("charging_prob", "charging.cpm", "charging_calls")
"""The tables of single calls and of counts, between sample and ``.tsv.gz``."""

SUMMARY = "charging_summary"
"""The table of calls by reference; likewise."""

SUMMARIES = {"reference": SUMMARY, **{level: f"{SUMMARY}.{level}" for level in LEVELS}}
"""The summaries by what their rows are; likewise."""

CLASS_TABLES = ("states",)
"""The same of more than two states: the table of single calls."""

CLASS_SUMMARY = "states_summary"
"""The table of their calls by reference."""

RECORD = "predict.json"
"""The record of the run."""
