"""Batches made ahead of time in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from leech.data.batches import prefetched


def test_items_come_in_order_and_up_to_so_many_are_made_ahead() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in range(20):
            made.append(number)
            yield number

    ahead = prefetched(items(), depth=3)
    assert next(ahead) == 0
    deadline = time.monotonic() + 5
    # One is taken, three wait, and one more is in the maker's hand.
    while len(made) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert made == [0, 1, 2, 3, 4]
    assert list(ahead) == list(range(1, 20))


def test_an_error_comes_where_it_happened() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    ahead = prefetched(items())
    assert next(ahead) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(ahead)


def test_whoever_stops_early_leaves_no_thread() -> None:
    before = threading.active_count()
    ahead = prefetched(iter(range(1000)))
    assert next(ahead) == 0
    ahead.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
