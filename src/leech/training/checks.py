"""What must be true of a corpus before training starts on it.

Hides: how a corpus is looked through. Belongs here: every refusal that needs the data but no network; what needs a network
(a loss that is not finite) is the loop's. Invariants: nothing is changed or left out silently; every refusal gives the
counts per class and split.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.console import logger
from leech.data.corpus import SPLITS, Corpus
from leech.errors import ConfigError, InputError
from leech.prediction.multiclass.writers import require_distinct_columns, require_plain_labels

MIN_CLASS_CHUNKS = 2
"""Fewer training or validation chunks of a class than this are refused."""

FEW_CLASS_CHUNKS = 20
"""Fewer training or validation chunks of a class than this are warned of."""

_BLOCK_ROWS = 65536

_MEASURED = (
    "shift",
    "scale",
    "median_dwell",
    "level_mean",
    "level_median",
    "level_sd",
    "level_range",
    "expected_level",
)
"""Columns of real numbers; the others are integers, which are always finite."""


class States(NamedTuple):
    """The rows that training uses, and which label is which class.

    :ivar labels: names of the classes; of two the negative and the positive one, of more in the order of the corpus.
    :ivar codes: the corpus's label code of each class.
    :ivar train: rows of the training split, int64, ascending; ``validation`` likewise.
    :ivar num_train: chunks of the training split by class; ``num_validation`` likewise.
    """

    labels: tuple[str, ...]
    codes: tuple[int, ...]
    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    num_train: tuple[int, ...]
    num_validation: tuple[int, ...]

    @property
    def positive_label(self) -> str | None:
        """The positive one of two labels; None of more, of which none is."""
        return self.labels[1] if len(self.labels) == 2 else None


def choose_labels(corpus: Corpus, wanted: str | None) -> tuple[str, ...]:
    """Return the names of the classes: the negative and the positive label, or all of more than two.

    :param wanted: the positive label asked for; None leaves it to the corpus.
    :raises InputError: the corpus has fewer than two labels.
    :raises ConfigError: nobody says which of two labels is positive, what is said contradicts the corpus, or one of more than
        two is said to be.
    """
    labels, recorded = corpus.labels, corpus.manifest.positive_label
    if len(labels) < 2:
        found = f"{len(labels)} labels ({', '.join(labels)})" if labels else "no labels"
        raise InputError(
            f"Corpus '{corpus.path}' has {found}; a classifier needs chunks of at least two.",
            hint="Prepare each library with its own --label, then join them with 'leech data merge'.",
        )
    if len(labels) == 2:
        return _choose_positive(corpus, recorded if wanted is None else wanted)
    if wanted is not None:
        raise ConfigError(
            f"--positive-label {wanted}: corpus '{corpus.path}' has {len(labels)} labels ({', '.join(labels)}), and of more "
            "than two none is positive.",
            hint="Leave --positive-label out, or merge two of the libraries.",
        )
    if recorded is not None:
        raise ConfigError(
            f"Corpus '{corpus.path}' has {len(labels)} labels ({', '.join(labels)}) and names '{recorded}' as positive; of "
            "more than two none is.",
            hint="Merge the libraries again without --positive-label, or merge two of them.",
        )
    _examine_names(labels)
    return tuple(labels)


def _examine_names(labels: Sequence[str]) -> None:
    """Look at the names of more than two labels, before a model is trained whose calls could not be written.

    :raises ConfigError: two columns of its tables would have one name.
    """
    require_distinct_columns(labels)
    try:
        require_plain_labels(labels)
    except ConfigError as error:
        logger.warning("%s 'leech predict' will write tables only (--format tsv).", error.message)


def _choose_positive(corpus: Corpus, positive: str | None) -> tuple[str, str]:
    labels, recorded = corpus.labels, corpus.manifest.positive_label
    quoted = " and ".join(f"'{label}'" for label in labels)
    if positive is None:
        raise ConfigError(
            f"Which of {quoted} is positive? Corpus '{corpus.path}' does not say, and a guess would turn every call around.",
            hint=f"Give --positive-label {labels[0]} or --positive-label {labels[1]} here or to 'leech data merge'.",
        )
    if positive not in labels:
        raise ConfigError(
            f"The positive label '{positive}' is not in corpus '{corpus.path}', whose labels are {quoted}.",
            hint=f"Give --positive-label {labels[0]} or --positive-label {labels[1]}.",
        )
    if recorded is not None and positive != recorded:
        raise ConfigError(
            f"--positive-label {positive} contradicts corpus '{corpus.path}', whose positive label is '{recorded}'.",
            hint="Leave --positive-label out, or merge the sources again with the other one.",
        )
    return labels[1 - labels.index(positive)], positive


def examine(corpus: Corpus, positive_label: str | None) -> States:
    """Look through a corpus before training; see :class:`States` for the result.

    :raises InputError: not split, a class or a split (nearly) empty, or values that are not finite.
    :raises ConfigError: the positive label is not settled.
    """
    if not corpus.is_split:
        raise InputError(
            f"Corpus '{corpus.path}' is not split, so nothing could be kept apart to validate on.",
            hint="Split it with 'leech data merge CORPUS... -o OUT --split 0.7 0.15 0.15' and train on OUT.",
        )
    labels = choose_labels(corpus, positive_label)
    codes = tuple(corpus.labels.index(name) for name in labels)
    label = np.asarray(corpus.column("label"))
    rows = {split: corpus.rows(split) for split in SPLITS}
    counts = {split: tuple(int((label[chosen] == code).sum()) for code in codes) for split, chosen in rows.items()}
    overview = "; ".join(
        f"{split}: " + ", ".join(f"{count} {name}" for count, name in zip(counts[split], labels, strict=True))
        for split in SPLITS
        if split != "calibration" or len(rows[split])
    )
    for split in ("train", "validation"):
        for count, name in zip(counts[split], labels, strict=True):
            if count < MIN_CLASS_CHUNKS:
                raise InputError(
                    f"Corpus '{corpus.path}' has {count} chunks of '{name}' in its {split} split, and at least "
                    f"{MIN_CLASS_CHUNKS} are needed. Chunks by class: {overview}.",
                    hint="Add reads of that class, or merge again with other shares in --split.",
                )
            if count < FEW_CLASS_CHUNKS:
                logger.warning("Only %d chunks of '%s' in the %s split: expect chance to show.", count, name, split)
    chosen = {split: rows[split][label[rows[split]] >= 0] for split in ("train", "validation")}
    states = States(
        labels=labels,
        codes=codes,
        train=chosen["train"],
        validation=chosen["validation"],
        num_train=counts["train"],
        num_validation=counts["validation"],
    )
    positive = states.positive_label
    logger.info("Chunks by class: %s.%s", overview, "" if positive is None else f" Positive: '{positive}'.")
    unlabelled = sum(len(rows[split]) - len(chosen[split]) for split in chosen)
    if unlabelled:
        logger.warning("%d chunks have no label and are left out of training and validation.", unlabelled)
    for split in chosen:
        _require_finite(corpus, chosen[split], split)
    return states


def _require_finite(corpus: Corpus, rows: NDArray[np.int64], split: str) -> None:
    names = [name for name in _MEASURED if corpus.has_column(name)]
    for start in range(0, len(rows), _BLOCK_ROWS):
        block = rows[start : start + _BLOCK_ROWS]
        for name, values in corpus.gather(block, names).items():
            values = values.reshape(len(block), -1)
            # Expected levels are unknown, and say so with NaN, where the reference holds an N.
            bad = np.isinf(values) if name == "expected_level" else ~np.isfinite(values)
            if name == "scale":
                bad |= values <= 0
            wrong = block[bad.any(axis=1)]
            if len(wrong):
                raise InputError(
                    f"Corpus '{corpus.path}': column '{name}' of {len(wrong)} {split} chunks holds values that are not finite "
                    f"or not usable; the first row is {wrong[0]}.",
                    hint="The corpus is damaged or was not made by leech; prepare it again.",
                )
