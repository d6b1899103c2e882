"""What a run answers for at its end: all records counted, enough of them used, and what was left out named.

Hides: the rules by which a run fails although every step went well. Belongs here: judging counts and files, in the same
words for ``prepare`` and ``predict``; what the outcomes are lies in ``reasons.py``. Invariants: a run that loses records
without a count is an error; so is one that used none; a run that went on without a damaged file completes its output,
names the file and still fails.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from leech.console import Table, logger
from leech.data.config import ReadSources
from leech.data.pod5 import BadFile, unreadable_files
from leech.data.reads import Overlap
from leech.data.reasons import ASKED_FOR, NOT_A_LOSS, REASONS, Counts
from leech.errors import InputError, LeechError

_ALARMING_SHARE = 0.5
"""Share of candidate records that fail above which a warning says so."""

_WITHOUT_SIGNAL = ("not_in_pod5", "signal_unreadable")


NO_LABEL = "(none)"
"""Shown in tables for reads without a label, so that the cell does not look forgotten."""


def ladder_table(counts: Counts) -> Table:
    """Return records by outcome, with their share and what each reason means."""
    seen = max(counts.seen, 1)
    rows = [
        (outcome, str(number), f"{number / seen:.1%}", REASONS[outcome].meaning if outcome in REASONS else "")
        for outcome, number in counts.ladder().items()
    ]
    return Table(title="Records", columns=("outcome", "records", "share", "meaning"), rows=tuple(rows))


def settle(counts: Counts, sources: ReadSources, *, num_records: int, num_results: int, overlap: Overlap) -> None:
    """Judge a run before its output gets its final name; warn when much was lost.

    :param num_records: records that came out of the alignment file.
    :param num_results: chunks or calls that go into the output.
    :raises LeechError: records or results are not accounted for.
    :raises InputError: nothing could be used, more failed than ``max_fail_frac`` allows, or, with ``strict``, a read has
        no signal.
    """
    if counts.seen != num_records or counts.used != num_results:
        raise LeechError(
            f"{num_records} records were read and {counts.seen} are accounted for, {counts.used} as used, and the output "
            f"holds {num_results}: reads were lost on the way, so the result would lie.",
            hint="This is a defect of leech; please report it with the command line.",
        )
    if not counts.used:
        raise _nothing_used(counts, sources, overlap)
    without_signal = sum(counts.by_outcome[reason] for reason in _WITHOUT_SIGNAL)
    if sources.strict and without_signal:
        raise InputError(
            f"{without_signal} of {counts.candidates} candidate records have no signal, and --strict was given "
            f"(for example {overlap.example_in_bam or 'a read whose signal cannot be decoded'}).",
            hint=REASONS["not_in_pod5"].remedy,
        )
    _judge_failures(counts, sources.max_fail_frac)


def refinement_table(told: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return what became of the boundaries of the used reads.

    :param told: by name of a corpus, what a manifest has under ``settings.refinement``; one corpus needs no name.
    """
    outcomes = (
        ("refined", "reads refined"),
        ("kept_moves", "reads left as the move table has them, because the levels would have fitted worse"),
        ("unrefinable", "reads not refinable: too few bases with signal and a known level"),
    )
    correlations = (
        ("correlation_before", "median correlation with the expected levels before"),
        ("correlation_after", "median correlation with the expected levels after"),
    )
    rows = [(words, *(_share(one, name) for one in told.values())) for name, words in outcomes]
    for name, words in correlations:
        rows.append((words, *("" if one.get(name) is None else f"{one[name]:.3f}" for one in told.values())))
    columns = ("what", *(told if len(told) > 1 else ("value",)))
    return Table(title="Boundary refinement", columns=columns, rows=tuple(rows))


def _share(told: Mapping[str, Any], name: str) -> str:
    total = sum(told.get(outcome, 0) for outcome in ("refined", "kept_moves", "unrefinable"))
    return f"{told.get(name, 0)} ({told.get(name, 0) / max(total, 1):.1%})"


def _judge_failures(counts: Counts, limit: float | None) -> None:
    if counts.asked_for / counts.candidates > _ALARMING_SHARE:
        asked = {name: counts.by_outcome[name] for name in ASKED_FOR if counts.by_outcome[name]}
        logger.warning(
            "%.1f%% of %d candidate records were left out as asked for: %s.",
            100 * counts.asked_for / counts.candidates,
            counts.candidates,
            _listed(asked),
        )
    share = counts.failed / counts.candidates
    if share <= (_ALARMING_SHARE if limit is None else limit):
        return
    reason = counts.top_failure()
    assert reason is not None
    failures = [name for name in REASONS if name not in NOT_A_LOSS | ASKED_FOR]
    losses = {name: counts.by_outcome[name] for name in failures if counts.by_outcome[name]}
    what = (
        f"{share:.1%} of {counts.candidates} candidate records failed: {_listed(losses)}. "
        f"Most often: {REASONS[reason].meaning}."
    )
    if limit is not None:
        raise InputError(f"{what} --max-fail-frac allows {limit:.1%}.", hint=REASONS[reason].remedy)
    logger.warning("%s %s", what, REASONS[reason].remedy)


def _listed(losses: dict[str, int]) -> str:
    return ", ".join(
        f"{name} {number}" for name, number in sorted(losses.items(), key=lambda item: (-item[1], item[0]))
    )


def _nothing_used(counts: Counts, sources: ReadSources, overlap: Overlap) -> InputError:
    """Return the error of a run without any usable record, in the words of its most telling cause."""
    name = "standard input" if str(sources.bam) == "-" else f"'{sources.bam}'"
    reason = counts.top_reason()
    if reason is None:
        return InputError(f"BAM {name} holds no records, so there is nothing to use.")
    everything = json.dumps(counts.ladder())
    if counts.by_outcome["unmapped"] == counts.seen:
        return InputError(
            f"0 of the {counts.seen} records of {name} are mapped to a reference.", hint=REASONS["unmapped"].remedy
        )
    if counts.by_outcome["no_moves"] == counts.candidates:
        return InputError(
            f"No record of {name} has a move table (mv tag), so no base can be found in the signal; {everything}.",
            hint="Basecall with --emit-moves (dorado), and keep the tags when aligning (minimap2 -y on samtools fastq -T).",
        )
    if reason == "not_in_pod5" and not overlap.num_found:
        return InputError(
            f"None of the {overlap.num_looked_up} read ids looked for are among the {overlap.num_in_pod5} ids in the POD5 "
            f"files: BAM and POD5 are not of one run. In {name}, for example: {overlap.example_in_bam}; in POD5: "
            f"{overlap.example_in_pod5 or 'none at all'}.",
            hint=REASONS["not_in_pod5"].remedy,
        )
    return InputError(
        f"None of the {counts.seen} records of {name} could be used; most often ({counts.by_outcome[reason]}) because: "
        f"{reason}, {REASONS[reason].meaning}. All reasons: {everything}.",
        hint=REASONS[reason].remedy,
    )


def refuse_incomplete(bad_files: Sequence[BadFile], num_files: int) -> None:
    """Fail a run whose output is complete but lacks the reads of some files.

    :raises InputError: with the files' names.
    """
    if bad_files:
        raise unreadable_files(
            bad_files, num_files, "The output is complete and holds the reads of the others; theirs are in not_in_pod5."
        )
