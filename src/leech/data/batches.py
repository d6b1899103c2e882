"""Chunks to torch batches.

Hides: the arithmetic that turns stored columns into network inputs, and the order of an epoch. Belongs here: all that
is derived per batch (normalised signal, base boundaries, feature channels); one-hot encodings belong to the network's
input layers, so that they happen on its device. The only torch module of ``data/``. Invariants: the rows of batch b of
an epoch depend on (rows, seed, epoch, batch size) alone, never on who asks; inputs are in the frames of ``recipe.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leech.data.corpus import Corpus
from leech.data.features import base_bounds, feature_channels
from leech.data.recipe import Recipe


class Inputs(NamedTuple):
    """What a network sees of n chunks.

    :ivar signal: float32 (n, num_samples), ``(adc - shift) / scale``, 0 where the window overhangs the read.
    :ivar base_bounds: int32 (n, num_bases + 1), start sample of each base of the base window and the end of the last, in
        window samples and not clipped to the window; a base whose start equals its end has no signal.
    :ivar sequence: uint8 (n, num_bases + 2 * CONTEXT_BASES), base codes A C G T = 0..3 and 4 for unknown.
    :ivar features: float32 (n, num_features, num_feature_bases).
    """

    signal: Tensor
    base_bounds: Tensor
    sequence: Tensor
    features: Tensor

    def to(self, device: torch.device | str) -> Inputs:
        """Return the same inputs on ``device``."""
        return Inputs(*(tensor.to(device, non_blocking=True) for tensor in self))


class Batch(NamedTuple):
    """Inputs with what training and evaluation need beside them.

    :ivar rows: int64 (n,), global row numbers in the corpus.
    :ivar labels: int64 (n,), label codes of the corpus.
    """

    inputs: Inputs
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]


INPUT_COLUMNS = (
    "signal",
    "valid_start",
    "valid_end",
    "shift",
    "scale",
    "focus_base_start",
    "dwell",
    "sequence",
    "median_dwell",
    "level_mean",
    "level_median",
    "level_sd",
    "level_range",
)
"""Columns that :func:`make_inputs` reads, beside ``expected_level`` where there is one."""


def make_inputs(columns: Mapping[str, NDArray[Any]], recipe: Recipe, features: Sequence[str]) -> Inputs:
    """Turn chunk columns into network inputs.

    :param columns: arrays of n chunks by column name (see ``docs/formats.md``).
    :param features: names of the feature channels, see ``leech.data.features.FEATURES``.
    """
    shift = np.asarray(columns["shift"], dtype=np.float32)[:, None]
    scale = np.asarray(columns["scale"], dtype=np.float32)[:, None]
    signal = (columns["signal"] - shift) / scale
    sample = np.arange(recipe.num_samples, dtype=np.int16)
    outside = (sample < columns["valid_start"][:, None]) | (sample >= columns["valid_end"][:, None])
    signal[outside] = 0
    return Inputs(
        signal=torch.from_numpy(signal),
        base_bounds=torch.from_numpy(base_bounds(columns, recipe)),
        sequence=torch.from_numpy(np.ascontiguousarray(columns["sequence"])),
        features=torch.from_numpy(feature_channels(columns, recipe, features)),
    )


def epoch_order(rows: NDArray[np.int64], seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the rows of one epoch in their order: a permutation that depends on (seed, epoch) alone."""
    return np.random.default_rng([seed, epoch]).permutation(rows)


def iterate_batches(
    corpus: Corpus, rows: NDArray[np.int64], batch_size: int, features: Sequence[str]
) -> Iterator[Batch]:
    """Yield the rows in the order given, ``batch_size`` at a time; the last batch may be short, none is dropped."""
    names = [*INPUT_COLUMNS, "label"] + (["expected_level"] if corpus.has_column("expected_level") else [])
    for start in range(0, len(rows), batch_size):
        chosen = rows[start : start + batch_size]
        columns = corpus.gather(chosen, names)
        yield Batch(
            inputs=make_inputs(columns, corpus.recipe, features),
            rows=chosen,
            labels=columns["label"].astype(np.int64),
        )
