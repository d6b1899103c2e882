"""What the chunks of several corpora have in common: codes over all of them, and groups that are kept or dealt whole.

Hides: that every corpus counts its categories on its own, and how an amino acid is read from a reference's name. Belongs
here: which group a row is in; what is done with groups is decided in ``splits.py`` and ``compose.py``. Invariants: rows of
the corpora follow one another in the order in which they are given; a name stands for the same group in every corpus.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.data.corpus import CATEGORICAL, Corpus
from leech.errors import InputError

GROUPINGS = ("reference", "isotype", "flow_cell", "sample", "run")
"""What rows can be grouped by; all but the isotype are columns."""

_AMINO_ACIDS = (
    "Ala Arg Asn Asp Cys Gln Glu Gly His Ile Leu Lys Met Phe Pro Ser Thr Trp Tyr Val SeC Pyl".split()  # noqa: SIM905
)

# A word of its own, perhaps an initiator's (iMet, fMet) or one of several families (Leu1, Ile2).
_NAMED = re.compile(rf"(?<![A-Za-z])[if]?({'|'.join(_AMINO_ACIDS)})\d*(?![A-Za-z0-9])", re.IGNORECASE)


# tRNA-Ala-GGC-1-1: amino acid, anticodon, number of the transcript (isodecoder), number of the gene copy; or Ala(UGC).
_TRNA = re.compile(
    rf"^(?P<before>.*?)(?<![A-Za-z])(?P<initiator>[if]?)(?:{'|'.join(_AMINO_ACIDS)})(?P<family>\d*)"
    r"[-_.( ]+(?P<anticodon>[ACGTU]{3})\)?(?:[-_.](?P<number>\d+))?(?![A-Za-z0-9])",
    re.IGNORECASE,
)

LEVELS = ("isodecoder", "isoacceptor", "amino_acid")
"""What references are rolled up to, from the finest to the coarsest."""


class Groups(NamedTuple):
    """The group of every row.

    :ivar grouping: what rows are grouped by, for messages.
    :ivar codes: int64 (num_rows,), positions in ``names``.
    """

    grouping: str
    codes: NDArray[np.int64]
    names: list[str]


def amino_acid(reference: str) -> str:
    """Return the amino acid that a tRNA's name tells, in three letters: ``tRNA-Ile2-CAT-1-1`` gives ``Ile``.

    Initiators (``iMet``, ``fMet``) are ``Met``.

    :raises InputError: the name tells none, or more than one.
    """
    by_lower = {name.lower(): name for name in _AMINO_ACIDS}
    found = list(dict.fromkeys(by_lower[name.lower()] for name in _NAMED.findall(reference)))
    if len(found) != 1:
        what = f"several amino acids ({', '.join(found)})" if found else "no amino acid"
        raise InputError(
            f"The name of reference '{reference}' tells {what}, so its isotype is not known.",
            hint="Names such as tRNA-Ala-GGC-1-1 tell it; or group by reference instead.",
        )
    return found[0]


def groups_in_name(reference: str) -> dict[str, str]:
    """Return isodecoder, isoacceptor and amino acid as a tRNA's name tells them; empty where it does not.

    ``tRNA-Ala-GGC-1-1`` is isodecoder ``Ala-GGC-1``, isoacceptor ``Ala-GGC``, amino acid ``Ala``. What stands in front of
    ``tRNA`` stays (``mito-Ala-TGC``), because the tRNAs of a mitochondrion or of a spike-in are other molecules; so do
    initiators and families in isoacceptors (``iMet-CAT``, ``Ile2-CAT``).
    """
    try:
        residue = amino_acid(reference)
    except InputError:
        return dict.fromkeys(LEVELS, "")
    found = _TRNA.match(reference)
    if found is None:
        before = re.split(rf"(?i)(?<![A-Za-z])[if]?{residue}\d*(?![A-Za-z0-9])", reference, maxsplit=1)[0]
        return {"isodecoder": "", "isoacceptor": "", "amino_acid": _with_prefix(before, residue)}
    before, initiator, anticodon = found["before"], found["initiator"].lower(), found["anticodon"].upper()
    isoacceptor = _with_prefix(before, f"{initiator}{residue}{found['family']}-{anticodon.replace('U', 'T')}")
    number = found["number"]
    return {
        "isodecoder": isoacceptor if number is None else f"{isoacceptor}-{number}",
        "isoacceptor": isoacceptor,
        "amino_acid": _with_prefix(before, residue),
    }


def _with_prefix(before: str, name: str) -> str:
    prefix = re.sub(r"(?i)t-?RNA[-_. (]*$", "", before).strip("-_. |:(")
    return f"{prefix}-{name}" if prefix else name


def joined_categories(corpora: Sequence[Corpus]) -> dict[str, list[str]]:
    """Return the names of every categorical column over all corpora, in order of first appearance."""
    return {
        column: list(dict.fromkeys(name for corpus in corpora for name in corpus.categories[column]))
        for column in CATEGORICAL
    }


def joined_codes(corpora: Sequence[Corpus], column: str, names: Sequence[str]) -> NDArray[np.int64]:
    """Return a categorical column of all rows as positions in ``names``; -1 stays -1."""
    place = {name: code for code, name in enumerate(names)}
    return np.concatenate(
        [
            np.array([*(place[name] for name in corpus.categories[column]), -1], dtype=np.int64)[corpus.column(column)]
            for corpus in corpora
        ]
    )


def group_rows(corpora: Sequence[Corpus], grouping: str) -> Groups:
    """Group the rows of all corpora.

    :param grouping: one of :data:`GROUPINGS`.
    :raises InputError: a reference whose name tells no amino acid, when grouping by isotype.
    """
    column = "reference" if grouping == "isotype" else grouping
    names = joined_categories(corpora)[column]
    codes = joined_codes(corpora, column, names)
    if grouping != "isotype":
        return Groups(grouping, codes, names)
    of_reference = [amino_acid(name) for name in names]
    isotypes = list(dict.fromkeys(of_reference))
    codes = np.array([isotypes.index(name) for name in of_reference], dtype=np.int64)[codes]
    return Groups(grouping, codes, isotypes)
