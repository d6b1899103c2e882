"""Fractions of calls: raw, and corrected for wrong calls and for no-calls."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from leech.config import build
from leech.data.proportion import wilson
from leech.errors import InputError
from leech.models.bundle import Achieved, CallCounts, Figure, OperatingPoint
from leech.prediction.calls import CallRules
from leech.prediction.config import PredictConfig
from leech.prediction.controls import Controls, control_rates
from leech.prediction.fractions import (
    Corrections,
    Fraction,
    correct_errors,
    correct_no_calls,
    fractions,
)
from leech.prediction.rates import CallRates, ErrorRates, Rate
from leech.prediction.tally import Tally

NOTHING = Corrections(None, None, None, None)


def model(achieved=None, training=None):
    point = SimpleNamespace(threshold_cl=200, achieved=achieved)
    return SimpleNamespace(
        operating_point=point, threshold_cl=200, training=training or {}, labels=("uncharged", "charged")
    )


PLAIN = CallRules(200)


def corrections(bundle, rules=PLAIN, **config):
    return Corrections.of(build(PredictConfig, config), bundle, rules)


def test_a_raw_fraction_has_wilson_s_interval():
    found = fractions(30, 70, NOTHING)
    assert found.raw.value == 0.3
    assert found.raw.interval == wilson(30, 100)
    assert found.error_corrected is None
    assert found.no_call_corrected is None


def test_without_a_call_there_is_no_fraction_and_no_division_by_zero():
    known = Corrections(ErrorRates(Rate(0.1), Rate(0.9)), "options", CallRates(0.5, 1.0), "options")
    assert fractions(0, 0, known) == (Fraction(None, None),) * 3


def test_wrong_calls_are_taken_out():
    # 0.3 called positive = F * 0.9 + (1 - F) * 0.05, so F = 0.25 / 0.85.
    found = correct_errors(30, 100, ErrorRates(Rate(0.05), Rate(0.9)))
    assert found.value == pytest.approx(0.25 / 0.85)
    low, high = wilson(30, 100)
    assert found.interval == pytest.approx(((low - 0.05) / 0.85, (high - 0.05) / 0.85))


@pytest.mark.parametrize(("num_positive", "value"), [(2, 0.0), (99, 1.0)])
def test_a_corrected_fraction_stays_between_0_and_1(num_positive, value):
    for trials in (None, 50):
        found = correct_errors(num_positive, 100, ErrorRates(Rate(0.05, trials), Rate(0.9, trials)))
        assert found.value == value
        assert 0 <= found.interval.low <= value <= found.interval.high <= 1


def test_rates_measured_on_few_reads_widen_the_interval():
    widths = []
    for trials in (None, 10_000, 50):
        low, high = correct_errors(300, 1000, ErrorRates(Rate(0.05, trials), Rate(0.9, trials))).interval
        widths.append(high - low)
    assert widths[1] == pytest.approx(widths[0], rel=0.05)
    assert widths[2] > 2 * widths[0]


def test_intervals_of_corrected_fractions_cover_the_truth_in_95_of_100_draws():
    generator = np.random.default_rng(5)
    true_fpr, true_tpr = 0.04, 0.88
    covered = {"measured": [], "exact": []}
    for truth in (0.0, 0.1, 0.25, 0.5, 1.0):
        for _ in range(400):
            positives, negatives, called = 150, 150, 200
            tpr = generator.binomial(positives, true_tpr) / positives
            fpr = generator.binomial(negatives, true_fpr) / negatives
            seen = generator.binomial(called, truth * true_tpr + (1 - truth) * true_fpr)
            measured = correct_errors(seen, called, ErrorRates(Rate(fpr, negatives), Rate(tpr, positives)))
            exact = correct_errors(seen, called, ErrorRates(Rate(true_fpr), Rate(true_tpr)))
            covered["measured"].append(measured.interval.low <= truth <= measured.interval.high)
            covered["exact"].append(exact.interval.low <= truth <= exact.interval.high)
    assert np.mean(covered["measured"]) > 0.94
    assert np.mean(covered["exact"]) > 0.94


def test_what_is_called_less_often_counts_for_more():
    # Of 100 reads 50 are positive; 36 of these (0.72) and 47 of the others (0.94) are called: 36 / 83 raw.
    found = correct_no_calls(Fraction(36 / 83, wilson(36, 83)), CallRates(0.72, 0.94))
    assert found.value == pytest.approx(0.5)
    assert found.interval.low < 0.5 < found.interval.high


def test_both_corrections_follow_one_another():
    known = Corrections(ErrorRates(Rate(0.05), Rate(0.9)), "options", CallRates(0.72, 0.94), "options")
    found = fractions(30, 70, known)
    assert found.no_call_corrected == correct_no_calls(found.error_corrected, CallRates(0.72, 0.94))
    alone = fractions(30, 70, known._replace(errors=None))
    assert alone.error_corrected is None
    assert alone.no_call_corrected == correct_no_calls(alone.raw, CallRates(0.72, 0.94))


def achieved(references=None, **calls):
    names = ("tpr", "fpr", "precision", "balanced_accuracy", "mcc", "f1")
    figures = {name: Figure(None) for name in names}
    number = sum(calls.values())
    return {"test": Achieved(num_reads=number, num_positive=number, references=references, **calls, **figures)}


ACHIEVED = achieved(tp=90, fn=10, fp=4, tn=196)


def test_the_model_s_operating_point_gives_the_rates_of_its_test_split():
    found = corrections(model(ACHIEVED))
    assert found.errors == ErrorRates(Rate(0.02, 200), Rate(0.9, 100))
    assert "operating point" in found.errors_source
    # A folder from before references were counted: one pair for all of them.
    assert found.for_references({"a": 3, "b": 4}) == found


def test_a_model_that_tells_nothing_corrects_nothing():
    assert corrections(model(achieved(tp=5, fn=5, fp=5, tn=5))).errors is None
    assert corrections(model(achieved(tp=5, fn=5, fp=0, tn=0))).errors is None


def test_references_that_the_model_was_measured_on_have_rates_of_their_own_and_others_are_less_sure():
    own = {
        "good": CallCounts(tp=190, fn=10, fp=2, tn=198),
        "bad": CallCounts(tp=100, fn=100, fp=30, tn=170),
        "few": CallCounts(tp=0, fn=2, fp=0, tn=0),
    }
    found = corrections(model(achieved(own, tp=290, fn=112, fp=32, tn=368)))
    assert found.errors == ErrorRates(Rate(0.08, 400), Rate(290 / 402, 402))
    corrected = {name: fractions(60, 40, found.for_references({name: 100})).error_corrected for name in [*own, "new"]}
    # 0.6 called positive of reads of which 0.95 or 0.5 would be at most.
    assert corrected["good"].value == pytest.approx(0.59 / 0.94, abs=0.02)
    assert corrected["bad"].value == 1.0
    widths = {name: fraction.interval.high - fraction.interval.low for name, fraction in corrected.items()}
    assert widths["good"] < widths["few"] <= widths["new"]
    mapping = found.to_mapping()
    assert set(mapping["error_rates_by_reference"]) == set(own)
    assert mapping["error_rates"]["fpr"] == {"value": 0.08, "num_trials": 400, "variance": None}
    assert mapping["error_rates_of_other_references"]["tpr"]["variance"] > 0


def test_calls_that_tell_nothing_of_a_reference_give_no_corrected_fraction():
    found = correct_errors(30, 100, ErrorRates(Rate(0.5, variance=0.01), Rate(0.4, variance=0.01)))
    assert found == Fraction(None, None)


def test_rates_that_may_be_anything_leave_the_fraction_open():
    # With a TPR of 0.6 +- 0.3 and an FPR of 0.3 +- 0.2 no fraction is contradicted.
    found = correct_errors(45, 100, ErrorRates(Rate(0.3, variance=0.04), Rate(0.6, variance=0.09)))
    assert found == (pytest.approx(0.5), (0.0, 1.0))


@pytest.mark.parametrize("rules", [CallRules(180), CallRules(200, min_confidence=0.9), CallRules(200, 0.0, True)])
def test_rates_of_the_operating_point_hold_nowhere_else(rules):
    training = {"counts_by_label": {"charged": {"used": 9}, "uncharged": {"used": 9}}}
    found = corrections(model(ACHIEVED, training), rules)
    assert found.errors is None
    assert (found.calls is None) == rules.abstains


def test_options_are_believed_before_the_model():
    found = corrections(model(ACHIEVED), CallRules(180), fpr=0.1, tpr=0.8, call_rates=(0.7, 0.9))
    assert found == Corrections(ErrorRates(Rate(0.1), Rate(0.8)), "options", CallRates(0.7, 0.9), "options")


def test_a_plain_operating_point_corrects_nothing():
    bundle = model()
    bundle.operating_point = OperatingPoint()
    assert corrections(bundle) == NOTHING


def test_call_rates_come_from_libraries_of_one_state_and_from_reasons_that_a_state_may_cause():
    # Charged: 72 of 72 + 20 + 8. Ids that no POD5 holds are missing from both states alike.
    training = {
        "counts_by_label": {
            "charged": {"seen": 1000, "not_in_pod5": 900, "focus_not_aligned": 20, "junction_indel": 8, "used": 72},
            "uncharged": {"seen": 100, "focus_not_aligned": 6, "used": 94},
        }
    }
    assert corrections(model(training=training)).calls == CallRates(0.72, 0.94)
    assert corrections(model(training={"counts_by_label": {"charged": {"used": 5}}})).calls is None


def tally(**references):
    """References as (positive, negative)."""
    return Tally.from_mapping(
        {name: {"positive": a, "negative": b, "no_calls": {}} for name, (a, b) in references.items()}
    )


PATHS = (Path("n.tsv"), Path("p.tsv"))


def test_controls_give_each_reference_its_own_rates_the_more_so_the_more_reads_they_hold_of_it():
    negative = tally(a=(2, 98), b=(10, 90), few=(0, 5), blind=(20, 20), none=(0, 0))
    positive = tally(a=(90, 10), b=(40, 60), blind=(20, 20), lone=(3, 0))
    rates = control_rates(negative, positive, PATHS)
    assert rates.pooled == ErrorRates(Rate(32 / 245, 245), Rate(153 / 243, 243))
    assert set(rates.own) == {"a", "b", "few", "blind", "lone"}
    assert rates.own["few"].tpr == rates.unseen.tpr
    assert 0 < rates.own["a"].fpr.value - 0.02 < 0.01
    found = Corrections.of(
        build(PredictConfig, {}), model(ACHIEVED), PLAIN, Controls(rates, CallRates(0.5, 0.9), PATHS)
    )
    assert (found.calls, found.calls_source) == (CallRates(0.5, 0.9), "controls")
    assert (found.errors, found.errors_source) == (rates.pooled, "controls")
    assert found.for_references({"a": 50}).errors == rates.own["a"]
    assert found.for_references({"new": 50}).errors == rates.unseen
    # 30 reads of a and 10 of b: means weigh 3/4 and 1/4, variances their squares.
    mixed = found.for_references({"a": 30, "b": 10, "few": 0}).errors
    a, b = rates.own["a"].fpr, rates.own["b"].fpr
    assert mixed.fpr.value == pytest.approx(0.75 * a.value + 0.25 * b.value)
    assert mixed.fpr.variance == pytest.approx(9 / 16 * a.variance + 1 / 16 * b.variance)
    # Two references without rates have one and the same, which is not twice as sure.
    assert found.for_references({"x": 5, "y": 5}).errors == rates.unseen


@pytest.mark.parametrize(
    ("negative", "positive", "message"),
    [
        ((0, 0), (5, 5), "negative control 'n.tsv' has no called read"),
        ((5, 5), (0, 0), "positive control 'p.tsv' has no called read"),
        ((3, 9), (2, 6), r"same share of positive calls \(3 of 12 in 'n.tsv', 2 of 8 in 'p.tsv'\)"),
        (
            (9, 1),
            (2, 6),
            r"negative control has more positive calls \(9 of 10 in 'n.tsv'\) than the positive one \(2 of 8 in 'p.tsv'\); "
            "are they swapped",
        ),
    ],
)
def test_controls_that_tell_nothing_say_why(negative, positive, message):
    with pytest.raises(InputError, match=message):
        control_rates(tally(a=negative), tally(a=positive), PATHS)
