"""Where networks run.

Hides: which accelerators there are. Belongs here: the choice of a device, once for training, evaluation and prediction.
Invariant: what was asked for by name is used or refused, never replaced.
"""

from __future__ import annotations

import torch

from leech.console import logger
from leech.errors import ConfigError


def choose_device(name: str) -> torch.device:
    """Return the device that ``name`` (auto, cpu or cuda) stands for on this machine.

    :raises ConfigError: cuda was asked for where there is none.
    """
    if name == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    if name == "cuda":
        raise ConfigError(
            f"--device cuda: torch {torch.__version__} finds no usable GPU here, and a run that was meant for one would take "
            "many times as long on the CPU.",
            hint="Check 'nvidia-smi' and that torch was installed with CUDA, or use --device cpu (or auto).",
        )
    logger.info("Device: CPU (%d threads); no GPU that torch could use.", torch.get_num_threads())
    return torch.device("cpu")
