"""The fraction of reads in the positive state, as called and as corrected for what calling gets wrong.

Hides: the formulae. Belongs here: what follows from counts and known rates; counting is ``tally.py``'s. Invariants: intervals
are 95 %; everything lies in [0, 1]; a corrected figure never replaces the raw one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from leech.data.proportion import NORMAL_97_5, Interval, wilson
from leech.data.reasons import STATE_MAY_CAUSE, USED
from leech.models.bundle import ModelBundle
from leech.prediction.calls import CallRules
from leech.prediction.config import PredictConfig


class Rate(NamedTuple):
    """A share that was measured or is taken as known.

    :ivar num_trials: reads that it was measured on; None where it counts as exact.
    """

    value: float
    num_trials: int | None = None


class ErrorRates(NamedTuple):
    """How often calls are wrong: shares of the called reads of either state that are called positive."""

    fpr: Rate
    tpr: Rate


class CallRates(NamedTuple):
    """Shares of the reads of either state that are called at all."""

    positive: float
    negative: float


class Corrections(NamedTuple):
    """What is known about the calls, and who says so; None where nothing is.

    :ivar by_reference: error rates of the references that have their own; the others have ``errors``.
    """

    errors: ErrorRates | None
    errors_source: str | None
    calls: CallRates | None
    calls_source: str | None
    by_reference: Mapping[str, ErrorRates] = MappingProxyType({})

    @classmethod
    def of(
        cls,
        config: PredictConfig,
        bundle: ModelBundle,
        rules: CallRules,
        controls: tuple[ErrorRates, Mapping[str, ErrorRates]] | None = None,
    ) -> Corrections:
        """Return what controls and options give, else what the model folder knows.

        What was measured at the model's operating point holds there only, and what libraries of one state lost holds only
        where nothing more is left uncalled.
        """
        errors: ErrorRates | None = None
        calls: CallRates | None = None
        errors_source = calls_source = None
        if controls is not None:
            errors, errors_source = controls[0], "controls"
        elif config.fpr is not None and config.tpr is not None:
            errors, errors_source = ErrorRates(Rate(config.fpr), Rate(config.tpr)), "options"
        elif rules.threshold_cl == bundle.threshold_cl and not rules.abstains:
            errors = _measured_errors(bundle)
            errors_source = None if errors is None else "operating point of the model, test split"
        if config.call_rates is not None:
            calls, calls_source = CallRates(*config.call_rates), "options"
        elif not rules.abstains:
            calls = _measured_call_rates(bundle)
            calls_source = None if calls is None else "libraries that the model was trained on"
        by_reference = MappingProxyType({}) if controls is None else controls[1]
        return cls(errors, errors_source, calls, calls_source, by_reference)

    def for_references(self, called: Mapping[str, int]) -> Corrections:
        """Return the corrections of some references taken together: the mean of their error rates, weighted by calls.

        :param called: number of called reads by reference.
        """
        total = sum(called.values())
        if not self.by_reference or self.errors is None or not total:
            return self
        own = {name: self.by_reference.get(name, self.errors) for name, number in called.items() if number}

        # References without rates of their own share one pair, whose reads count once.
        measured = set(own.values())
        fpr, tpr = (
            Rate(
                sum(called[name] * rates[place].value for name, rates in own.items()) / total,
                sum(rates[place].num_trials or 0 for rates in measured),
            )
            for place in (0, 1)
        )
        return self._replace(errors=ErrorRates(fpr, tpr))

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        errors = self.errors
        return {
            "error_rates": None if errors is None else {"fpr": errors.fpr._asdict(), "tpr": errors.tpr._asdict()},
            "error_rates_from": self.errors_source,
            "error_rates_by_reference": {
                name: {"fpr": rates.fpr._asdict(), "tpr": rates.tpr._asdict()}
                for name, rates in sorted(self.by_reference.items())
            },
            "call_rates": None if self.calls is None else self.calls._asdict(),
            "call_rates_from": self.calls_source,
        }


def _measured_errors(bundle: ModelBundle) -> ErrorRates | None:
    test = (bundle.operating_point.achieved or {}).get("test")
    if not isinstance(test, dict) or not {"tp", "fp", "tn", "fn"} <= test.keys():
        return None
    num_positive, num_negative = test["tp"] + test["fn"], test["fp"] + test["tn"]
    if not num_positive or not num_negative or test["tp"] * num_negative <= test["fp"] * num_positive:
        return None
    fpr, tpr = test["fp"] / num_negative, test["tp"] / num_positive
    return ErrorRates(Rate(fpr, num_negative), Rate(tpr, num_positive))


def _measured_call_rates(bundle: ModelBundle) -> CallRates | None:
    ladders = bundle.training.get("counts_by_label")
    if not isinstance(ladders, dict) or not set(bundle.labels) <= ladders.keys():
        return None
    negative, positive = (_call_rate(ladders[label]) for label in bundle.labels)
    return None if negative is None or positive is None else CallRates(positive, negative)


def _call_rate(ladder: dict[str, int]) -> float | None:
    used = ladder.get(USED, 0)
    # Reads that a file lacks, or whose reference has no site, are missing whatever their state.
    lost = sum(number for reason, number in ladder.items() if reason in STATE_MAY_CAUSE)
    return used / (used + lost) if used else None


class Fraction(NamedTuple):
    """A fraction with its interval; both None without calls."""

    value: float | None
    interval: Interval | None


class Fractions(NamedTuple):
    """The positive fraction of some reads.

    :ivar raw: of the called reads, as called; Wilson's interval.
    :ivar error_corrected: of the called reads, with errors of calling taken out; None where their rates are not known.
    :ivar no_call_corrected: of all reads, with what is left uncalled more often in one state taken out as well: of
        ``error_corrected`` where there is one, else of ``raw``; None where call rates are not known.
    """

    raw: Fraction
    error_corrected: Fraction | None
    no_call_corrected: Fraction | None


def fractions(num_positive: int, num_negative: int, corrections: Corrections) -> Fractions:
    """Return the positive fraction of called reads, raw and corrected."""
    called = num_positive + num_negative
    if not called:
        nothing = Fraction(None, None)
        return Fractions(nothing, corrections.errors and nothing, corrections.calls and nothing)
    raw = Fraction(num_positive / called, wilson(num_positive, called))
    errors, calls = corrections.errors, corrections.calls
    corrected = None if errors is None else correct_errors(num_positive, called, errors)
    base = corrected or raw
    return Fractions(raw, corrected, None if calls is None else correct_no_calls(base, calls))


def correct_errors(num_positive: int, called: int, rates: ErrorRates) -> Fraction:
    """Return (f - FPR) / (TPR - FPR), clipped to [0, 1] (Rogan and Gladen 1978).

    Where both rates were measured on reads that were counted, the interval takes their own uncertainty in (Lang and Reiczigel
    2014); where they count as exact, it is Wilson's with its limits corrected in the same way.
    """
    fpr, tpr = rates
    gain = tpr.value - fpr.value

    def corrected(share: float) -> float:
        return _clipped((share - fpr.value) / gain)

    value = corrected(num_positive / called)
    if fpr.num_trials is None or tpr.num_trials is None:
        interval = wilson(num_positive, called)
        return Fraction(value, interval and Interval(corrected(interval.low), corrected(interval.high)))
    # Sensitivity and specificity with one success and one failure more, the share as in Agresti and Coull.
    positives, negatives = tpr.num_trials + 2, fpr.num_trials + 2
    sensitivity = (tpr.value * tpr.num_trials + 1) / positives
    specificity = ((1 - fpr.value) * fpr.num_trials + 1) / negatives
    total = called + NORMAL_97_5**2
    share = (num_positive + NORMAL_97_5**2 / 2) / total
    gain = sensitivity + specificity - 1
    if gain <= 0:
        return Fraction(value, Interval(0.0, 1.0))
    # A share beyond what the rates allow would have the variance of a fraction that cannot be.
    centre = (share + specificity - 1) / gain
    from_tpr = sensitivity * (1 - sensitivity) / positives
    from_fpr = specificity * (1 - specificity) / negatives
    shift = 2 * NORMAL_97_5**2 * (centre * from_tpr - (1 - centre) * from_fpr)
    variance = share * (1 - share) / total + centre**2 * from_tpr + (1 - centre) ** 2 * from_fpr
    half = NORMAL_97_5 * variance**0.5 / gain
    low, high = _clipped(centre + shift - half), _clipped(centre + shift + half)
    return Fraction(value, Interval(min(low, value), max(high, value)))


def correct_no_calls(fraction: Fraction, rates: CallRates) -> Fraction:
    """Return the fraction of all reads whose called ones have this fraction.

    Of F positive and 1 - F negative reads, F * c1 and (1 - F) * c0 are called; so F = (f / c1) / (f / c1 + (1 - f) / c0).
    The rates count as exact.
    """

    def corrected(share: float) -> float:
        positive, negative = share / rates.positive, (1 - share) / rates.negative
        return positive / (positive + negative)

    value, interval = fraction
    return Fraction(
        None if value is None else corrected(value),
        interval and Interval(corrected(interval.low), corrected(interval.high)),
    )


def _clipped(share: float) -> float:
    return min(max(share, 0.0), 1.0)
