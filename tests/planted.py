"""Corpora in which the state of a read can be told by level and dwell at the focus, or cannot, as asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from leech.config import build
from leech.data.compose import merge
from leech.data.config import MergeConfig
from leech.data.corpus import ChunkArrays, CorpusWriter, column_layout
from leech.data.recipe import Recipe
from leech.provenance import Stamp

STAMP = Stamp(command=("test",), time_utc="2026-01-01T00:00:00+00:00", versions={"leech": "0"})

RECIPE = build(
    Recipe,
    {
        "motif": "CCAGGC",
        "motif_offset": 2,
        "samples_before": 100,
        "samples_after": 100,
        "bases_before": 10,
        "bases_after": 10,
    },
)


def planted_chunks(count: int, *, label: str, strength: float, seed: int, recipe: Recipe = RECIPE) -> ChunkArrays:
    """Return chunks whose focus base and the next have their level raised by ``strength`` noise units and longer dwell."""
    generator = np.random.default_rng(seed)
    columns = {name: np.zeros((count, *shape), dtype) for name, (dtype, shape) in column_layout(recipe).items()}
    dwell = generator.integers(6, 18, (count, recipe.num_bases))
    focus = recipe.bases_before
    dwell[:, focus] += round(4 * strength)
    # Levels of one sequence, the same for all reads.
    base_levels = np.random.default_rng(99).normal(0, 1, recipe.num_bases)
    edges = np.concatenate([np.zeros((count, 1), np.int64), np.cumsum(dwell, axis=1)], axis=1)
    edges += (recipe.samples_before - edges[:, focus])[:, None]
    sample = np.arange(recipe.num_samples)
    for row in range(count):
        levels = base_levels + generator.normal(0, 0.5, recipe.num_bases)
        levels[focus : focus + 2] += strength
        base = np.clip(np.searchsorted(edges[row], sample, side="right") - 1, 0, recipe.num_bases - 1)
        current = 500 + 80 * (levels[base] + generator.normal(0, 0.3, recipe.num_samples))
        columns["signal"][row] = current.astype(np.int16)
        for place, offset in enumerate(range(recipe.feature_start, recipe.feature_end + 1)):
            start, end = np.clip(edges[row, focus + offset : focus + offset + 2], 0, recipe.num_samples)
            inside = columns["signal"][row, start:end].astype(np.float32)
            if len(inside):
                columns["level_mean"][row, place] = inside.mean()
                columns["level_median"][row, place] = np.median(inside)
                columns["level_sd"][row, place] = inside.std()
                columns["level_range"][row, place] = np.ptp(inside)
    columns["dwell"][:] = dwell
    columns["valid_end"][:] = recipe.num_samples
    columns["shift"][:], columns["scale"][:] = 500, 80
    columns["focus_base_start"][:] = recipe.samples_before
    columns["median_dwell"][:] = 12
    columns["sequence"][:] = np.random.default_rng(98).integers(0, 4, columns["sequence"].shape[1])
    columns["reference"][:] = np.arange(count) % 2
    columns["read_id"][:] = generator.integers(0, 256, (count, 16), dtype=np.uint8)
    columns["parent_id"][:] = columns["read_id"]
    names = {"reference": ["tRNA-A", "tRNA-B"], "flow_cell": ["F"], "run": ["R"], "sample": ["S"], "label": [label]}
    return ChunkArrays(columns, names)


def write_chunks(folder: Path, chunks: ChunkArrays, recipe: Recipe = RECIPE) -> Path:
    """Write one corpus of kind "chunks"."""
    folder.mkdir(parents=True)
    with CorpusWriter(folder, recipe) as writer:
        writer.append(chunks)
        writer.finish(counts={"seen": len(chunks), "used": len(chunks)}, runs={"R": 4000}, settings={})
    return folder


def write_planted(
    folder: Path,
    counts: tuple[int, int] = (120, 120),
    *,
    strength: float = 1.5,
    labels: tuple[str, str] = ("uncharged", "charged"),
    positive_label: str | None = "charged",
    split: tuple[float, float, float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    recipe: Recipe = RECIPE,
) -> Path:
    """Write a negative and a positive library and return the merged corpus; strength 0 plants nothing."""
    sources = []
    for number, (label, count) in enumerate(zip(labels, counts, strict=True)):
        chunks = planted_chunks(
            count, label=label, strength=strength * number, seed=1000 * seed + number, recipe=recipe
        )
        sources.append(write_chunks(folder / label, chunks, recipe))
    config = build(MergeConfig, {"split": list(split), "positive_label": positive_label, "seed": seed})
    merged = folder / "merged"
    merge(sources, config, merged, force=False, stamp=STAMP)
    return merged


def write_states(
    folder: Path,
    strengths: Mapping[str, float],
    count: int | Sequence[int] = 120,
    *,
    split: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    recipe: Recipe = RECIPE,
) -> Path:
    """Write one library per label, with what is planted in it, and return the merged corpus, which has no positive label."""
    counts = [count] * len(strengths) if isinstance(count, int) else count
    sources = [
        write_chunks(
            folder / label,
            planted_chunks(number, label=label, strength=strength, seed=1000 * seed + place, recipe=recipe),
            recipe,
        )
        for place, ((label, strength), number) in enumerate(zip(strengths.items(), counts, strict=True))
    ]
    config = build(MergeConfig, {"split": list(split), "seed": seed})
    merge(sources, config, folder / "merged", force=False, stamp=STAMP)
    return folder / "merged"
