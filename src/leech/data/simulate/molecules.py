"""Molecules and their signal.

Hides: the distributions of dwell, noise and scale, and the oracle that knows them. Belongs here: what happens in the pore;
what a basecaller makes of it is in ``basecall.py``. Invariants: many molecules at once, in flat arrays; signal is int16 ADC
in time order (3' end first); bases are in the direction of the sequence, 5'->3'.
"""

from __future__ import annotations

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
_DRIFT_SD = 0.15
_LEADER_LEVEL, _LEADER_LEVEL_SD, _LEADER_NOISE_SD = 1.2, 0.3, 0.3
_TAIL_LEVEL, _TAIL_NOISE_SD = 0.5, 0.4
_WITH_TAIL = 0.3
"""Share of molecules with samples behind the used ones."""
_TRUNCATED = 0.2
"""Share of molecules that lack some of their 5' end."""

_INDEL_FIT_MOLECULES = 1000


@dataclass(frozen=True)
class Molecules:
    """Molecules that went through the pore.

    :ivar references: int64 (num_molecules,), number of the reference.
    :ivar charged: bool (num_molecules,).
    :ivar first: int64 (num_molecules,), reference position of the first base.
    :ivar base_offsets: int64 (num_molecules + 1,), where each one's bases lie in the flat arrays.
    :ivar codes: uint8 (num_bases,), A C G T as 0 1 2 3.
    :ivar dwell: int64 (num_bases,), samples.
    :ivar sample_offsets: int64 (num_molecules + 1,), where each one's samples lie in ``signal``.
    :ivar leader: int64 (num_molecules,), samples before the used ones.
    :ivar signal: int16 (num_samples,), ADC; leader, bases and a tail of each molecule.
    :ivar speed: relative to the mean; 2 is twice as fast.
    :ivar signal_logit: log likelihood ratio charged to uncharged of the signal around the junction, all parameters known.
    """

    references: NDArray[np.int64]
    charged: NDArray[np.bool_]
    first: NDArray[np.int64]
    base_offsets: NDArray[np.int64]
    codes: NDArray[np.uint8]
    dwell: NDArray[np.int64]
    sample_offsets: NDArray[np.int64]
    leader: NDArray[np.int64]
    signal: NDArray[np.int16]
    speed: NDArray[np.float64]
    signal_logit: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.first)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Bases of each molecule."""
        lengths: NDArray[np.int64] = np.diff(self.base_offsets)
        return lengths

    @property
    def ends(self) -> NDArray[np.int64]:
        """End of each base in its molecule's used samples, in the direction of the sequence (num_bases,)."""
        total = np.append(0, np.cumsum(self.dwell))
        ends: NDArray[np.int64] = total[1:] - np.repeat(total[self.base_offsets[:-1]], self.lengths)
        return ends

    @property
    def used(self) -> NDArray[np.int64]:
        """Samples of each molecule's bases."""
        used: NDArray[np.int64] = np.diff(np.append(0, np.cumsum(self.dwell))[self.base_offsets])
        return used


@dataclass(frozen=True)
class _Bases:
    """Molecules without their signal; arrays by base are flat, as in ``Molecules``.

    :ivar expected: levels of the uncharged state.
    :ivar level: levels of this very molecule.
    :ivar bent: int64 (num_molecules, 8), places in the flat arrays of the bases that an amino acid bends.
    """

    first: NDArray[np.int64]
    offsets: NDArray[np.int64]
    codes: NDArray[np.uint8]
    expected: NDArray[np.float64]
    level: NDArray[np.float64]
    dwell: NDArray[np.int64]
    speed: NDArray[np.float64]
    bent: NDArray[np.int64]


class Pore:
    """Draws molecules of one design.

    :param speed_charged: speed of charged molecules relative to uncharged ones.
    """

    def __init__(self, design: Design, speed_charged: float = 1.0) -> None:
        self._design, self._speed_charged = design, speed_charged
        self._names = list(design.references)
        self.junctions = np.array([design.junctions[name] for name in self._names], dtype=np.int64)
        self._adduct_levels = np.stack([design.adducts[name].level for name in self._names])
        self._adduct_log_dwells = np.stack([design.adducts[name].log_dwell for name in self._names])
        self._templates: dict[tuple[int, int, bool], tuple[NDArray[np.uint8], NDArray[np.float32]]] = {}

    def draw(
        self, generator: np.random.Generator, references: NDArray[np.int64], charged: NDArray[np.bool_]
    ) -> Molecules:
        """Draw one molecule per number of a reference."""
        bases = self._draw_bases(generator, references, charged)
        trace = _draw_signal(generator, bases)
        return Molecules(
            references=references,
            charged=charged,
            first=bases.first,
            base_offsets=bases.offsets,
            codes=bases.codes,
            dwell=bases.dwell,
            sample_offsets=trace.sample_offsets,
            leader=trace.leader,
            signal=trace.signal,
            speed=bases.speed,
            signal_logit=self._judge(references, bases, trace.bent_means),
        )

    def draw_logits(
        self, generator: np.random.Generator, references: NDArray[np.int64], charged: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Draw the oracle's scores of molecules without their signal, of which the score needs a few means only."""
        bases = self._draw_bases(generator, references, charged)
        spread = _NOISE_SD / np.sqrt(bases.dwell[bases.bent])
        return self._judge(references, bases, bases.level[bases.bent] + generator.normal(0, spread))

    def _judge(
        self, references: NDArray[np.int64], bases: _Bases, bent_means: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        return oracle_logit(
            bases.expected[bases.bent],
            bent_means,
            bases.dwell[bases.bent],
            (_MEAN_DWELL - MIN_DWELL) / bases.speed,
            self._adduct_levels[references],
            self._adduct_log_dwells[references],
        )

    def _draw_bases(
        self, generator: np.random.Generator, references: NDArray[np.int64], charged: NDArray[np.bool_]
    ) -> _Bases:
        number = len(references)
        variants = generator.integers(0, 4, number)
        first = np.where(
            generator.random(number) < _TRUNCATED, generator.integers(0, 45, number), generator.integers(0, 4, number)
        )
        templates = [
            self._template(*key) for key in zip(references.tolist(), variants.tolist(), charged.tolist(), strict=True)
        ]
        codes, levels = (
            [template[part][start:] for template, start in zip(templates, first.tolist(), strict=True)]
            for part in (0, 1)
        )
        offsets = np.append(0, np.cumsum([len(part) for part in codes]))
        expected = np.concatenate(levels).astype(np.float64)
        # K-mers that would reach beyond a molecule's 5' end.
        expected[offsets[:-1, None] + np.arange(self._design.centre)] = 0.0
        speed = np.exp(generator.normal(0, _SPEED_SD, number)) * np.where(charged, self._speed_charged, 1.0)
        bent = (offsets[:-1] + self.junctions[references] - first)[:, None] + ADDUCT_OFFSETS
        # How strongly an amino acid shows differs from read to read.
        strength = (charged * np.exp(generator.normal(0, _HETEROGENEITY_SD, number)))[:, None]
        mean_dwell = np.repeat((_MEAN_DWELL - MIN_DWELL) / speed, np.diff(offsets))
        mean_dwell[bent] *= np.exp(strength * self._adduct_log_dwells[references])
        dwell = MIN_DWELL + np.rint(generator.gamma(_DWELL_SHAPE, mean_dwell / _DWELL_SHAPE)).astype(np.int64)
        level = expected + generator.normal(0, _LEVEL_JITTER_SD, len(expected))
        level[bent] += strength * self._adduct_levels[references]
        return _Bases(first, offsets, np.concatenate(codes), expected, level, dwell, speed, bent)

    def _template(self, reference: int, variant: int, charged: bool) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """Return base codes and expected levels of a whole molecule; levels of k-mers that overhang are 0."""
        key = (reference, variant, charged)
        if key not in self._templates:
            name = self._names[reference]
            head = self._design.references[name][: self._design.junctions[name]]
            codes = encode_bases(head.replace("N", "ACGT"[variant]) + self._design.adapters[charged])
            self._templates[key] = codes, np.nan_to_num(self._design.table.expected(codes, self._design.centre))
        return self._templates[key]


@dataclass(frozen=True)
class _Trace:
    """Signal of some molecules; ``bent_means`` are the means of the bent bases before drift and scale."""

    sample_offsets: NDArray[np.int64]
    leader: NDArray[np.int64]
    signal: NDArray[np.int16]
    bent_means: NDArray[np.float64]


def _draw_signal(generator: np.random.Generator, bases: _Bases) -> _Trace:
    """Draw the samples of molecules.

    In time, a molecule is a row of segments: a leader, its bases from the last to the first, and a tail.
    """
    offsets, level, dwell, bent = bases.offsets, bases.level, bases.dwell, bases.bent
    number, lengths = len(offsets) - 1, np.diff(offsets)
    borders = offsets + 2 * np.arange(number + 1)
    segment = np.repeat(borders[:-1] + lengths + offsets[:-1], lengths) - np.arange(len(level))
    samples, mean, spread = (np.empty(borders[-1], dtype=kind) for kind in (np.int64, np.float64, np.float64))
    samples[segment], mean[segment], spread[segment] = dwell, level, _NOISE_SD
    leaders, tails = borders[:-1], borders[1:] - 1
    samples[leaders] = leader = generator.integers(1000, 5000, number)
    mean[leaders], spread[leaders] = generator.normal(_LEADER_LEVEL, _LEADER_LEVEL_SD, number), _LEADER_NOISE_SD
    samples[tails] = np.where(generator.random(number) < _WITH_TAIL, generator.integers(1, 300, number), 0)
    mean[tails], spread[tails] = _TAIL_LEVEL, _TAIL_NOISE_SD
    starts = np.append(0, np.cumsum(samples))
    noise = generator.standard_normal(starts[-1], dtype=np.float32)
    edges = np.stack([starts[segment[bent]], starts[segment[bent] + 1]], axis=-1)
    bent_means = level[bent] + _NOISE_SD * np.add.reduceat(noise, edges.ravel())[::2].reshape(bent.shape) / dwell[bent]
    # pA = (adc + offset) * scale.
    shift = generator.normal(80, 4, number) / CALIBRATION_SCALE - CALIBRATION_OFFSET
    scale = generator.normal(17, 1.2, number) / CALIBRATION_SCALE
    drift = scale * generator.normal(0, _DRIFT_SD, number)
    scales, shifts = (np.repeat(values, lengths + 2) for values in (scale, shift))
    noise *= np.repeat((spread * scales).astype(np.float32), samples)
    noise += np.repeat((mean * scales + shifts).astype(np.float32), samples)
    ramp = np.arange(np.diff(starts[borders]).max(), dtype=np.float32)
    begins, ends = starts[leaders + 1].tolist(), starts[tails].tolist()
    for begin, end, rise in zip(begins, ends, drift.tolist(), strict=True):
        noise[begin:end] += np.float32(rise / (end - begin - 1)) * ramp[: end - begin] - np.float32(rise / 2)
    signal = np.clip(np.rint(noise, out=noise), -32768, 32767, out=noise).astype(np.int16)
    return _Trace(starts[borders], leader, signal, bent_means)


_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(15)


def oracle_logit(
    expected: NDArray[np.float64],
    means: NDArray[np.float64],
    dwell: NDArray[np.int64],
    mean_extra: NDArray[np.float64],
    level_shift: NDArray[np.float64],
    log_dwell_shift: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the log likelihood ratios charged to uncharged of reads' bases around the junction (num_reads,).

    Per base, the mean of d samples is normal around the level with variance jitter^2 + noise^2 / d, and the dwell beyond
    the minimum is a gamma variable of known mean. The read's own strength of the effect, log-normal, is integrated out by
    Gauss-Hermite quadrature. Knows every parameter of the simulation but the state and that strength.

    :param expected: levels of the bases in the uncharged state (num_reads, num_bases), like all others but
    :param mean_extra: mean dwell beyond the minimum, uncharged (num_reads,).
    """
    strength = np.exp(_HETEROGENEITY_SD * _NODES)[:, None]
    expected, means, dwell = expected[:, None], means[:, None], dwell[:, None]
    level_shift, log_dwell_shift = level_shift[:, None], log_dwell_shift[:, None]
    variance = _LEVEL_JITTER_SD**2 + _NOISE_SD**2 / dwell
    residual = means - expected
    level_term = ((residual**2) - (residual - strength * level_shift) ** 2) / (2 * variance)
    # log gamma density (shape k, mean m) in what depends on the mean: -k log m - k x / m.
    extra = np.maximum(dwell - MIN_DWELL, 0.25)
    factor = strength * log_dwell_shift
    dwell_term = -_DWELL_SHAPE * factor - _DWELL_SHAPE * extra / mean_extra[:, None, None] * (np.exp(-factor) - 1)
    per_strength = (level_term + dwell_term).sum(axis=-1)
    peak = per_strength.max(axis=-1)
    weights = _WEIGHTS / _WEIGHTS.sum()
    logit: NDArray[np.float64] = peak + np.log(np.exp(per_strength - peak[:, None]) @ weights)
    return logit


@dataclass(frozen=True)
class IndelModel:
    """How likely an indel across the junction is, given the signal: ``height`` where the logit exceeds ``threshold``.

    A basecaller knows nothing but the signal, so an indel may tell no more than the signal does, or a classifier could
    beat the oracle. The two numbers are such that the rates in charged and uncharged molecules are those asked for, as
    nearly as the signal allows.

    :ivar rate_charged: what becomes of the rate asked for.
    :ivar rate_uncharged: the same.
    """

    threshold: float
    height: float
    rate_charged: float
    rate_uncharged: float

    @classmethod
    def fit(cls, pore: Pore, rate_charged: float, rate_uncharged: float) -> IndelModel:
        """Find the model by simulating molecules of both states; depends on the pore alone."""
        charged, uncharged = (np.sort(_logits(pore, state)) for state in (True, False))
        thresholds = np.append(-np.inf, np.sort(np.concatenate([charged, uncharged])))
        above_charged, above_uncharged = (
            1 - np.searchsorted(logits, thresholds, side="right") / len(logits) for logits in (charged, uncharged)
        )
        possible = above_charged > 0
        thresholds, above_charged, above_uncharged = (
            values[possible] for values in (thresholds, above_charged, above_uncharged)
        )
        height = np.minimum(rate_charged / above_charged, 1.0)
        got_charged, got_uncharged = height * above_charged, height * above_uncharged
        best = int(np.argmin(abs(got_charged - rate_charged) + abs(got_uncharged - rate_uncharged)))
        return cls(*(float(values[best]) for values in (thresholds, height, got_charged, got_uncharged)))

    def chance(self, logit: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability of an indel across the junctions of molecules with these logits."""
        return np.where(logit > self.threshold, self.height, 0.0)


def _logits(pore: Pore, charged: bool) -> NDArray[np.float64]:
    generator = np.random.default_rng([_INDEL_FIT_MOLECULES, charged])
    references = np.arange(_INDEL_FIT_MOLECULES) % len(pore.junctions)
    return pore.draw_logits(generator, references, np.full(_INDEL_FIT_MOLECULES, charged))
