"""Typed configuration: TOML and mappings to frozen dataclasses and back.

Hides: type checking (pydantic), nearest spellings, precedence of layers. Belongs here: what is the same for every
configuration class; the classes themselves live in a light ``config.py`` beside their owner (and ``data/recipe.py``),
which import neither numpy nor torch so that ``--help`` stays fast. Flags are made from these fields in
``cli/options.py``; defaults live in the dataclass alone. Invariants: unknown keys, wrong types and values out of range
are refused; later layers win over earlier ones.
"""

from __future__ import annotations

import dataclasses
import difflib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from leech.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - exercised on Python 3.10 only
    import tomli as tomllib

T = TypeVar("T")


def knob(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    flag: str | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    metavar: str | None = None,
    built_in: str | None = None,
    expose: bool = True,
) -> Any:
    """Declare a field of a configuration dataclass together with all that its command-line flag needs.

    :param default: the one default of this option; leave out for a required option.
    :param help: one sentence for ``--help``; shapes and units where not obvious.
    :param flag: the flag's spelling where it is not the field's name with dashes.
    :param minimum: smallest legal value, inclusive.
    :param maximum: largest legal value, inclusive.
    :param metavar: placeholder in the help text.
    :param built_in: folder in the package with the files whose names may be given instead of a path, for completion.
    :param expose: False for a field that the program fills in; neither flag nor configuration file sets it.
    """
    metadata = {
        "help": help,
        "flag": flag,
        "minimum": minimum,
        "maximum": maximum,
        "metavar": metavar,
        "built_in": built_in,
        "expose": expose,
    }
    return dataclasses.field(default=default, metadata=metadata)


def nearest(word: str, candidates: list[str]) -> str | None:
    """Return the candidate closest to ``word``, or None when none is close enough to be a misspelling."""
    found = difflib.get_close_matches(word, candidates, n=1, cutoff=0.6)
    return found[0] if found else None


def flag_of(field: dataclasses.Field[Any]) -> str:
    """Return the flag of a field, with its dashes."""
    return str(field.metadata.get("flag") or "--" + field.name.replace("_", "-"))


def build(cls: type[T], *layers: Mapping[str, Any], source: str | None = "configuration") -> T:
    """Make one ``cls`` value from layers of mappings, later ones winning.

    :param cls: a frozen dataclass whose fields were declared with :func:`knob`.
    :param layers: mappings of field name to value, for example a TOML file and then the flags really given.
    :param source: words for the error message that say where the values came from; None for the flags of a command, which
        the message then calls by their names there.
    :raises ConfigError: unknown key (with the nearest right one), wrong type, missing or out-of-range value.
    """
    values: dict[str, Any] = {}
    for layer in layers:
        values.update(layer)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in values:
        if key not in fields:
            close = nearest(key, list(fields))
            hint = f"Did you mean '{close}'?" if close else f"Known keys: {', '.join(sorted(fields))}."
            raise ConfigError(f"{source}: unknown key '{key}'.", hint=hint)
    spelt = {name: flag_of(field) if source is None else f"{source}: '{name}'" for name, field in fields.items()}
    checked = _validate(cls, values, spelt, source)
    for name, value in values.items():
        _check_type(spelt[name], value, getattr(checked, name))
    for name, field in fields.items():
        _check_range(spelt[name], getattr(checked, name), field.metadata)
    return checked


def load_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    :raises ConfigError: the file is missing, unreadable or not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"Cannot read configuration file '{path}': {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"Configuration file '{path}' is not valid TOML: {error}.") from error


def to_mapping(value: Any) -> dict[str, Any]:
    """Turn a configuration dataclass into plain types (paths as text, tuples as lists), ready for JSON."""
    return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}


def dump_toml(value: Any) -> str:
    """Render a configuration dataclass as TOML that :func:`build` reads back; None is left out, being TOML's absence."""
    import tomli_w

    return tomli_w.dumps({key: item for key, item in to_mapping(value).items() if item is not None})


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _validate(cls: type[T], values: Mapping[str, Any], spelt: Mapping[str, str], source: str | None) -> T:
    # Imported here: pydantic costs 0.15 s that no --help should pay.
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(cls).validate_python(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        loc = [str(part) for part in first["loc"]] or [cls.__name__]
        where = spelt.get(loc[0], loc[0]) if len(loc) == 1 else f"{source or 'options'}: '{'.'.join(loc)}'"
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, Exception) and first["type"] == "value_error":
            # What it refuses it names itself.
            raise ConfigError(str(cause) if source is None else f"{source}: {cause}") from error
        given = "" if first["type"] == "missing" else f", got {first['input']!r}"
        raise ConfigError(f"{where}: {first['msg'].lower()}{given}.") from error


_WIDEST = 2**63
"""Integers from here on fit neither TOML nor the random generators."""


def _check_type(name: str, given: Any, taken: Any) -> None:
    """Refuse what pydantic would turn into another kind of value: true into 1, "10" into 10."""
    if isinstance(given, (list, tuple)) and isinstance(taken, (list, tuple)):
        for one, other in zip(given, taken, strict=True):
            _check_type(name, one, other)
        return
    is_number = isinstance(taken, (int, float))
    if isinstance(given, bool) != isinstance(taken, bool) or (is_number and isinstance(given, str)):
        raise ConfigError(f"{name} must be of type {type(taken).__name__}, got {given!r}.")


def _check_range(name: str, value: Any, metadata: Mapping[str, Any]) -> None:
    numbers = value if isinstance(value, (list, tuple)) else [value]
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            continue
        low, high = metadata.get("minimum"), metadata.get("maximum")
        if isinstance(number, int) and not -_WIDEST <= number < _WIDEST:
            raise ConfigError(f"{name} must fit 64 bits, got {number}.")
        if number != number or (low is not None and number < low) or (high is not None and number > high):
            span = f"from {low}" if high is None else f"up to {high}" if low is None else f"between {low} and {high}"
            raise ConfigError(f"{name} must be {span}, got {number}.")
