"""Calibrations of more than two states: what is fitted is found again, and what cannot be fitted is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from leech.config import build
from leech.errors import InputError
from leech.evaluation.config import CalibrateConfig
from leech.evaluation.multiclass.calibrate import calibrate_classes
from leech.evaluation.multiclass.fit import LabelledClasses, cross_validate, fit
from leech.evaluation.multiclass.metrics import log_loss
from leech.models.calibration import ClassCalibration, calibrated, softmax


def reads(
    count: int = 3000, *, scales: tuple[float, ...] = (1, 1, 1), offsets: tuple[float, ...] = (0, 0, 0)
) -> LabelledClasses:
    """Return logits whose true probabilities are ``softmax(scales * logits + offsets)``."""
    generator = np.random.default_rng(3)
    logits = generator.normal(scale=2.0, size=(count, 3))
    p = softmax(logits * np.array(scales) + np.array(offsets))
    classes = (generator.random((count, 1)) > np.cumsum(p, axis=1)).sum(axis=1)
    return LabelledClasses(logits, classes, np.arange(count))


def test_a_temperature_is_found_again() -> None:
    found = fit("temperature", reads(scales=(0.25, 0.25, 0.25)))
    assert found.scales == pytest.approx((0.25,) * 3, rel=0.1)
    assert found.offsets == (0, 0, 0)
    assert sum(found.num_reads) == 3000
    assert found.describe() == f"temperature {1 / found.scales[0]:.3g}"


def test_scales_and_offsets_of_a_vector_are_found_again() -> None:
    found = fit("vector", reads(scales=(0.3, 0.6, 1.2), offsets=(0.5, 0.0, -0.5)))
    assert found.scales == pytest.approx((0.3, 0.6, 1.2), rel=0.15)
    # Offsets are known but for a number that all share; they sum to 0.
    assert found.offsets == pytest.approx((0.5, 0.0, -0.5), abs=0.15)
    assert sum(found.offsets) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("method", ["temperature", "vector"])
def test_no_number_near_the_fitted_ones_fits_better(method: str) -> None:
    sample = reads(300, scales=(0.5, 0.7, 0.9), offsets=(0.2, 0.0, 0.1))
    found = fit(method, sample)  # type: ignore[arg-type]
    counts = sample.counts
    # What Platt has: (N + 1) / (N + 2) for a read's class of N reads, and half of 1 / (N + 2) for each of the two others.
    targets = np.full((300, 3), 0.0) + (0.5 / (counts[sample.classes] + 2))[:, None]
    targets[np.arange(300), sample.classes] = ((counts + 1) / (counts + 2))[sample.classes]

    def loss(scales: np.ndarray, offsets: np.ndarray) -> float:
        return float(-(targets * np.log(softmax(sample.logits * scales + offsets))).sum())

    scales, offsets = np.array(found.scales), np.array(found.offsets)
    least = loss(scales, offsets)
    directions = np.eye(3) if method == "vector" else [np.ones(3)]
    for step in (-0.01, 0.01):
        for direction in directions:
            assert loss(scales + step * np.asarray(direction), offsets) > least
        if method == "vector":
            for direction in np.eye(3):
                assert loss(scales, offsets + step * direction) > least


def test_reads_that_are_told_apart_without_error_have_a_finite_fit() -> None:
    classes = np.arange(60) % 3
    found = fit("vector", LabelledClasses(10 * np.eye(3)[classes], classes, np.arange(60)))
    # 20 reads each: 21 / 22 for the right one, and half of 1 / 22 for each of the others.
    np.testing.assert_allclose(found.apply(10 * np.eye(3)), np.full((3, 3), 1 / 44) + np.eye(3) * 41 / 44, rtol=1e-5)


def test_many_states_of_few_reads_each_are_not_calibrated_towards_a_guess() -> None:
    # Logits of 20 normal clouds whose means are 3 apart: their softmax is the very probability, so the best temperature is 1.
    generator = np.random.default_rng(0)

    def drawn(count: int) -> tuple[np.ndarray, np.ndarray]:
        classes = np.repeat(np.arange(20), count)
        return 3 * (generator.normal(size=(20 * count, 20)) + 3 * np.eye(20)[classes]), classes

    logits, classes = drawn(10)
    found = fit("temperature", LabelledClasses(logits, classes, np.arange(len(classes))))
    assert found.scales[0] > 0.5
    others, truth = drawn(100)
    raw, fitted = (log_loss(truth, calibrated(others, one)) for one in (None, found))
    assert raw is not None
    assert fitted is not None
    assert fitted < 1.3 * raw


def test_scores_that_run_against_the_labels_are_refused() -> None:
    sample = reads(600)
    turned = LabelledClasses(-sample.logits, sample.classes, sample.parents)
    for method in ("temperature", "vector"):
        with pytest.raises(InputError, match="do not rise"):
            fit(method, turned)  # type: ignore[arg-type]
    assert list(cross_validate(turned, 3, 0)) == ["none"]


def test_a_state_without_reads_is_refused() -> None:
    sample = reads(60)
    with pytest.raises(InputError, match="all states"):
        fit("temperature", sample.take(sample.classes != 1))


def test_the_form_that_suits_has_the_least_held_out_loss() -> None:
    losses = cross_validate(reads(scales=(0.3, 0.6, 1.2), offsets=(0.5, 0.0, -0.5)), 5, 0)
    assert losses["vector"] < losses["temperature"] < losses["none"]
    assert cross_validate(reads(), 5, 0) == cross_validate(reads(), 5, 0)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"scales": (1.0, -1.0, 1.0)}, "must be above 0"),
        ({"scales": (1.0, float("nan"), 1.0)}, "finite"),
        ({"offsets": (0.0, 0.0)}, "3 scales and 2 offsets"),
        # Of such numbers a logit would make infinity, and two of them no probability at all.
        ({"scales": (1e308, 1e308, 1e308)}, "too large"),
        ({"offsets": (1e308, -1e308, 0.0)}, "too large"),
        ({"method": "temperature", "scales": (1.0, 2.0, 1.0)}, "one scale for all"),
    ],
)
def test_numbers_that_are_no_calibration_are_refused(values: dict[str, object], words: str) -> None:
    right = {"method": "vector", "scales": (1.0, 1.0, 1.0), "offsets": (0.0, 0.0, 0.0)}
    with pytest.raises(ValueError, match=words):
        ClassCalibration(**{**right, **values})  # type: ignore[arg-type]


def test_without_a_calibration_probabilities_are_raw() -> None:
    logits = np.log([[1.0, 2.0, 7.0]])
    np.testing.assert_allclose(calibrated(logits, None), [[0.1, 0.2, 0.7]])
    twice = ClassCalibration(method="temperature", scales=(2.0,) * 3, offsets=(0.0,) * 3)
    # Squares of 1, 2 and 7, over their sum.
    np.testing.assert_allclose(calibrated(logits, twice), [[1 / 54, 4 / 54, 49 / 54]])


def test_a_method_that_cannot_be_fitted_is_named_with_the_reason(tmp_path: Path) -> None:
    sample = reads(600)
    # The scores of the last label fall with it, which one scale for all labels can bear and a scale of its own cannot.
    turned = LabelledClasses(sample.logits * np.array([1, 1, -0.2]), sample.classes, sample.parents)
    config = build(CalibrateConfig, {"bootstrap": 5})
    found = calibrate_classes(tmp_path, ("a", "b", "c"), {"calibration": turned, "test": turned}, "sha256:0", config)
    methods = found.tables()[0].rows
    assert [row[0] for row in methods] == ["none", "temperature", "vector"]
    assert methods[1][2].startswith("temperature ")
    assert methods[2][1:] == ("", "left out: some of the reads do not suffice to fit it")
