"""The fixed world of a simulated experiment: references, pore model and what an amino acid does to the signal.

Hides: how references are named and made up, and how the pore's levels are drawn. Belongs here: everything that two
libraries of one experiment share, so everything that depends on ``design_seed`` and the k-mer table alone; what differs
from read to read is drawn in ``signal.py``. Invariants: base codes as in ``data/levels.py``; reference columns run 5'->3'
and are padded at the end; levels are in read MADs (median 0, 1.4826 x MAD 1); offsets count from the A of CCA.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leech.data.levels import BASE_EFFECTS, UNKNOWN_BASE, KmerTable, encode_bases
from leech.data.simulate.config import SimulateConfig
from leech.errors import ConfigError

ADAPTER_5 = "CCTAAGAGCAAGAAGAAGCCTGG"
ADAPTER_3 = "GGCTTCTTCTTGCTCTTCCAACCTTGCCTTAAAAAAAAAA"
JUNCTION_MOTIF = "CCAGGC"
JUNCTION_OFFSET = 2
"""The A of CCA within the motif."""

VARIABLE_POSITION = len(ADAPTER_5)
"""Position of the adapter's variable base, which is N in every reference."""

EFFECT_OFFSETS = np.arange(-4, 4)
"""Bases whose level and dwell an amino acid changes, counted from the A of CCA."""

DEFAULT_KMER_CENTRE = 3
"""Which base of a given table's k-mer carries the level; 3 in the RNA004 9-mer table at true base boundaries."""

LEVEL_JITTER_SD = 0.25
"""Standard deviation, in read MADs, of a base's level about the pore's expected level."""

SAMPLE_NOISE_SD = 0.2
"""Standard deviation of a sample about its base's level, in read MADs."""

LOG_DWELL_SD = 0.55
"""Standard deviation of a base's log dwell (beyond the shortest possible) about the read's own mean."""

AMPLITUDE_SD = 0.3
"""Standard deviation over charged reads of the factor (mean 1) by which a read shows its amino acid's effect."""

TYPICAL_DWELL_SAMPLES = 36.0

_SYNTHETIC_KMER_SIZE = len(BASE_EFFECTS)
_RANDOM_LEVEL_SD = 0.3
_BODY_LENGTHS = (69, 76)
_STRENGTHS = (2.9, 4.1)
_OWN_EFFECT_WEIGHT = 0.55
_EFFECT_REACH_BASES = 2.5

_ANTICODONS = {
    "Ala": ("AGC", "CGC", "TGC"), "Arg": ("ACG", "CCG", "TCG", "CCT", "TCT"), "Asn": ("GTT",), "Asp": ("GTC",),
    "Cys": ("GCA",), "Gln": ("CTG", "TTG"), "Glu": ("CTC", "TTC"), "Gly": ("GCC", "CCC", "TCC"), "His": ("GTG",),
    "Ile": ("AAT", "GAT", "TAT"), "Leu": ("AAG", "CAG", "TAG", "CAA", "TAA"), "Lys": ("CTT", "TTT"), "Met": ("CAT",),
    "Phe": ("GAA",), "Pro": ("AGG", "CGG", "TGG"), "Ser": ("AGA", "CGA", "TGA", "GCT"), "Thr": ("AGT", "CGT", "TGT"),
    "Trp": ("CCA",), "Tyr": ("GTA",), "Val": ("AAC", "CAC", "TAC"),
}  # fmt: skip


@dataclass(frozen=True)
class Design:
    """References, pore and adducts; R references padded to L bases.

    :ivar names: of the references.
    :ivar sequences: 5'->3', with N at :data:`VARIABLE_POSITION`.
    :ivar codes: uint8 (R, L), ``UNKNOWN_BASE`` at the variable base and beyond the end.
    :ivar lengths: int64 (R,).
    :ivar focus: position of the A of CCA, int64 (R,).
    :ivar levels: float64 (R, 4, L), expected level of each base for each code of the variable base.
    :ivar level_effect: float64 (R, len(EFFECT_OFFSETS)), shift of the level of a fully affected charged read.
    :ivar log_dwell_effect: the same for the log dwell.
    :ivar table: the pore's k-mer levels.
    """

    names: tuple[str, ...]
    sequences: tuple[str, ...]
    codes: NDArray[np.uint8]
    lengths: NDArray[np.int64]
    focus: NDArray[np.int64]
    levels: NDArray[np.float64]
    level_effect: NDArray[np.float64]
    log_dwell_effect: NDArray[np.float64]
    table: KmerTable

    @classmethod
    def make(cls, config: SimulateConfig) -> Design:
        """Make the design of a configuration.

        :raises InputError: the k-mer table cannot be read.
        :raises ConfigError: the centre lies outside the table's k-mer.
        """
        reference_rng, pore_rng, adduct_rng = (np.random.default_rng([config.design_seed, part]) for part in range(3))
        table, centre = _pore(config, pore_rng)
        names = reference_names(config.num_references)
        sequences = tuple(_reference_sequence(reference_rng) for _ in names)
        lengths = np.array([len(sequence) for sequence in sequences], dtype=np.int64)
        codes = np.full((len(names), int(lengths.max())), UNKNOWN_BASE, dtype=np.uint8)
        for row, sequence in enumerate(sequences):
            codes[row, : len(sequence)] = encode_bases(sequence)
        kinds = list(_ANTICODONS)
        level_effect, log_dwell_effect = _adducts(len(kinds), adduct_rng)
        kind = np.array([kinds.index(name.split("-")[1]) for name in names])
        return cls(
            names=names,
            sequences=sequences,
            codes=codes,
            lengths=lengths,
            focus=lengths - len(ADAPTER_3) - 1,
            levels=_expected_levels(codes, table, centre),
            level_effect=level_effect[kind],
            log_dwell_effect=log_dwell_effect[kind],
            table=table,
        )


def reference_names(number: int) -> tuple[str, ...]:
    """Return distinct tRNA names, going round the amino acids first and their anticodons next."""
    kinds = list(_ANTICODONS)
    names = []
    for place in range(number):
        lap, kind = divmod(place, len(kinds))
        gene, anticodon = divmod(lap, len(_ANTICODONS[kinds[kind]]))
        names.append(f"tRNA-{kinds[kind]}-{_ANTICODONS[kinds[kind]][anticodon]}-{gene + 1}-1")
    return tuple(names)


def _reference_sequence(rng: np.random.Generator) -> str:
    while True:
        length = int(rng.integers(*_BODY_LENGTHS))
        letters = "".join("ACGT"[code] for code in rng.integers(0, 4, length).tolist())
        # The two stretches that nearly every tRNA shares: the D arm's start and the T arm.
        body = f"G{letters[1:7]}TAGCTCAG{letters[15 : length - 24]}GGTTCGAATCC{letters[length - 13 :]}"
        tail = body + "CCA" + ADAPTER_3
        # A second motif would make the site a matter of choice.
        if tail.count(JUNCTION_MOTIF) == 1:
            return ADAPTER_5 + "N" + tail


def _pore(config: SimulateConfig, rng: np.random.Generator) -> tuple[KmerTable, int]:
    if config.kmer_table is None:
        return synthetic_pore(rng), 0
    table = KmerTable.load(config.kmer_table)
    centre = DEFAULT_KMER_CENTRE if config.kmer_centre is None else config.kmer_centre
    if centre >= table.size:
        raise ConfigError(
            f"The k-mer centre {centre} lies outside the {table.size}-mers of '{config.kmer_table}'.",
            hint=f"Give --kmer-centre between 0 and {table.size - 1}.",
        )
    return table, centre


def synthetic_pore(rng: np.random.Generator) -> KmerTable:
    """Return a 5-mer table whose level belongs to the k-mer's first base: additive effects and a random part.

    Levels are shifted and scaled to median 0 and 1.4826 x MAD 1 over all k-mers.
    """
    size = _SYNTHETIC_KMER_SIZE
    codes = np.arange(4**size)[:, None] // 4 ** np.arange(size - 1, -1, -1) % 4
    levels = BASE_EFFECTS[np.arange(size), codes].astype(np.float64).sum(axis=1)
    levels += rng.normal(0, _RANDOM_LEVEL_SD, len(levels))
    levels -= np.median(levels)
    levels /= 1.4826 * np.median(np.abs(levels))
    letters = np.array(list("ACGT"))[codes]
    lines = [f"{''.join(row)}\t{level:.6f}\n" for row, level in zip(letters, levels.tolist(), strict=True)]
    text = "".join(lines).encode()
    # The numbers as written, so that whoever reads the file has the very same pore.
    written = np.array([float(line.split("\t")[1]) for line in lines], dtype=np.float32)
    return KmerTable(levels=written, size=size, sha256=hashlib.sha256(text).hexdigest(), text=text)


def _expected_levels(codes: NDArray[np.uint8], table: KmerTable, centre: int) -> NDArray[np.float64]:
    variants = np.repeat(codes[:, None, :], 4, axis=1)
    variants[:, :, VARIABLE_POSITION] = np.arange(4)
    # Beyond the ends the pore sees something too; A stands for it, as in the adapter's own tail.
    variants[variants == UNKNOWN_BASE] = 0
    padded = np.pad(variants, ((0, 0), (0, 0), (table.size, table.size)))
    return table.expected(padded, centre)[:, :, table.size : -table.size].astype(np.float64)


def _adducts(number: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw the effects of amino acids: one direction that all share, a part of their own, and a strength.

    The strength is the distance of the charged from the uncharged mean in standard deviations of one read
    (Mahalanobis), so that how well the states can be told apart hardly depends on the seed.
    """
    profile = np.exp(-np.abs(EFFECT_OFFSETS + 0.5) / _EFFECT_REACH_BASES)
    shared = rng.normal(0, 1, (1, 2, len(EFFECT_OFFSETS)))
    own = rng.normal(0, 1, (number, 2, len(EFFECT_OFFSETS)))
    directions = (shared + _OWN_EFFECT_WEIGHT * own) * profile
    # An adduct holds the molecule up rather than hurrying it on.
    directions[:, 1] = np.abs(directions[:, 1])
    strength = rng.uniform(*_STRENGTHS, (number, 1, 1))
    directions *= strength / np.sqrt((directions**2).sum(axis=(1, 2), keepdims=True))
    level_sd = np.sqrt(LEVEL_JITTER_SD**2 + SAMPLE_NOISE_SD**2 / TYPICAL_DWELL_SAMPLES)
    return directions[:, 0] * level_sd, directions[:, 1] * LOG_DWELL_SD
