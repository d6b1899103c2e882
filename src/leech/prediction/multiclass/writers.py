"""The files that calls of more than two states are written to: BAM with ``lc`` and ``lp`` tags, and tables.

Hides: tags, the header line that names their labels, and column orders. Belongs here: one writer per file; what a call is, is
decided in ``calls.py``. Invariants: a record that is written has every tag it was read with, in its order, but for an earlier
``lc`` or ``lp``; a ``cl`` tag, which speaks of two states, is none of ours and stays; columns of labels are in the order of the
model's labels, which is that of ``lp``.
"""

from __future__ import annotations

import array
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pysam

from leech.console import Table
from leech.data.proportion import wilson
from leech.errors import ConfigError
from leech.prediction.multiclass.calls import ClassCall
from leech.prediction.multiclass.tally import ClassTally, StateCounts
from leech.prediction.names import CLASS_SUMMARY, CLASS_TABLES
from leech.prediction.writers import GzipTable, TaggedBam

STATE_TAG, PROBABILITIES_TAG = "lc", "lp"
"""Text: the label that is called; array of uint8: ``round(255 * P)`` of all labels. Neither is there where no call is made."""

(CALLS,), SUMMARY = CLASS_TABLES, CLASS_SUMMARY
"""Names of the tables of single calls and of calls by reference, between sample and ``.tsv.gz``."""


_MOST_FRACTIONS = 6
"""Labels up to which a terminal shows fractions beside the counts."""


def require_plain_labels(labels: Sequence[str]) -> None:
    """Refuse labels that a text tag and a column's name cannot hold.

    :raises ConfigError: naming the label.
    """
    for label in labels:
        if not label.isascii() or not label.isprintable():
            raise ConfigError(
                f"Label {label!a} cannot be written into a BAM, whose text tags hold printable ASCII.",
                hint="Write tables alone with --format tsv, or give the label another name where its reads are prepared, and "
                "train again.",
            )


def require_distinct_columns(labels: Sequence[str]) -> None:
    """Refuse labels by which two columns of a table would have one name.

    :raises ConfigError: naming the column.
    """
    twice = [name for name, number in Counter(_columns(labels)).items() if number > 1]
    if twice:
        raise ConfigError(
            f"With the labels {', '.join(labels)}, two columns of the table of fractions would be called '{twice[0]}'.",
            hint="Prepare one of these libraries again with another label: 'no_call' stands for reads without a call, and "
            "'_low' and '_high' behind a label for the ends of its interval.",
        )


def comment_on_labels(program: str, labels: Sequence[str]) -> str:
    """Return the text of the header's comment that says whose probabilities ``lp`` holds, as JSON behind ``leech:``.

    :param program: identifier of the program line that it belongs to.
    """
    return "leech:" + json.dumps({"program": program, "tag": PROBABILITIES_TAG, "labels": list(labels)})


class ClassBam(TaggedBam):
    """The BAM of a run, with the labels called; see :class:`leech.prediction.writers.TaggedBam`."""

    def __init__(
        self,
        path: Path,
        name: Path,
        header: pysam.AlignmentHeader,
        labels: Sequence[str],
        *,
        must_be_sorted: bool = False,
    ) -> None:
        super().__init__(path, name, header, must_be_sorted=must_be_sorted)
        self._labels = labels

    def write(self, record: pysam.AlignedSegment, call: ClassCall) -> None:
        """Write a record with its call; earlier tags are replaced or taken away, and counted.

        :raises InputError: it comes before the last one, and an index was asked for.
        """
        earlier = any(record.has_tag(tag) for tag in (STATE_TAG, PROBABILITIES_TAG))
        if call.state is not None and call.probabilities is not None:
            record.set_tag(STATE_TAG, self._labels[call.state], value_type="Z")
            record.set_tag(PROBABILITIES_TAG, array.array("B", np.rint(255 * call.probabilities).astype(int).tolist()))
        elif earlier:
            record.set_tag(STATE_TAG, None)
            record.set_tag(PROBABILITIES_TAG, None)
        self.put(record, was_tagged=earlier)


class ClassTables:
    """Writes the table of single calls.

    :param path: where to write.
    """

    def __init__(self, path: Path, labels: Sequence[str]) -> None:
        self._labels = labels
        columns = ("read_id", "reference", "call", *(f"p_{label}" for label in labels), "reason")
        self._calls = GzipTable(path, columns)

    def write(self, call: ClassCall) -> None:
        """Write one record's row."""
        state = "" if call.state is None else self._labels[call.state]
        p = [""] * len(self._labels) if call.probabilities is None else [f"{one:.6g}" for one in call.probabilities]
        self._calls.write(call.read_id, call.reference, state, *p, call.reason)

    def close(self) -> None:
        """Finish the file; closing it again does nothing."""
        self._calls.close()


def write_summary(path: Path, tally: ClassTally, labels: Sequence[str], min_depth: int) -> None:
    """Write counts and fractions of every reference.

    :param min_depth: calls from which on fractions are marked as resting on enough reads.
    """
    table = GzipTable(path, _columns(labels))
    try:
        for name, counts in tally.by_reference().items():
            table.write(name, *_cells(counts, min_depth))
    finally:
        table.close()


def write_combined(path: Path, samples: Mapping[str, ClassTally], labels: Sequence[str], min_depth: int) -> None:
    """Write one table of several samples: a row per reference and sample, also where a sample has no read of a reference."""
    by_sample = {sample: tally.by_reference() for sample, tally in samples.items()}
    table = GzipTable(path, ("sample", *_columns(labels)))
    try:
        for name in sorted({name for found in by_sample.values() for name in found}):
            for sample, found in by_sample.items():
                counts = found.get(name, StateCounts([0] * len(labels)))
                table.write(sample, name, *_cells(counts, min_depth))
    finally:
        table.close()


def _columns(labels: Sequence[str]) -> tuple[str, ...]:
    return (
        "reference",
        *(f"n_{label}" for label in labels),
        *("n_no_call", "no_call_reasons", "enough"),
        *(f"fraction_{label}{suffix}" for label in labels for suffix in ("", "_low", "_high")),
    )


def _cells(counts: StateCounts, min_depth: int) -> Iterator[object]:
    yield from counts.num_by_label
    yield counts.num_no_call
    yield ",".join(f"{reason}={number}" for reason, number in counts.reasons().items())
    yield int(counts.num_called >= min_depth)
    yield from _fractions(counts)


def _fractions(counts: StateCounts) -> Iterator[str]:
    for number in counts.num_by_label:
        interval = wilson(number, counts.num_called)
        if interval is None:
            yield from ("", "", "")
        else:
            yield from (f"{value:.6g}" for value in (number / counts.num_called, *interval))


def shown(tally: ClassTally, labels: Sequence[str], min_depth: int) -> Table:
    """Return the counts and fractions of every reference for a terminal; of many labels the counts alone, to fit its width."""
    shares = labels if len(labels) <= _MOST_FRACTIONS else ()
    rows = []
    for name, counts in [*tally.by_reference().items(), ("all", tally.total())]:
        called = counts.num_called
        fractions = ("" if not called else f"{number / called:.3f}" for number in counts.num_by_label[: len(shares)])
        few = "" if called >= min_depth else "few reads"
        rows.append((name, *map(str, counts.num_by_label), str(counts.num_no_call), *fractions, few))
    columns = ("reference", *labels, "no call", *(f"fraction {label}" for label in shares), "")
    return Table(title="Calls of the most probable label", columns=columns, rows=rows)
