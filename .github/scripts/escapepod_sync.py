#!/usr/bin/env python3
"""Keep the version of escapepod (Python package) and of escpod (command-line tool) in step.

Both are built from one upstream and released together. Three places here name the version: ``pyproject.toml``
(``escapepod==X``), ``requirements.lock`` (``escapepod==X``) and ``workflows/pins.toml`` (``tag = "vX"`` under ``[escpod]``).
If they differ, the tool that filters a POD5 file and the package that reads it may disagree about the same file.

``--check`` compares the three, without a network. ``--fix`` moves all three to the highest version among them, once that
version is released on both sides: pip is asked for the package, ``git ls-remote`` for the tag, at the repository that
``workflows/pins.toml`` names. What belongs elsewhere: the pull request (``propose_escapepod_sync.sh``), and raising the
version in the first place (Dependabot, or a person who edits one of the three).

Invariants: a version is three plain numbers, compared as numbers; a tag is ``v`` and a version; each place holds exactly one
pin; ``--fix`` changes those versions and no other byte, all three or none; a second ``--fix`` does nothing. A question that
got no answer is never taken for the answer "not there".

Exit codes:
  0  in step, or put in step
  1  --check: the versions differ
  2  a pin is missing, stands twice, or is no plain release; or the command line is wrong
  3  --fix: the higher version is not released on both sides yet; nothing was changed
  4  --fix: pip or git gave no answer; nothing was changed
  5  the files or the outputs cannot be written, or the script itself failed

Where GITHUB_OUTPUT names a file, ``status`` (in-step, skew, fixed, unusable, unreleased, unanswered or failed), ``changed``
(true or false) and ``version`` (the highest of the three; empty where the pins are unusable) are appended to it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PACKAGE = "escapepod"
TABLE = "escpod"
PYPROJECT = Path("pyproject.toml")
LOCK = Path("requirements.lock")
PINS = Path("workflows/pins.toml")

ANSWER_SECONDS = 120

EXIT_CODES = {"in-step": 0, "fixed": 0, "skew": 1, "unusable": 2, "unreleased": 3, "unanswered": 4, "failed": 5}
"""Status in the step outputs -> exit code."""

RELEASE = re.compile(r"(?:0|[1-9][0-9]{0,8})(?:\.(?:0|[1-9][0-9]{0,8})){2}")

# pip exits with 0 when one of several indexes failed and another answered, and then lists only part of what there is.
PIP_GOT_NO_ANSWER = re.compile(r"Retrying \(|Could not fetch|connection (?:broken|error)|timed? ?out", re.IGNORECASE)


class SyncError(Exception):
    """A reason to stop; ``status`` is a key of EXIT_CODES."""

    status = "unusable"


class UnreleasedError(SyncError):
    """The target version is not there on one side, and that side said so."""

    status = "unreleased"


class UnansweredError(SyncError):
    """Whether a version is there could not be found out."""

    status = "unanswered"


class Version(NamedTuple):
    """A final release; compares as numbers, so that 0.10.0 is higher than 0.9.0."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return ".".join(map(str, self))


class FailedError(SyncError):
    """Something here does not work; what was asked for was not done."""

    status = "failed"


@dataclass(frozen=True)
class Pin:
    """One place that names the version: bytes ``start:end`` of ``path`` (relative to the root) hold it, without a v."""

    path: Path
    start: int
    end: int
    version: Version


def parse_version(text: str, path: Path) -> Version:
    """Return a version, or raise SyncError for anything that is not three plain numbers, pre-releases above all."""
    if not RELEASE.fullmatch(text):
        raise SyncError(
            f"{path}: {text!r} is not a final release of the form 1.2.3. "
            "Pre-releases are not followed, since the package and the tool need not be released together then."
        )
    return Version(*map(int, text.split(".")))


def read_text(root: Path, path: Path) -> str:
    """Return a file as text with its line ends as they are."""
    try:
        return (root / path).read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SyncError(f"{path} cannot be read: {error}") from error


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """Parse TOML; two keys of one name, hence two tags, are an error of the format itself."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SyncError(f"{path} is not valid TOML: {error}") from error


def the_one(matches: list[re.Match[str]], path: Path, what: str) -> re.Match[str]:
    """Return the only match, or raise SyncError that says whether there is none or several."""
    if not matches:
        raise SyncError(f"{path}: no {what} found. It must name the version exactly once.")
    if len(matches) > 1:
        raise SyncError(f"{path}: {what} found {len(matches)} times. Which one counts cannot be told; leave one.")
    return matches[0]


def pin_from(match: re.Match[str], path: Path) -> Pin:
    """Make a pin of a match with a group ``version``."""
    return Pin(path, match.start("version"), match.end("version"), parse_version(match["version"], path))


def requirements_of(settings: dict[str, Any]) -> list[str]:
    """Return every requirement of a project: what runs it, its extras, its groups, what builds it; other shapes are nothing."""
    project, build = (
        table if isinstance(table := settings.get(name), dict) else {} for name in ("project", "build-system")
    )
    groups = [project.get("dependencies"), build.get("requires")]
    for named in (project.get("optional-dependencies"), settings.get("dependency-groups")):
        groups += named.values() if isinstance(named, dict) else []
    return [line for group in groups if isinstance(group, list) for line in group if isinstance(line, str)]


def read_pyproject(text: str) -> Pin:
    """Find ``escapepod==X`` among the package's requirements."""
    requirements = requirements_of(parse_toml(text, PYPROJECT))
    wanted = [line for line in requirements if re.match(rf"\s*{PACKAGE}(?![\w.-])", line, re.IGNORECASE)]
    if not wanted:
        raise SyncError(f"{PYPROJECT}: no requirement on {PACKAGE} found. It must name the version exactly once.")
    if len(wanted) > 1:
        raise SyncError(f"{PYPROJECT}: {PACKAGE} is required {len(wanted)} times ({', '.join(wanted)}); leave one.")
    exact = re.fullmatch(r"(?P<head>[^=]+==\s*)(?P<version>[^\s,;=*]+)", wanted[0])
    if exact is None:
        raise SyncError(
            f"{PYPROJECT}: {wanted[0]!r} does not pin one version. Write {PACKAGE}==1.2.3, without a marker."
        )
    # Comments may quote the requirement; what counts is the string in the list.
    quoted = rf"^[^#\n]*?[\"']{re.escape(exact['head'])}(?P<version>{re.escape(exact['version'])})[\"']"
    return pin_from(the_one(list(re.finditer(quoted, text, re.MULTILINE)), PYPROJECT, repr(wanted[0])), PYPROJECT)


def read_lock(text: str) -> Pin:
    """Find the line ``escapepod==X``."""
    lines = list(re.finditer(rf"^[ \t]*{PACKAGE}(?![\w.-])(?P<rest>[^\r\n]*)", text, re.MULTILINE | re.IGNORECASE))
    line = the_one(lines, LOCK, f"line for {PACKAGE}")
    pinned = re.compile(r"[ \t]*==[ \t]*(?P<version>[^\s#;\\]+)[ \t]*(?:#.*)?").fullmatch(text, *line.span("rest"))
    if pinned is None:
        raise SyncError(f"{LOCK}: {line[0]!r} does not pin one version. Write {PACKAGE}==1.2.3 and nothing more.")
    return pin_from(pinned, LOCK)


def read_tag(text: str) -> tuple[Pin, str]:
    """Find ``tag`` and ``git`` under ``[escpod]``; return the pin and the repository."""
    table = parse_toml(text, PINS).get(TABLE)
    if not isinstance(table, dict):
        raise SyncError(f"{PINS}: no table [{TABLE}] found. It must hold git and tag.")
    tag, repository = table.get("tag"), table.get("git")
    if not isinstance(tag, str) or not isinstance(repository, str) or not repository or repository.startswith("-"):
        raise SyncError(f"{PINS}: [{TABLE}] must hold git, the repository, and tag, such as 'v1.2.3', both as strings.")
    if not tag.startswith("v"):
        raise SyncError(f"{PINS}: tag {tag!r} has no v in front. Upstream's tags are v and the version: v1.2.3.")
    header = re.search(rf"^[ \t]*\[[ \t]*{TABLE}[ \t]*\]", text, re.MULTILINE)
    if header is None:
        raise SyncError(f"{PINS}: write the table with a header line [{TABLE}], so that its tag can be moved in place.")
    following = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text, header.end())
    body = (header.end(), following.start() if following else len(text))
    line = re.compile(rf"^[ \t]*tag[ \t]*=[ \t]*[\"']v(?P<version>{re.escape(tag[1:])})[\"']", re.MULTILINE)
    return pin_from(the_one(list(line.finditer(text, *body)), PINS, "line for tag"), PINS), repository


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a program that asks elsewhere; raise UnansweredError where it fails, hangs or is not installed."""
    # Without these, git would wait for a name and a password, and messages would come in the user's language.
    environment = os.environ | {"GIT_TERMINAL_PROMPT": "0", "PIP_NO_INPUT": "1", "LC_ALL": "C"}
    shown = " ".join(command)
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=ANSWER_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise UnansweredError(f"'{shown}' gave no answer within {ANSWER_SECONDS} s.") from error
    except OSError as error:
        raise UnansweredError(f"'{shown}' cannot be run: {error}") from error
    if done.returncode != 0:
        raise UnansweredError(f"'{shown}' failed with exit code {done.returncode}:\n{done.stderr.strip()}")
    return done


def require_package(version: Version) -> None:
    """Raise unless pip can find the package at this version.

    pip says "No matching distribution found" and exits with 1 both where an index does not know the package and where it
    cannot be reached. The package is known to exist, so that answer is none.
    """
    done = run(["pip", "index", "versions", PACKAGE])
    listed = re.search(r"^Available versions:(.*)$", done.stdout, re.MULTILINE)
    if listed is None:
        raise UnansweredError(
            f"'pip index versions {PACKAGE}' listed no versions:\n{done.stdout}{done.stderr}".rstrip()
        )
    if str(version) in listed[1].replace(",", " ").split():
        return
    if PIP_GOT_NO_ANSWER.search(done.stderr):
        raise UnansweredError(f"pip lists no {PACKAGE} {version}, but had trouble asking:\n{done.stderr.strip()}")
    raise UnreleasedError(f"The package {PACKAGE} {version} is not released yet.")


def require_tag(version: Version, repository: str) -> None:
    """Raise unless the repository has the tag ``v`` and this version; the same without v does not count."""
    name = f"refs/tags/v{version}"
    done = run(["git", "ls-remote", "--tags", "--", repository, name])
    # git matches the end of a name, so that x/refs/tags/v1.2.3 would be listed too.
    if name not in [line.partition("\t")[2] for line in done.stdout.splitlines()]:
        raise UnreleasedError(f"{repository} has no tag v{version} yet.")


def moved(texts: dict[Path, str], pins: list[Pin], target: Version) -> dict[Path, str]:
    """Return the texts of the files that change, with the target version in place of their own."""
    return {
        pin.path: texts[pin.path][: pin.start] + str(target) + texts[pin.path][pin.end :]
        for pin in pins
        if pin.version != target
    }


def replace_texts(root: Path, texts: dict[Path, str]) -> None:
    """Replace all files, or raise FailedError with none replaced: each is written under another name first."""
    partial = {root / path: root / f"{path}.partial-{os.getpid()}" for path in texts}
    try:
        for (path, staged), text in zip(partial.items(), texts.values(), strict=True):
            staged.write_bytes(text.encode("utf-8"))
            shutil.copymode(path, staged)
        for path, staged in partial.items():
            staged.replace(path)
    except OSError as error:
        raise FailedError(f"The pins cannot be written: {error}") from error
    finally:
        for staged in partial.values():
            staged.unlink(missing_ok=True)


def synchronise(root: Path, fix: bool, results: dict[str, str]) -> str:
    """Compare the pins below ``root`` and move them where asked; return the status and put the version into ``results``."""
    texts = {path: read_text(root, path) for path in (PYPROJECT, LOCK, PINS)}
    tag, repository = read_tag(texts[PINS])
    pins = [read_pyproject(texts[PYPROJECT]), read_lock(texts[LOCK]), tag]
    for pin in pins:
        print(f"{pin.version!s:>12}  {pin.path}")
    target = max(pin.version for pin in pins)
    results["version"] = str(target)
    if all(pin.version == target for pin in pins):
        print("In step.")
        return "in-step"
    if not fix:
        print(f"Out of step: run {Path(__file__).name} --fix to move all three to {target}.")
        return "skew"
    require_package(target)
    require_tag(target, repository)
    changed = moved(texts, pins, target)
    replace_texts(root, changed)
    for path in changed:
        print(f"Moved {path} to {target}.")
    results["changed"] = "true"
    return "fixed"


def write_outputs(results: dict[str, str]) -> None:
    """Append the results to the file that GITHUB_OUTPUT names, if it names one."""
    name = os.environ.get("GITHUB_OUTPUT")
    if name:
        with open(name, "a", encoding="utf-8") as stream:
            stream.writelines(f"{key}={value}\n" for key, value in results.items())


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="compare; exit with 1 where the versions differ")
    action.add_argument("--fix", action="store_true", help="move all three to the highest version")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2], help="the repository")
    options = parser.parse_args(arguments)
    results = {"changed": "false", "version": ""}
    try:
        status = synchronise(options.root, options.fix, results)
    except SyncError as error:
        print(error, file=sys.stderr)
        status = error.status
    except Exception:
        # Python would end with 1, which here means that the versions differ.
        traceback.print_exc()
        status = FailedError.status
    try:
        write_outputs({"status": status, **results})
    except OSError as error:
        print(f"The outputs of this step cannot be written: {error}.", file=sys.stderr)
        return EXIT_CODES[FailedError.status]
    return EXIT_CODES[status]


if __name__ == "__main__":
    sys.exit(main())
