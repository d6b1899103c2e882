"""What a calibration does to a logit, by hand, and which numbers are none."""

from __future__ import annotations

import numpy as np
import pytest

from leech.models.calibration import METHODS, Calibration


def example(method: str) -> Calibration:
    return {
        "temperature": Calibration(method="temperature", scale=0.5),
        "platt": Calibration(method="platt", scale=2, offset=-1),
        "isotonic": Calibration(method="isotonic", knots=((-2, 0.1), (0, 0.3), (1, 0.9))),
    }[method]


def test_temperature_divides_and_platt_shifts_too() -> None:
    # sigmoid(ln 3) = 3/4
    log3 = np.log(3)
    assert example("temperature").apply(np.array([2 * log3])) == pytest.approx(0.75)
    assert example("platt").apply(np.array([(log3 + 1) / 2])) == pytest.approx(0.75)


def test_isotonic_joins_its_knots_by_lines_and_is_constant_outside() -> None:
    # Half way between (-2, 0.1) and (0, 0.3): 0.2; between (0, 0.3) and (1, 0.9): 0.6.
    p = example("isotonic").apply(np.array([-50, -2, -1, 0, 0.5, 1, 50]))
    np.testing.assert_allclose(p, [0.1, 0.1, 0.2, 0.3, 0.6, 0.9, 0.9])


@pytest.mark.parametrize("method", METHODS)
def test_every_calibration_gives_probabilities_that_never_fall(method: str) -> None:
    p = example(method).apply(np.array([-1e300, -800, *np.linspace(-9, 9, 301), 800, 1e300]))
    assert p.dtype == np.float64
    assert ((p >= 0) & (p <= 1)).all()
    assert (np.diff(p) >= 0).all()


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"method": "temperature", "scale": 0.0}, "above 0"),
        ({"method": "platt", "offset": float("nan")}, "finite"),
        ({"method": "isotonic"}, "0 knots"),
        ({"method": "platt", "knots": ((0, 0.5),)}, "1 knots"),
        ({"method": "isotonic", "knots": ((0, 0.5), (0, 0.6))}, "rise from left to right"),
        ({"method": "isotonic", "knots": ((0, 0.5), (1, 0.4))}, "rise from left to right"),
        ({"method": "isotonic", "knots": ((0, 0.5), (1, 1.1))}, "between 0 and 1"),
    ],
)
def test_numbers_that_are_no_calibration_are_refused(numbers: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Calibration(**numbers)  # type: ignore[arg-type]


def test_it_says_in_words_what_it_is() -> None:
    assert [example(method).describe() for method in METHODS] == [
        "temperature 2",
        "Platt, scale 2 and offset -1",
        "isotonic, 3 knots",
    ]
