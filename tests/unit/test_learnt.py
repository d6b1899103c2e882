"""Whether a model learnt from reads: what it keeps of them, and that only proof says no."""

from __future__ import annotations

import numpy as np
import pytest

from leech.data import sketch
from leech.data.sketch import ReadSketch
from leech.errors import InputError
from leech.models.learnt import Comparison, Learnt, Overlap, read_overlap


def ids(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 16), dtype=np.uint8)


def compared(learnt: Learnt, read_ids: np.ndarray, runs: list[str], **apart: bool) -> Overlap:
    comparison = Comparison(learnt)
    half = len(read_ids) // 2
    comparison.see(read_ids[:half], runs[:1])
    comparison.see(read_ids[half:], runs)
    return comparison.result(**apart)


def test_a_small_set_is_kept_whole_and_every_read_is_told():
    learnt, others = ids(50), ids(30, seed=1)
    found = ReadSketch.of(np.concatenate([learnt, learnt[::-1]]))
    assert found.num_reads == 50
    assert found.is_complete
    assert found.look_up(np.concatenate([learnt[:20], others])) == (50, 20)
    assert ReadSketch.of(learnt[::-1]).sha256 == found.sha256
    assert ReadSketch.of(others).sha256 != found.sha256


def test_of_a_large_set_a_random_share_is_told_and_the_share_among_it_is_that_of_all(monkeypatch):
    monkeypatch.setattr(sketch, "MOST_KEPT", 1000)
    learnt = ids(10000)
    # Ids that count upwards, as a simulator's may, are spread as well as random ones.
    learnt[:5000] = np.arange(5000, dtype=">u8").view(np.uint8).reshape(-1, 8).repeat(2, axis=1)
    found = ReadSketch.of(learnt)
    assert (found.num_reads, len(found.hashes), found.is_complete) == (10000, 1000, False)
    for part in (learnt[:5000], learnt[5000:]):
        # Of 5000 reads, a tenth is compared (500, standard deviation 21), and all of it is found.
        num_compared, num_found = found.look_up(part)
        assert 400 < num_compared < 600
        assert num_found == num_compared
    # A quarter of 4000 reads is the set's: of about 400 compared about 100 are found (standard deviation 9).
    num_compared, num_found = found.look_up(np.concatenate([learnt[2000:3000], ids(3000, seed=5)]))
    assert 330 < num_compared < 470
    assert 60 < num_found < 140


def test_what_is_kept_is_read_back_and_a_changed_file_is_refused(tmp_path):
    learnt = Learnt.of(ids(50), ["run-1", "run-2"])
    learnt.save(tmp_path)
    told = learnt.to_mapping()
    assert told["runs"] == ["run-1", "run-2"]
    again = Learnt.load(tmp_path, told)
    assert again.runs == learnt.runs
    assert again.sketch is not None
    assert again.sketch.look_up(ids(50)) == (50, 50)
    path = tmp_path / ReadSketch.FILE_NAME
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="is not as it was written"):
        Learnt.load(tmp_path, told)
    path.unlink()
    assert Learnt.load(tmp_path, told) == Learnt(None, learnt.runs)


@pytest.mark.parametrize(
    ("runs", "state"),
    [
        (["run-1"], "unknown"),
        (["run-3", "run-2"], "unknown"),
        (["run-3"], "no"),
        (["run-3", ""], "unknown"),
        ([], "unknown"),
    ],
)
def test_reads_that_were_not_found_are_other_reads_only_where_that_is_proved(monkeypatch, runs, state):
    monkeypatch.setattr(sketch, "MOST_KEPT", 10)
    partial = Learnt.of(ids(100), ["run-1", "run-2"])
    others = ids(40, seed=1)
    assert compared(partial, others, runs).state == state
    # Runs of which one has no name tell nothing, and neither does a folder of an earlier version.
    assert compared(Learnt.of(ids(100), ["run-1", ""]), others, runs).state == "unknown"
    assert compared(Learnt.load(None, {"corpus_digest": "x"}), others, runs) == Overlap("unknown")
    # By the splits of the training's own corpus it is proved whatever the runs, and without any knowledge of reads.
    assert compared(partial, others, runs, kept_apart=True).state == "no"
    assert compared(Learnt(), others, runs, kept_apart=True).state == "no"
    assert compared(partial, others[:0], [], kept_apart=True).state == "unknown"


def test_where_every_read_is_kept_the_same_run_does_not_matter():
    whole = Learnt.of(ids(100), ["run-1"])
    assert compared(whole, ids(40, seed=1), ["run-1"]) == Overlap("no", 40, 0)
    assert compared(whole, ids(40, seed=1)[:0], ["run-1"]) == Overlap("unknown")


def test_one_read_that_was_found_outweighs_everything_else():
    whole = Learnt.of(ids(100), ["run-1"])
    mixed = np.concatenate([ids(39, seed=1), ids(100)[7:8]])
    assert compared(whole, mixed, ["run-9"], kept_apart=True) == Overlap("yes", 40, 1)


def test_an_overlap_is_read_back_and_anything_else_is_not():
    for overlap in (Overlap("yes", 40, 1), Overlap("no", 40, 0), Overlap("unknown")):
        assert read_overlap(overlap.to_mapping()) == overlap
    assert read_overlap(None) == Overlap("unknown")
    for damaged in ("no", {}, {"state": "never"}, {"state": "no", "num_compared": -1, "num_found": 0}, {"state": "no"}):
        assert read_overlap(damaged) is None
    assert Overlap("yes", 40, 1).words == "yes: 1 of 40 reads compared"
    assert Overlap("unknown", 40, 0).words == "unknown: none of 40 reads compared"
