"""The design of a simulated experiment: references, pore, and what an amino acid does to the signal.

Hides: how tRNA-like sequences and a synthetic pore are drawn. Belongs here: all that two libraries of one experiment share;
single reads are drawn in ``molecules.py``. Invariants: depends on the design seed and the k-mer table alone; sequences run
5'->3'; levels are in units of a read's normalised signal.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leech.config import nearest
from leech.data.levels import BASE_EFFECTS, KmerTable, additive_levels, encode_bases
from leech.data.simulate.config import SimulateConfig
from leech.errors import ConfigError, InputError

FIVE_PRIME_ADAPTER = "CCTAAGAGCAAGAAGAAGCCTGG"

ANTICODONS = {
    "Ala": "GGC", "Arg": "ACG", "Asn": "GTT", "Asp": "GTC", "Cys": "GCA", "Gln": "TTG", "Glu": "TTC", "Gly": "GCC",
    "His": "GTG", "Ile": "GAT", "Leu": "CAG", "Lys": "TTT", "Met": "CAT", "Phe": "GAA", "Pro": "TGG", "Ser": "GGA",
    "Thr": "GGT", "Trp": "CCA", "Tyr": "GTA", "Val": "TAC",
}  # fmt: skip
"""One anticodon per amino acid, as in E. coli tRNA names."""

ADDUCT_OFFSETS = np.arange(-4, 4)
"""Bases that an amino acid bends, from the first adapter base: CCA ends at -1."""

_ARM_LENGTH = 17
"""Bases that all 3' adapters of an experiment share."""

_SYNTHETIC_SIZE = len(BASE_EFFECTS)
_TABLE_CENTRE = 3
"""Position in Oxford Nanopore's RNA004 9-mers whose base the level depends on most."""

_RANDOM_LEVEL_SD = 0.3
_LEVEL_SHIFT_SD = 0.29
_LOG_DWELL_SHIFT_SD = 0.35
_COMMON_SHARE, _OWN_SHARE = 0.9, 0.45
"""Shares of the effect that all amino acids have in common, the bond being the same, and that is each one's own."""


@dataclass(frozen=True)
class Adduct:
    """What one amino acid does to the bases at :data:`ADDUCT_OFFSETS`: added level, added log dwell."""

    level: NDArray[np.float64]
    log_dwell: NDArray[np.float64]


@dataclass(frozen=True)
class Design:
    """What all libraries of an experiment share.

    :ivar references: sequence by name, ``tRNA-<amino acid>-<anticodon>-<family>-1``; one N in each.
    :ivar junctions: position of the first adapter base behind CCA, by name.
    :ivar table: k-mer levels; ``centre`` is the position of the base that carries them.
    :ivar adducts: by reference name.
    :ivar adapters: of uncharged and of charged molecules; the references have one of their own.
    :ivar charged_fractions: share of charged molecules, by reference name.
    """

    references: dict[str, str]
    junctions: dict[str, int]
    table: KmerTable
    centre: int
    adducts: dict[str, Adduct]
    adapters: tuple[str, str]
    charged_fractions: dict[str, float]

    def aligned_end(self, name: str, charged: bool) -> int:
        """Return how far molecules of one state agree with their reference, in reference bases."""
        reference, adapter = self.references[name], self.adapters[charged]
        pairs = zip(reference[self.junctions[name] :], adapter, strict=False)
        agreed = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        return self.junctions[name] + agreed


def make_design(config: SimulateConfig) -> Design:
    """Draw the design of an experiment.

    :raises InputError: a k-mer table, or a table of charged fractions, that cannot be read.
    :raises ConfigError: a k-mer centre outside the k-mer, or an adapter that cannot be.
    """
    of_state = {"--adapter-uncharged": config.adapter_uncharged, "--adapter-charged": config.adapter_charged}
    _check_adapters(config.adapter, of_state)
    generator = np.random.default_rng([config.design_seed, 0])
    references, junctions = {}, {}
    adducts: dict[str, Adduct] = {}
    amino_acids = list(ANTICODONS)
    common = _draw_direction(generator)
    effects = {name: _draw_adduct(generator, common, config.effect) for name in amino_acids}
    for number in range(config.num_references):
        amino_acid = amino_acids[number % len(amino_acids)]
        name = f"tRNA-{amino_acid}-{ANTICODONS[amino_acid]}-{number // len(amino_acids) + 1}-1"
        body = _draw_body(generator, ANTICODONS[amino_acid])
        head = f"{FIVE_PRIME_ADAPTER}N{body}CCA"
        references[name] = head + config.adapter
        junctions[name] = len(head)
        adducts[name] = effects[amino_acid]
    if config.kmer_table is None:
        table, centre = synthetic_table(np.random.default_rng([config.design_seed, 1])), 0
    else:
        table = KmerTable.load(config.kmer_table)
        centre = min(_TABLE_CENTRE, table.size - 1)
    centre = centre if config.kmer_centre is None else config.kmer_centre
    if centre >= table.size:
        raise ConfigError(f"--kmer-centre {centre} lies outside the table's {table.size}-mers.")
    uncharged, charged = (adapter or config.adapter for adapter in of_state.values())
    fractions = dict.fromkeys(references, config.charged_fraction)
    if config.charged_fractions is not None:
        fractions |= read_fractions(config.charged_fractions, list(references))
    return Design(references, junctions, table, centre, adducts, (uncharged, charged), fractions)


def _check_adapters(adapter: str, of_state: Mapping[str, str | None]) -> None:
    """Refuse adapters that no read could have.

    :param adapter: the references'.
    :param of_state: those of reads, by option.
    :raises ConfigError: other letters than A C G T, or not the same arm.
    """
    for option, sequence in {"--adapter": adapter, **of_state}.items():
        if sequence is None:
            continue
        if set(sequence) - set("ACGT") or len(sequence) < _ARM_LENGTH:
            raise ConfigError(
                f"{option} '{sequence}' is not a sequence of at least {_ARM_LENGTH} letters A, C, G or T."
            )
        if sequence[:_ARM_LENGTH] != adapter[:_ARM_LENGTH]:
            raise ConfigError(
                f"{option} '{sequence}' does not begin with the references' arm {adapter[:_ARM_LENGTH]}.",
                hint="Adapters share their first 17 bases and may differ behind them.",
            )


def read_fractions(path: Path, references: list[str]) -> dict[str, float]:
    """Read the table ``reference<TAB>fraction``; empty lines, lines with # and a header line are passed over.

    :raises InputError: unreadable, an unknown or repeated reference, or a share outside 0 to 1.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"Cannot read the table of charged fractions '{path}': {error}.") from error
    fractions: dict[str, float] = {}
    for number, line in enumerate(lines, 1):
        cells = line.split("\t")
        if not line.strip() or line.startswith("#") or (cells[0] == "reference" and not fractions):
            continue
        where = f"'{path}', line {number}"
        try:
            share = float(cells[1])
        except (IndexError, ValueError):
            raise InputError(f"{where} is not reference<TAB>fraction: '{line}'.") from None
        if cells[0] not in references:
            close = nearest(cells[0], references)
            raise InputError(
                f"{where}: there is no reference '{cells[0]}' in this design.",
                hint=f"Did you mean '{close}'?"
                if close
                else "See reference.fa; --num-references says how many there are.",
            )
        if not 0 <= share <= 1 or cells[0] in fractions:
            raise InputError(f"{where}: the share must be between 0 and 1 and given once, got '{line}'.")
        fractions[cells[0]] = share
    return fractions


def _draw_adduct(generator: np.random.Generator, common: Adduct, effect: float) -> Adduct:
    """Draw one amino acid's effect: that of the bond, which all share, and its own, by an amount of its own."""
    strength = effect * generator.uniform(0.75, 1.35)
    own = _draw_direction(generator)
    return Adduct(
        level=strength * (_COMMON_SHARE * common.level + _OWN_SHARE * own.level),
        log_dwell=strength * (_COMMON_SHARE * common.log_dwell + _OWN_SHARE * own.log_dwell),
    )


def _draw_direction(generator: np.random.Generator) -> Adduct:
    # Strongest at the junction, fading to either side.
    profile = np.exp(-0.5 * ((ADDUCT_OFFSETS + 0.5) / 2.5) ** 2)
    level = generator.normal(0, 1, len(profile))
    log_dwell = generator.normal(0.4, 1, len(profile))
    # Scaled to one length, so that no effect is invisible by chance.
    level *= np.sqrt(len(level)) / np.linalg.norm(level)
    log_dwell *= np.sqrt(len(log_dwell)) / np.linalg.norm(log_dwell)
    return Adduct(level=_LEVEL_SHIFT_SD * profile * level, log_dwell=_LOG_DWELL_SHIFT_SD * profile * log_dwell)


def _draw_body(generator: np.random.Generator, anticodon: str) -> str:
    """Draw a tRNA body of 69 to 73 nt with paired stems, the anticodon and the usual T-loop."""

    def stem(length: int) -> tuple[str, str]:
        bases = generator.choice(list("ACGT"), length, p=[0.2, 0.3, 0.3, 0.2])
        pair = {"A": "T", "C": "G", "G": "C", "T": "A"}
        return "".join(bases), "".join(pair[base] for base in bases[::-1])

    def loop(length: int) -> str:
        return "".join(generator.choice(list("ACGT"), length, p=[0.3, 0.2, 0.2, 0.3]))

    acceptor, d_stem, anticodon_stem, t_stem = stem(7), stem(4), stem(5), stem(5)
    variable = loop(int(generator.integers(4, 7)))
    d_loop = "AG" + loop(int(generator.integers(2, 5))) + "GG" + loop(2)
    return (
        acceptor[0] + "TA" + d_stem[0] + d_loop + d_stem[1] + "A" + anticodon_stem[0] + "CT" + anticodon + "AA"
        + anticodon_stem[1] + variable + t_stem[0] + "TTCGAAT" + t_stem[1] + acceptor[1] + loop(1)
    )  # fmt: skip


def synthetic_table(generator: np.random.Generator) -> KmerTable:
    """Draw a 5-mer table with the first base as centre: additive base effects plus a random part.

    Levels are standardised to median 0 and 1.4826 x MAD of 1, so that they read like normalised signal.
    """
    kmers = ["".join(bases) for bases in itertools.product("ACGT", repeat=_SYNTHETIC_SIZE)]
    additive = np.array([additive_levels(encode_bases(kmer))[0] for kmer in kmers], dtype=np.float64)
    levels = additive + generator.normal(0, _RANDOM_LEVEL_SD, len(kmers))
    levels -= np.median(levels)
    levels /= 1.4826 * np.median(np.abs(levels))
    text = "".join(f"{kmer}\t{level:.6f}\n" for kmer, level in zip(kmers, levels, strict=True))
    return KmerTable.parse(text.encode())
