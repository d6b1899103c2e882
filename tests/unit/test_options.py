"""Flags made from dataclass fields, and the values built from the flags that were given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click
import pytest
from click.testing import CliRunner

from leech.cli.options import ManyValues, collect, config_file_option, config_options
from leech.config import knob
from leech.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Oven:
    name: str = knob(help="Who bakes.")
    degrees: int = knob(180, minimum=30, maximum=300, flag="--temperature", help="How hot.")
    share: float = knob(0.5, help="How full.")
    heat: Literal["top", "bottom"] = knob("top", help="From where.")
    fan: bool = knob(True, help="Whether air moves.")
    racks: tuple[Path, ...] = knob((), help="Which racks.")
    pair: tuple[float, float] = knob((0.25, 0.75), help="Two shares.")
    timer: int | None = knob(None, help="How long.")
    inner: int = knob(7, expose=False, help="Not for users.")


@click.command(cls=ManyValues)
@config_options(Oven)
@config_file_option
def bake(config_file: Path | None, **given: Any) -> None:
    (oven,) = collect([Oven], given, config_file)
    raise BakedError(oven, given)


class BakedError(Exception):
    pass


def run(*arguments):
    """Return (the configuration, the keyword arguments of the handler)."""
    result = CliRunner().invoke(bake, list(arguments))
    if isinstance(result.exception, BakedError):
        return result.exception.args
    if isinstance(result.exception, SystemExit):
        raise AssertionError(result.output)
    raise result.exception


def test_without_flags_the_handler_is_given_nothing_and_the_defaults_are_the_dataclass_s():
    oven, given = run("--name", "a")
    assert oven == Oven(name="a")
    assert {name for name, value in given.items() if value is not None and value != ()} == {"name"}


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (("--temperature", "200"), "degrees", 200),
        (("--share", "0.25"), "share", 0.25),
        (("--heat", "bottom"), "heat", "bottom"),
        (("--no-fan",), "fan", False),
        (("--fan",), "fan", True),
        (("--pair", "0.1", "0.9"), "pair", (0.1, 0.9)),
        (("--timer", "3"), "timer", 3),
        (("--racks", "a"), "racks", (Path("a"),)),
        (("--racks", "a", "b"), "racks", (Path("a"), Path("b"))),
        (("--racks", "a", "--racks", "b"), "racks", (Path("a"), Path("b"))),
        (("--racks", "a", "b", "--racks", "c"), "racks", (Path("a"), Path("b"), Path("c"))),
        (("--racks=a", "b"), "racks", (Path("a"), Path("b"))),
        (("--racks", "a", "-"), "racks", (Path("a"), Path("-"))),
        (("--racks", "a", "b", "--share", "0.25"), "racks", (Path("a"), Path("b"))),
    ],
)
def test_each_kind_of_flag_reaches_its_field(arguments, field, value):
    for order in (("--name", "n", *arguments), (*arguments, "--name", "n")):
        oven, _ = run(*order)
        assert getattr(oven, field) == value
        assert oven.name == "n"


def test_in_a_command_with_arguments_only_numbers_and_choices_follow_a_flag():
    @dataclass(frozen=True, kw_only=True)
    class Cake:
        layers: tuple[float, ...] = knob((0.5, 0.5), metavar="SHARE...", help="How thick.")
        tops: tuple[str, ...] = knob((), metavar="WHAT", help="What lies on it.")
        creams: tuple[Literal["butter", "egg"], ...] = knob((), metavar="CREAM...", help="What is between.")

    @click.command(cls=ManyValues)
    @click.argument("plates", nargs=-1)
    @config_options(Cake)
    def decorate(plates: tuple[str, ...], **given: Any) -> None:
        raise BakedError(plates, *collect([Cake], given))

    result = CliRunner().invoke(
        decorate, ["a", "--layers", "0.2", "0.3", ".5", "b", "--creams", "egg", "butter", "d", "--tops", "cherry", "c"]
    )
    assert isinstance(result.exception, BakedError)
    assert result.exception.args == (
        ("a", "b", "d", "c"),
        Cake(layers=(0.2, 0.3, 0.5), tops=("cherry",), creams=("egg", "butter")),
    )
    text = " ".join(CliRunner().invoke(decorate, ["--help"]).output.split())
    assert "--layers SHARE... How thick. [default: 0.5 0.5]" in text
    assert "--tops WHAT What lies on it. --creams" in text


def test_only_an_option_that_repeats_takes_several_values():
    with pytest.raises(AssertionError, match="unexpected extra argument"):
        run("--name", "a", "b")


@pytest.mark.parametrize("arguments", [("--degrees", "1"), ("--inner", "1")])
def test_a_field_has_no_flag_but_the_one_it_names_and_none_when_hidden(arguments):
    with pytest.raises(AssertionError, match="No such option"):
        run("--name", "a", *arguments)


def test_help_shows_each_default_and_what_is_required():
    text = " ".join(CliRunner().invoke(bake, ["--help"]).output.split())
    for words in (
        "Who bakes. [required]",
        "How hot. [default: 180]",
        "Whether air moves. [default: --fan]",
        "Two shares. [default: 0.25 0.75]",
        "--racks PATH...",
        "[top|bottom]",
    ):
        assert words in text


def toml(tmp_path, text):
    path = tmp_path / "oven.toml"
    path.write_text(text)
    return str(path)


def test_a_file_overrides_defaults_and_flags_override_the_file(tmp_path):
    path = toml(tmp_path, 'name = "file"\ndegrees = 100\nshare = 0.1\nfan = false\nracks = ["r"]\n')
    oven, _ = run("--config", path, "--temperature", "120")
    assert oven == Oven(name="file", degrees=120, share=0.1, fan=False, racks=(Path("r"),))


def test_a_flag_that_repeats_the_default_still_overrides_the_file(tmp_path):
    oven, _ = run(
        "--config", toml(tmp_path, 'name = "a"\ndegrees = 100\nfan = false\n'), "--temperature", "180", "--fan"
    )
    assert (oven.degrees, oven.fan) == (180, True)


def test_a_required_option_is_missed_with_its_flag_and_meaning():
    with pytest.raises(ConfigError, match=r"Missing option '--name': Who bakes\."):
        run()


def test_an_unknown_key_of_the_file_is_refused_with_the_nearest_one(tmp_path):
    with pytest.raises(ConfigError, match=r"oven.toml': unknown key 'degree'") as refusal:
        run("--name", "a", "--config", toml(tmp_path, "degree = 1\n"))
    assert refusal.value.hint == "Did you mean 'degrees'?"


def test_a_hidden_field_cannot_be_set_from_the_file(tmp_path):
    with pytest.raises(ConfigError, match="unknown key 'inner'"):
        run("--name", "a", "--config", toml(tmp_path, "inner = 1\n"))


def test_an_impossible_value_says_where_it_may_come_from(tmp_path):
    with pytest.raises(ConfigError, match=r"^--temperature must be between 30 and 300, got 1\."):
        run("--name", "a", "--temperature", "1")
    with pytest.raises(ConfigError, match=r"^'.*oven.toml' and options: 'degrees' must be"):
        run("--name", "a", "--config", toml(tmp_path, "degrees = 1\n"))


def test_one_file_serves_several_classes():
    @dataclass(frozen=True, kw_only=True)
    class Timer:
        minutes: int = knob(10, help="How long.")

    oven, timer = collect([Oven, Timer], {"name": "a", "minutes": 20, "share": None, "elsewhere": 1})
    assert (oven.name, oven.share, timer.minutes) == ("a", 0.5, 20)


def test_two_fields_of_one_name_are_no_command():
    with pytest.raises(AssertionError, match="two classes have a field 'name'"):
        config_options(Oven, Oven)(lambda: None)
