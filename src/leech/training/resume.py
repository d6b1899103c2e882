"""The resume file: a run that was interrupted, and all that it takes to go on.

Hides: the file's form, and how a run's identity is compared. Belongs here: reading, writing and refusing; what is in a state is
the loop's to say. Invariants: one safetensors file with JSON in its header, so reading it runs no code; it is replaced as a
whole, so the last good one stays; it depends neither on the number of ranks nor on where files lie.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from leech.config import to_mapping
from leech.data.corpus import Corpus
from leech.errors import InputError, MismatchError
from leech.models.spec import ArchitectureSpec
from leech.provenance import atomic_file, digest_of
from leech.training.config import TrainConfig

FORMAT = "leech-resume"
SCHEMA_VERSION = 3

FREE_SETTINGS = frozenset({"gpus", "device", "grad_accum", "save_minutes", "model"})
"""Settings that may change between a run and its continuation: they change who computes, not what. ``model`` is a name or a
path; what it stands for is compared instead."""


class State(NamedTuple):
    """A run at the end of a step.

    :ivar tensors: by name, on the CPU.
    :ivar content: plain types.
    """

    tensors: dict[str, Tensor]
    content: dict[str, Any]


def identity_of(config: TrainConfig, corpus: Corpus, spec: ArchitectureSpec) -> dict[str, Any]:
    """Return what makes a run this one and no other, as plain types.

    :param config: with everything filled in that was left to leech to choose.
    """
    settings = {key: value for key, value in to_mapping(config).items() if key not in FREE_SETTINGS}
    return {
        "settings": settings,
        "architecture": digest_of(spec.to_mapping()),
        "recipe": to_mapping(corpus.recipe),
        "corpus": corpus.manifest.digest,
        "sources": [source.digest for source in corpus.manifest.sources],
    }


def differences(recorded: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Return in words what makes two runs different, empty for none."""
    words = []
    for key in ("settings", "recipe"):
        for name in sorted({*recorded[key], *found[key]}):
            before, now = recorded[key].get(name), found[key].get(name)
            if before != now:
                words.append(f"{name} of the {'command' if key == 'settings' else key} (was {before!r}, is {now!r})")
    if recorded["architecture"] != found["architecture"]:
        words.append(f"the network (was {recorded['architecture'][:19]}, is {found['architecture'][:19]})")
    if recorded["corpus"] != found["corpus"]:
        words.append(f"the corpus (was {recorded['corpus'][:19]}, is {found['corpus'][:19]})")
        for number, digest in enumerate(recorded["sources"]):
            if digest not in found["sources"]:
                words.append(f"source {number + 1} of the corpus ({digest[:19]} is gone)")
    return words


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """Return ``sha256:<hex>`` of a state, so that a run never goes on from one that a disk has changed."""
    found = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        found.update(name.encode())
        found.update(tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return f"sha256:{found.hexdigest()}"


@dataclass(frozen=True)
class ResumeFile:
    """Where the state of a run is written to and read from.

    :ivar identity: of the run; see :func:`identity_of`.
    """

    path: Path
    identity: Mapping[str, Any]

    def write(self, state: State) -> None:
        """Replace the file.

        :raises InputError: the disk is full; the last good file stays.
        """
        from safetensors.torch import save

        text = json.dumps({"identity": self.identity, **state.content})
        tensors = {name: tensor.contiguous() for name, tensor in sorted(state.tensors.items())}
        header = {
            "format": FORMAT,
            "schema_version": str(SCHEMA_VERSION),
            "state": text,
            "digest": _digest(text, tensors),
        }
        with atomic_file(self.path, force=True) as partial, partial.open("wb") as file:
            file.write(save(tensors, metadata=header))
            file.flush()
            # A machine that goes down right after the renaming must not leave an empty file under the name.
            os.fsync(file.fileno())

    def read(self) -> State:
        """Return the state of the run.

        :raises InputError: not a resume file, or a damaged one.
        :raises MismatchError: it is another run's; the message names what differs.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.path, framework="pt") as file:
                header = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise InputError(
                f"Cannot read resume file '{self.path}': {error}.", hint="Delete it and train from the beginning."
            ) from error
        if header.get("format") != FORMAT or header.get("schema_version") != str(SCHEMA_VERSION):
            raise InputError(
                f"'{self.path}' is no resume file of this version of leech (format {header.get('format')!r}, version "
                f"{header.get('schema_version')!r}).",
                hint="Delete it and train from the beginning, or go on with the version that wrote it.",
            )
        if header.get("digest") != _digest(header["state"], tensors):
            raise InputError(
                f"Resume file '{self.path}' is damaged: its content is not what was written.",
                hint="Delete it and train from the beginning.",
            )
        content = json.loads(header["state"])
        differing = differences(content.pop("identity"), self.identity)
        if differing:
            raise MismatchError(
                f"'{self.path}' belongs to another run; what differs: {'; '.join(differing)}. Going on would give a model that "
                "no single command describes.",
                hint="Give the options and the corpus that the run was begun with, or delete the file and begin anew.",
            )
        return State(tensors, content)

    def discard(self) -> None:
        """Remove the file of a run that is complete."""
        self.path.unlink(missing_ok=True)
