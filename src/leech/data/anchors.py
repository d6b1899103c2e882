"""Where the site is: from references, reads and a recipe to the focus base.

Hides: motif search with IUPAC codes, the choice among occurrences, and what is the same for many reads. Belongs here:
everything about a site that is known before the signal is looked at (position, sequence, expected levels, label); files
of positions are read in ``sites.py``. Invariants: positions are 0-based on the reference, or on SEQ where the motif is
looked for in the basecall; sequences 5'->3'; FASTA is held in memory and no index is written beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pysam
from numpy.typing import NDArray

from leech.data.levels import UNKNOWN_BASE, KmerTable, encode_bases
from leech.data.recipe import CONTEXT_BASES, Recipe
from leech.data.refine import MARGIN_BASES
from leech.data.sites import BedSites, Place, ReadSites, SiteFile
from leech.errors import InputError

_IUPAC = {
    "A": "A", "C": "C", "G": "G", "T": "T", "R": "AG", "Y": "CT", "S": "CG", "W": "AT", "K": "GT", "M": "AC",
    "B": "CGT", "D": "AGT", "H": "ACT", "V": "ACG", "N": "ACGT",
}  # fmt: skip


@dataclass(frozen=True)
class Site:
    """The site on one reference, or in one read.

    :ivar focus: position of the focus base.
    :ivar motif_start: position of the motif's first base, or of the interval that a file gives instead.
    :ivar motif_end: position behind its last base.
    :ivar sequence: base codes of the base window with context, uint8 (num_bases + 2 * CONTEXT_BASES,).
    :ivar expected_level: expected normalised level of the feature bases, float32; None without a k-mer table.
    :ivar stretch_level: the same for the base window with MARGIN_BASES on either side, of the sequence as it is even where
        ``sequence`` is masked, since it never enters a chunk; None without refinement.
    :ivar label: state of the reads with this site; None where a file of sites does not say it.
    """

    focus: int
    motif_start: int
    motif_end: int
    sequence: NDArray[np.uint8]
    expected_level: NDArray[np.float32] | None
    label: str | None = None
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


def locate_motif(sequence: str, recipe: Recipe) -> int | str:
    """Return the start of the motif occurrence that is the site, or the reason why there is none."""
    assert recipe.motif is not None
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
    """Describe the site that the motif marks in one sequence, or return the reason why it has none."""
    start = locate_motif(sequence, recipe)
    if isinstance(start, str):
        return start
    assert recipe.motif is not None
    assert recipe.motif_offset is not None
    return describe_site(
        encode_bases(sequence), start + recipe.motif_offset, (start, start + len(recipe.motif)), recipe, table
    )


def describe_site(
    codes: NDArray[np.uint8],
    focus: int,
    motif: tuple[int, int],
    recipe: Recipe,
    table: KmerTable | None,
    label: str | None = None,
) -> Site | str:
    """Describe the site at ``focus``, or return the reason why it cannot be one.

    :param codes: base codes of the whole sequence.
    :param motif: the half-open interval in which an indel counts as one of the junction.
    """
    if not 0 <= focus < len(codes):
        return "focus_outside_reference"
    # Before levels are looked up: the level of a base tells of its neighbours too.
    unmasked, codes = codes, _masked(codes, focus, recipe.mask_sequence)
    expected = stretch = None
    if table is not None:
        assert recipe.kmer_centre is not None
        levels = table.expected(codes, recipe.kmer_centre)
        expected = _window(levels, focus + recipe.feature_start, recipe.num_feature_bases, np.float32(np.nan))
        if recipe.refinement == "kmer":
            first, length = focus - recipe.bases_before - MARGIN_BASES, recipe.num_bases + 2 * MARGIN_BASES
            stretch = _window(table.expected(unmasked, recipe.kmer_centre), first, length, np.float32(np.nan))
    before = recipe.bases_before + CONTEXT_BASES
    return Site(
        focus=focus,
        motif_start=motif[0],
        motif_end=motif[1],
        sequence=_window(codes, focus - before, recipe.num_bases + 2 * CONTEXT_BASES, np.uint8(UNKNOWN_BASE)),
        expected_level=expected,
        label=label,
        stretch_level=stretch,
    )


Sites = Sequence[Site | str | None]
"""By reference number of the BAM header: its site, the reason why it has none, or None where each read has its own."""


class ReadAnchor(Protocol):
    """Finds the site of one read."""

    def locate(self, read_id: bytes, reference: int, sequence: str) -> Site | str:
        """Return the read's site, or the reason why it has none.

        :param read_id: 16 bytes, the record's own id.
        :param reference: number of the reference that it aligns to.
        :param sequence: SEQ.
        """


@dataclass(frozen=True)
class BasecallAnchor:
    """The motif in the read's own sequence."""

    recipe: Recipe
    table: KmerTable | None

    def locate(self, read_id: bytes, reference: int, sequence: str) -> Site | str:
        """Return the site, its positions counted on SEQ."""
        return find_site(sequence, self.recipe, self.table)


class TableAnchor:
    """A position on the reference for each read of a table."""

    def __init__(
        self, sites: ReadSites, sequences: Sequence[str | None], recipe: Recipe, table: KmerTable | None
    ) -> None:
        self._sites, self._sequences, self._recipe, self._table = sites, sequences, recipe, table
        self._known: dict[tuple[int, Place], Site | str] = {}

    def locate(self, read_id: bytes, reference: int, sequence: str) -> Site | str:
        """Return the site that the table gives, its positions counted on the reference."""
        place = self._sites.find(read_id)
        if place is None:
            return "read_not_listed"
        known = self._known.get((reference, place))
        if known is None:
            text = self._sequences[reference]
            assert text is not None
            known = _site_at(place, encode_bases(text), self._recipe, self._table)
            if len(self._known) >= _KNOWN_SITES:
                self._known.clear()
            self._known[reference, place] = known
        return known


_KNOWN_SITES = 10_000
"""Sites of a table of reads that are remembered at once, about 1 kB each."""


def find_sites(
    names: Sequence[str],
    sequences: Mapping[str, str],
    recipe: Recipe,
    table: KmerTable | None,
    sites: SiteFile | None = None,
) -> tuple[Sites, ReadAnchor | None]:
    """Describe the sites of a run: those of references, and who finds those of reads where each has its own.

    :param names: of the references, in the order of the BAM header.
    :param sequences: of the references, by name.
    :param sites: the file that says where they are, for a recipe whose anchor is one.
    :raises InputError: a BED none of whose references is in the FASTA.
    """
    if isinstance(sites, BedSites) and not any(name in sequences for name in sites.places):
        raise InputError(
            f"None of the {len(sites.places)} references of the BED is in the FASTA; the first is "
            f"'{next(iter(sites.places))}'.",
            hint="The first column must name references as the FASTA and the BAM do.",
        )

    anchor: ReadAnchor | None = None
    if recipe.anchor == "basecall":
        anchor = BasecallAnchor(recipe, table)
    elif recipe.site_source == "read_sites":
        assert isinstance(sites, ReadSites)
        anchor = TableAnchor(sites, [sequences.get(name) for name in names], recipe, table)

    def of(name: str) -> Site | str | None:
        if name not in sequences:
            return "reference_not_in_fasta"
        if anchor is not None:
            return None
        if recipe.site_source == "motif":
            return find_site(sequences[name], recipe, table)
        assert isinstance(sites, BedSites)
        place = sites.places.get(name)
        return "no_site" if place is None else _site_at(place, encode_bases(sequences[name]), recipe, table)

    return [of(name) for name in names], anchor


def _site_at(place: Place, codes: NDArray[np.uint8], recipe: Recipe, table: KmerTable | None) -> Site | str:
    return describe_site(codes, place.start, (place.start, place.end), recipe, table, place.label)


def _masked(codes: NDArray[np.uint8], focus: int, side: str) -> NDArray[np.uint8]:
    """Return the codes with all bases on one side of the focus base unknown."""
    if side == "none":
        return codes
    masked = codes.copy()
    hidden = slice(0, focus) if side == "before" else slice(focus + 1, None)
    masked[hidden] = UNKNOWN_BASE
    return masked


def _window(values: NDArray[Any], start: int, length: int, filler: np.generic) -> NDArray[Any]:
    """Return ``values[start:start + length]`` with ``filler`` where it overhangs either end."""
    positions = np.arange(start, start + length)
    inside = (positions >= 0) & (positions < len(values))
    return np.where(inside, values[np.clip(positions, 0, len(values) - 1)], filler).astype(values.dtype)
