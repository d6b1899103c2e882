"""Each network learns a change planted in any one of its inputs, and nothing from labels that mean nothing.

The inputs are made here, so that what is learnt is the network's doing and no part of the data layer's.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch.nn import functional

from leech.data.batches import Inputs
from leech.models.inference import Predictor
from leech.models.spec import build_network, load_architecture
from random_inputs import make_recipe, random_inputs

RECIPE = make_recipe(samples_before=75, samples_after=75, bases_before=10, bases_after=10)
NUM_TRAIN, NUM_TEST, BATCH = 1024, 512, 128

FOCUS = RECIPE.bases_before


def planted(count: int, num_features: int, place: str, seed: int) -> tuple[Inputs, torch.Tensor]:
    """Return chunks and labels; positives carry a change in ``place``: signal, features, sequence or nothing."""
    inputs = random_inputs(count, RECIPE, num_features, seed, dwell=(4, 12))
    positive = torch.randint(0, 2, (count,), generator=torch.Generator().manual_seed(1000 + seed)).bool()
    # The focus base always has the same sequence, so that it tells something only where that is planted.
    inputs.sequence[:, FOCUS + 4] = 2
    if place == "signal":
        # The mean of one base only, by one standard deviation of the noise, on 4 to 11 of 150 samples.
        sample = torch.arange(RECIPE.num_samples)
        bounds = inputs.base_bounds
        inside = (sample >= bounds[:, FOCUS + 1, None]) & (sample < bounds[:, FOCUS + 2, None])
        inputs.signal[inside & positive[:, None]] += 1.0
    elif place == "features":
        # Longer dwell of the focus base: two standard deviations of the first channel.
        inputs.features[positive, 0, -RECIPE.feature_start] += 2.0
    elif place == "sequence":
        inputs.sequence[positive, FOCUS + 4] = 1
    else:
        assert place == "nothing"
    return inputs, positive


def held_out_auroc(name: str, place: str) -> float:
    spec = load_architecture(name)
    network = build_network(spec, RECIPE, seed=1)
    inputs, positive = planted(NUM_TRAIN, len(spec.features), place, seed=1)
    steps = 5 * NUM_TRAIN // BATCH
    optimizer = torch.optim.AdamW(network.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=steps)
    order = np.random.default_rng(0)
    network.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for _ in range(steps):
            rows = torch.from_numpy(order.choice(NUM_TRAIN, BATCH, replace=False))
            logits = network(Inputs(*(tensor[rows] for tensor in inputs)))[:, 0]
            optimizer.zero_grad()
            functional.binary_cross_entropy_with_logits(logits, positive[rows].float()).backward()
            optimizer.step()
            schedule.step()
    test_inputs, test_positive = planted(NUM_TEST, len(spec.features), place, seed=2)
    p = Predictor(network, torch.device("cpu")).probabilities(test_inputs, None)
    return float(roc_auc_score(test_positive.numpy(), p))


@pytest.mark.parametrize(
    ("name", "place", "least"),
    [
        ("tcn", "signal", 0.9),
        # Two standard deviations apart, the best possible AUROC is Phi(2 / sqrt 2) = 0.921.
        ("tcn", "features", 0.85),
        ("tcn", "sequence", 0.99),
        ("conv_lstm", "signal", 0.85),
        ("conv_lstm", "sequence", 0.9),
    ],
)
def test_a_change_in_one_input_is_learnt(name: str, place: str, least: float) -> None:
    assert held_out_auroc(name, place) > least


@pytest.mark.parametrize("name", ["tcn", "conv_lstm"])
def test_labels_that_mean_nothing_are_not(name: str) -> None:
    # 256 + 256 held-out chunks: standard error of the AUROC 0.026, so this is four of them.
    assert 0.4 < held_out_auroc(name, "nothing") < 0.6
