"""Settings of ``leech model train``.

Belongs here: what decides how a network is trained; neither numpy nor torch, because flags are made from it. What is cut
from a read is the recipe's; what the network is, its architecture's. Invariants: all that changes the result is here and is
written to ``train.toml``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from leech.config import knob


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a network is trained."""

    model: str = knob("tcn", help="Architecture: a built-in name or a TOML file.")
    epochs: int | None = knob(
        None,
        minimum=1,
        maximum=100000,
        help="Passes over the training split. Default: 30, but more where that would be less than 600 optimizer steps.",
    )
    batch_size: int | None = knob(
        None,
        minimum=1,
        maximum=65536,
        help="Chunks per optimizer step, over all GPUs together. Default: 512, but fewer (16 at least) where an epoch would "
        "have less than 64 steps.",
    )
    gpus: int = knob(1, minimum=1, help="GPUs (with --device cpu: processes) to train on.")
    device: Literal["auto", "cpu", "cuda"] = knob("auto", help="Where to train; 'auto' is a GPU where there is one.")
    seed: int = knob(0, minimum=0, help="Seed of the first weights, the order of the chunks and all noise.")
    positive_label: str | None = knob(
        None, help="Which of the two labels is positive; needed where the corpus does not say."
    )
    learning_rate: float = knob(2e-3, minimum=1e-8, maximum=1.0, help="Highest learning rate.")
    weight_decay: float = knob(0.01, minimum=0.0, maximum=10.0, help="Decay of weight matrices (AdamW).")
    warmup: float = knob(0.1, minimum=0.0, maximum=0.9, help="Share of the steps over which the learning rate rises.")
    clip_norm: float = knob(1.0, minimum=1e-6, help="Largest norm of the gradient.")
    patience: int | None = knob(
        None,
        minimum=1,
        help="Evaluations without a better validation AUROC after which training stops. Default: 10, but not before step 600.",
    )
    class_weights: Literal["balanced", "none"] = knob(
        "balanced", help="Whether both classes weigh the same in the loss, or every chunk does."
    )
    label_smoothing: float = knob(0.0, minimum=0.0, maximum=0.9, help="Certainty taken from the labels.")
    noise: float = knob(
        0.2,
        minimum=0.0,
        maximum=10.0,
        help="Noise on signal and features in training, in standard deviations of the normalised signal.",
    )
    average_decay: float = knob(
        0.99,
        minimum=0.0,
        maximum=0.99999,
        help="Decay per step of the moving average of weights that is kept; 0 for none.",
    )
