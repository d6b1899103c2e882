"""Probabilities for a stream of record batches.

Hides: that the network is given as many chunks at once as it is asked to, whatever the size of the record batches, and that
reading, computing and writing overlap. Belongs here: the way from chunks to probabilities; calls are made of them in
``calls.py``. Invariants: batches come out in the order in which they came in, each with the probabilities of its own chunks;
which chunks share a network batch does not depend on the number of workers; only a few records are held, however few of them
give a chunk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from leech.data.batches import make_inputs, prefetched
from leech.data.stream import ReadStream, RecordBatch
from leech.errors import LeechError
from leech.models.bundle import LoadedModel
from leech.models.inference import Predictor

Columns = Mapping[str, NDArray[Any]]

_HELD_PER_CHUNK = 8
"""Records held at most per chunk of a network batch; where few of them give a chunk, a batch is not waited for."""

_HELD_ANYWAY = 8000


class ScoredBatch(NamedTuple):
    """Some consecutive records and P(positive) of the used ones, float64 (num_chunks,)."""

    batch: RecordBatch
    probabilities: NDArray[np.float64]


def scored_batches(
    stream: ReadStream, loaded: LoadedModel, predictor: Predictor, *, batch_records: int, workers: int, batch_size: int
) -> Generator[ScoredBatch, None, None]:
    """Read, cut and score a run; each of reading and scoring goes on in a thread of its own, a few batches ahead.

    :raises LeechError: the network ran out of memory, or gave numbers that are not finite.
    """
    batches = stream.batches(batch_records, workers)
    first = next(batches, None)
    if first is None:
        return
    # Worker processes start with the first batch, and their signals can be held back in the main thread only.
    scorer = _Scorer(loaded, predictor, batch_size)
    yield from prefetched(scorer.score(prefetched(_again(first, batches), depth=1)), depth=1)


def _again(first: RecordBatch, rest: Iterator[RecordBatch]) -> Generator[RecordBatch, None, None]:
    try:
        yield first
        del first
        yield from rest
    finally:
        if isinstance(rest, Generator):
            rest.close()


class _Scorer:
    """Collects chunks until a network batch is full, and hands on the record batches that it completes."""

    def __init__(self, loaded: LoadedModel, predictor: Predictor, batch_size: int) -> None:
        self._bundle, self._predictor, self._batch_size = loaded.bundle, predictor, batch_size
        self._waiting: deque[RecordBatch] = deque()
        self._chunks: deque[Columns] = deque()
        self._num_chunks = 0
        self._known: deque[NDArray[np.float64]] = deque()
        self._num_known = 0

    def score(self, batches: Iterable[RecordBatch]) -> Iterator[ScoredBatch]:
        """Yield the batches with their probabilities, in order."""
        for batch in batches:
            self._waiting.append(batch)
            if len(batch.cut.chunks):
                self._chunks.append(batch.cut.chunks.columns)
                self._num_chunks += len(batch.cut.chunks)
            while self._num_chunks >= self._batch_size:
                self._ask(self._batch_size)
            yield from self._complete()
            held = sum(len(waiting.records) for waiting in self._waiting)
            if held > max(_HELD_PER_CHUNK * self._batch_size, _HELD_ANYWAY):
                self._ask(self._num_chunks)
                yield from self._complete()
        if self._num_chunks:
            self._ask(self._num_chunks)
        yield from self._complete()
        assert not self._waiting, "record batches without probabilities"

    def _ask(self, number: int) -> None:
        """Score the next ``number`` chunks."""
        parts: list[Columns] = []
        missing = number
        while missing:
            columns = self._chunks.popleft()
            length = len(columns["signal"])
            if length > missing:
                self._chunks.appendleft({name: values[missing:] for name, values in columns.items()})
                columns = {name: values[:missing] for name, values in columns.items()}
                length = missing
            parts.append(columns)
            missing -= length
        self._num_chunks -= number
        joined = parts[0] if len(parts) == 1 else _joined(parts)
        self._known.append(self._probabilities(joined))
        self._num_known += number

    def _probabilities(self, columns: Columns) -> NDArray[np.float64]:
        try:
            inputs = make_inputs(columns, self._bundle.recipe, self._bundle.spec.features)
            return self._predictor.positive_probability(inputs, self._bundle.calibration)
        except (MemoryError, RuntimeError) as error:
            if not _is_out_of_memory(error):
                raise
            number = len(columns["signal"])
            raise LeechError(
                f"The memory of the {'GPU' if isinstance(error, torch.cuda.OutOfMemoryError) else 'machine'} does not hold "
                f"{number} chunks at once; nothing was kept.",
                hint=f"Give a --batch-size below {self._batch_size}; the calls are the same at any size.",
            ) from error

    def _complete(self) -> Iterator[ScoredBatch]:
        while self._waiting and len(self._waiting[0].cut.chunks) <= self._num_known:
            batch = self._waiting.popleft()
            yield ScoredBatch(batch, self._take(len(batch.cut.chunks)))

    def _take(self, number: int) -> NDArray[np.float64]:
        self._num_known -= number
        parts = [np.zeros(0)]
        while number:
            known = self._known.popleft()
            parts.append(known[:number])
            if len(known) > number:
                self._known.appendleft(known[number:])
            number -= len(parts[-1])
        return np.concatenate(parts)


def _joined(parts: list[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _is_out_of_memory(error: Exception) -> bool:
    """Return whether an error says that memory ran out; PyTorch has a class of its own for that on a GPU only."""
    return isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)) or "DefaultCPUAllocator" in str(error)
