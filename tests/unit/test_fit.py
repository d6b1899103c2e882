"""Calibrations are fitted to what was drawn, and cross-validation tells which form it has."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from leech.errors import InputError
from leech.evaluation.fit import Labelled, cross_validate, deal, fit
from leech.models.calibration import METHODS

STEPS = np.array([0.05, 0.6, 0.7])


def drawn(kind: str, count: int = 6000, seed: int = 0) -> Labelled:
    """Return reads whose state is drawn with a probability that follows from the logit in a known way."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 4, count)
    p = {
        "temperature": 1 / (1 + np.exp(-logits / 4)),
        "platt": 1 / (1 + np.exp(-(logits / 4 - 1.5))),
        "isotonic": STEPS[np.digitize(logits, [-1, 4])],
    }[kind]
    return Labelled(logits, generator.random(count) < p, np.arange(count))


def test_temperature_and_platt_find_the_numbers_that_were_drawn_with() -> None:
    # Standard errors at 6000 reads are about 0.01 and 0.03.
    assert fit("temperature", drawn("temperature")).scale == pytest.approx(0.25, abs=0.03)
    platt = fit("platt", drawn("platt"))
    assert (platt.scale, platt.offset) == (pytest.approx(0.25, abs=0.03), pytest.approx(-1.5, abs=0.1))


@pytest.mark.parametrize("method", ["temperature", "platt"])
def test_the_fit_is_that_of_highest_likelihood_with_platts_targets(method: str) -> None:
    reads = drawn("platt", 60)
    num_positive = reads.positive.sum()
    target = np.where(reads.positive, (num_positive + 1) / (num_positive + 2), 1 / (60 - num_positive + 2))

    def loss(numbers: np.ndarray) -> float:
        z = numbers[0] * reads.logits + (numbers[1] if method == "platt" else 0)
        return float(np.sum(np.logaddexp(0, z) - target * z))

    best = minimize(loss, [1.0, 0.0], tol=1e-12).x
    found = fit(method, reads)  # type: ignore[arg-type]
    assert found.scale == pytest.approx(best[0], abs=1e-4)
    assert found.offset == pytest.approx(best[1] if method == "platt" else 0, abs=1e-4)


def test_isotonic_follows_steps_that_no_logistic_has() -> None:
    found = fit("isotonic", drawn("isotonic"))
    np.testing.assert_allclose(found.apply(np.array([-6, 1.5, 7])), STEPS, atol=0.06)
    assert len(found.knots) < 200


def test_what_it_was_fitted_on_is_kept() -> None:
    reads = drawn("platt", 300)
    found = fit("platt", reads)
    assert (found.num_reads, found.prevalence) == (300, reads.positive.mean())


@pytest.mark.parametrize("method", METHODS)
def test_perfect_scores_of_few_reads_do_not_make_certain(method: str) -> None:
    # Twenty of twenty: 21/22 and 1/22 is the most that may be said by isotonic; the others stay below 1 too.
    reads = Labelled(np.repeat([-30.0, 30.0], 20), np.repeat([False, True], 20), np.arange(40))
    low, high = fit(method, reads).apply(np.array([-30.0, 30.0]))  # type: ignore[arg-type]
    assert (low, high) == (pytest.approx(1 / 22, abs=1e-6), pytest.approx(21 / 22, abs=1e-6))


@pytest.mark.parametrize("kind", METHODS)
def test_cross_validation_prefers_the_form_that_was_drawn(kind: str) -> None:
    losses = cross_validate(drawn(kind), 5, seed=0)
    assert set(losses) == {"none", *METHODS}
    best = min(METHODS, key=lambda method: losses[method])
    # Platt holds temperature: chance decides between them where the offset is 0.
    assert best == kind or (kind == "temperature" and losses["temperature"] - losses[best] < 1e-3)
    assert losses["none"] > losses[best] + 0.05


def test_a_parents_children_lie_in_one_fold_and_every_fold_has_both_states() -> None:
    parents = np.repeat(np.arange(100), 3)
    reads = Labelled(np.zeros(300), parents % 4 == 0, parents)
    folds = deal(reads.positive.astype(np.int64), reads.parents, 5, seed=1)
    assert all(len(set(folds[parents == parent])) == 1 for parent in range(100))
    # 25 and 75 parents of three children in five folds.
    assert np.bincount(folds[reads.positive]).tolist() == [15] * 5
    assert np.bincount(folds[~reads.positive]).tolist() == [45] * 5
    assert (deal(reads.positive.astype(np.int64), reads.parents, 5, seed=1) == folds).all()
    assert (deal(reads.positive.astype(np.int64), reads.parents, 5, seed=2) != folds).any()


@pytest.mark.parametrize("method", METHODS)
def test_scores_that_run_against_the_labels_are_refused(method: str) -> None:
    reads = drawn("temperature", 300)
    with pytest.raises(InputError, match="do not rise with the labels"):
        fit(method, reads._replace(positive=~reads.positive))  # type: ignore[arg-type]
    assert set(cross_validate(reads._replace(positive=~reads.positive), 5, seed=0)) == {"none"}


def test_logits_of_one_sign_that_no_temperature_cures_are_told_apart_from_wrong_labels() -> None:
    # All logits above 0, nine of ten reads negative: the likelihood falls with every rising curve through (0, 1/2).
    logits = np.concatenate([np.full(90, 5.0), np.full(10, 6.0)])
    reads = Labelled(logits, np.arange(100) >= 90, np.arange(100))
    with pytest.raises(InputError, match="No temperature calibration fits"):
        fit("temperature", reads)
    p = fit("platt", reads).apply(np.array([5.0, 6.0]))
    np.testing.assert_allclose(p, [1 / 92, 11 / 12], atol=1e-4)


def test_reads_of_one_state_are_refused() -> None:
    with pytest.raises(InputError, match="of one"):
        fit("platt", Labelled(np.arange(5.0), np.ones(5, bool), np.arange(5)))
