"""Scores read by read as a TSV: what ``leech eval test --scores`` writes and ``leech eval compare`` reads.

Hides: columns and number formats. Belongs here: the file; what is made of scores lies in ``evaluate.py`` and
``compare.py``. Invariants: one row per scored chunk, in the order of the corpus; numbers read back as they were; an empty
cell is what is not known.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leech.data.corpus import Corpus
from leech.data.packed import open_to_read
from leech.data.pod5 import unpack_read_ids
from leech.errors import ConfigError, InputError
from leech.evaluation.groups import JUNCTION_STRATA
from leech.evaluation.metrics import Floats
from leech.evaluation.tables import table_rows, write_table

COLUMNS = (
    "read_id",
    "parent_id",
    "reference",
    "flow_cell",
    "run",
    "sample",
    "junction",
    "label",
    "positive_label",
    "p",
    "p_uncalibrated",
    "cl",
    "call",
)

SCORES = "table of scores"
"""What such a file is called in messages."""


@dataclass(frozen=True)
class ReadScores:
    """Scored reads of one model.

    :ivar read_ids: as text, one per read.
    :ivar parent_ids: of their POD5 reads.
    :ivar references: names.
    :ivar labels: names of their true labels.
    :ivar positive_label: whose probability ``p`` is.
    :ivar p: probability of the positive label, float64 (n,).
    :ivar likelihood: ``cl``, uint8 (n,).
    :ivar calls: names of the labels that were called.
    """

    read_ids: list[str]
    parent_ids: list[str]
    references: list[str]
    labels: list[str]
    positive_label: str
    p: Floats
    likelihood: NDArray[np.uint8]
    calls: list[str]

    def __len__(self) -> int:
        return len(self.read_ids)

    def take(self, places: NDArray[np.int64]) -> ReadScores:
        """Return some of the reads, in the order of ``places``."""
        chosen = places.tolist()
        return ReadScores(
            read_ids=[self.read_ids[place] for place in chosen],
            parent_ids=[self.parent_ids[place] for place in chosen],
            references=[self.references[place] for place in chosen],
            labels=[self.labels[place] for place in chosen],
            positive_label=self.positive_label,
            p=self.p[places],
            likelihood=self.likelihood[places],
            calls=[self.calls[place] for place in chosen],
        )


def require_tsv(path: Path) -> None:
    """Refuse a name that promises another format than TSV, plain or gzip.

    :raises ConfigError: naming what can be written.
    """
    if not path.name.endswith((".tsv", ".tsv.gz")):
        what = "Parquet is not written by leech" if path.suffix == ".parquet" else "Scores are a TSV"
        raise ConfigError(
            f"{what}: '{path}' must end in .tsv or .tsv.gz.", hint="Any data frame library reads a TSV, gzip or not."
        )


def read_scores(
    corpus: Corpus, rows: NDArray[np.int64], p: Floats, labels: tuple[str, str], threshold_cl: int
) -> ReadScores:
    """Put names to scored rows of a corpus.

    :param labels: names of the negative and of the positive label.
    """
    from leech.models.inference import charging_likelihood, is_positive

    columns = corpus.gather(rows, ["read_id", "parent_id", "reference", "label"])
    likelihood = charging_likelihood(p)
    return ReadScores(
        read_ids=unpack_read_ids(columns["read_id"]),
        parent_ids=unpack_read_ids(columns["parent_id"]),
        references=[corpus.categories["reference"][code] for code in columns["reference"].tolist()],
        labels=[corpus.labels[code] for code in columns["label"].tolist()],
        positive_label=labels[1],
        p=p,
        likelihood=likelihood,
        calls=[labels[int(side)] for side in is_positive(likelihood, threshold_cl)],
    )


def write_scores(
    path: Path, name: Path, scores: ReadScores, corpus: Corpus, rows: NDArray[np.int64], uncalibrated: Floats | None
) -> None:
    """Write scored rows of a corpus.

    :param path: where to write; gzip where ``name``, the final one, says so.
    :param uncalibrated: probabilities before calibration; None leaves the column empty.
    """
    columns = corpus.gather(rows, ["flow_cell", "run", "sample", "junction_indel"])
    named = {
        key: [corpus.categories[key][code] for code in columns[key].tolist()] for key in ("flow_cell", "run", "sample")
    }
    raw = [""] * len(rows) if uncalibrated is None else [repr(value) for value in uncalibrated.tolist()]
    write_table(
        path,
        name,
        COLUMNS,
        zip(
            scores.read_ids,
            scores.parent_ids,
            scores.references,
            named["flow_cell"],
            named["run"],
            named["sample"],
            [JUNCTION_STRATA[code] for code in columns["junction_indel"].tolist()],
            scores.labels,
            [scores.positive_label] * len(rows),
            map(repr, scores.p.tolist()),
            raw,
            scores.likelihood.tolist(),
            scores.calls,
            strict=True,
        ),
    )


def score_rows(
    path: Path, columns: Sequence[str], hint: str = "Give the table as leech wrote it."
) -> Iterator[dict[str, str]]:
    """Yield the rows of a table of scores of two states by column; see :func:`leech.evaluation.tables.table_rows`.

    :raises InputError: scores of more states, too.
    """
    names: list[str] = []
    # What cannot be read is told by whoever reads it all.
    with suppress(OSError, EOFError, zlib.error, UnicodeDecodeError), open_to_read(path) as file:
        names = file.readline().rstrip("\n").split("\t")
    if "positive_label" not in names and "call" in names and any(name.startswith("p_") for name in names):
        raise InputError(
            f"Scores '{path}' are of a model of more than two states, of which none is positive; that is not shown or compared "
            "here.",
            hint="Give scores of models of two states; 'leech eval test' shows all there is of more.",
        )
    yield from table_rows(path, columns, SCORES, hint)


def load_scores(path: Path) -> ReadScores:
    """Read a table of scores.

    :raises InputError: unreadable, a column missing, a cell that is no number, or a file without reads.
    """
    wanted = ("read_id", "parent_id", "reference", "label", "positive_label", "p", "cl", "call")
    rows = []
    for row in score_rows(path, wanted, "Give a file that 'leech eval test --scores' wrote, or a model folder."):
        read_id = row["read_id"]
        if not row["label"] or not row["call"]:
            # It would count as negative.
            raise InputError(f"Scores '{path}' have a read without a label or a call: '{read_id}'.")
        rows.append(tuple(row[name] for name in wanted))
    if not rows:
        raise InputError(f"Scores '{path}' hold no read.")
    read_ids, parent_ids, references, labels, positive, p, likelihood, calls = (
        list(column) for column in zip(*rows, strict=True)
    )
    if len(set(positive)) != 1:
        raise InputError(
            f"Scores '{path}' are of several positive labels: {', '.join(sorted(map(str, set(positive))))}."
        )
    try:
        numbers = (
            np.array([float(value) for value in p]),
            np.array([int(value) for value in likelihood], dtype=np.uint8),
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"Scores '{path}': {error}, in column 'p' or 'cl'.") from error
    if not ((numbers[0] >= 0) & (numbers[0] <= 1)).all():
        raise InputError(f"Scores '{path}': column 'p' holds a number that is no probability.")
    return ReadScores(read_ids, parent_ids, references, labels, positive[0], *numbers, calls)
