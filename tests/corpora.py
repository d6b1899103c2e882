"""Small corpora of random chunks, written with the real writer."""

from __future__ import annotations

import json

import numpy as np

from leech.config import build
from leech.data.corpus import ChunkArrays, CorpusWriter, column_layout
from leech.data.manifest import manifest_digest
from leech.data.recipe import Recipe

RECIPE = build(Recipe, {"motif": "CCAGGC", "motif_offset": 2, "samples_before": 5, "samples_after": 5})


def chunks(count, *, seed=0, label="charged", references=("a", "b"), flow_cells=("F",), recipe=RECIPE):
    generator = np.random.default_rng(seed)
    columns = {}
    for name, (dtype, shape) in column_layout(recipe).items():
        values = generator.integers(1, 100, size=(count, *shape))
        columns[name] = values.astype(dtype)
    columns["reference"] = generator.integers(0, len(references), count).astype(np.int32)
    for name in ("run", "sample", "label"):
        columns[name][:] = 0
    columns["junction_indel"] %= 3
    columns["flow_cell"][:] = np.arange(count) % len(flow_cells)
    columns["read_id"] = generator.integers(0, 256, (count, 16), dtype=np.uint8)
    columns["parent_id"] = columns["read_id"].copy()
    names = {"reference": references, "flow_cell": flow_cells, "run": ["R"], "sample": ["S"], "label": [label]}
    return ChunkArrays(columns, names)


def write(folder, *batches, recipe=RECIPE):
    folder.mkdir(parents=True)
    with CorpusWriter(folder, recipe) as writer:
        for batch in batches:
            writer.append(batch)
        used = sum(len(batch) for batch in batches)
        writer.finish(counts={"seen": used, "used": used}, runs={"R": 4000}, settings={})
    return folder


def rewrite_manifest(folder, content):
    """Write a changed manifest as leech would have written it: with its digest."""
    (folder / "manifest.json").write_text(json.dumps({**content, "digest": manifest_digest(content)}))
