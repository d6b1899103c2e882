"""Scores read by read of a model of more than two states, as a TSV: what ``leech eval test --scores`` writes of it.

Hides: columns and number formats. Belongs here: the file; that of two states is in ``evaluation/scores.py``. Invariants: one
row per scored chunk, in the order of the corpus; numbers read back as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leech.data.corpus import Corpus
from leech.data.pod5 import unpack_read_ids
from leech.evaluation.groups import JUNCTION_STRATA
from leech.evaluation.metrics import Floats
from leech.evaluation.scores import COLUMNS
from leech.evaluation.tables import write_table

_NAMED = ("reference", "flow_cell", "run", "sample")

IDENTITY = COLUMNS[: COLUMNS.index("label") + 1]
"""Columns that say which read it is, as in the table of two states; ``call`` and one ``p_<label>`` per label follow."""


def write_class_scores(
    path: Path, name: Path, corpus: Corpus, rows: NDArray[np.int64], p: Floats, labels: Sequence[str]
) -> None:
    """Write scored rows of a corpus.

    :param path: where to write; gzip where ``name``, the final one, says so.
    :param p: probabilities of the labels, float64 (n, K).
    """
    columns = corpus.gather(rows, ["read_id", "parent_id", *_NAMED, "junction_indel", "label"])
    texts = [
        unpack_read_ids(columns["read_id"]),
        unpack_read_ids(columns["parent_id"]),
        *([corpus.categories[key][code] for code in columns[key].tolist()] for key in _NAMED),
        [JUNCTION_STRATA[code] for code in columns["junction_indel"].tolist()],
        [corpus.labels[code] for code in columns["label"].tolist()],
        [labels[code] for code in p.argmax(axis=1).tolist()],
    ]
    columns_of_labels = (map(repr, column) for column in p.T.tolist())
    write_table(
        path,
        name,
        [*IDENTITY, "call", *(f"p_{label}" for label in labels)],
        zip(*texts, *columns_of_labels, strict=True),
    )
