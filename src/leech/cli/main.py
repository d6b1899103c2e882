"""The entry point: groups, errors and exit codes.

Hides: click's own error handling and the lazy loading of commands. Belongs here: what holds for every command; a command's
options and body are in the file of its group. Invariants: the only place that turns an error into words and an exit code
(0 done, 1 data or environment, 2 usage, 130 interrupted, 143 terminated); ``--help`` of any command imports nothing heavy.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from leech import __version__
from leech.cli.session import Session
from leech.errors import LeechError

COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "": {
        "data": ("", "Simulate, prepare, merge, inspect and check data."),
        "model": ("", "Train, calibrate, inspect and time models."),
        "eval": ("", "Measure how good a model is."),
        "predict": ("leech.cli.predict:predict", "Call the state of every read of a run."),
        "report": ("leech.cli.report:report", "Put results of eval and predict into one page."),
        "demo": ("leech.cli.demo:demo", "Run everything on simulated reads and compare with the truth."),
    },
    "data": {
        "simulate": ("leech.cli.data:simulate", "Simulate a sequencing run with known truth."),
        "prepare": ("leech.cli.data:prepare", "Cut training chunks around the site from POD5 and BAM."),
        "merge": ("leech.cli.data:merge", "Join corpora and split them by parent read."),
        "inspect": ("leech.cli.data:inspect", "Show what a corpus holds."),
        "view": ("leech.cli.data:view", "Draw the signal of one read around the site."),
        "check": ("leech.cli.data:check", "Probe whether a corpus gives its label away."),
    },
    "model": {
        "train": ("leech.cli.model:train", "Train a network on a merged corpus."),
        "calibrate": ("leech.cli.model:calibrate", "Calibrate a model and choose its operating point."),
        "inspect": ("leech.cli.model:inspect", "Show what a model is."),
        "benchmark": ("leech.cli.model:benchmark", "Time training on this machine."),
    },
    "eval": {
        "test": ("leech.cli.evaluate:test", "Score a model on a split of a corpus."),
        "compare": ("leech.cli.evaluate:compare", "Compare models on the same reads."),
    },
}
"""Group -> command -> (where its code is, one line of help); a group inside a group has no code of its own."""

COMPLETION_VARIABLE = "_LEECH_COMPLETE"
"""Environment variable by which a shell asks for its completion script, and later for completions."""


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS[self.name or ""])

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Return a command by name."""
        entry = COMMANDS[self.name or ""].get(name)
        if entry is None:
            return None
        place, help_text = entry
        if not place:
            return LazyGroup(name, help=help_text, no_args_is_help=True)
        module, attribute = place.split(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        if not any(option.name == "verbose" for option in command.params):
            command.params += [_late("-v", "--verbose"), _late("-q", "--quiet")]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in COMMANDS[self.name or ""].items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command, or name the nearest one."""
        name = args[0]
        command = self.get_command(ctx, name)
        # A shell that asks for completions wants no error.
        if command is None and not ctx.resilient_parsing:
            ctx.fail(f"No such command '{name}'. {self._hint(ctx, name)}")
        return name, command, args[1:]

    def _hint(self, ctx: click.Context, name: str) -> str:
        """Say which command was meant: the nearest here, or one of that name in another group."""
        here = self.list_commands(ctx)
        elsewhere = [f"{group} {command}".strip() for group, commands in COMMANDS.items() for command in commands]
        # A name that is right in another group is meant rather than one that is like it here.
        nearest = difflib.get_close_matches(name, [*(path.split()[-1] for path in elsewhere), *here], n=1)
        if nearest and nearest[0] in here:
            return f"Did you mean '{nearest[0]}'?"
        meant = [f"'leech {path}'" for path in elsewhere if path.split()[-1] in nearest]
        return f"Did you mean {' or '.join(meant)}?" if meant else f"Commands: {', '.join(here)}."


def _late(*flags: str) -> click.Option:
    """Return a hidden switch by which a command takes a flag of ``leech`` after its own name too."""

    def switch(ctx: click.Context, option: click.Parameter, value: bool) -> None:
        if value:
            ctx.obj = dataclasses.replace(ctx.obj, **{str(option.name): True})

    return click.Option(flags, is_flag=True, hidden=True, expose_value=False, callback=switch)


@click.group(cls=LazyGroup, name="", context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.version_option(__version__, prog_name="leech")
@click.option("-v", "--verbose", is_flag=True, help="Say more on stderr.")
@click.option("-q", "--quiet", is_flag=True, help="Say only warnings and errors on stderr; show no progress.")
@click.pass_context
def leech(ctx: click.Context, verbose: bool, quiet: bool) -> None:
    """Read states off raw nanopore current at one known site of an RNA, read by read.

    The usual way: 'leech data prepare' for each library, 'leech data merge', 'leech model train', 'leech eval test', and
    'leech predict' on new runs. 'leech demo' shows all of it on simulated reads.
    """
    ctx.obj = Session(argv=ctx.obj, verbose=verbose, quiet=quiet)


class _Terminated(KeyboardInterrupt):
    """The process was told to end, as by a cluster's scheduler; like an interrupt, it is no error to be caught on the way."""


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Let SIGTERM end the run like an interrupt, so that partial outputs are removed and worker processes end."""

    def terminate(number: int, frame: object) -> None:
        raise _Terminated

    # Only the main thread may say what a signal does.
    here = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, terminate) if here else None
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _refuse_bytes(arguments: Sequence[str]) -> None:
    """Refuse an argument that is no text: it stands in BAM headers, JSON and pages, which hold UTF-8."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise click.UsageError(
                f"Argument {argument!a} is not UTF-8, so no output could name it. "
                "Rename the file, or make a link to it."
            ) from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    :param argv: arguments without the program's name; default: those of the process.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        _refuse_bytes(arguments)
        with _ending_in_order(), leech.make_context("leech", list(arguments), obj=["leech", *arguments]) as ctx:
            leech.invoke(ctx)
        # A closed pipe must show itself here, not when Python flushes at exit.
        sys.stdout.flush()
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.UsageError as error:
        error.show()
        return error.exit_code
    except LeechError as error:
        click.echo(f"error: {error.message}", err=True)
        if error.hint:
            click.echo(f"hint: {error.hint}", err=True)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort) as error:
        click.echo("interrupted: nothing unfinished stands under its final name.", err=True)
        return 128 + (signal.SIGTERM if isinstance(error, _Terminated) else signal.SIGINT)
    except BrokenPipeError:
        # Whoever read our output has enough; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return 0


def entry_point() -> Any:
    """Run as the console script; for a shell that asks what may stand next, answer it instead."""
    asked = os.environ.get(COMPLETION_VARIABLE)
    if asked:
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(leech, {}, "leech", COMPLETION_VARIABLE, asked))
    sys.exit(main())
