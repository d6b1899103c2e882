"""Noise on training inputs, so that a small corpus cannot be learnt by heart.

Hides: where noise may go. Belongs here: what is done to inputs in training only; dropout is the network's, and the random
numbers of both are ``leech.models.noise``'s. Invariants: a chunk's noise is a pure function of (seed, epoch, its row in the
corpus), whatever batch it is in and whoever computes it; padding and bases without signal stay 0.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from leech.data.batches import Inputs
from leech.models.noise import row_noise


def add_noise(inputs: Inputs, rows: NDArray[np.int64], strength: float, *, seed: int, epoch: int) -> Inputs:
    """Return the inputs with noise of ``strength`` standard deviations on every signal sample and every feature.

    Normalised signal has a standard deviation of about 1, and so have most features, so one strength serves both.

    :param rows: corpus rows of the chunks, int64 (n,).
    """
    if strength == 0:
        return inputs
    key = int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0])
    owners = torch.from_numpy(rows).to(inputs.signal.device)
    num_samples = inputs.signal.shape[1]
    num_features = inputs.features[0].numel() if len(rows) else 0
    noise = strength * row_noise(owners, num_samples + num_features, key)
    signal, features = inputs.signal, inputs.features
    on_features = noise[:, num_samples:].reshape(features.shape)
    return inputs._replace(
        signal=torch.where(signal == 0, signal, signal + noise[:, :num_samples]),
        features=torch.where((features == 0).all(dim=1, keepdim=True), features, features + on_features),
    )
