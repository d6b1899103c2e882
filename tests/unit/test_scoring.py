"""Probabilities for a stream of batches: the network's batch is its own, and nothing is lost or mixed up."""

from __future__ import annotations

import threading
import time
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from leech.data.chunks import CutResult
from leech.data.corpus import ChunkArrays
from leech.data.refine import RefinementTally
from leech.data.stream import RecordBatch
from leech.errors import LeechError
from leech.prediction import scoring
from leech.prediction.calls import CallRules, judge
from leech.prediction.scoring import replicas


def batch(first, used, unused=0):
    """Return a batch whose chunks are numbered from ``first``."""
    columns = {
        "signal": np.arange(first, first + used, dtype=np.int16)[:, None],
        "shift": np.zeros(used, dtype=np.float32),
        "junction_indel": np.zeros(used, dtype=np.uint8),
    }
    cut = CutResult(ChunkArrays(columns, {}), ("used",) * used, {}, Counter(), 0, RefinementTally())
    outcomes = ["used"] * used + ["no_moves"] * unused
    records = [SimpleNamespace(query_name=str(n), reference_name="a") for n in range(used + unused)]
    return RecordBatch(records, outcomes, cut)


class Echo:
    """Gives each chunk its number / 1000, and remembers how many it was asked for at once."""

    def __init__(self, failure=None, delay=0.0):
        self.asked, self.threads, self.failure = [], set(), failure
        self.delay, self.num_threads = delay, set()

    def probabilities(self, inputs, calibration):
        assert calibration == "the model's"
        if self.failure is not None:
            raise self.failure
        self.asked.append(len(inputs))
        self.threads.add(threading.get_ident())
        self.num_threads.add(torch.get_num_threads())
        time.sleep(self.delay)
        return inputs[:, 0] / 1000.0


def score(batches, batch_size, monkeypatch, predictor=None, closed=None):
    monkeypatch.setattr(scoring, "make_inputs", lambda columns, recipe, features: columns["signal"])
    loaded = SimpleNamespace(
        bundle=SimpleNamespace(recipe=None, calibration="the model's", spec=SimpleNamespace(features=()))
    )

    def stream(size, workers):
        try:
            yield from batches
        finally:
            if closed is not None:
                closed.append(True)

    return scoring.scored_batches(
        SimpleNamespace(batches=stream),
        loaded,
        predictor if isinstance(predictor, list) else [predictor or Echo()],
        batch_records=3,
        workers=1,
        batch_size=batch_size,
    )


@pytest.mark.parametrize(
    ("batch_size", "asked"),
    [
        (1, [1] * 9),
        (2, [2, 2, 2, 2, 1]),
        (4, [4, 4, 1]),
        (9, [9]),
        (100, [9]),
    ],
)
def test_network_batches_are_full_whatever_the_size_of_record_batches(monkeypatch, batch_size, asked):
    batches = [batch(0, 3, 1), batch(3, 0, 5), batch(3, 1), batch(4, 5)]
    predictor = Echo()
    found = list(score(batches, batch_size, monkeypatch, predictor))
    assert predictor.asked == asked
    assert [scored.batch for scored in found] == batches
    assert [scored.probabilities.tolist() for scored in found] == [
        [0.0, 0.001, 0.002],
        [],
        [0.003],
        [0.004, 0.005, 0.006, 0.007, 0.008],
    ]


@pytest.mark.parametrize("batch_size", [1, 2, 4, 100])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_copies_of_the_network_share_the_work_and_the_order_stays(monkeypatch, number, batch_size):
    batches = [batch(0, 3, 1), batch(3, 0, 5), batch(3, 1), batch(4, 5), batch(9, 0, 1), batch(9, 30)]
    # The first copy is slow: what was asked of the others is ready before.
    copies = [Echo(delay=0.02 if place == 0 else 0) for place in range(number)]
    found = list(score(batches, batch_size, monkeypatch, copies))
    assert [scored.batch for scored in found] == batches
    flat = [round(1000 * p) for scored in found for p in scored.probabilities]
    assert flat == list(range(39))
    asked = Counter(size for one in copies for size in one.asked)
    assert asked == Counter([batch_size] * (39 // batch_size) + [39 % batch_size] * (39 % batch_size > 0))
    if batch_size == 1:
        assert all(one.asked for one in copies)


def test_a_failure_of_one_copy_ends_the_run(monkeypatch):
    before = threading.active_count()
    copies = [Echo(), Echo(RuntimeError("shapes cannot be multiplied"), delay=0.01)]
    with pytest.raises(RuntimeError, match="shapes"):
        list(score([batch(n, 1) for n in range(50)], 1, monkeypatch, copies))
    assert threading.active_count() == before


def test_copies_together_use_as_many_threads_as_one_network_would(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        copies = [Echo(), Echo()]
        list(score([batch(n, 1) for n in range(20)], 1, monkeypatch, copies))
        assert {number for one in copies for number in one.num_threads} == {2}
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


def test_copies_have_weights_of_their_own():
    network = torch.nn.Linear(3, 1)
    predictors = replicas(network, [torch.device("cpu")] * 3)
    networks = [predictor._network for predictor in predictors]
    assert networks[0] is network
    assert len({id(one.weight) for one in networks}) == 3
    assert all(torch.equal(one.weight, network.weight) for one in networks)


def test_records_do_not_pile_up_while_few_of_them_give_chunks(monkeypatch):
    predictor = Echo()
    batches = [batch(n, 1, 2999) for n in range(7)]
    assert len(list(score(batches, 512, monkeypatch, predictor))) == 7
    # 3 x 3000 records are more than the 8000 that may wait.
    assert predictor.asked == [3, 3, 1]


def test_scoring_goes_on_in_a_thread_of_its_own(monkeypatch):
    predictor = Echo()
    list(score([batch(0, 1)], 1, monkeypatch, predictor))
    assert threading.get_ident() not in predictor.threads


def test_no_batches_give_none(monkeypatch):
    assert list(score([], 4, monkeypatch)) == []


def test_whoever_stops_early_lets_go_of_the_run(monkeypatch):
    closed = []
    before = threading.active_count()
    scored = score([batch(n, 1) for n in range(50)], 1, monkeypatch, closed=closed)
    next(scored)
    scored.close()
    assert closed == [True]
    assert threading.active_count() == before


@pytest.mark.parametrize(
    "failure",
    [
        MemoryError(),
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_memory_that_runs_out_is_told_in_words(monkeypatch, failure):
    with pytest.raises(LeechError, match="does not hold 2 chunks at once") as caught:
        list(score([batch(0, 2)], 512, monkeypatch, Echo(failure)))
    assert "--batch-size below 512" in caught.value.hint


def test_other_failures_keep_their_name(monkeypatch):
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        list(score([batch(0, 2)], 512, monkeypatch, Echo(RuntimeError("shapes cannot be multiplied"))))


def judged(probabilities, rules, junction=None):
    found = batch(0, len(probabilities), 1)
    if junction is not None:
        found.cut.chunks.columns["junction_indel"][:] = junction
    return [(call.likelihood, call.positive, call.reason) for _, call in judge(found, np.array(probabilities), rules)]


def test_a_read_is_called_from_the_threshold_on_and_a_record_without_chunk_keeps_its_reason():
    # 255 * 0.7843 = 199.997, cl 200; 255 * 0.78 = 198.9, cl 199.
    assert judged([0.7843, 0.78, 0.0], CallRules(200)) == [
        (200, True, ""),
        (199, False, ""),
        (0, False, ""),
        (None, None, "no_moves"),
    ]


def test_confidence_is_that_of_the_state_that_would_be_called():
    # 0.7 lies under the threshold and would be called negative, with a probability of 0.3.
    assert judged([0.95, 0.8, 0.7, 0.2, 0.05], CallRules(200, min_confidence=0.9))[:-1] == [
        (242, True, ""),
        (None, None, "low_confidence"),
        (None, None, "low_confidence"),
        (None, None, "low_confidence"),
        (13, False, ""),
    ]


def test_a_disrupted_junction_is_left_uncalled_when_asked_for():
    assert judged([0.9, 0.9, 0.9], CallRules(200, needs_clean_junction=True), [0, 1, 2])[:-1] == [
        (230, True, ""),
        (None, None, "junction_indel"),
        (None, None, "junction_indel"),
    ]
    assert [call[2] for call in judged([0.9, 0.9], CallRules(200), [1, 2])[:-1]] == ["", ""]


def test_probabilities_of_several_classes_stay_with_their_chunks(monkeypatch):
    class Several(Echo):
        def probabilities(self, inputs, calibration):
            p = super().probabilities(inputs, calibration)
            return np.stack([p, 2 * p, 1 - 3 * p], axis=1)

    # Batches without a chunk stand before, between and behind the others.
    batches = [batch(0, 0, 2), batch(0, 3, 1), batch(3, 0, 1), batch(3, 4, 0), batch(7, 0, 3)]
    for size in (1, 2, 100):
        found = [scored.probabilities for scored in score(batches, size, monkeypatch, Several())]
        assert [len(p) for p in found] == [0, 3, 0, 4, 0]
        together = np.concatenate([p.reshape(-1, 3) for p in found])
        expected = np.arange(7) / 1000
        np.testing.assert_array_equal(together, np.stack([expected, 2 * expected, 1 - 3 * expected], axis=1))
