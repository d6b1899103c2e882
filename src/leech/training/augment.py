"""Noise on training inputs, so that a small corpus cannot be learnt by heart.

Hides: random numbers that belong to a chunk. Belongs here: what is done to inputs in training only; dropout is the
network's. Invariants: a chunk's noise is a pure function of (seed, epoch, its row in the corpus), whatever batch it is in
and whoever computes it, and is drawn on the inputs' device; padding and bases without signal stay 0.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leech.data.batches import Inputs

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB


def _signed(value: int) -> int:
    """Return the 64-bit pattern of ``value`` as torch's integers hold it."""
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value


def _shifted(values: Tensor, bits: int) -> Tensor:
    # Torch shifts the sign bit in; a hash wants zeros.
    return (values >> bits) & ((1 << (64 - bits)) - 1)


def _hashed(values: Tensor) -> Tensor:
    """Return the finaliser of SplitMix64 (Steele, Lea and Flood 2014), int64 of the same shape."""
    values = (values ^ _shifted(values, 30)) * _signed(_FIRST)
    values = (values ^ _shifted(values, 27)) * _signed(_SECOND)
    return values ^ _shifted(values, 31)


def row_noise(rows: Tensor, count: int, key: int) -> Tensor:
    """Return ``count`` numbers of mean 0 and variance 1 per row, float32 (n, count).

    Each is the sum of four uniform numbers: bell-shaped, and bounded at 3.46 standard deviations.

    :param rows: int64 (n,), what each row's numbers depend on, together with ``key``.
    """
    places = torch.arange(1, count + 1, device=rows.device) * _signed(_GOLDEN)
    bits = _hashed(_hashed(rows * _signed(_GOLDEN) + _signed(key))[:, None] + places)
    total = sum(((bits >> shift) & 0xFFFF for shift in (0, 16, 32, 48)), torch.zeros_like(bits))
    return (total.to(torch.float32) - 2 * 0xFFFF) / (0x10000 / math.sqrt(3))


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
