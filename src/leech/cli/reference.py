"""The page ``docs/cli.md``, made from the commands themselves.

Hides: how click describes a command. Belongs here: the page's form; what it says is the commands' help, and a test compares
page and commands. Invariant: the page does not depend on the terminal's width. ``python -m leech.cli.reference`` prints it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from leech.cli.main import leech

_WIDTH = 100
"""Columns of the help texts on the page."""

_HEAD = """# Command line

Made from the commands by `make cli-docs`; do not edit.

Results go to stdout, messages and progress to stderr. A name for an output that is taken already is refused without
`--force`, and what stands there stays until the new output is complete. Exit codes: 0 done, 1 data or environment are wrong,
2 the command or its configuration is wrong, 130 interrupted.
"""


def commands(group: click.Group = leech, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Return every group and command below ``group`` with the words that call it, in the order of the help."""
    yield path, group
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, f"'{name}' is listed but cannot be had"
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def reference() -> str:
    """Return the page."""
    parts = [_HEAD]
    for path, command in commands():
        call = " ".join(("leech", *path))
        context = click.Context(
            command, info_name=call, terminal_width=_WIDTH, max_content_width=_WIDTH, help_option_names=["-h", "--help"]
        )
        parts.append(f"## {call}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(reference())
