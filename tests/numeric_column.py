"""A numeric column with gaps for a merged corpus, as a target of the regression head."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from corpora import rewrite_manifest
from leech.data.corpus import write_array


def add_numeric_column(corpus: Path, name: str, values: np.ndarray) -> None:
    """Write ``values`` (float32, one per row) as a column of the merged corpus's own."""
    entry = write_array(corpus / f"{name}.npy", values.astype("<f4"))
    manifest = json.loads((corpus / "manifest.json").read_text())
    manifest["columns"][name] = entry
    rewrite_manifest(corpus, manifest)
