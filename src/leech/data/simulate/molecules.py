"""Single molecules and their signal.

Hides: the distributions of dwell, noise and scale, and the oracle that knows them. Belongs here: what happens in the pore;
what a basecaller makes of it is in ``basecall.py``. Invariants: a molecule's signal is int16 ADC in time order (3' end
first); its base boundaries are samples in the direction of the sequence, 5'->3'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leech.data.levels import encode_bases
from leech.data.simulate.design import ADDUCT_OFFSETS, Design

SAMPLE_RATE = 4000
CALIBRATION_SCALE = 0.1462
CALIBRATION_OFFSET = -250.0
MIN_DWELL = 6
"""Samples; one stride block of the basecaller, so that every base can have a move."""

_MEAN_DWELL = 36.0
_DWELL_SHAPE = 1.6
_SPEED_SD = 0.2
_LEVEL_JITTER_SD = 0.2
_NOISE_SD = 0.22
_HETEROGENEITY_SD = 0.3
_INDEL_FIT_MOLECULES = 1000
_TRUNCATED = 0.2
"""Share of molecules that lack some of their 5' end."""


@dataclass(frozen=True)
class Molecule:
    """One molecule that went through the pore.

    :ivar first: reference position of its first base.
    :ivar sequence: its bases, 5'->3'.
    :ivar edges: base boundaries in used samples, sequence direction, int64 (num_bases + 1,).
    :ivar leader: ADC samples before the used ones, in time.
    :ivar used: ADC samples of the bases, in time.
    :ivar tail: ADC samples behind.
    :ivar speed: relative to the mean; 2 is twice as fast.
    :ivar signal_logit: log likelihood ratio charged to uncharged of its signal around the junction, all parameters known.
    """

    reference: str
    charged: bool
    first: int
    sequence: str
    edges: NDArray[np.int64]
    leader: NDArray[np.int16]
    used: NDArray[np.int16]
    tail: NDArray[np.int16]
    speed: float
    signal_logit: float

    @property
    def raw(self) -> NDArray[np.int16]:
        """All its samples in time order."""
        return np.concatenate([self.leader, self.used, self.tail])


def draw_molecules(
    generator: np.random.Generator, design: Design, names: Sequence[str], charged: NDArray[np.bool_]
) -> list[Molecule]:
    """Draw one molecule per name of a reference."""
    return [_draw(generator, design, name, bool(state)) for name, state in zip(names, charged, strict=True)]


def _draw(generator: np.random.Generator, design: Design, name: str, charged: bool) -> Molecule:
    reference = design.references[name].replace("N", "ACGT"[generator.integers(4)])
    first = int(generator.integers(0, 45)) if generator.random() < _TRUNCATED else int(generator.integers(0, 4))
    sequence = reference[first:]
    expected = np.nan_to_num(design.table.expected(encode_bases(sequence), design.centre)).astype(np.float64)
    speed = float(np.exp(generator.normal(0, _SPEED_SD)))
    mean_dwell = np.full(len(sequence), (_MEAN_DWELL - MIN_DWELL) / speed)
    bent = design.junctions[name] - first + ADDUCT_OFFSETS
    adduct = design.adducts[name]
    level = expected.copy()
    if charged:
        # How strongly an amino acid shows differs from read to read.
        strength = np.exp(generator.normal(0, _HETEROGENEITY_SD))
        level[bent] += strength * adduct.level
        mean_dwell[bent] *= np.exp(strength * adduct.log_dwell)
    extra = generator.gamma(_DWELL_SHAPE, mean_dwell / _DWELL_SHAPE)
    dwell = MIN_DWELL + np.rint(extra).astype(np.int64)
    level += generator.normal(0, _LEVEL_JITTER_SD, len(level))
    edges = np.concatenate([[0], np.cumsum(dwell)])
    normalised = np.repeat(level, dwell) + generator.normal(0, _NOISE_SD, edges[-1])
    means = np.add.reduceat(normalised, edges[:-1])[bent] / dwell[bent]
    logit = oracle_logit(
        expected[bent], means, dwell[bent], (_MEAN_DWELL - MIN_DWELL) / speed, adduct.level, adduct.log_dwell
    )
    shift_pa, scale_pa = generator.normal(80, 4), generator.normal(17, 1.2)
    drift = np.linspace(-0.5, 0.5, edges[-1]) * generator.normal(0, 0.15)
    leader_level = generator.normal(1.2, 0.3) + generator.normal(0, 0.3, generator.integers(1000, 5000))
    tail_level = generator.normal(0.5, 0.4, generator.integers(1, 300) if generator.random() < 0.3 else 0)
    leader, used, tail = (
        _digitise(shift_pa + scale_pa * part) for part in (leader_level, (normalised + drift)[::-1], tail_level)
    )
    return Molecule(name, charged, first, sequence, edges, leader, used, tail, speed, logit)


def _digitise(current_pa: NDArray[np.float64]) -> NDArray[np.int16]:
    """Turn current in pA into ADC values: pA = (adc + offset) * scale."""
    return np.rint(current_pa / CALIBRATION_SCALE - CALIBRATION_OFFSET).clip(-32768, 32767).astype(np.int16)


_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(15)


def oracle_logit(
    expected: NDArray[np.float64],
    means: NDArray[np.float64],
    dwell: NDArray[np.int64],
    mean_extra: float,
    level_shift: NDArray[np.float64],
    log_dwell_shift: NDArray[np.float64],
) -> float:
    """Return the log likelihood ratio charged to uncharged of one read's bases around the junction.

    Per base, the mean of d samples is normal around the level with variance jitter^2 + noise^2 / d, and the dwell beyond
    the minimum is a gamma variable of known mean. The read's own strength of the effect, log-normal, is integrated out by
    Gauss-Hermite quadrature. Knows every parameter of the simulation but the state and that strength.
    """
    strength = np.exp(_HETEROGENEITY_SD * _NODES)[:, None]
    variance = _LEVEL_JITTER_SD**2 + _NOISE_SD**2 / dwell
    residual = means - expected
    level_term = ((residual**2) - (residual - strength * level_shift) ** 2) / (2 * variance)
    # log gamma density (shape k, mean m) in what depends on the mean: -k log m - k x / m.
    extra = np.maximum(dwell - MIN_DWELL, 0.25)
    factor = strength * log_dwell_shift
    dwell_term = -_DWELL_SHAPE * factor - _DWELL_SHAPE * extra / mean_extra * (np.exp(-factor) - 1)
    per_strength = (level_term + dwell_term).sum(axis=1)
    peak = per_strength.max()
    weights = _WEIGHTS / _WEIGHTS.sum()
    return float(peak + np.log(np.sum(weights * np.exp(per_strength - peak))))


@dataclass(frozen=True)
class IndelModel:
    """How likely an indel across the junction is, given the signal: ``height`` where the logit exceeds ``threshold``.

    A basecaller knows nothing but the signal, so an indel may tell no more than the signal does, or a classifier could
    beat the oracle. The two numbers are such that the rates in charged and uncharged molecules are those asked for.
    """

    threshold: float
    height: float

    @classmethod
    def fit(cls, design: Design, rate_charged: float, rate_uncharged: float) -> IndelModel:
        """Find the model by simulating molecules of both states; depends on the design alone."""
        generator = np.random.default_rng(_INDEL_FIT_MOLECULES)
        names = [list(design.references)[place % len(design.references)] for place in range(_INDEL_FIT_MOLECULES)]
        charged, uncharged = (
            np.array([m.signal_logit for m in draw_molecules(generator, design, names, np.full(len(names), state))])
            for state in (True, False)
        )
        best = cls(-np.inf, max(rate_charged, rate_uncharged))
        closest = np.inf
        for threshold in np.append(-np.inf, np.sort(np.concatenate([charged, uncharged]))):
            above_charged, above_uncharged = (charged > threshold).mean(), (uncharged > threshold).mean()
            if above_charged == 0:
                break
            height = min(rate_charged / above_charged, 1.0)
            miss = abs(height * above_charged - rate_charged) + abs(height * above_uncharged - rate_uncharged)
            if miss < closest:
                best, closest = cls(float(threshold), float(height)), miss
        return best

    def chance(self, molecule: Molecule) -> float:
        """Return the probability of an indel across this molecule's junction."""
        return self.height if molecule.signal_logit > self.threshold else 0.0
