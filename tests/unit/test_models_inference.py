"""From logits to probabilities and calls."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from leech.data.batches import Inputs
from leech.errors import LeechError
from leech.models.calibration import Calibration
from leech.models.inference import Predictor, charging_likelihood, is_positive, probabilities, sigmoid, softmax
from leech.models.spec import build_network, load_architecture
from random_inputs import make_recipe, random_inputs

RECIPE = make_recipe(samples_before=100, samples_after=100, bases_before=10, bases_after=10)
CPU = torch.device("cpu")


class FirstSample(nn.Module):
    """Gives the first signal sample as the logit."""

    def forward(self, inputs: Inputs) -> Tensor:
        self.was_training = self.training
        return inputs.signal[:, :1]


def inputs_of(*samples: float) -> Inputs:
    inputs = random_inputs(len(samples), RECIPE, 0)
    inputs.signal[:, 0] = torch.tensor(samples)
    return inputs


def test_the_sigmoid_is_exact_and_does_not_overflow() -> None:
    # log(p / (1 - p)) of 0.5, 0.9, 0.1.
    logits = np.array([0, np.log(9), -np.log(9), 1000, -1000])
    np.testing.assert_allclose(sigmoid(logits), [0.5, 0.9, 0.1, 1, 0], rtol=1e-14, atol=1e-14)
    assert sigmoid(logits).dtype == np.float64


def test_the_softmax_is_exact_and_does_not_overflow() -> None:
    logits = np.array([[np.log(1), np.log(2), np.log(7)], [1000, 1000, 0]])
    np.testing.assert_allclose(softmax(logits), [[0.1, 0.2, 0.7], [0.5, 0.5, 0]], rtol=1e-14)


def test_the_softmax_of_two_classes_is_the_sigmoid_of_their_difference() -> None:
    logits = np.random.default_rng(0).normal(0, 3, (50, 2))
    np.testing.assert_allclose(softmax(logits)[:, 1], sigmoid(logits[:, 1] - logits[:, 0]), rtol=1e-12)


def test_one_logit_gives_the_probability_of_the_positive_and_more_give_all_classes() -> None:
    assert probabilities(np.array([[0.0], [np.log(9)]])).tolist() == pytest.approx([0.5, 0.9])
    several = probabilities(np.array([[np.log(1), np.log(2), np.log(7)]]))
    np.testing.assert_allclose(several, [[0.1, 0.2, 0.7]], rtol=1e-14)
    assert probabilities(np.zeros((2, 1), dtype=np.float32)).dtype == np.float64


def test_a_likelihood_at_the_threshold_is_positive() -> None:
    assert is_positive(np.array([0, 199, 200, 255], dtype=np.uint8), 200).tolist() == [False, False, True, True]


def test_a_charging_likelihood_is_255_times_p_rounded_to_even() -> None:
    # 127.5 goes to 128, 0.5 to 0, 0.6 to 1.
    p = np.array([0, 0.5 / 255, 0.6 / 255, 0.5, 200 / 255, 1])
    result = charging_likelihood(p)
    assert result.tolist() == [0, 0, 1, 128, 200, 255]
    assert result.dtype == np.uint8


def test_a_predictor_gives_the_networks_logits_in_order_as_float64() -> None:
    predictor = Predictor(FirstSample(), CPU)
    result = predictor.logits(inputs_of(1.5, -2, 0))
    assert result.tolist() == [[1.5], [-2], [0]]
    assert result.dtype == np.float64
    assert predictor.probabilities(inputs_of(0), None).tolist() == [0.5]


def test_a_calibration_is_applied_to_probabilities_and_logits_stay_raw() -> None:
    predictor, calibration = Predictor(FirstSample(), CPU), Calibration(method="platt", scale=2, offset=-3)
    # 2 x 1.5 - 3 = 0
    assert predictor.probabilities(inputs_of(1.5), calibration).tolist() == [0.5]
    assert predictor.logits(inputs_of(1.5)).tolist() == [[1.5]]


@pytest.mark.parametrize("training", [True, False])
def test_a_network_is_asked_in_evaluation_mode_and_left_as_it_was(training: bool) -> None:
    network = FirstSample().train(training)
    Predictor(network, CPU).logits(inputs_of(1))
    assert not network.was_training
    assert network.training is training


def test_a_network_that_fails_is_left_as_it_was() -> None:
    spec = load_architecture("tcn")
    network = build_network(spec, RECIPE).train()
    with pytest.raises(LeechError):
        Predictor(network, CPU).logits(random_inputs(2, make_recipe(), len(spec.features)))
    assert network.training


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_logit_that_is_not_finite_is_an_error_that_says_how_many(bad: float) -> None:
    with pytest.raises(LeechError, match="gave 2 of 3 results that are not finite"):
        Predictor(FirstSample(), CPU).logits(inputs_of(bad, 1, bad))


def test_inputs_that_are_not_finite_are_not_blamed_on_the_weights() -> None:
    with pytest.raises(LeechError) as caught:
        Predictor(FirstSample(), CPU).logits(inputs_of(float("nan"), 1))
    assert "corpus is damaged" in str(caught.value)
    assert "train it again" not in str(caught.value)


def test_a_batch_of_none_gives_none() -> None:
    assert Predictor(FirstSample(), CPU).logits(inputs_of()).shape == (0, 1)


@pytest.mark.parametrize("name", ["tcn", "conv_lstm"])
def test_probabilities_do_not_depend_on_the_batch_size(name: str) -> None:
    spec = load_architecture(name)
    predictor = Predictor(build_network(spec, RECIPE), CPU)
    inputs = random_inputs(23, RECIPE, len(spec.features))
    whole = predictor.probabilities(inputs, None)
    for size in (1, 7, 22):
        parts = [
            predictor.probabilities(Inputs(*(tensor[start : start + size] for tensor in inputs)), None)
            for start in range(0, 23, size)
        ]
        np.testing.assert_allclose(np.concatenate(parts), whole, rtol=0, atol=1e-6)
