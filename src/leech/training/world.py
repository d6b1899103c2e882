"""Ranks: processes that train one model together, as each of them sees the others.

Hides: torch's process groups. Belongs here: what ranks say to each other; how they come to be is ``distributed.py``'s, which
rows a rank takes ``samplers.py``'s, and the step they take together ``step.py``'s. Invariants: one rank creates no process
group; what a sum returns is the same bits on every rank; whatever way a rank is lost, it is one error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from leech.errors import ConfigError, LeechError


class LostContactError(LeechError):
    """Another rank ended, hung or could not be reached."""


@dataclass(frozen=True)
class World:
    """This process among those that train together.

    :ivar rank: its number, from 0; the first writes, shows progress and speaks for all.
    :ivar size: how many there are.
    :ivar device: where this one computes.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")

    @property
    def is_first(self) -> bool:
        """Whether this rank writes files."""
        return self.rank == 0

    def share(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return this rank's rows: every ``size``-th of them, from the ``rank``-th on."""
        return rows[self.rank :: self.size]

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over all ranks, in ``values`` itself.

        :raises LostContactError: another rank is gone.
        """
        if self.size > 1:
            with self.contact():
                distributed.all_reduce(values)
        return values

    def sum_array(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum over all ranks of arrays in memory."""
        if self.size == 1:
            return values
        return self.sum(torch.from_numpy(values).to(self.device)).cpu().numpy()

    def wait(self) -> None:
        """Return when all ranks have come this far."""
        self.sum(torch.zeros(1, device=self.device))

    def parallel(self, module: nn.Module) -> nn.Module:
        """Return the module in such a form that its backward pass averages gradients over the ranks.

        Every parameter that is to be trained must belong to the one module that is given here.

        :raises ConfigError: layers that look at the whole batch, on the CPU, where ranks cannot share what they see.
        """
        if self.size == 1:
            return module
        return DistributedDataParallel(module, gradient_as_bucket_view=True)

    def synchronised(self, module: nn.Module) -> nn.Module:
        """Return the module with batch normalisation over the batches of all ranks together.

        :raises ConfigError: there is such a layer and no way to do that, which is so on the CPU.
        """
        watching = [name for name, part in module.named_modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
        if not watching or self.size == 1:
            return module
        if self.device.type == "cpu":
            raise ConfigError(
                f"The network's layer '{watching[0]}' normalises over the batch. On the CPU each of {self.size} ranks would "
                "see its own share only, and the model would depend on their number.",
                hint="Use --gpus 1, or a network that normalises per chunk.",
            )
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]
        return converted

    @contextmanager
    def contact(self) -> Iterator[None]:
        """Turn the many ways in which torch says that a rank is gone into one."""
        try:
            yield
        except RuntimeError as error:
            if self.size == 1 or not _is_about_contact(error):
                raise
            raise LostContactError(
                f"Rank {self.rank} of {self.size} lost contact with the others: {str(error).splitlines()[0]}",
                hint="Look for what another rank said before; a rank that was killed says nothing.",
            ) from error


def _is_about_contact(error: RuntimeError) -> bool:
    words = str(error).lower()
    return isinstance(error, distributed.DistError) or any(
        word in words for word in ("gloo", "nccl", "connection", "peer", "process group", "timed out")
    )


class Place(NamedTuple):
    """Which rank a process is to be; ``local_rank`` counts those of its machine."""

    rank: int
    size: int
    local_rank: int


@contextmanager
def process_group(place: Place, kind: str, timeout_s: float, init_method: str) -> Iterator[World]:
    """Be a member of a process group for the length of a block.

    :param kind: cpu or cuda.
    :param timeout_s: how long a rank waits for the others in one exchange.
    :param init_method: where ranks meet, as torch words it.
    :raises LostContactError: not all of them came.
    """
    device = torch.device("cpu")
    if kind == "cuda":
        device = torch.device("cuda", place.local_rank)
        torch.cuda.set_device(device)
    world = World(place.rank, place.size, device)
    with world.contact():
        distributed.init_process_group(
            "nccl" if kind == "cuda" else "gloo",
            init_method=init_method,
            rank=place.rank,
            world_size=place.size,
            timeout=timedelta(seconds=timeout_s),
            # Two ranks on one GPU, or a GPU that is not reached, are found here and not in the first step.
            device_id=device if kind == "cuda" else None,
        )
    yield world
    # Not reached after an error: leaving a group whose other members are gone can wait for ever.
    distributed.destroy_process_group()
