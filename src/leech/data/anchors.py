"""Where the site is: from references and a motif to the focus base of each reference.

Hides: motif search with IUPAC codes and the choice among occurrences. Belongs here: everything about a site that is the
same for all reads of a reference (its position, its sequence, its expected levels). Invariants: positions are 0-based on
the reference, sequences 5'->3'; FASTA is held in memory and no index is written beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pysam
from numpy.typing import NDArray

from leech.data.levels import UNKNOWN_BASE, KmerTable, encode_bases
from leech.data.recipe import CONTEXT_BASES, Recipe
from leech.data.refine import MARGIN_BASES
from leech.errors import InputError

_IUPAC = {
    "A": "A", "C": "C", "G": "G", "T": "T", "R": "AG", "Y": "CT", "S": "CG", "W": "AT", "K": "GT", "M": "AC",
    "B": "CGT", "D": "AGT", "H": "ACT", "V": "ACG", "N": "ACGT",
}  # fmt: skip


@dataclass(frozen=True)
class Site:
    """The site on one reference.

    :ivar focus: position of the focus base.
    :ivar motif_start: position of the motif's first base.
    :ivar sequence: base codes of the base window with context, uint8 (num_bases + 2 * CONTEXT_BASES,).
    :ivar expected_level: expected normalised level of the feature bases, float32; None without a k-mer table.
    :ivar stretch_level: the same for the base window with MARGIN_BASES on either side; None without refinement.
    """

    focus: int
    motif_start: int
    sequence: NDArray[np.uint8]
    expected_level: NDArray[np.float32] | None
    stretch_level: NDArray[np.float32] | None = None


def read_fasta(path: Path) -> dict[str, str]:
    """Read all sequences of a FASTA (gzip allowed) into memory, upper case, U as T.

    :raises InputError: unreadable, empty, or a name that occurs twice.
    """
    sequences: dict[str, str] = {}
    try:
        with pysam.FastxFile(str(path), persist=False) as records:
            for record in records:
                if record.name in sequences:
                    raise InputError(f"Reference '{path}' has the name '{record.name}' twice; a BAM could mean either.")
                sequences[str(record.name)] = (record.sequence or "").upper().replace("U", "T")
    except (OSError, ValueError) as error:
        raise InputError(f"Cannot read reference '{path}': {error}.", hint="--reference takes a FASTA file.") from error
    if not any(sequences.values()):
        raise InputError(f"Reference '{path}' holds no sequence.", hint="--reference takes a FASTA file.")
    return sequences


def find_motif(sequence: str, motif: str) -> list[int]:
    """Return all starts of the motif, overlapping ones too; IUPAC codes match the bases they stand for."""
    pattern = "".join(f"[{_IUPAC[letter]}]" for letter in motif)
    return [match.start() for match in re.finditer(f"(?=({pattern}))", sequence)]


def locate_focus(sequence: str, recipe: Recipe) -> int | str:
    """Return the start of the motif occurrence that is the site, or the reason why there is none."""
    starts = find_motif(sequence, recipe.motif)
    if not starts:
        return "no_motif"
    if recipe.motif_occurrence == "arm":
        # The arm begins within the motif or right after it: CCA|GGC begins the arm GGCTTC... at its fourth base.
        reach = range(len(recipe.motif) + 1)
        starts = [start for start in starts if any(sequence.startswith(recipe.arm, start + step) for step in reach)]
        if not starts:
            return "no_junction"
    if recipe.motif_occurrence in ("arm", "only") and len(starts) > 1:
        return "several_motifs"
    return starts[-1] if recipe.motif_occurrence == "last" else starts[0]


def find_site(sequence: str, recipe: Recipe, table: KmerTable | None) -> Site | str:
    """Describe the site on one reference, or return the reason why reads of this reference cannot be used."""
    start = locate_focus(sequence, recipe)
    if isinstance(start, str):
        return start
    focus = start + recipe.motif_offset
    if not 0 <= focus < len(sequence):
        return "focus_outside_reference"
    codes = encode_bases(sequence)
    expected = stretch = None
    if table is not None:
        assert recipe.kmer_centre is not None
        levels = table.expected(codes, recipe.kmer_centre)
        expected = _window(levels, focus + recipe.feature_start, recipe.num_feature_bases, np.float32(np.nan))
        if recipe.refinement == "kmer":
            first, length = focus - recipe.bases_before - MARGIN_BASES, recipe.num_bases + 2 * MARGIN_BASES
            stretch = _window(levels, first, length, np.float32(np.nan))
    before = recipe.bases_before + CONTEXT_BASES
    return Site(
        focus=focus,
        motif_start=start,
        sequence=_window(codes, focus - before, recipe.num_bases + 2 * CONTEXT_BASES, np.uint8(UNKNOWN_BASE)),
        expected_level=expected,
        stretch_level=stretch,
    )


def find_sites(references: Mapping[str, str], recipe: Recipe, table: KmerTable | None) -> dict[str, Site | str]:
    """Describe the site of every reference by name."""
    return {name: find_site(sequence, recipe, table) for name, sequence in references.items()}


def _window(values: NDArray[Any], start: int, length: int, filler: np.generic) -> NDArray[Any]:
    """Return ``values[start:start + length]`` with ``filler`` where it overhangs either end."""
    positions = np.arange(start, start + length)
    inside = (positions >= 0) & (positions < len(values))
    return np.where(inside, values[np.clip(positions, 0, len(values) - 1)], filler).astype(values.dtype)
