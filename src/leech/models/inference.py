"""From inputs to probabilities and calls.

Hides: inference mode, devices and rounding. Belongs here: what evaluation and prediction must do alike; where batches come
from is theirs. Invariants: as many results as chunks, whatever the batch size; never a number that is not finite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from leech.errors import LeechError
from leech.models.calibration import calibrated, sigmoid, softmax

if TYPE_CHECKING:
    from leech.data.batches import Inputs
    from leech.models.calibration import AnyCalibration


def charging_likelihood(probability: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return ``cl`` = round(255 * p), halves to the even neighbour, as uint8."""
    return np.rint(255 * np.asarray(probability, dtype=np.float64)).astype(np.uint8)


def is_positive(likelihood: NDArray[np.uint8], threshold_cl: int) -> NDArray[np.bool_]:
    """Return which ``cl`` are called positive: those at the threshold and above."""
    return np.asarray(likelihood) >= threshold_cl


def probabilities(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return float64 probabilities of raw logits: P(positive) (n,) of one logit (n, 1), all classes (n, K) of K > 1."""
    logits = np.asarray(logits, dtype=np.float64)
    return sigmoid(logits[:, 0]) if logits.shape[1] == 1 else softmax(logits)


def positive_probability(logits: NDArray[np.float64], calibration: AnyCalibration | None) -> NDArray[np.float64]:
    """Return P(positive) of raw logits (n,) of one output, calibrated where there is a calibration."""
    return calibrated(logits, calibration)


class Predictor:
    """A network on a device, asked batch by batch; it is in evaluation mode while it is asked.

    :param network: gives raw logits of :class:`leech.data.batches.Inputs`.
    """

    def __init__(self, network: nn.Module, device: torch.device) -> None:
        self._network = network.to(device)
        self._device = device

    def logits(self, inputs: Inputs) -> NDArray[np.float64]:
        """Return raw logits, float64 (n, outputs).

        :raises LeechError: a logit that is not finite.
        """
        was_training = self._network.training
        self._network.eval()
        try:
            with torch.inference_mode():
                result = self._network(inputs.to(self._device)).double().cpu().numpy()
        finally:
            self._network.train(was_training)
        bad = int((~np.isfinite(result)).any(axis=1).sum())
        if bad:
            sound = all(bool(torch.isfinite(values).all()) for values in (inputs.signal, inputs.features))
            raise LeechError(
                f"The network gave {bad} of {len(result)} results that are not finite numbers, so no call can be trusted.",
                hint="The model's weights are damaged or it diverged in training; train it again."
                if sound
                else "The chunks hold numbers that are not finite: their corpus is damaged; prepare it again.",
            )
        assert len(result) == len(inputs.signal)
        return np.asarray(result)

    def probabilities(self, inputs: Inputs, calibration: AnyCalibration | None) -> NDArray[np.float64]:
        """Return P(positive) of each chunk by a network with one logit, float64 (n,), else that of every class, (n, K).

        :param calibration: the model's own; None gives the raw probabilities. Without a default, so that none is forgotten.
        """
        logits = self.logits(inputs)
        return calibrated(logits[:, 0] if logits.shape[1] == 1 else logits, calibration)
