"""Network inputs of random values, in the frames of a recipe, without a corpus behind them."""

from __future__ import annotations

import torch

from leech.config import build
from leech.data.batches import Inputs
from leech.data.recipe import CONTEXT_BASES, Recipe


def make_recipe(**values: object) -> Recipe:
    """Return the default recipe but for ``values``."""
    return build(Recipe, {"motif": "CCAGGC", "motif_offset": 2, **values})


def random_inputs(
    count: int, recipe: Recipe, num_features: int, seed: int = 0, dwell: tuple[int, int] = (0, 22)
) -> Inputs:
    """Return inputs of ``count`` chunks; dwell is uniform in [low, high), so that 0 makes bases without signal."""
    generator = torch.Generator().manual_seed(seed)
    samples = torch.randint(*dwell, (count, recipe.num_bases), generator=generator)
    edges = torch.zeros(count, recipe.num_bases + 1, dtype=torch.int64)
    edges[:, 1:] = samples.cumsum(dim=1)
    edges += (recipe.samples_before - edges[:, recipe.bases_before])[:, None]
    return Inputs(
        signal=torch.randn(count, recipe.num_samples, generator=generator),
        base_bounds=edges.to(torch.int32),
        sequence=torch.randint(0, 5, (count, recipe.num_bases + 2 * CONTEXT_BASES), generator=generator).to(
            torch.uint8
        ),
        features=torch.randn(count, num_features, recipe.num_feature_bases, generator=generator),
    )
