"""The draw of an epoch, and the shares of it."""

from __future__ import annotations

import numpy as np
import pytest

from leech.training.samplers import (
    BLOCK_ROWS,
    POOL_BLOCKS,
    balanced_weights,
    draw_weighted,
    epoch_rows,
    noise_owners,
    parts_of_batch,
)


def test_without_weights_an_epoch_is_a_permutation_by_seed_and_epoch_alone() -> None:
    rows = np.arange(100, 200)
    for shuffle in ("exact", "blocks"):
        first = epoch_rows(rows, seed=3, epoch=0, shuffle=shuffle)  # type: ignore[arg-type]
        assert sorted(first.tolist()) == rows.tolist()
        assert first.tolist() != rows.tolist()
        assert np.array_equal(first, epoch_rows(rows, seed=3, epoch=0, shuffle=shuffle))  # type: ignore[arg-type]
        assert not np.array_equal(first, epoch_rows(rows, seed=3, epoch=1, shuffle=shuffle))  # type: ignore[arg-type]
        assert not np.array_equal(first, epoch_rows(rows, seed=4, epoch=0, shuffle=shuffle))  # type: ignore[arg-type]


def test_blocks_keep_to_pools_of_neighbours_and_still_take_every_row_once() -> None:
    rows = np.arange(5 * POOL_BLOCKS * BLOCK_ROWS + 77)
    order = epoch_rows(rows, seed=0, epoch=0, shuffle="blocks")
    assert np.array_equal(np.sort(order), rows)
    pool = order[: POOL_BLOCKS * BLOCK_ROWS]
    # Whole blocks of neighbours, from all over the corpus, and mixed.
    blocks, counts = np.unique(pool // BLOCK_ROWS, return_counts=True)
    assert len(blocks) <= POOL_BLOCKS + 1
    assert np.ptp(blocks) > 2 * POOL_BLOCKS
    assert sorted(set(counts.tolist()))[-1] == BLOCK_ROWS
    assert len(np.unique(pool[:512] // BLOCK_ROWS)) > 50
    assert len(epoch_rows(rows[:0], seed=0, epoch=0, shuffle="blocks")) == 0


def test_weights_balance_each_combination_that_occurs() -> None:
    label, column = np.array([0, 0, 0, 1, 1, 0]), np.array([5, 5, 7, 5, 5, 7])
    # Cells (0, 5) twice, (0, 7) twice, (1, 5) twice: a third for each, and (1, 7) does not occur.
    assert balanced_weights([label, column]).share == pytest.approx(np.full(6, 1 / 6))
    assert balanced_weights([label]).share == pytest.approx([1 / 8, 1 / 8, 1 / 8, 1 / 4, 1 / 4, 1 / 8])
    # Within a cell, rows keep their own weights: 1 to 3 in the first.
    weighted = balanced_weights([np.array([0, 0, 1])], np.array([1.0, 3.0, 9.0]))
    assert weighted.share == pytest.approx([1 / 8, 3 / 8, 1 / 2])


def test_a_weighted_draw_takes_each_row_as_often_as_expected_rounded_down_or_up() -> None:
    # 90 rows, 10 of them of a rare class: balanced, these are drawn 45 times together, 4 or 5 times each.
    rows = np.arange(1000, 1090)
    weights = balanced_weights([(rows >= 1080).astype(np.int64)])
    for seed in range(5):
        drawn = draw_weighted(rows, weights, np.random.default_rng(seed))
        assert len(drawn) == 90
        assert np.array_equal(drawn, np.sort(drawn))
        counts = np.bincount(drawn - 1000, minlength=90)
        assert counts[:80].sum() in (44, 45, 46)
        # 45/80 = 0.56 expected of a common row, 4.5 of a rare one.
        assert set(counts[:80].tolist()) == {0, 1}
        assert set(counts[80:].tolist()) <= {4, 5}
    # Over epochs every row has its turn.
    seen = np.concatenate([epoch_rows(rows, seed=0, epoch=epoch, weights=weights) for epoch in range(12)])
    assert len(np.unique(seen)) == 90


def test_noise_belongs_to_the_row_and_from_the_second_time_on_to_the_draw() -> None:
    rows = np.array([7, 3, 7, 9, 7, 3])
    owners = noise_owners(rows)
    assert owners[[0, 1, 3]].tolist() == [7, 3, 9]
    assert owners[[2, 4]].tolist() == [7 + 2**40, 7 + 2**41]
    assert owners[5] == 3 + 2**40
    assert len(set(owners.tolist())) == 6
    assert noise_owners(np.array([7, 3, 9])).tolist() == [7, 3, 9]
    assert len(noise_owners(rows[:0])) == 0


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("length", [1, 2, 5, 128])
@pytest.mark.parametrize("num_parts", [1, 3])
def test_parts_of_all_ranks_are_the_batch_and_a_rank_without_rows_takes_part(
    size: int, length: int, num_parts: int
) -> None:
    rows = np.arange(50, 50 + length)
    found: list[int] = []
    for rank in range(size):
        parts = parts_of_batch(rows, rows + 1000, rank=rank, size=size, num_parts=num_parts)
        own = rows[rank::size]
        assert all(len(part.rows) for part in parts)
        assert all(np.array_equal(part.owners, part.rows + 1000) for part in parts)
        assert [part.counts for part in parts] == ([True] * min(num_parts, len(own)) if len(own) else [False])
        if len(own):
            assert np.concatenate([part.rows for part in parts]).tolist() == own.tolist()
            found += own.tolist()
    assert sorted(found) == rows.tolist()
