"""Every error that leech raises on purpose.

Hides: how an error becomes words and an exit code. Belongs here: the tree of error classes, nothing else; each raise
site words its own message. Invariants: a message says what (value and file) and why it matters; ``hint`` says what to
do. Exit code 1 means the data or the environment are wrong, 2 means the command or its configuration is, 75 that the same
command can go on later.
"""

from __future__ import annotations


class LeechError(Exception):
    """Base of all expected errors; anything else that reaches the user is a bug and keeps its traceback.

    :param message: what is wrong (value and file) and why it matters.
    :param hint: what to do about it.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"


class ConfigError(LeechError):
    """An option, a configuration file or a combination of both cannot be carried out."""

    exit_code = 2


class InputError(LeechError):
    """An input file, or what is in it, cannot be used."""


class MismatchError(LeechError):
    """Two artefacts that must agree do not (recipe, digest, labels, frame)."""


class MissingExtraError(LeechError):
    """What was asked for takes a package that leech does not bring along."""


class InterruptedRunError(LeechError):
    """A run was asked to end, saved its state and can go on from there; the code is EX_TEMPFAIL, "try again later"."""

    exit_code = 75
