"""What must be true of a corpus before training starts on it.

Hides: how a corpus is looked through. Belongs here: every refusal that needs the data but no network; what needs a network
(a loss that is not finite) is the loop's. Invariants: nothing is changed or left out silently; every refusal gives the
counts per class and split.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.console import logger
from leech.data.corpus import SPLITS, Corpus
from leech.errors import ConfigError, InputError

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


class TwoStates(NamedTuple):
    """The rows that training uses, and which label is which.

    :ivar labels: names of the negative and of the positive class.
    :ivar positive_code: the corpus's label code of the positive class.
    :ivar train: rows of the training split, int64, ascending; ``validation`` likewise.
    :ivar num_train: negative and positive chunks of the training split; ``num_validation`` likewise.
    """

    labels: tuple[str, str]
    positive_code: int
    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    num_train: tuple[int, int]
    num_validation: tuple[int, int]


def choose_positive(corpus: Corpus, wanted: str | None) -> tuple[str, str]:
    """Return the names of the negative and of the positive label.

    :param wanted: the positive label asked for; None leaves it to the corpus.
    :raises InputError: the corpus has not exactly two labels.
    :raises ConfigError: nobody says which label is positive, or what is said contradicts the corpus.
    """
    labels, recorded = corpus.labels, corpus.manifest.positive_label
    quoted = " and ".join(f"'{label}'" for label in labels)
    if len(labels) != 2:
        found = f"{len(labels)} labels ({', '.join(labels)})" if labels else "no labels"
        raise InputError(
            f"Corpus '{corpus.path}' has {found}; a classifier of two states needs chunks of exactly two.",
            hint="Prepare each library with its own --label, then join two of them with 'leech data merge'.",
        )
    positive = recorded if wanted is None else wanted
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
    negative = labels[1 - labels.index(positive)]
    return negative, positive


def examine(corpus: Corpus, positive_label: str | None) -> TwoStates:
    """Look through a corpus before training; see :class:`TwoStates` for the result.

    :raises InputError: not split, a class or a split (nearly) empty, or values that are not finite.
    :raises ConfigError: the positive label is not settled.
    """
    if not corpus.is_split:
        raise InputError(
            f"Corpus '{corpus.path}' is not split, so nothing could be kept apart to validate on.",
            hint="Split it with 'leech data merge CORPUS... -o OUT --split 0.7 0.15 0.15' and train on OUT.",
        )
    labels = choose_positive(corpus, positive_label)
    positive_code = corpus.labels.index(labels[1])
    label = np.asarray(corpus.column("label"))
    rows = {split: corpus.rows(split) for split in SPLITS}
    counts = {
        split: tuple(int((label[chosen] == corpus.labels.index(name)).sum()) for name in labels)
        for split, chosen in rows.items()
    }
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
    logger.info("Chunks by class: %s. Positive: '%s'.", overview, labels[1])
    chosen = {split: rows[split][label[rows[split]] >= 0] for split in ("train", "validation")}
    unlabelled = sum(len(rows[split]) - len(chosen[split]) for split in chosen)
    if unlabelled:
        logger.warning("%d chunks have no label and are left out of training and validation.", unlabelled)
    for split in chosen:
        _require_finite(corpus, chosen[split], split)
    return TwoStates(
        labels=labels,
        positive_code=positive_code,
        train=chosen["train"],
        validation=chosen["validation"],
        num_train=(counts["train"][0], counts["train"][1]),
        num_validation=(counts["validation"][0], counts["validation"][1]),
    )


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
