"""Noise that belongs to a chunk."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from leech.data.batches import Inputs
from leech.training.augment import add_noise, row_noise


def splitmix(value: int) -> int:
    """The published finaliser, in Python's own integers."""
    mask = 2**64 - 1
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return value ^ (value >> 31)


def inputs(n: int) -> Inputs:
    generator = torch.Generator().manual_seed(0)
    signal = torch.randn(n, 30, generator=generator)
    signal[:, :4] = 0
    features = torch.randn(n, 3, 5, generator=generator)
    features[:, :, 2] = 0
    features[:, 1, 0] = 0
    return Inputs(signal, torch.zeros(n, 4, dtype=torch.int32), torch.zeros(n, 11, dtype=torch.uint8), features)


def test_numbers_are_those_of_the_hash_worked_out_in_whole_integers() -> None:
    golden, mask = 0x9E3779B97F4A7C15, 2**64 - 1
    numbers = row_noise(torch.tensor([5, 2**40]), 3, key=2**63 + 11)
    for place, row in enumerate((5, 2**40)):
        start = splitmix((row * golden + 2**63 + 11) & mask)
        for count in range(3):
            bits = splitmix((start + (count + 1) * golden) & mask)
            total = sum((bits >> shift) & 0xFFFF for shift in (0, 16, 32, 48))
            assert float(numbers[place, count]) == pytest.approx((total - 131070) / 65536 * 3**0.5, rel=1e-5)


def test_numbers_have_mean_0_and_variance_1_and_do_not_follow_each_other() -> None:
    numbers = row_noise(torch.arange(400), 500, key=3).numpy()
    # 200,000 numbers: standard error of the mean 0.0022, of the variance about 0.003.
    assert abs(numbers.mean()) < 0.01
    assert abs(numbers.var() - 1) < 0.015
    assert np.abs(numbers).max() <= 2 * 3**0.5
    for first, second in ((numbers[:, :-1], numbers[:, 1:]), (numbers[:-1], numbers[1:])):
        assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.01


def test_a_chunks_noise_does_not_depend_on_its_batch() -> None:
    rows = np.array([7, 3, 90, 12], dtype=np.int64)
    whole = add_noise(inputs(4), rows, 0.2, seed=1, epoch=2)
    order = np.array([2, 0])
    some = Inputs(*(tensor[order] for tensor in inputs(4)))
    part = add_noise(some, rows[order], 0.2, seed=1, epoch=2)
    assert torch.equal(part.signal, whole.signal[order])
    assert torch.equal(part.features, whole.features[order])


def test_noise_changes_with_epoch_seed_and_row() -> None:
    base = add_noise(inputs(1), np.array([7]), 0.2, seed=1, epoch=2).signal
    for row, seed, epoch in ((8, 1, 2), (7, 2, 2), (7, 1, 3)):
        assert not torch.equal(add_noise(inputs(1), np.array([row]), 0.2, seed=seed, epoch=epoch).signal, base)
    assert torch.equal(add_noise(inputs(1), np.array([7]), 0.2, seed=1, epoch=2).signal, base)


def test_padding_and_absent_bases_stay_zero_and_the_strength_is_the_spread() -> None:
    before = inputs(2000)
    after = add_noise(before, np.arange(2000), 0.3, seed=0, epoch=0)
    assert (after.signal[:, :4] == 0).all()
    assert (after.features[:, :, 2] == 0).all()
    # A single feature that is 0 by chance belongs to a base that is there.
    assert (after.features[:, 1, 0] != 0).any()
    assert float((after.signal - before.signal)[:, 4:].std()) == pytest.approx(0.3, rel=0.02)
    present = [0, 1, 3, 4]
    assert float((after.features - before.features)[:, :, present].std()) == pytest.approx(0.3, rel=0.02)
    assert torch.equal(after.sequence, before.sequence)
    assert torch.equal(after.base_bounds, before.base_bounds)


def test_no_strength_is_no_change_and_no_features_are_no_trouble() -> None:
    before = inputs(3)
    assert add_noise(before, np.arange(3), 0.0, seed=0, epoch=0) is before
    bare = before._replace(features=torch.zeros(3, 0, 5))
    assert add_noise(bare, np.arange(3), 0.1, seed=0, epoch=0).features.shape == (3, 0, 5)
