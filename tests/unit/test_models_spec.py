"""Architectures: what is read, what is refused and in which words, and what is built."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch

from leech.errors import ConfigError, MismatchError
from leech.models.spec import ArchitectureSpec, build_network, built_in_names, load_architecture, parse_spec
from random_inputs import make_recipe, random_inputs

RECIPE = make_recipe(samples_before=100, samples_after=100, bases_before=10, bases_after=10)

SMALL: dict[str, Any] = {
    "name": "small",
    "base_start": -2,
    "base_end": 3,
    "features": ["log_dwell"],
    "branches": [
        {
            "name": "signal_branch",
            "inputs": ["signal"],
            "layers": [{"layer": "convolution", "channels": 4, "kernel": 5, "stride": 5}, {"layer": "pool_bases"}],
        },
        {
            "name": "joined",
            "inputs": ["signal_branch", "base_onehot", "features"],
            "layers": [{"layer": "residual", "dropout": 0.1}, {"layer": "summary"}],
        },
    ],
}


def edited(edit: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    content = copy.deepcopy(SMALL)
    edit(content)
    return content


def network_of(content: dict[str, Any], **options: Any) -> torch.nn.Module:
    return build_network(parse_spec(content, "small"), RECIPE, **options)


def logits(network: torch.nn.Module, count: int = 3, num_features: int = 1) -> torch.Tensor:
    with torch.no_grad():
        return network.eval()(random_inputs(count, RECIPE, num_features))  # type: ignore[no-any-return]


SIDE = {"name": "side", "inputs": ["base_onehot"], "layers": [{"layer": "convolution", "channels": 2, "kernel": 1}]}


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda m: m["branches"].insert(0, SIDE), "no branch reads branch 'side'"),
        (lambda m: m["branches"][1]["inputs"].remove("features"), "lists features, but no branch reads them"),
        (lambda m: m["branches"][1].update(name="output"), "branch 'output': the name is taken already"),
    ],
)
def test_what_no_branch_reads_and_a_name_with_a_meaning_are_refused(
    edit: Callable[[dict[str, Any]], object], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_spec(edited(edit), "small")


@pytest.mark.parametrize("name", ["keys", "forward", "training"])
def test_a_branch_cannot_be_named_like_something_of_torch_s(name: str) -> None:
    with pytest.raises(ConfigError, match=f"branch '{name}': torch has that name for something else"):
        network_of(edited(lambda m: m["branches"][1].update(name=name)))


def test_a_layer_that_torch_cannot_make_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match="cannot be built") as caught:
        network_of(edited(lambda m: m["branches"][0]["layers"][0].update(channels=10**20)))
    assert "\n" not in caught.value.message


def test_both_networks_come_with_leech() -> None:
    assert built_in_names() == ["conv_lstm", "tcn"]


@pytest.mark.parametrize("name", built_in_names())
@pytest.mark.parametrize("num_classes", [2, 3])
def test_a_built_in_network_gives_finite_logits(name: str, num_classes: int) -> None:
    spec = load_architecture(name)
    network = build_network(spec, RECIPE, num_classes=num_classes)
    result = logits(network, 5, len(spec.features))
    # Two classes are one logit, for the positive one.
    assert tuple(result.shape) == (5, 1 if num_classes == 2 else 3)
    assert torch.isfinite(result).all()


@pytest.mark.parametrize("name", built_in_names())
def test_a_chunk_without_any_base_or_signal_gives_a_finite_logit(name: str) -> None:
    spec = load_architecture(name)
    inputs = random_inputs(2, RECIPE, len(spec.features), dwell=(0, 1))
    inputs = inputs._replace(signal=torch.zeros_like(inputs.signal), sequence=torch.full_like(inputs.sequence, 4))
    network = build_network(spec, RECIPE)
    network(inputs).sum().backward()
    assert torch.isfinite(network(inputs)).all()
    assert all(torch.isfinite(p.grad).all() for p in network.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", built_in_names())
def test_the_logit_of_a_chunk_does_not_depend_on_its_company(name: str) -> None:
    spec = load_architecture(name)
    network, inputs = build_network(spec, RECIPE).eval(), random_inputs(7, RECIPE, len(spec.features))
    with torch.no_grad():
        together = network(inputs)
        alone = torch.cat([network(type(inputs)(*(tensor[row : row + 1] for tensor in inputs))) for row in range(7)])
    torch.testing.assert_close(alone, together, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", built_in_names())
def test_every_weight_of_a_built_in_network_is_used(name: str) -> None:
    spec = load_architecture(name)
    network = build_network(spec, RECIPE)
    network(random_inputs(8, RECIPE, len(spec.features))).square().sum().backward()
    unused = [what for what, p in network.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    # A shift of all scores of an attention changes nothing: its gradient is rounding or exactly 0.
    assert [what for what in unused if not what.endswith("score.bias")] == []


def test_the_default_network_is_of_the_size_that_its_speed_was_measured_for() -> None:
    network = build_network(load_architecture("tcn"), make_recipe())
    assert 60_000 <= sum(parameter.numel() for parameter in network.parameters()) <= 250_000


@pytest.mark.parametrize("name", built_in_names())
def test_a_description_survives_json(name: str) -> None:
    spec = load_architecture(name)
    assert parse_spec(json.loads(json.dumps(spec.to_mapping())), "again") == spec


def test_a_new_network_needs_a_toml_file_only(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(tomli_w.dumps(SMALL))
    spec = load_architecture(str(path))
    assert isinstance(spec, ArchitectureSpec)
    assert spec == parse_spec(SMALL, "small")
    assert tuple(logits(build_network(spec, RECIPE)).shape) == (3, 1)


def test_equal_seeds_give_equal_weights_and_others_do_not() -> None:
    first, again, other = (network_of(SMALL, seed=seed).state_dict() for seed in (4, 4, 5))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["output.weight"], other["output.weight"])


def test_building_leaves_the_callers_generator_alone() -> None:
    before = torch.get_rng_state()
    network_of(SMALL, seed=9)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_logit_reads_the_feature_at_the_focus() -> None:
    # One feature through a convolution of weight 1; the output takes the focus and not the mean.
    content = {
        **SMALL,
        "branches": [
            {
                "name": "only",
                "inputs": ["features"],
                "layers": [
                    {"layer": "convolution", "channels": 1, "kernel": 1, "activation": "relu"},
                    {"layer": "summary", "attention": False},
                ],
            }
        ],
    }
    network = network_of(content)
    state = {name: torch.zeros_like(value) for name, value in network.state_dict().items()}
    state["branches.only.layers.0.convolution.weight"][:] = 1
    state["output.weight"][0, 0] = 1
    network.load_state_dict(state)
    inputs = random_inputs(2, RECIPE, 1)
    # Feature offsets are -8 .. 8, so the focus is column 8.
    inputs.features[:, 0, :] = torch.arange(17.0) + 100 * torch.arange(2.0)[:, None]
    assert network(inputs)[:, 0].tolist() == [8.0, 108.0]


def test_bases_beyond_the_base_axis_do_not_count() -> None:
    # The base axis is -2 .. 3: feature columns 6 .. 11 of -8 .. 8, base columns 8 .. 13 of -10 .. 10.
    network, inputs = network_of(SMALL).eval(), random_inputs(1, RECIPE, 1, dwell=(5, 12))
    inputs.features.requires_grad_()
    network(inputs).sum().backward()
    assert inputs.features.grad is not None
    assert inputs.features.grad[0, 0].nonzero().flatten().tolist() == list(range(6, 12))
    # A base has its 9-mer: sequence columns 8 .. 13 and four of context on either side, in a sequence that starts 4 earlier.
    before = logits_of(network, inputs)
    changed = [
        column
        for column in range(inputs.sequence.shape[1])
        if logits_of(network, inputs._replace(sequence=_with_other_base(inputs.sequence, column))) != before
    ]
    assert changed == list(range(8, 22))


def logits_of(network: torch.nn.Module, inputs: Any) -> float:
    with torch.no_grad():
        return float(network(inputs))


def _with_other_base(sequence: torch.Tensor, column: int) -> torch.Tensor:
    other = sequence.clone()
    other[:, column] = (other[:, column] + 1) % 4
    return other


@pytest.mark.parametrize(
    ("edit", "words", "hint"),
    [
        (lambda m: m.update(base_strat=-2), "unknown key 'base_strat'", "Did you mean 'base_start'?"),
        (lambda m: m.update(features=["log_dwel"]), "unknown feature channel 'log_dwel'", "Did you mean 'log_dwell'?"),
        (lambda m: m["branches"][0].update(input=["signal"]), "unknown key 'input'", "Did you mean 'inputs'?"),
        (
            lambda m: m["branches"][0]["layers"][0].update(layer="convolutoin"),
            "branch 'signal_branch', layer 0: unknown layer 'convolutoin'",
            "Did you mean 'convolution'?",
        ),
        (lambda m: m["branches"][0]["layers"][0].pop("layer"), "layer 0: unknown layer ''", "Known: "),
        (lambda m: m["branches"][0].update(inputs=["singal"]), "unknown input 'singal'", "Did you mean 'signal'?"),
        (lambda m: m["branches"][0].update(inputs=["joined"]), "unknown input 'joined'", None),
        (lambda m: m["branches"][1].update(name="signal"), "branch 'signal': the name is taken", None),
        (lambda m: m["branches"][1].update(name="a.b"), "branch 'a.b': a name is made of letters", None),
        (lambda m: m["branches"][1].update(layers=[]), "needs at least one input and one layer", None),
        (lambda m: m["branches"][1].update(inputs=[]), "needs at least one input and one layer", None),
        (lambda m: m.update(branches=[]), "has no branches", None),
        (lambda m: m.pop("branches"), "'branches': field required", None),
        (lambda m: m.update(branches=3), "'branches': input should be a valid list", None),
    ],
)
def test_a_description_that_is_none_is_refused_with_what_was_meant(
    edit: Callable[[dict[str, Any]], object], words: str, hint: str | None
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_spec(edited(edit), "small")
    assert words in caught.value.message
    if hint is not None:
        assert caught.value.hint is not None
        assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (
            lambda m: m["branches"][0]["layers"][0].update(kernal=3),
            [
                "branch 'signal_branch', layer 0 ('convolution' with",
                "unknown option 'kernal'",
                "Did you mean 'kernel'?",
            ],
        ),
        (lambda m: m["branches"][0]["layers"][1].update(num_bases=3), ["layer 1 ('pool_bases'", "option 'num_bases'"]),
        (
            lambda m: m["branches"][0]["layers"][1].update(spread="false"),
            ["layer 1 ('pool_bases'", "'spread' must be of type bool, got 'false'"],
        ),
        (
            lambda m: m["branches"][0]["layers"][0].update(channels=4.5),
            ["'channels': 4.5", "'channels' must be of type int, got 4.5"],
        ),
        (
            lambda m: m["branches"][0]["layers"][0].update(kernel=4),
            ["layer 0 ('convolution' with {'channels': 4, 'kernel': 4, 'stride': 5}) cannot be built", "kernel 4"],
        ),
        (lambda m: m["branches"][0]["layers"][0].pop("kernel"), ["cannot be built", "'kernel'"]),
        (lambda m: m["branches"][0]["layers"][0].update(channels=10**15), ["'channels': 10000000", "cannot be built"]),
        (
            lambda m: m["branches"][0]["layers"].pop(),
            [
                "branch 'joined': its inputs do not lie on one axis: 40 samples with stride 5 and 6 bases",
                "'pool_bases'",
            ],
        ),
        (lambda m: m["branches"][1]["layers"].pop(), ["last branch must end in one vector", "Add the layer 'summary'"]),
        (lambda m: m.update(features=[]), ["branch 'joined': uses 'features', but the architecture lists no features"]),
        (lambda m: m.update(base_start=1), ["base_start 1 .. base_end 3 miss 0"]),
    ],
)
def test_a_network_that_cannot_be_built_names_the_layer_and_its_options(
    edit: Callable[[dict[str, Any]], object], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        network_of(edited(edit))
    for part in words:
        assert part in str(caught.value)


def test_an_integer_will_do_for_a_fraction() -> None:
    # TOML's 0 is an integer.
    network_of(edited(lambda m: m["branches"][1]["layers"][0].update(dropout=0)))


def test_fewer_than_two_classes_are_refused() -> None:
    with pytest.raises(ConfigError, match="cannot tell 1 classes apart"):
        network_of(SMALL, num_classes=1)


def test_an_unknown_architecture_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'conv_lstm'") as caught:
        load_architecture("conv-lstm")
    assert "conv_lstm, tcn; or give a .toml file" in str(caught.value)
    with pytest.raises(ConfigError, match=r"Cannot read configuration file 'nowhere\.toml'"):
        load_architecture("nowhere.toml")


@pytest.mark.parametrize("window", [{"feature_start": -7}, {"feature_end": 7}])
def test_a_feature_window_that_is_too_narrow_is_refused_with_the_options_to_change(window: dict[str, int]) -> None:
    with pytest.raises(MismatchError) as caught:
        build_network(load_architecture("tcn"), make_recipe(**window))
    assert "looks at base offsets -8 .. 8" in caught.value.message
    first, last = window.get("feature_start", -8), window.get("feature_end", 8)
    assert f"level features of {first} .. {last} only" in caught.value.message
    assert caught.value.hint is not None
    assert "--feature-start and --feature-end" in caught.value.hint


def test_a_network_without_features_does_not_need_their_window() -> None:
    recipe = make_recipe(feature_start=0, feature_end=0)
    assert build_network(load_architecture("conv_lstm"), recipe)


@pytest.mark.parametrize(
    ("channel", "message"), [("inserted_behind", "did not keep them"), ("level_residual", "without a k-mer table")]
)
def test_features_of_what_the_chunks_do_not_hold_are_refused_before_the_network_is_built(
    channel: str, message: str
) -> None:
    content = edited(lambda m: m.update(features=["level_mean", channel]))
    with pytest.raises(ConfigError, match=message):
        build_network(parse_spec(content, "small"), make_recipe(indels=False))


def test_a_base_window_that_is_too_narrow_is_refused_with_the_options_to_change() -> None:
    recipe = make_recipe(feature_start=0, feature_end=0, bases_after=7)
    with pytest.raises(MismatchError, match=r"bases -20 \.\. 7 only") as caught:
        build_network(load_architecture("conv_lstm"), recipe)
    assert caught.value.hint is not None
    assert "--bases-before and --bases-after" in caught.value.hint


def test_wider_windows_of_the_recipe_do_not_change_the_network() -> None:
    wider = make_recipe(bases_before=40, bases_after=30, feature_start=-20, feature_end=12)
    spec = load_architecture("tcn")
    first, second = (build_network(spec, recipe, seed=1).state_dict() for recipe in (make_recipe(), wider))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("name", built_in_names())
@pytest.mark.parametrize(
    ("column", "other"),
    [
        ("signal", {"samples_before": 101}),
        ("base_bounds", {"bases_before": 9}),
        ("base_bounds", {"bases_after": 20}),
        ("features", {"feature_end": 9}),
    ],
)
def test_inputs_cut_by_another_recipe_are_refused(name: str, column: str, other: dict[str, int]) -> None:
    spec = load_architecture(name)
    network = build_network(spec, RECIPE)
    windows = {"samples_before": 100, "samples_after": 100, "bases_before": 10, "bases_after": 10}
    with pytest.raises(MismatchError, match=f"whose '{column}' has shape"):
        network(random_inputs(2, make_recipe(**{**windows, **other}), len(spec.features)))


def test_inputs_with_other_features_are_refused() -> None:
    with pytest.raises(MismatchError, match=r"'features' has shape \(1, 17\), but these have \(2, 17\)"):
        network_of(SMALL)(random_inputs(2, RECIPE, num_features=2))
