"""Log records, progress and tables, with and without a terminal."""

from __future__ import annotations

import io
import itertools
import logging
import re

import pytest

from leech.console import (
    BarProgress,
    LineProgress,
    SilentProgress,
    Table,
    choose_progress,
    format_duration,
    log_as_rank,
    logger,
    render,
    set_up_logging,
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    """Time that passes only when told."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture(autouse=True)
def _logger_as_before():
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before


def run_task(steps, *, total, unit="reads", text=None):
    """Return the lines of a task; each step is (seconds that pass, units done)."""
    stream, clock = io.StringIO(), Clock()
    with LineProgress(stream, clock).task("prepare", unit=unit, total=total) as task:
        if text:
            task.describe(text)
        for seconds, amount in steps:
            clock.now += seconds
            task.advance(amount)
    return stream.getvalue().splitlines()


def test_a_line_says_count_rate_and_time_left():
    # 50 of 150 in 5 s are 10/s; the other 100 take 10 s more. The last line gives the time it took.
    assert run_task([(5, 50), (1, 100)], total=150) == [
        "prepare: 50/150 reads, 10 reads/s, 10 s left",
        "prepare: 150/150 reads, 25 reads/s, 6 s",
    ]


def test_work_that_was_done_earlier_counts_for_the_place_and_not_for_the_speed():
    # 10 in 5 s are 2/s, whatever was there before; the other 30 of 100 take 15 s.
    stream, clock = io.StringIO(), Clock()
    with LineProgress(stream, clock).task("train", unit="chunks", total=100) as task:
        task.start_at(60)
        clock.now += 5
        task.advance(10)
        clock.now += 1
    assert stream.getvalue().splitlines()[0] == "train: 70/100 chunks, 2 chunks/s, 15 s left"


def test_the_bar_begins_where_the_work_goes_on():
    stream = Terminal()
    set_up_logging(stream=stream)
    with BarProgress().task("train", unit="chunks", total=100) as task:
        task.describe("loss 0.5")
        task.start_at(60)
        (shown,) = task._bar.tasks
        assert (shown.completed, shown.speed, shown.fields["text"]) == (60, None, "loss 0.5")
        task.advance(10)
        task.advance(10)
        # The jump is no part of the speed: the second of two steps is all that it knows.
        assert sum(sample.completed for sample in shown._progress) == 20
    assert "80/100" in stream.getvalue()


def test_what_ends_before_its_total_has_no_time_left():
    # As training does that stops early.
    assert run_task([(1, 50), (1, 50)], total=150) == ["prepare: 100/150 reads, 50 reads/s, 2 s"]
    stream = Terminal()
    set_up_logging(stream=stream)
    with BarProgress().task("train", unit="chunks", total=150) as task:
        task.advance(100)
        task._bar.refresh()
        assert "-:--:--" in stream.getvalue()
    last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue()).split("\r")[-1]
    assert "100/150 chunks" in last
    assert last.split()[-2:] == ["0", "s"]


def test_between_two_lines_five_seconds_pass():
    # At 4.9 s nothing, at 5.0 s a line, at 9.9 s nothing, then the last line.
    lines = run_task([(4.9, 1), (0.1, 1), (4.9, 1)], total=None)
    assert lines == ["prepare: 2 reads, 0.4 reads/s, 5 s", "prepare: 3 reads, 0.3 reads/s, 10 s"]


def test_lines_become_rarer_in_a_long_run_but_never_rarer_than_a_minute():
    # One unit a second. In two hours, 5 s apart would be 1440 lines; a twentieth of the time so far, between 5 s and 60 s:
    # 20 lines to 100 s, about ln(12) * 20 = 50 lines to 1200 s, then 100 lines of a minute each.
    lines = run_task([(1, 1)] * 7200, total=None)
    assert 150 < len(lines) < 185
    counts = [int(line.split()[1]) for line in lines]
    assert counts[:3] == [5, 10, 15]
    assert max(after - before for before, after in itertools.pairwise(counts)) == 60


def test_the_state_of_a_task_stands_at_the_end_of_its_line():
    assert run_task([(1, 1)], total=1, text="loss 0.5") == ["prepare: 1/1 reads, 1 reads/s, 1 s, loss 0.5"]


def test_a_failed_task_has_no_last_line():
    stream = io.StringIO()
    with pytest.raises(ValueError, match="broken"), LineProgress(stream, Clock()).task("prepare", unit="reads"):
        raise ValueError("broken")
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("stream", "quiet", "kind"),
    [
        (io.StringIO(), False, LineProgress),
        (Terminal(), False, BarProgress),
        (io.StringIO(), True, SilentProgress),
        (Terminal(), True, SilentProgress),
    ],
)
def test_progress_is_a_bar_only_on_a_terminal(stream, quiet, kind):
    assert type(choose_progress(quiet=quiet, stream=stream)) is kind


@pytest.mark.parametrize("progress", [SilentProgress(), LineProgress(io.StringIO(), Clock())])
@pytest.mark.parametrize("total", [None, 2])
def test_every_progress_can_count_and_describe(progress, total):
    with progress.task("work", unit="reads", total=total) as task:
        task.start_at(0)
        task.advance()
        task.describe("half")
        task.advance(1)


def test_the_bar_and_the_records_share_one_console():
    stream = Terminal()
    set_up_logging(stream=stream)
    with BarProgress().task("train", unit="chunks", total=2) as task:
        logger.info("a record while the bar runs")
        task.advance(2)
        task.describe("loss 0.5")
    shown = stream.getvalue()
    assert "a record while the bar runs" in shown
    assert "2/2" in shown
    assert "loss 0.5" in shown


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, "INFO: info\nWARNING: warning\n"),
        ({"verbose": True}, "DEBUG: debug\nINFO: info\nWARNING: warning\n"),
        ({"quiet": True}, "WARNING: warning\n"),
        ({"quiet": True, "verbose": True}, "WARNING: warning\n"),
    ],
)
def test_verbose_and_quiet_choose_the_records(options, shown):
    stream = io.StringIO()
    set_up_logging(**options, stream=stream)
    for level in ("debug", "info", "warning"):
        logger.log(getattr(logging, level.upper()), level)
    assert stream.getvalue() == shown


def test_logging_set_up_twice_shows_each_record_once():
    stream = io.StringIO()
    set_up_logging(stream=io.StringIO())
    set_up_logging(stream=stream)
    logger.info("once")
    assert stream.getvalue() == "INFO: once\n"


TABLE = Table(title="Reads", columns=("label", "reads", "share"), rows=[("charged", "1200", "0.75"), ("[b]", "40", "")])


@pytest.mark.parametrize(
    ("rank", "shown"),
    [
        (0, ["[rank 0/3] INFO: begun", "[rank 0/3] WARNING: hot"]),
        # What ranks beyond the first have to say in the usual course is the same.
        (2, ["[rank 2/3] WARNING: hot"]),
    ],
)
def test_records_of_a_rank_begin_with_its_number(rank, shown):
    stream = io.StringIO()
    set_up_logging(stream=stream)
    log_as_rank(rank, 3)
    logger.info("begun")
    logger.warning("hot")
    assert stream.getvalue().splitlines() == shown


def test_a_plain_table_is_aligned_and_numbers_stand_on_the_right():
    stream = io.StringIO()
    render(TABLE, stream)
    assert stream.getvalue() == (
        "Reads\n"
        "label    reads  share\n"
        "charged   1200   0.75\n"
        "[b]         40\n"
    )  # fmt: skip


def test_a_table_without_rows_or_title_is_its_heading():
    stream = io.StringIO()
    render(Table(title="", columns=("a", "b"), rows=[]), stream)
    assert stream.getvalue() == "a  b\n"


def test_a_drawn_table_shows_brackets_as_they_are():
    stream = Terminal()
    render(TABLE, stream)
    assert "[b]" in stream.getvalue()
    assert "1200" in stream.getvalue()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (200, "3 min 20 s"), (3600, "1 h 00 min"), (7500, "2 h 05 min")],
)
def test_durations_are_words(seconds, words):
    assert format_duration(seconds) == words
