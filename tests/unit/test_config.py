"""Typed configuration: layers, refusals and the way back to TOML."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from leech.config import build, dump_toml, knob, load_toml, nearest, to_mapping
from leech.data.recipe import Recipe
from leech.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Oven:
    name: str = knob(help="Required.")
    degrees: int = knob(180, minimum=30, maximum=300, help="Bounded.")
    share: float = knob(0.5, minimum=0.0, help="Bounded below.")
    cap: float = knob(1.0, maximum=2.0, help="Bounded above.")
    heat: Literal["top", "bottom"] = knob("top", help="Choice.")
    fan: bool = knob(False, help="Switch.")
    racks: tuple[Path, ...] = knob((), help="Many.")
    pair: tuple[float, float] = knob((0.25, 0.75), minimum=0.0, maximum=1.0, help="Two.")
    timer: int | None = knob(None, minimum=1, help="Optional.")

    def __post_init__(self):
        if self.fan and self.degrees > 250:
            raise ValueError("a fan above 250 degrees melts")


def test_defaults_stand_where_nothing_is_given():
    assert build(Oven, {"name": "a"}) == Oven(name="a")


def test_later_layers_win_over_earlier_ones():
    oven = build(Oven, {"name": "a", "degrees": 100, "fan": True}, {"degrees": 120})
    assert (oven.degrees, oven.fan) == (120, True)


def test_lists_and_text_become_tuples_and_paths():
    oven = build(Oven, {"name": "a", "racks": ["x", "y"], "pair": [0.5, 0.5]})
    assert oven.racks == (Path("x"), Path("y"))
    assert oven.pair == (0.5, 0.5)


def test_an_unknown_key_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match=r"oven.toml: unknown key 'degres'") as refusal:
        build(Oven, {"name": "a", "degres": 1}, source="oven.toml")
    assert refusal.value.hint == "Did you mean 'degrees'?"
    assert refusal.value.exit_code == 2


def test_an_unknown_key_that_resembles_nothing_is_refused_with_all_keys():
    with pytest.raises(ConfigError) as refusal:
        build(Oven, {"name": "a", "xyzzy": 1})
    assert refusal.value.hint.startswith("Known keys: cap, degrees, fan")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"degrees": "hot"}, "'degrees'.*got 'hot'"),
        ({"degrees": 1.5}, "'degrees'.*got 1.5"),
        ({"heat": "side"}, "'heat'.*got 'side'"),
        ({"pair": [0.5]}, "'pair"),
        ({"degrees": 29}, "'degrees' must be between 30 and 300, got 29"),
        ({"degrees": 301}, "'degrees' must be between 30 and 300, got 301"),
        ({"share": -0.1}, "'share' must be from 0.0, got -0.1"),
        ({"cap": 2.1}, "'cap' must be up to 2.0, got 2.1"),
        ({"pair": [0.5, 1.5]}, "'pair' must be between 0.0 and 1.0, got 1.5"),
        ({"timer": 0}, "'timer' must be from 1, got 0"),
        ({"share": float("nan")}, "'share' must be from 0.0, got nan"),
        ({"timer": True}, "'timer' must be of type int, got True"),
        ({"share": True}, "'share' must be of type float, got True"),
        ({"fan": 1}, "'fan' must be of type bool, got 1"),
        ({"fan": "yes"}, "'fan' must be of type bool, got 'yes'"),
        ({"degrees": "100"}, "'degrees' must be of type int, got '100'"),
        ({"pair": [False, 0.5]}, "'pair' must be of type float, got False"),
        # One more than the largest integer of 64 bits.
        ({"timer": 2**63}, "'timer' must fit 64 bits, got 9223372036854775808"),
        ({"fan": True, "degrees": 260}, "a fan above 250 degrees melts"),
    ],
)
def test_a_value_that_cannot_be_is_refused_in_words(values, words):
    with pytest.raises(ConfigError, match=words):
        build(Oven, {"name": "a", **values})


@pytest.mark.parametrize("values", [{"degrees": 30}, {"degrees": 300}, {"share": 0.0}, {"cap": 2.0}])
def test_bounds_are_inclusive(values):
    build(Oven, {"name": "a", **values})


def test_a_missing_required_value_is_named():
    with pytest.raises(ConfigError, match="'name'"):
        build(Oven, {})


def test_a_configuration_survives_toml(tmp_path):
    oven = build(Oven, {"name": "a", "racks": ["x"], "fan": True, "timer": 3})
    path = tmp_path / "oven.toml"
    path.write_text(dump_toml(oven))
    assert build(Oven, load_toml(path)) == oven


def test_none_is_left_out_of_toml_and_kept_in_the_mapping():
    assert "timer" not in dump_toml(Oven(name="a"))
    assert to_mapping(Oven(name="a"))["timer"] is None


def test_a_missing_file_is_an_error_of_the_configuration(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        load_toml(tmp_path / "missing.toml")


@pytest.mark.parametrize("content", [b"degrees = ", b"\xff\xfe"])
def test_a_file_that_is_not_toml_is_named(tmp_path, content):
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"broken\.toml' is not valid TOML"):
        load_toml(path)


@pytest.mark.parametrize(("word", "found"), [("epoch", "epochs"), ("quux", None)])
def test_only_a_misspelling_has_a_nearest_word(word, found):
    assert nearest(word, ["epochs", "seed"]) == found


def test_a_recipe_survives_toml_with_its_digest(tmp_path):
    recipe = build(Recipe, {"motif": "ccaggc", "motif_offset": 2, "kmer_centre": 3})
    (tmp_path / "recipe.toml").write_text(dump_toml(recipe))
    again = build(Recipe, load_toml(tmp_path / "recipe.toml"))
    assert again == recipe
    assert again.digest() == recipe.digest()
