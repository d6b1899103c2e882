"""Settings of ``leech model train`` and ``leech model benchmark``.

Belongs here: what decides how a network is trained; neither numpy nor torch, because flags are made from it. What is cut
from a read is the recipe's; what the network is, its architecture's. Invariants: all that changes the result is here and is
written to ``train.toml``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from leech.config import knob

Confounder = Literal["reference", "flow_cell", "run", "sample"]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a network is trained."""

    model: str = knob("tcn", built_in="models/architectures", help="Architecture: a built-in name or a TOML file.")
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
    gpus: int | None = knob(
        None,
        minimum=1,
        help="GPUs (with --device cpu: processes) to train on; the model is the same with any number. Default: 1, or under "
        "torchrun as many as it started.",
    )
    grad_accum: int = knob(
        1, minimum=1, help="Pieces that each GPU takes its share of a batch in: less memory, the same model."
    )
    device: Literal["auto", "cpu", "cuda"] = knob("auto", help="Where to train; 'auto' is a GPU where there is one.")
    seed: int = knob(0, minimum=0, help="Seed of the first weights, the order of the chunks and all noise.")
    positive_label: str | None = knob(
        None, help="Which of two labels is positive; needed where the corpus does not say. Of more than two none is."
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
        "balanced", help="Whether all classes weigh the same in the loss, or every chunk does."
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
    oversample_minority: bool = knob(False, help="Draw all classes equally often, instead of each chunk once an epoch.")
    balance_by: Confounder | None = knob(
        None,
        help="Draw each value of this column equally often; with --oversample-minority, each class of each value.",
    )
    shuffle: Literal["exact", "blocks"] = knob(
        "exact", help="Order of an epoch: any, or by blocks of neighbouring chunks, for a corpus larger than memory."
    )
    adversary: Confounder | None = knob(
        None, help="Column that the network is to be kept from telling apart, by an adversarial head."
    )
    adversary_weight: float = knob(
        1.0, minimum=0.0, maximum=100.0, help="Strength of the adversary's reversed gradient at the end of the run."
    )
    regress: str | None = knob(None, help="Numeric column that the network is to tell as well, by a regression head.")
    regress_weight: float = knob(0.1, minimum=0.0, maximum=100.0, help="Weight of the regression in the loss.")
    save_minutes: float = knob(
        5.0, minimum=0.0, help="Minutes between two writes of the file that an interrupted run goes on from."
    )


@dataclass(frozen=True, kw_only=True)
class BenchmarkConfig:
    """What ``leech model benchmark`` measures."""

    model: str = knob("tcn", built_in="models/architectures", help="Architecture: a built-in name or a TOML file.")
    up_to: int = knob(
        1, minimum=1, help="Largest number of GPUs (with --device cpu: processes) to measure; 1, 2, 4, ..."
    )
    batch_size: int = knob(512, minimum=1, maximum=65536, help="Chunks per step, over all GPUs together.")
    grad_accum: int = knob(1, minimum=1, help="Pieces that each GPU takes its share of a batch in.")
    steps: int = knob(20, minimum=1, help="Steps to time, after three that warm up.")
    seed: int = knob(0, minimum=0, help="Seed of the first weights and the order of the chunks.")
    device: Literal["auto", "cpu", "cuda"] = knob("auto", help="Where to compute; 'auto' is a GPU where there is one.")
