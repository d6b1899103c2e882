"""Taking a move table out of a record's tag."""

from __future__ import annotations

from array import array

import pysam
import pytest

from leech.data.reads import MoveTable, move_table


def record(values: array[int] | array[float]) -> pysam.AlignedSegment:
    made = pysam.AlignedSegment()
    made.set_tag("mv", values)
    return made


@pytest.mark.parametrize("code", "bBhHiI")
def test_a_table_is_the_same_in_integers_of_any_width(code: str) -> None:
    assert move_table(record(array(code, [6, 1, 0, 0, 1]))) == MoveTable(6, b"\x01\x00\x00\x01")


@pytest.mark.parametrize("code", "hHiI")
@pytest.mark.parametrize("value", [256, 257, 2])
def test_a_wide_value_is_no_move_because_its_last_byte_looks_like_one(code: str, value: int) -> None:
    # 256 is the byte 0 with a 1 before it, and 257 the byte 1.
    assert move_table(record(array(code, [6, 1, 0, value, 1]))) == "bad_moves"


@pytest.mark.parametrize(("code", "value"), [("b", -1), ("h", -256), ("i", -255), ("I", 2**32 - 256), ("i", 65536)])
def test_negative_and_very_large_values_are_no_moves_either(code: str, value: int) -> None:
    assert move_table(record(array(code, [6, 1, 0, value, 1]))) == "bad_moves"


def test_a_table_of_fractions_is_none() -> None:
    # Cut to whole numbers it would be 5, then 1 0 0 1.
    assert move_table(record(array("f", [5.5, 1.5, 0.5, 0.0, 1.0]))) == "bad_moves"
