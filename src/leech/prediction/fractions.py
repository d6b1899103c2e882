"""The fraction of reads in the positive state, as called and as corrected for what calling gets wrong.

Hides: the formulae. Belongs here: what follows from counts and known rates; counting is ``tally.py``'s. Invariants: intervals
are 95 %; everything lies in [0, 1]; a corrected figure never replaces the raw one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from leech.console import logger
from leech.data.proportion import NORMAL_97_5, Interval, wilson
from leech.data.reasons import ASKED_FOR, USED
from leech.models.bundle import ModelBundle
from leech.prediction.calls import CallRules
from leech.prediction.config import PredictConfig
from leech.prediction.controls import Controls
from leech.prediction.rates import CallRates, ErrorRates, Rate, ReferenceRates, call_rate, mean_rate, pooled_rates
from leech.prediction.tally import GroupTally


class Corrections(NamedTuple):
    """What is known about the calls, and who says so; None where nothing is.

    :ivar errors: over all references.
    :ivar by_reference: error rates of the references that have their own.
    :ivar unseen: those of the other references; None where these have ``errors``.
    """

    errors: ErrorRates | None
    errors_source: str | None
    calls: CallRates | None
    calls_source: str | None
    by_reference: Mapping[str, ErrorRates] = MappingProxyType({})
    unseen: ErrorRates | None = None

    @classmethod
    def of(
        cls,
        config: PredictConfig,
        bundle: ModelBundle,
        rules: CallRules,
        controls: Controls | None = None,
    ) -> Corrections:
        """Return what controls and options give, else what the model folder knows.

        What was measured at the model's operating point holds there only, and what libraries of one state lost holds only
        where nothing more is left uncalled.
        """
        rates: ReferenceRates | None = None
        errors: ErrorRates | None = None
        calls: CallRates | None = None
        errors_source = calls_source = None
        if controls is not None:
            rates, errors, errors_source = controls.rates, controls.rates.pooled, "controls"
        elif config.fpr is not None and config.tpr is not None:
            errors, errors_source = ErrorRates(Rate(config.fpr), Rate(config.tpr)), "options"
        elif rules.threshold_cl == bundle.threshold_cl and not rules.abstains:
            errors, rates = _measured_errors(bundle)
            errors_source = None if errors is None else "operating point of the model, test split"
        if config.call_rates is not None:
            calls, calls_source = CallRates(*config.call_rates), "options"
        elif controls is not None:
            calls, calls_source = controls.calls, "controls"
        elif not rules.abstains:
            calls = _measured_call_rates(bundle)
            calls_source = None if calls is None else "libraries that the model was trained on"
        found = cls(errors, errors_source, calls, calls_source)
        return found if rates is None else found._replace(by_reference=rates.own, unseen=rates.unseen)

    def for_references(self, called: Mapping[str, int]) -> Corrections:
        """Return the corrections of some references taken together: the mean of their error rates, weighted by calls.

        :param called: number of called reads by reference.
        """
        total = sum(called.values())
        others = self.unseen or self.errors
        if not self.by_reference or others is None or not total:
            return self
        own = [(self.by_reference.get(name, others), number / total) for name, number in called.items() if number]
        fpr = mean_rate([(rates.fpr, weight) for rates, weight in own])
        tpr = mean_rate([(rates.tpr, weight) for rates, weight in own])
        return self._replace(errors=ErrorRates(fpr, tpr))

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        errors = self.errors
        return {
            "error_rates": None if errors is None else _plain(errors),
            "error_rates_from": self.errors_source,
            "error_rates_by_reference": {name: _plain(rates) for name, rates in sorted(self.by_reference.items())},
            "error_rates_of_other_references": None if self.unseen is None else _plain(self.unseen),
            "call_rates": None if self.calls is None else self.calls._asdict(),
            "call_rates_from": self.calls_source,
        }


def _plain(rates: ErrorRates) -> dict[str, Any]:
    return {"fpr": rates.fpr._asdict(), "tpr": rates.tpr._asdict()}


def _measured_errors(bundle: ModelBundle) -> tuple[ErrorRates | None, ReferenceRates | None]:
    """Return the rates over all references, and those by reference where the model folder has them."""
    point = bundle.operating_point
    test = None if point is None else (point.achieved or {}).get("test")
    errors = None if test is None else pooled_rates([test.calls])
    if test is None or errors is None:
        return None, None
    return errors, ReferenceRates.of(test.references or {})


def _measured_call_rates(bundle: ModelBundle) -> CallRates | None:
    ladders = bundle.training.get("counts_by_label")
    if not isinstance(ladders, dict) or not set(bundle.labels) <= ladders.keys():
        return None
    negative, positive = (call_rate(ladders[label].get(USED, 0), ladders[label]) for label in bundle.labels)
    return None if negative is None or positive is None else CallRates(positive, negative)


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
    """Return (f - FPR) / (TPR - FPR), clipped to [0, 1] (Rogan and Gladen 1978); nothing where TPR <= FPR.

    The interval holds every fraction F that the calls do not contradict: those for which f lies within 1.96 standard errors of
    what F leads to be called, q = F TPR + (1 - F) FPR, of variance q (1 - q) / n + F^2 var(TPR) + (1 - F)^2 var(FPR). With
    exact rates that is Wilson's interval (1927) with its limits corrected; with uncertain ones the variance is a ratio's as
    Fieller (1954) inverts it, which holds where the rates are too uncertain for a plain standard error of F.
    """
    (fpr, from_fpr), (tpr, from_tpr) = (rate.moments() for rate in rates)
    share = num_positive / called
    if rates.tpr.value <= rates.fpr.value:
        return Fraction(None, None)
    value = _clipped((share - rates.fpr.value) / (rates.tpr.value - rates.fpr.value))
    gain, excess, z2 = tpr - fpr, share - fpr, NORMAL_97_5**2
    # (excess - F gain)^2 - z2 * variance <= 0, sorted by powers of F.
    square = gain**2 * (1 + z2 / called) - z2 * (from_tpr + from_fpr)
    linear = -2 * excess * gain - z2 * (gain * (1 - 2 * fpr) / called - 2 * from_fpr)
    constant = excess**2 - z2 * (fpr * (1 - fpr) / called + from_fpr)
    root = max(linear**2 - 4 * square * constant, 0.0) ** 0.5
    limits = [(-linear + sign * root) / (2 * square) for sign in (-1, 1)] if square else []
    held = [value, *(limit for limit in limits if 0 <= limit <= 1)]
    held += [end for end in (0.0, 1.0) if square * end**2 + linear * end + constant <= 0]
    return Fraction(value, Interval(min(held), max(held)))


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


def warn_of_abstention(tally: GroupTally, corrections: Corrections) -> None:
    """Say that reads were left uncalled by choice and that nothing corrects the fractions for it, where that is so."""
    reasons = {reason: number for reason, number in tally.reasons().items() if reason in ASKED_FOR}
    if not reasons or corrections.calls is not None:
        return
    left = sum(reasons.values())
    logger.warning(
        "%d of %d reads were left uncalled as asked for (%s), as a rule more of one state than of the other, and nothing "
        "corrects the fractions for it%s: give --negative-control and --positive-control called with the same options, or "
        "--call-rates.",
        left,
        tally.num_called + tally.num_no_call,
        ", ".join(f"{reason} {number}" for reason, number in reasons.items()),
        "" if corrections.errors is not None else ", nor for wrong calls",
    )


def _clipped(share: float) -> float:
    return min(max(share, 0.0), 1.0)
