"""Chunks to torch batches.

Hides: the arithmetic that turns stored columns into network inputs. Belongs here: all that is derived per batch (normalised
signal, base boundaries, feature channels); one-hot encodings belong to the network's input layers, so that they happen on
its device, and the order of an epoch to ``leech.training.samplers``. The only torch module of ``data/``. Invariants: rows
come in the order in which they were asked for; inputs are in the frames of ``recipe.py``.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast

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
    :ivar columns: further columns of the corpus that were asked for.
    """

    inputs: Inputs
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    columns: Mapping[str, NDArray[Any]] = MappingProxyType({})


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
"""Columns that :func:`make_inputs` reads, beside :data:`_OPTIONAL_COLUMNS`."""

_OPTIONAL_COLUMNS = ("expected_level", "indels")
"""Columns that it reads where there are any."""


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


def load_batch(corpus: Corpus, rows: NDArray[np.int64], features: Sequence[str], columns: Sequence[str] = ()) -> Batch:
    """Return the given rows as one batch.

    :param columns: columns to be returned beside inputs and labels.
    """
    names = [*INPUT_COLUMNS, "label", *(name for name in _OPTIONAL_COLUMNS if corpus.has_column(name))]
    found = corpus.gather(rows, [*names, *(name for name in columns if name not in names)])
    return Batch(
        inputs=make_inputs(found, corpus.recipe, features),
        rows=rows,
        labels=found["label"].astype(np.int64),
        columns={name: found[name] for name in columns},
    )


T = TypeVar("T")


def prefetched(items: Iterable[T], depth: int = 2) -> Iterator[T]:
    """Yield the items, of which up to ``depth`` are made ahead of time in a thread.

    Gathering and normalising release the interpreter's lock, so a thread keeps up with a network, and shares the mapped
    pages that a process would have to map again.
    """
    ready: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(depth)
    abandoned = threading.Event()

    def put(item: tuple[T | None, BaseException | None]) -> None:
        while not abandoned.is_set():
            with suppress(queue.Full):
                ready.put(item, timeout=0.1)
                return

    def fill() -> None:
        try:
            for item in items:
                put((item, None))
                if abandoned.is_set():
                    return
            put((None, StopIteration()))
        except BaseException as error:
            put((None, error))
        finally:
            # A generator that is left half-way lets go of its files and processes here, not when it happens to be collected.
            if isinstance(items, Generator):
                items.close()

    thread = threading.Thread(target=fill, daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield cast("T", item)
    finally:
        abandoned.set()
        thread.join()


def iterate_batches(
    corpus: Corpus, rows: NDArray[np.int64], batch_size: int, features: Sequence[str]
) -> Iterator[Batch]:
    """Yield the rows in the order given, ``batch_size`` at a time; the last batch may be short, none is dropped."""
    for start in range(0, len(rows), batch_size):
        yield load_batch(corpus, rows[start : start + batch_size], features)
