"""From a corpus to a model folder: ``leech model train``.

Hides: what a finished model consists of and in which order things are checked. Belongs here: putting corpus, network, task
and loop together and writing the result. Invariants: everything that can be refused is refused before the first epoch; the
folder appears under its name when it is complete; on the CPU it depends on the configuration and the data alone, apart from
times and the stamp.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from leech.config import dump_toml
from leech.console import Progress, Table, logger
from leech.console import Task as ProgressTask
from leech.data.corpus import Corpus
from leech.errors import ConfigError
from leech.models.bundle import ModelBundle, save_bundle
from leech.models.device import choose_device
from leech.models.spec import build_network, load_architecture
from leech.provenance import Stamp, atomic_folder
from leech.training.checks import TwoStates, examine
from leech.training.config import TrainConfig
from leech.training.loop import Plan, Record, fit, make_plan, reproducible
from leech.training.task import ClassificationTask
