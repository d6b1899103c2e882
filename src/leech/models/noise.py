"""Random numbers that belong to a chunk, not to a generator's state.

Hides: the hash. Belongs here: numbers for whoever disturbs inputs (``leech.training.augment``) or drops values
(``layers.py``); what is disturbed, and how strongly, is theirs. Invariants: a chunk's numbers are a pure function of the key
and of the chunk's own number, whatever batch it is in and whoever computes it, and are drawn on the device of its values.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_MASK = 2**64 - 1

_PER_WORD = 4
"""Decisions that one 64-bit number is enough for, 16 bits each."""


class Draw(NamedTuple):
    """From which numbers the dropout of a batch is drawn.

    :ivar rows: int64 (n,), the number of each chunk, on the device of the inputs.
    :ivar key: what else the numbers depend on: seed and epoch, as one number below 2**64.
    """

    rows: Tensor
    key: int


def _signed(value: int) -> int:
    """Return the 64-bit pattern of ``value`` as torch's integers hold it."""
    value &= _MASK
    return value - 2**64 if value >= 2**63 else value


def _shifted(values: Tensor, bits: int) -> Tensor:
    # Torch shifts the sign bit in; a hash wants zeros.
    return (values >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def _hashed(values: Tensor) -> Tensor:
    """Return the finaliser of SplitMix64 (Steele, Lea and Flood 2014), int64 of the same shape, in ``values`` itself."""
    values.bitwise_xor_(_shifted(values, 30)).mul_(_signed(_FIRST))
    values.bitwise_xor_(_shifted(values, 27)).mul_(_signed(_SECOND))
    return values.bitwise_xor_(_shifted(values, 31))


def _row_bits(rows: Tensor, count: int, key: int) -> Tensor:
    """Return ``count`` numbers of 64 random bits per row, int64 (n, count)."""
    places = torch.arange(1, count + 1, device=rows.device) * _signed(_GOLDEN)
    return _hashed(_hashed(rows * _signed(_GOLDEN) + _signed(key))[:, None] + places)


def row_noise(rows: Tensor, count: int, key: int) -> Tensor:
    """Return ``count`` numbers of mean 0 and variance 1 per row, float32 (n, count).

    Each is the sum of four uniform numbers: bell-shaped, and bounded at 3.46 standard deviations.

    :param rows: int64 (n,), what each row's numbers depend on, together with ``key``.
    """
    bits = _row_bits(rows, count, key)
    total = sum(((bits >> shift) & 0xFFFF for shift in (0, 16, 32, 48)), torch.zeros_like(bits))
    return (total.to(torch.float32) - 2 * 0xFFFF) / (0x10000 / math.sqrt(3))


def row_dropout(values: Tensor, probability: float, draw: Draw, place: int) -> Tensor:
    """Set each value to 0 with ``probability``, and scale the others so that the mean stays.

    :param values: float32 (n, channels) or (n, channels, 1, length).
    :param probability: taken to the next multiple of 2**-16.
    :param place: number of the layer: every layer draws numbers of its own.
    """
    count = values[0].numel()
    key = draw.key ^ ((place + 1) * _SECOND & _MASK)
    words = _row_bits(draw.rows, -(-count // _PER_WORD), key)
    threshold = round(probability * 2**16)
    # 16-bit numbers run from -2**15 on.
    kept = words.view(torch.int16)[:, :count] >= threshold - 2**15
    if values.dim() == 4:
        # In the order in which channels-last values lie in memory, so that neither side jumps.
        kept = kept.reshape(len(values), 1, values.shape[3], values.shape[1]).permute(0, 3, 1, 2)
    return values * kept * (1 / (1 - threshold / 2**16))
