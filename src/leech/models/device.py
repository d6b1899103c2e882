"""Where networks run.

Hides: which accelerators there are. Belongs here: the choice of devices, once for training, evaluation and prediction.
Invariant: what was asked for by name is used or refused, never replaced.
"""

from __future__ import annotations

import torch

from leech.console import logger
from leech.errors import ConfigError


def choose_devices(name: str, count: int | None) -> list[torch.device]:
    """Return the devices that ``count`` copies of a network compute on: as many GPUs, or the CPU as many times.

    :param count: None for one.
    :raises ConfigError: as :func:`choose_device`, or more GPUs than there are.
    """
    if count is None or count == 1:
        return [choose_device(name)]
    if name == "cpu":
        return [torch.device("cpu")] * count
    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if available < count:
        found = f"{available or 'no'} usable GPU{'' if available == 1 else 's'}"
        raise ConfigError(
            f"--gpus {count}: torch {torch.__version__} finds {found} here, and copies that share one are no faster.",
            hint=f"Use --gpus {available}."
            if available
            else f"Use --device cpu for {count} copies on the CPU, or --gpus 1.",
        )
    return [torch.device("cuda", number) for number in range(count)]


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
