"""Which POD5 file, run and flow cell a molecule belongs to.

Hides: how a run is cut into files and what they are called. Belongs here: names and numbers; writing is ``write.py``'s.
Invariants: a molecule's place depends on its number and the settings alone; molecules of one file follow one another, so
that one file is open at a time.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from leech.data.simulate.config import SimulateConfig
from leech.data.simulate.nuisances import Place, parse_fractions

SINGLE_FILE, TREE = "reads.pod5", "pod5"

_RUN_STREAM = 2**31
"""Spawn key of the runs' ids; blocks of molecules have smaller ones."""

_FILE_OF_NUISANCE = ("corrupt_signal", "truncated_pod5", "repeated_pod5")


class Run(NamedTuple):
    """One acquisition."""

    flow_cell: str
    name: str
    acquisition_id: str


@dataclass(frozen=True)
class Layout:
    """The files of a library's signal.

    :ivar runs: all of them, those of a flow cell together.
    :ivar is_tree: whether there is more than one file.
    """

    num_molecules: int
    runs: tuple[Run, ...]
    files_per_run: int
    is_tree: bool

    @classmethod
    def plan(cls, config: SimulateConfig) -> Layout:
        """Return the layout that the settings ask for."""
        generator = np.random.default_rng(np.random.SeedSequence(config.seed, spawn_key=(_RUN_STREAM,)))
        runs = tuple(
            Run(
                config.flow_cell if cell == 0 else f"{config.flow_cell}-{cell + 1}",
                f"run{number + 1}",
                str(uuid.UUID(bytes=generator.bytes(16), version=4)),
            )
            for cell in range(config.flow_cells)
            for number in range(config.runs)
        )
        files_per_run = -(-config.reads // (len(runs) * config.pod5_reads))
        own_file = any(name in _FILE_OF_NUISANCE for name in parse_fractions(config.nuisance))
        return cls(config.reads, runs, files_per_run, own_file or len(runs) * files_per_run > 1)

    @property
    def pod5(self) -> str:
        """Name in the library's folder of what ``--pod5`` is to be given."""
        return TREE if self.is_tree else SINGLE_FILE

    def file_of(self, molecule: int) -> int:
        """Return the number of the file that holds a molecule's signal."""
        return molecule * len(self.runs) * self.files_per_run // self.num_molecules

    def run_of(self, molecule: int) -> Run:
        """Return the run that a molecule was read in."""
        return self.runs[self.file_of(molecule) // self.files_per_run]

    def path(self, file: int) -> Path:
        """Return a file's path in the library's folder."""
        if not self.is_tree:
            return Path(SINGLE_FILE)
        place, number = divmod(file, self.files_per_run)
        run = self.runs[place]
        # A flow cell may be called as no folder can be, and a hidden folder would be passed over.
        folder = re.sub(r"[^A-Za-z0-9._-]", "_", run.flow_cell).lstrip(".") or "flow_cell"
        return Path(TREE, folder, run.name, f"reads_{number + 1:04d}.pod5")

    def side_path(self, place: Place | str) -> Path:
        """Return the path of the file of reads that are corrupt, truncated or repeated."""
        return Path(TREE, f"{place}.pod5")
