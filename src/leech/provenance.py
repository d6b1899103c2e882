"""Where an artefact comes from, and how it comes to stand under its name.

Hides: versions, digests of inputs, partial names and renaming. Belongs here: the stamp that every artefact carries and the
one way in which output reaches its final name. Invariants: a path either holds a complete artefact or nothing new; nothing
is replaced that leech did not write; the stamp is no part of an artefact's digest.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from leech import __version__
from leech.errors import ConfigError, InputError

_PACKAGES = ("escapepod", "numpy", "pysam", "torch")

HASHED_BYTES = 16 * 2**20
"""Largest input whose content is hashed; a larger one is known by size and time, because reading it again costs minutes."""

_SIGNS = ("provenance.json", "manifest.json", "model.json")
"""A folder that holds one of these is an artefact of leech's, and --force may replace it."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


@dataclass(frozen=True)
class Identity:
    """Which file or folder an input was.

    :ivar path: absolute.
    :ivar num_bytes: of the file, or of all files below a folder.
    :ivar num_files: 1, or the number of files below a folder.
    :ivar modified_ns: latest modification time, nanoseconds since 1970.
    :ivar sha256: of the content of a file up to ``HASHED_BYTES``; None for a larger one and for a folder.
    """

    path: str
    num_bytes: int
    num_files: int
    modified_ns: int
    sha256: str | None

    @classmethod
    def of(cls, path: Path) -> Identity | None:
        """Return what is at ``path``, or None where there is nothing to be read; reading it later says so better."""
        try:
            if path.is_dir():
                states = [file.stat() for file in _files_below(path)]
                size, time = sum(state.st_size for state in states), [state.st_mtime_ns for state in states]
                return cls(str(path.absolute()), size, len(states), max(time, default=0), None)
            if not path.is_file():
                return None
            state = path.stat()
            small = state.st_size <= HASHED_BYTES
            digest = hashlib.sha256(path.read_bytes()).hexdigest() if small else None
            return cls(str(path.absolute()), state.st_size, 1, state.st_mtime_ns, digest)
        except OSError:
            return None


@dataclass(frozen=True)
class Stamp:
    """Who made an artefact, how, from what and when.

    :ivar command: the command line, or how the library was called.
    :ivar time_utc: ISO 8601.
    :ivar versions: of leech, Python and what its numbers depend on.
    :ivar config_digest: of all settings, those that were left at their defaults too; None where none were told.
    :ivar inputs: the files and folders that were read.
    """

    command: tuple[str, ...]
    time_utc: str
    versions: dict[str, str]
    config_digest: str | None = None
    inputs: tuple[Identity, ...] = ()

    @classmethod
    def make(
        cls,
        command: Sequence[str],
        time_utc: str,
        *,
        config: Mapping[str, Any] | None = None,
        inputs: Sequence[Path | None] = (),
    ) -> Stamp:
        """Return the stamp of a run, reading versions without importing the packages.

        :param config: all settings of the run as plain types, ready for JSON.
        :param inputs: what the run reads; None, standard input and missing files are passed over.
        """
        # Imported here: it costs 0.02 s that no --help should pay.
        from importlib import metadata

        versions = {"leech": __version__, "python": platform.python_version()}
        for package in _PACKAGES:
            try:
                versions[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                continue
        identities = (Identity.of(path) for path in inputs if path is not None)
        return cls(
            command=tuple(command),
            time_utc=time_utc,
            versions=versions,
            config_digest=None if config is None else digest_of(config),
            inputs=tuple(identity for identity in identities if identity is not None),
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "command": list(self.command),
            "time_utc": self.time_utc,
            "versions": self.versions,
            "config_digest": self.config_digest,
            "inputs": [asdict(identity) for identity in self.inputs],
        }

    def write(self, folder: Path) -> None:
        """Write ``provenance.json`` into an artefact's folder."""
        (folder / "provenance.json").write_text(json.dumps(self.to_mapping(), indent=2) + "\n", encoding="utf-8")


@contextmanager
def atomic_folder(path: Path, *, force: bool = False) -> Iterator[Path]:
    """Give a partial folder to fill, and move it to ``path`` when the block ends well.

    Missing parents are made.

    :param force: replace the artefact at ``path``; it stays until the new one is complete.
    :raises InputError: something stands at ``path`` that may not be replaced, or there is no writing beside it.
    """
    require_free(path, force=force, folder=True)
    partial = _partial(path)
    _begin(path, partial.mkdir)
    try:
        with _disk_errors(path):
            yield partial
        # Something may have come to stand there meanwhile.
        require_free(path, force=force, folder=True)
        _finish(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def atomic_file(path: Path, *, force: bool = False) -> Iterator[Path]:
    """Give a partial file's path to write, and move it to ``path`` when the block ends well; see ``atomic_folder``."""
    require_free(path, force=force, folder=False)
    partial = _partial(path)
    _begin(path, partial.touch)
    try:
        with _disk_errors(path):
            yield partial
        require_free(path, force=force, folder=False)
        _finish(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _partial(path: Path) -> Path:
    return path.with_name(f"{path.name}{_partial_suffix(os.getpid())}")


def _partial_suffix(process: int) -> str:
    return f".partial-{process}"


def final_path(path: Path) -> Path:
    """Return what a path is called once the folders around it that this run is making are complete.

    Whoever records a path, or tells a person of one, names it so: another command may have made the folder that it lies in a
    part of its own output. A rank or worker takes the folders of the process that started it for the run's too.
    """
    # Imported here: no --help should pay for it.
    from multiprocessing import parent_process

    parent = parent_process()
    suffixes = [_partial_suffix(process) for process in (os.getpid(), parent.pid if parent else None) if process]
    parts = list(path.parts)
    for place, part in enumerate(parts):
        for suffix in suffixes:
            parts[place] = parts[place].removesuffix(suffix) or part
    return Path(*parts)


def require_free(path: Path, *, force: bool, folder: bool) -> None:
    """Refuse a name that cannot be written in the end, before any work is done for it.

    :raises InputError: something stands at ``path`` that may not be replaced.
    """
    if path.name in ("", ".."):
        raise InputError(f"'{path}' is no name for an output.", hint="Name the folder or file to be made.")
    # A link that leads nowhere does not exist, and yet no folder can take its name.
    linked = folder and path.is_symlink()
    if not path.exists() and not linked:
        return
    if linked or not (path.is_dir() or path.is_file()):
        raise InputError(f"'{path}' is a link or a device, which no output can replace.", hint="Give another name.")
    if path.is_dir() != folder:
        there, wanted = ("folder", "file") if path.is_dir() else ("file", "folder")
        raise InputError(f"'{path}' is a {there}, and the output is a {wanted}.", hint="Give another name.")
    if not folder and path.name in _SIGNS:
        raise InputError(
            f"'{path}' is what makes its folder an artefact of leech, and --force would destroy that.",
            hint="Give another name.",
        )
    if not force:
        raise InputError(f"'{path}' exists already.", hint="Give another name, or --force to replace it.")
    if folder and any(path.iterdir()) and not any((path / sign).is_file() for sign in _SIGNS):
        raise InputError(
            f"'{path}' holds files that leech did not write, and --force would delete them.",
            hint="Give another name, or delete the folder yourself.",
        )


def refuse_input_as_output(output: Path, inputs: Sequence[Path | None]) -> None:
    """Refuse an output that would take the place of what it is made from, or of a folder around it, with --force too.

    :param inputs: what the run reads; None stands for an input not given.
    :raises ConfigError: naming the input.
    """
    if not output.exists():
        return
    place = output.resolve()
    for path in inputs:
        if path is not None and path.exists() and (path.resolve() == place or place in path.resolve().parents):
            raise ConfigError(
                f"Output '{output}' is the input '{path}' or a folder around it, which would be lost.",
                hint="Give another name with -o.",
            )


def _begin(path: Path, make: Callable[[], None]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        make()
    except OSError as error:
        raise InputError(f"Cannot write beside '{path}': {error.strerror or error}.") from error


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    # Any other OSError of the block is about something else, and calling it a write error would hide a bug.
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise InputError(
                f"Cannot write '{path}': {error.strerror}.", hint="Free some space, or write elsewhere."
            ) from error
        raise


def _finish(partial: Path, path: Path) -> None:
    try:
        _replace(partial, path)
    except OSError as error:
        raise InputError(f"Cannot finish writing '{path}': {error.strerror or error}.") from error


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


def _files_below(folder: Path) -> Iterator[Path]:
    seen: set[str] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            # A link that leads back up would be walked without end.
            folders.clear()
            continue
        seen.add(real)
        yield from (file for file in (Path(place, name) for name in files) if file.is_file())


def distinct_names(paths: Sequence[Path], suffix: str = "") -> list[str]:
    """Return what to call each file: its name, with as much of its folders as it takes to tell it from the others."""
    stems = [path.absolute().with_name(path.name.removesuffix(suffix)).parts for path in paths]
    for depth in range(1, max(map(len, stems), default=0) + 1):
        names = ["/".join(parts[-depth:]) for parts in stems]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def digest_of(content: Mapping[str, Any]) -> str:
    """Return ``sha256:<hex>`` over the canonical JSON of plain types: keys sorted, no white space."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def read_description(
    path: Path, what: str, *, form: str, schema_version: int | Sequence[int], remedy: str
) -> dict[str, Any]:
    """Read the JSON file in which an artefact says what it is, and check that it is of this form and version.

    :param what: the artefact in words, ``corpus`` or ``model``.
    :param form: what its key ``format`` must say.
    :param schema_version: that which is read, or all of those.
    :param remedy: what to do about another schema version.
    :raises InputError: unreadable, not JSON, another form or another version.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"Cannot read '{path}': {error}.") from error
    found = content.get("format") if isinstance(content, dict) else None
    if found != form:
        raise InputError(f"'{path}' is not a leech {what} (format {found!r}, expected '{form}').")
    versions = [schema_version] if isinstance(schema_version, int) else schema_version
    if content.get("schema_version") not in versions:
        raise InputError(
            f"{what.capitalize()} '{path.parent}' has schema version {content.get('schema_version')}; "
            f"this leech reads {' and '.join(map(str, versions))}.",
            hint=remedy,
        )
    checked: dict[str, Any] = content
    return checked
