"""Error rates by reference: what few reads borrow from the others, and how sure they are."""

from __future__ import annotations

import numpy as np
import pytest

from leech.config import build
from leech.errors import ConfigError
from leech.models.bundle import CallCounts
from leech.prediction.fractions import correct_errors
from leech.prediction.rates import ErrorRates, Rate, ReferenceRates, mean_rate


def counts(fp, negative, tp, positive):
    return CallCounts(tp=tp, fp=fp, tn=negative - fp, fn=positive - tp)


def test_references_that_differ_no_more_than_chance_has_it_share_their_rate():
    # 10 of 200 each: less than binomial spread, so all that is known of one is what is known of all.
    rates = ReferenceRates.of({str(number): counts(10, 200, 180, 200) for number in range(20)})
    for rate in rates.own.values():
        assert rate.fpr.value == pytest.approx(0.05, abs=0.002)
        # Alone, 200 reads would leave a standard error of 0.0154.
        assert rate.fpr.variance**0.5 < 0.008
    assert rates.unseen.fpr.value == pytest.approx(0.05, abs=0.002)


def test_a_reference_with_many_reads_keeps_its_own_share_and_one_with_few_goes_to_the_mean():
    rng = np.random.default_rng(2)
    many = {f"many{number}": counts(int(fp), 2000, 1900, 2000) for number, fp in enumerate(rng.integers(20, 300, 20))}
    rates = ReferenceRates.of({**many, "few": counts(3, 5, 5, 5)})
    for name, one in many.items():
        assert rates.own[name].fpr.value == pytest.approx(one.fp / 2000, abs=0.004)
    pooled = rates.pooled.fpr.value
    assert abs(rates.own["few"].fpr.value - pooled) < 0.5 * abs(3 / 5 - pooled)


def test_an_unseen_reference_is_as_unsure_as_references_differ():
    rng = np.random.default_rng(3)
    shares = rng.beta(8, 2, 60)
    rates = ReferenceRates.of({str(n): counts(20, 2000, int(share * 2000), 2000) for n, share in enumerate(shares)})
    assert rates.unseen.tpr.value == pytest.approx(shares.mean(), abs=0.01)
    assert rates.unseen.tpr.variance**0.5 == pytest.approx(shares.std(), rel=0.15)
    # Of the FPR all references have the same.
    assert rates.unseen.fpr.variance**0.5 < 0.002


def test_reads_of_one_state_alone_leave_the_other_rate_to_the_other_references():
    rates = ReferenceRates.of({"a": counts(2, 100, 0, 0), "b": counts(4, 100, 90, 100), "c": counts(0, 0, 80, 100)})
    assert rates.own["a"].tpr == rates.unseen.tpr
    assert rates.own["c"].fpr == rates.unseen.fpr
    assert rates.own["a"].fpr.variance < rates.unseen.fpr.variance


@pytest.mark.parametrize("one", [counts(0, 0, 5, 5), counts(5, 5, 0, 0), counts(5, 10, 5, 10), counts(6, 10, 5, 10)])
def test_calls_that_tell_nothing_give_no_rates(one):
    assert ReferenceRates.of({"a": one}) is None
    assert ReferenceRates.of({}) is None


def test_no_errors_at_all_are_not_taken_for_certain():
    rates = ReferenceRates.of({name: counts(0, 50, 50, 50) for name in "abc"})
    assert 0 < rates.own["a"].fpr.value < 0.02
    assert rates.own["a"].fpr.variance > 0


def test_equal_rates_are_known_once_and_others_independently():
    one, other = Rate(0.1, variance=0.01), Rate(0.3, variance=0.04)
    assert mean_rate([(one, 0.4), (one, 0.6)]) == one
    mixed = mean_rate([(one, 0.25), (one, 0.25), (other, 0.5)])
    assert (mixed.value, mixed.variance) == (pytest.approx(0.2), pytest.approx(0.25 * 0.01 + 0.25 * 0.04))


def test_a_count_below_0_is_refused():
    with pytest.raises(ConfigError, match="must not be below 0"):
        build(CallCounts, {"tp": -1, "fp": 0, "tn": 0, "fn": 0})


def covered(rates: dict[str, ErrorRates], truths, false, true, generator):
    found = []
    for truth in truths:
        for name, fpr, tpr in zip(rates, false, true, strict=True):
            seen = int(generator.binomial(200, truth * tpr + (1 - truth) * fpr))
            low, high = correct_errors(seen, 200, rates[name]).interval
            found.append(low <= truth <= high)
    return np.mean(found)


def test_intervals_cover_the_truth_of_references_that_differ_whether_seen_or_not():
    generator = np.random.default_rng(7)
    seen, unseen, pooled = [], [], []
    for _ in range(12):
        false, true = generator.beta(1.5, 30, 24), generator.beta(9, 3, 24)
        table = {}
        for number, (fpr, tpr) in enumerate(zip(false, true, strict=True)):
            negative, positive = generator.integers(3, 60, 2)
            fp, tp = int(generator.binomial(negative, fpr)), int(generator.binomial(positive, tpr))
            table[str(number)] = counts(fp, int(negative), tp, int(positive))
        known = {name: one for name, one in table.items() if int(name) < 20}
        rates = ReferenceRates.of(known)
        truths = (0.0, 0.1, 0.25, 0.5, 1.0)
        own = {str(number): rates.own[str(number)] for number in range(20)}
        seen.append(covered(own, truths, false[:20], true[:20], generator))
        pooled.append(covered(dict.fromkeys(own, rates.pooled), truths, false[:20], true[:20], generator))
        unseen.append(covered(dict.fromkeys("abcd", rates.unseen), truths, false[20:], true[20:], generator))
    assert np.mean(seen) > 0.93
    assert np.mean(unseen) > 0.93
    assert np.mean(pooled) < 0.85
