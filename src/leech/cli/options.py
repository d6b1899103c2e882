"""Command-line options made from configuration dataclasses.

Hides: click's option objects. Belongs here: the one way from a dataclass field to a flag and back, so that an option
cannot exist without reaching its field; the dataclasses and their defaults live beside their owners. Invariants: a default
is shown in the help but never passed on, so only flags really given override a configuration file.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from leech.config import build, flag_of, load_toml, nearest
from leech.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])


def exposed_fields(cls: type) -> list[dataclasses.Field[Any]]:
    """Return the fields that users set: a class's own first, then those that it shares with others."""
    fields = [field for field in dataclasses.fields(cls) if field.metadata.get("expose", True)]
    return sorted(fields, key=lambda field: field.name not in cls.__annotations__)


def _element(annotation: Any) -> tuple[Any, int | None]:
    """Return the type of one value, and how many there are: 1, a fixed number, or None for any number."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        annotation = next(part for part in typing.get_args(annotation) if part is not type(None))
    if typing.get_origin(annotation) is tuple:
        parts = typing.get_args(annotation)
        return parts[0], None if parts[1:] == (...,) else len(parts)
    return annotation, 1


def _click_type(element: Any) -> Any:
    if typing.get_origin(element) is typing.Literal:
        return click.Choice([str(choice) for choice in typing.get_args(element)])
    return click.Path(path_type=Path) if element is Path else element


def _help(field: dataclasses.Field[Any]) -> str:
    text = str(field.metadata["help"])
    if field.default is dataclasses.MISSING:
        return f"{text}  [required]"
    if field.default is None or field.default == ():
        return text
    shown = " ".join(map(str, field.default)) if isinstance(field.default, tuple) else field.default
    if isinstance(field.default, bool):
        shown = flag_of(field) if field.default else "--no-" + flag_of(field)[2:]
    return f"{text}  [default: {shown}]"


def _option(field: dataclasses.Field[Any], annotation: Any) -> Callable[[F], F]:
    element, number = _element(annotation)
    flag = flag_of(field)
    if element is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", field.name, default=None, help=_help(field))
    return click.option(
        flag,
        field.name,
        type=_click_type(element),
        default=None,
        multiple=number is None,
        nargs=1 if number is None else number,
        metavar=field.metadata.get("metavar") or ("PATH..." if number is None else None),
        help=_help(field),
        shell_complete=_names_or_file(field.metadata["built_in"]) if field.metadata.get("built_in") else None,
    )


def _names_or_file(folder: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Offer the names of leech's own files in a folder, and a file of the user's."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names = sorted(path.name.removesuffix(".toml") for path in resources.files("leech").joinpath(folder).iterdir())
        offered = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        # First, since in bash a file drops the words before it; there files are what is left where no name fits.
        return [CompletionItem(incomplete, type="file"), *offered]

    return complete


def config_options(*classes: type) -> Callable[[F], F]:
    """Give a command one option per exposed field of the classes, in their order."""

    def decorate(function: F) -> F:
        seen: set[str] = set()
        options = []
        for cls in classes:
            annotations = typing.get_type_hints(cls)
            for field in exposed_fields(cls):
                assert field.name not in seen, f"two classes have a field '{field.name}'"
                seen.add(field.name)
                options.append(_option(field, annotations[field.name]))
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def config_file_option(function: F) -> F:
    """Give a command ``--config FILE.toml``, whose values its flags override."""
    return click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        help="TOML file with values for these options (dashes as underscores); flags override it.",
    )(function)


def output_options(what: str, *, default: str | None = None, required: bool = True) -> Callable[[F], F]:
    """Give a command ``-o/--output`` and ``--force``.

    :param default: where the output goes if nothing is given.
    :param required: False where the core function knows what to do without one.
    """

    def decorate(function: F) -> F:
        function = click.option(
            "--force", is_flag=True, help="Replace an existing output once the new one is complete."
        )(function)
        return click.option(
            "-o",
            "--output",
            type=click.Path(path_type=Path),
            help=what,
            **({"required": required} if default is None else {"default": default, "show_default": True}),
        )(function)

    return decorate


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")


class ManyValues(click.Command):
    """A command whose repeatable options also take several values after one flag: ``--pod5 a b c``.

    Where it has arguments of its own, only options of numbers and of fixed words do, and they take those alone: what follows
    may be an argument.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat such a flag before each further value, then parse as usual."""
        repeatable = [option for option in self.params if getattr(option, "multiple", False)]
        if any(isinstance(parameter, click.Argument) for parameter in self.params):
            kinds = type(click.INT), type(click.FLOAT), click.Choice
            repeatable = [option for option in repeatable if isinstance(option.type, kinds)]
        flags = {flag: option.type for option in repeatable for flag in option.opts}
        expanded: list[str] = []
        current: str | None = None
        for place, argument in enumerate(args):
            if argument.startswith("-") and argument != "-":
                name = argument.split("=", 1)[0]
                if current is not None and args[place - 1] == current:
                    ctx.fail(f"Option '{current}' needs a value, and '{argument}' is another option.")
                current = name if name in flags else None
            elif current is not None and (args[place - 1] != current):
                if _is_of(flags[current], argument):
                    expanded.append(current)
                else:
                    current = None
            expanded.append(argument)
        ctx.meta[_OPEN_FLAG] = current
        return super().parse_args(ctx, expanded)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer a further value where the last flag takes several, and what click offers otherwise."""
        flag = ctx.meta.get(_OPEN_FLAG)
        if flag is not None and not incomplete.startswith("-"):
            option = next(option for option in self.params if flag in option.opts)
            return option.shell_complete(ctx, incomplete)
        return super().shell_complete(ctx, incomplete)


_OPEN_FLAG = "leech.cli.options.open_flag"
"""In a context's ``meta``: the flag whose further values may follow at the end of the line."""


def _is_of(kind: Any, argument: str) -> bool:
    try:
        kind.convert(argument, None, None)
    except click.BadParameter:
        return False
    return True


def collect(classes: Sequence[type], given: Mapping[str, Any], config_file: Path | None = None) -> list[Any]:
    """Build one value per class: the file's values first, then the flags really given.

    :param given: the handler's keyword arguments; None and empty tuples stand for flags not given.
    :raises ConfigError: an unknown key in the file, a required option that neither gives, or a value that is refused.
    """
    content = {} if config_file is None else load_toml(config_file)
    known = {field.name: field for cls in classes for field in exposed_fields(cls)}
    for key in content:
        if key not in known:
            close = nearest(key, list(known))
            hint = f"Did you mean '{close}'?" if close else f"Known keys: {', '.join(sorted(known))}."
            raise ConfigError(f"'{config_file}': unknown key '{key}'.", hint=hint)
    flags = {name: value for name, value in given.items() if name in known and value is not None and value != ()}
    values = {**content, **flags}
    for name, field in known.items():
        if field.default is dataclasses.MISSING and name not in values:
            raise ConfigError(f"Missing option '{flag_of(field)}': {field.metadata['help']}")
    # Of flags alone nothing is to be said but which; a value in the file may be the one that does not fit.
    source = None if config_file is None else f"'{config_file}' and options"
    return [
        build(
            cls,
            {field.name: values[field.name] for field in exposed_fields(cls) if field.name in values},
            source=source,
        )
        for cls in classes
    ]
