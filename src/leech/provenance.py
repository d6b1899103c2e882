"""Where an artefact comes from, and how it comes to stand under its name.

Hides: versions, digests of inputs, partial names and renaming. Belongs here: the stamp that every artefact carries and the
one way in which output reaches its final name. Invariants: a path either holds a complete artefact or nothing new; the
stamp is no part of an artefact's digest.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from leech import __version__
from leech.errors import InputError

_PACKAGES = ("escapepod", "numpy", "pysam", "torch")


@dataclass(frozen=True)
class Stamp:
    """Who made an artefact, how and when.

    :ivar command: the command line, or how the library was called.
    :ivar time_utc: ISO 8601.
    :ivar versions: of leech, Python and what its numbers depend on.
    """

    command: tuple[str, ...]
    time_utc: str
    versions: dict[str, str]

    @classmethod
    def make(cls, command: Sequence[str], time_utc: str) -> Stamp:
        """Return the stamp of a run, reading versions without importing the packages."""
        versions = {"leech": __version__, "python": platform.python_version()}
        for package in _PACKAGES:
            try:
                versions[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                continue
        return cls(tuple(command), time_utc, versions)

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {"command": list(self.command), "time_utc": self.time_utc, "versions": self.versions}

    def write(self, folder: Path) -> None:
        """Write ``provenance.json`` into an artefact's folder."""
        (folder / "provenance.json").write_text(json.dumps(self.to_mapping(), indent=2) + "\n", encoding="utf-8")


@contextmanager
def atomic_folder(path: Path, *, force: bool = False) -> Iterator[Path]:
    """Give a partial folder to fill, and move it to ``path`` when the block ends well.

    :param force: replace what stands at ``path``; it stays until the new folder is complete.
    :raises InputError: ``path`` exists and may not be replaced, or its parent cannot be written.
    """
    _refuse_existing(path, force)
    partial = _partial(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
    except OSError as error:
        raise InputError(f"Cannot write beside '{path}': {error.strerror}.") from error
    try:
        yield partial
        _replace(partial, path)
    except OSError as error:
        raise InputError(f"Cannot finish writing '{path}': {error.strerror or error}.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def atomic_file(path: Path, *, force: bool = False) -> Iterator[Path]:
    """Give a partial file's path to write, and move it to ``path`` when the block ends well; see ``atomic_folder``."""
    _refuse_existing(path, force)
    partial = _partial(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.touch()
    except OSError as error:
        raise InputError(f"Cannot write beside '{path}': {error.strerror}.") from error
    try:
        yield partial
        _replace(partial, path)
    except OSError as error:
        raise InputError(f"Cannot finish writing '{path}': {error.strerror or error}.") from error
    finally:
        partial.unlink(missing_ok=True)


def _partial(path: Path) -> Path:
    # The ending stays, so that writers which choose a format by it are not misled.
    return path.with_name(f"{path.name}.partial-{os.getpid()}")


def _refuse_existing(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise InputError(f"'{path}' exists already.", hint="Give another name, or --force to replace it.")


def _replace(partial: Path, path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        # A folder cannot be renamed over a full one: the old one steps aside first.
        old = path.with_name(f"{path.name}.old-{os.getpid()}")
        path.rename(old)
        try:
            partial.rename(path)
        except OSError:
            old.rename(path)
            raise
        shutil.rmtree(old)
    else:
        partial.replace(path)
