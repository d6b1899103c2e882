"""Probabilities for a stream of record batches.

Hides: that the network is given as many chunks at once as it is asked to, whatever the size of the record batches; that
reading, computing and writing overlap; and that several copies of the network compute side by side. Belongs here: the way from
chunks to probabilities; calls are made of them in ``calls.py``. Invariants: batches come out in the order in which they came
in, each with the probabilities of its own chunks; which chunks share a network batch does not depend on the number of workers
or of copies; only a few records are held, however few of them give a chunk.
"""

from __future__ import annotations

import copy
import os
import queue
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

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
    """Some consecutive records and P(positive) of the used ones, float64 (num_chunks,), or P of every class, (num_chunks, K).

    Without a used one the probabilities are of shape (0,), whatever the model.
    """

    batch: RecordBatch
    probabilities: NDArray[np.float64]


def replicas(network: nn.Module, devices: Sequence[torch.device]) -> list[Predictor]:
    """Return a copy of the network on each device, the first of which is the network itself."""
    return [
        Predictor(network if number == 0 else copy.deepcopy(network), device) for number, device in enumerate(devices)
    ]


def scored_batches(
    stream: ReadStream,
    loaded: LoadedModel,
    predictors: Sequence[Predictor],
    *,
    batch_records: int,
    workers: int,
    batch_size: int,
) -> Generator[ScoredBatch, None, None]:
    """Read, cut and score a run; reading and every copy of the network go on in threads of their own, a few batches ahead.

    :param predictors: copies of one network, which take the network batches in turn as they become free.
    :raises LeechError: the network ran out of memory, or gave numbers that are not finite.
    """
    batches = stream.batches(batch_records, workers)
    first = next(batches, None)
    if first is None:
        return
    # Worker processes start with the first batch, and their signals can be held back in the main thread only.
    portions = _portions(prefetched(_again(first, batches), depth=1), batch_size)
    scorer = _Scorer(loaded, predictors, batch_size)
    yield from prefetched(_dealt_out(scorer.score(portions)), depth=1)


def _again(first: RecordBatch, rest: Iterator[RecordBatch]) -> Generator[RecordBatch, None, None]:
    try:
        yield first
        del first
        yield from rest
    finally:
        if isinstance(rest, Generator):
            rest.close()


class _Portion(NamedTuple):
    """Chunks of one network batch, and the record batches whose last chunk is among them.

    :ivar columns: None where no chunk is missing for the record batches.
    """

    columns: Columns | None
    completed: list[RecordBatch]


def _portions(batches: Iterator[RecordBatch], batch_size: int) -> Generator[_Portion, None, None]:
    """Put the chunks of record batches together to network batches."""
    cutter = _Portioner()
    try:
        for batch in batches:
            cutter.add(batch)
            while cutter.num_chunks >= batch_size:
                yield cutter.take(batch_size)
            if completed := cutter.completed():
                yield _Portion(None, completed)
            if cutter.num_records > max(_HELD_PER_CHUNK * batch_size, _HELD_ANYWAY):
                yield cutter.take(cutter.num_chunks)
        if cutter.num_chunks:
            yield cutter.take(cutter.num_chunks)
    finally:
        if isinstance(batches, Generator):
            batches.close()
    assert not cutter.num_records, "record batches without probabilities"


class _Portioner:
    """Record batches that wait for a network batch to be full."""

    def __init__(self) -> None:
        self.num_chunks = 0
        self.num_records = 0
        self._chunks: deque[Columns] = deque()
        self._waiting: deque[RecordBatch] = deque()
        self._num_taken = 0

    def add(self, batch: RecordBatch) -> None:
        """Take one more batch in."""
        self._waiting.append(batch)
        self.num_records += len(batch.records)
        if len(batch.cut.chunks):
            self._chunks.append(batch.cut.chunks.columns)
            self.num_chunks += len(batch.cut.chunks)

    def take(self, number: int) -> _Portion:
        """Return the next ``number`` chunks."""
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
        self.num_chunks -= number
        self._num_taken += number
        return _Portion(parts[0] if len(parts) == 1 else _joined(parts), self.completed())

    def completed(self) -> list[RecordBatch]:
        """Return the batches at the front that no chunk is missing for."""
        found = []
        while self._waiting and len(self._waiting[0].cut.chunks) <= self._num_taken:
            batch = self._waiting.popleft()
            self._num_taken -= len(batch.cut.chunks)
            self.num_records -= len(batch.records)
            found.append(batch)
        return found


class _Scorer:
    """Copies of a network, each asked in a thread; together they use as many cores as one alone would."""

    def __init__(self, loaded: LoadedModel, predictors: Sequence[Predictor], batch_size: int) -> None:
        self._bundle, self._batch_size, self._number = loaded.bundle, batch_size, len(predictors)
        self._free: queue.SimpleQueue[Predictor] = queue.SimpleQueue()
        for predictor in predictors:
            self._free.put(predictor)

    def score(
        self, portions: Generator[_Portion, None, None]
    ) -> Generator[tuple[list[RecordBatch], NDArray[np.float64]], None, None]:
        """Yield the completed record batches and probabilities of every portion, in order."""
        ahead: deque[tuple[list[RecordBatch], Future[NDArray[np.float64]]]] = deque()
        before = torch.get_num_threads()
        threads = before if "OMP_NUM_THREADS" in os.environ else max(1, before // self._number)
        with ThreadPoolExecutor(self._number, "leech-network", torch.set_num_threads, (threads,)) as pool:
            try:
                for columns, completed in portions:
                    ahead.append((completed, pool.submit(self._probabilities, columns)))
                    # One more than there are copies, so that none waits while the reads are got ready.
                    while len(ahead) > self._number + 1:
                        done, future = ahead.popleft()
                        yield done, future.result()
                while ahead:
                    done, future = ahead.popleft()
                    yield done, future.result()
            finally:
                portions.close()
                pool.shutdown(cancel_futures=True)
                torch.set_num_threads(before)

    def _probabilities(self, columns: Columns | None) -> NDArray[np.float64]:
        if columns is None:
            return np.zeros(0)
        predictor = self._free.get()
        try:
            inputs = make_inputs(columns, self._bundle.recipe, self._bundle.spec.features)
            return predictor.probabilities(inputs, self._bundle.calibration)
        except (MemoryError, RuntimeError) as error:
            if not _is_out_of_memory(error):
                raise
            number = len(columns["signal"])
            raise LeechError(
                f"The memory of the {'GPU' if isinstance(error, torch.cuda.OutOfMemoryError) else 'machine'} does not hold "
                f"{number} chunks at once; nothing was kept.",
                hint=f"Give a --batch-size below {self._batch_size}; the calls are the same at any size.",
            ) from error
        finally:
            self._free.put(predictor)


def _dealt_out(
    scored: Generator[tuple[list[RecordBatch], NDArray[np.float64]], None, None],
) -> Generator[ScoredBatch, None, None]:
    """Yield every record batch with the probabilities of its chunks, which may be of several network batches."""
    left = np.zeros(0)
    try:
        for completed, probabilities in scored:
            # Of classes they have two dimensions, which nothing of no length can be joined with.
            left = np.concatenate([part for part in (left, probabilities) if len(part)] or [np.zeros(0)])
            for batch in completed:
                number = len(batch.cut.chunks)
                yield ScoredBatch(batch, left[:number])
                left = left[number:]
    finally:
        scored.close()


def _joined(parts: list[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _is_out_of_memory(error: Exception) -> bool:
    """Return whether an error says that memory ran out; PyTorch has a class of its own for that on a GPU only."""
    return isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)) or "DefaultCPUAllocator" in str(error)
