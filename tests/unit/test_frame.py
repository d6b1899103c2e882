"""The vote on the signal frame."""

from __future__ import annotations

import numpy as np
import pytest

from leech.data.frame import Evidence, judge_frame
from leech.data.levels import additive_levels, encode_bases
from leech.errors import MismatchError


def evidence(count, *, frame, length=60, seed=0):
    """Reads whose medians follow their sequence in one frame: "reversed" (RNA), "time", or neither."""
    generator = np.random.default_rng(seed)
    reads = []
    for _ in range(count):
        codes = encode_bases("".join(generator.choice(list("ACGT"), length)))
        levels = additive_levels(codes) + generator.normal(0, 0.2, length).astype(np.float32)
        if frame == "neither":
            levels = generator.normal(0, 1, length).astype(np.float32)
        reads.append(Evidence(codes, levels[::-1] if frame == "reversed" else levels))
    return reads


def test_reads_in_the_recipes_frame_confirm_it():
    verdict = judge_frame(evidence(20, frame="reversed"), True, None, None)
    assert (verdict.votes_for, verdict.votes_against) == (20, 0)
    assert verdict.is_decided


def test_reads_in_the_other_frame_stop_the_run_and_say_which_way_the_signal_runs():
    with pytest.raises(MismatchError, match="run 5'->3' in time, not 3'->5'") as caught:
        judge_frame(evidence(20, frame="time"), True, None, None)
    assert "--no-reverse-signal" in caught.value.hint
    assert judge_frame(evidence(20, frame="time"), False, None, None).votes_for == 20


def test_a_majority_decides():
    mixed = evidence(10, frame="reversed") + evidence(4, frame="time", seed=1)
    verdict = judge_frame(mixed, True, None, None)
    assert (verdict.votes_for, verdict.votes_against) == (10, 4)


@pytest.mark.parametrize("frame", ["neither", "time"])
def test_too_few_votes_decide_nothing(frame):
    verdict = judge_frame(evidence(2, frame=frame), True, None, None)
    assert not verdict.is_decided
    assert not judge_frame([], True, None, None).is_decided
