"""The model folder: what is written comes back, and what was damaged is refused in words."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from leech.data.recipe import Recipe
from leech.errors import InputError, LeechError, MismatchError
from leech.models.bundle import (
    Achieved,
    CallCounts,
    Figure,
    ModelBundle,
    OperatingPoint,
    copy_bundle,
    load_bundle,
    read_bundle,
    save_bundle,
)
from leech.models.calibration import Calibration
from leech.models.description import describe
from leech.models.network import Network
from leech.models.spec import ArchitectureSpec, build_network, parse_spec
from random_inputs import make_recipe, random_inputs

RECIPE = make_recipe(samples_before=60, samples_after=60, bases_before=9, bases_after=9)


def make_spec() -> ArchitectureSpec:
    """Return a network that does not come with leech: the folder alone must say what it is."""
    branches = [
        {
            "name": "signal_branch",
            "inputs": ["signal"],
            "layers": [{"layer": "convolution", "channels": 3, "kernel": 5, "stride": 5}, {"layer": "pool_bases"}],
        },
        {
            "name": "joined",
            "inputs": ["signal_branch", "features"],
            "layers": [{"layer": "residual", "dropout": 0.1}, {"layer": "summary", "attention": False}],
        },
    ]
    return parse_spec({"name": "mine", "features": ["log_dwell"], "branches": branches}, "mine")


def make_bundle(recipe: Recipe = RECIPE) -> ModelBundle:
    return ModelBundle(
        spec=make_spec(),
        recipe=recipe,
        labels=("uncharged", "charged"),
        training={"epoch": 3, "validation": {"auroc": 0.97, "auprc_negative": None}},
        stamp={"version": "0"},
        operating_point=OperatingPoint(threshold_cl=180, source="calibration split"),
    )


def make_network(seed: int = 0) -> Network:
    return build_network(make_spec(), RECIPE, seed=seed)


def save(folder: Path, seed: int = 0) -> Path:
    folder.mkdir()
    save_bundle(make_bundle(), make_network(seed), folder)
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(tmp_path / "model")


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "model.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def edit_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    state = load_file(folder / "model.safetensors")
    change(state)
    save_file(state, folder / "model.safetensors")


def test_a_model_comes_back_as_it_was(model: Path) -> None:
    bundle, network, _ = load_bundle(model)
    assert bundle == make_bundle()
    assert (bundle.positive_label, bundle.threshold_cl) == ("charged", 180)
    saved = make_network().eval()
    inputs = random_inputs(4, RECIPE, 1)
    with torch.no_grad():
        assert torch.equal(network(inputs), saved(inputs))


def test_a_loaded_network_is_in_evaluation_mode(model: Path) -> None:
    assert not any(module.training for module in load_bundle(model).network.modules())


def test_loading_does_not_depend_on_the_first_weights_and_leaves_the_generator_alone(tmp_path: Path) -> None:
    model = save(tmp_path / "model", seed=7)
    before = torch.get_rng_state()
    state = load_bundle(model).network.state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(state[name], value) for name, value in make_network(7).state_dict().items())


def test_the_folder_is_the_two_documented_files_and_nothing_else(model: Path) -> None:
    assert sorted(path.name for path in model.iterdir()) == ["model.json", "model.safetensors"]
    content = json.loads((model / "model.json").read_text())
    assert list(content) == [
        "format",
        "schema_version",
        "architecture",
        "recipe",
        "recipe_digest",
        "labels",
        "positive_label",
        "operating_point",
        "calibration",
        "training",
        "digest",
        "stamp",
    ]
    assert (content["format"], content["schema_version"]) == ("leech-model", 1)
    assert content["labels"] == ["uncharged", "charged"]
    assert content["operating_point"] == {"threshold_cl": 180, "source": "calibration split"}
    assert content["calibration"] is None
    assert content["architecture"] == make_spec().to_mapping()


def test_without_a_choice_the_operating_point_is_200_by_default(tmp_path: Path) -> None:
    assert OperatingPoint() == OperatingPoint(threshold_cl=200, source="default")


def test_equal_models_are_equal_byte_for_byte(tmp_path: Path) -> None:
    first, second = save(tmp_path / "first"), save(tmp_path / "second")
    for name in ("model.json", "model.safetensors"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_a_training_figure_that_is_not_finite_is_not_written_as_json_that_nothing_reads(tmp_path: Path) -> None:
    bundle = make_bundle()
    broken = ModelBundle(**{**vars(bundle), "training": {"loss": float("nan")}})
    with pytest.raises(ValueError, match="JSON"):
        save_bundle(broken, make_network(), tmp_path)


def test_reading_the_description_does_not_read_the_weights(model: Path) -> None:
    (model / "model.safetensors").write_bytes(b"not weights")
    assert read_bundle(model) == make_bundle()
    with pytest.raises(InputError, match=r"Cannot read weights '.*model\.safetensors'"):
        load_bundle(model)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_folder_without_either_file_is_not_complete(model: Path, name: str) -> None:
    (model / name).unlink()
    with pytest.raises(InputError, match=re.escape(f"has no {name}: it is not a complete model")):
        read_bundle(model)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Model '.*nowhere' does not exist") as caught:
        load_bundle(tmp_path / "nowhere")
    assert "leech model train" in str(caught.value)


@pytest.mark.parametrize("text", ["{", "\xff", "[]", '{"format": "leech-corpus"}'])
def test_a_description_that_is_none_is_refused_by_file(model: Path, text: str) -> None:
    (model / "model.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=r"model\.json"):
        read_bundle(model)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.update(schema_version=2), "has schema version 2; this leech reads 1"),
        (lambda m: m.update(note="x"), "unknown key 'note'"),
        (lambda m: m.pop("labels"), "'labels': field required"),
        (lambda m: m.update(labels=["charged"]), "'labels"),
        (lambda m: m.update(labels=["charged", "uncharged"]), "'charged' is not the second of the labels"),
        (lambda m: m.update(labels=["x", "x"], positive_label="x"), "must be two different names"),
        (lambda m: m.update(labels=["", "x"], positive_label="x"), "must be two different names"),
        (lambda m: m["operating_point"].update(threshold_cl=256), "threshold_cl 256 must lie between 1 and 255"),
        (lambda m: m["operating_point"].update(threshold_cl=0), "threshold_cl 0 must lie between 1 and 255"),
        (
            lambda m: m["operating_point"].update(achieved={"test": {"tpr": 0.9}}),
            "'operating_point.achieved.test.num_reads'",
        ),
        (lambda m: m["operating_point"].update(target={"tpr": 0.9}), "must name one of fpr, precision and recall"),
        (lambda m: m.update(calibration={}), "'calibration.method'"),
        (lambda m: m.update(calibration={"method": "platt", "scale": -1.0}), "must be above 0"),
        (lambda m: m["recipe"].update(samples_beyond=3), "unknown key 'samples_beyond'"),
        (lambda m: m["architecture"]["branches"][0].update(activation="relu"), "unknown key 'activation'"),
    ],
)
def test_a_description_that_was_edited_is_refused_in_words(
    model: Path, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    edit(model, change)
    with pytest.raises(InputError) as caught:
        read_bundle(model)
    assert words in caught.value.message
    assert str(model) in caught.value.message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layer": "sinc"}, "branch 'signal_branch', layer 0: unknown layer 'sinc'"),
        ({"kernel": -1}, "branch 'signal_branch', layer 0 ('convolution' with"),
    ],
)
def test_a_described_network_that_cannot_be_built_is_refused_with_the_file(
    model: Path, change: dict[str, Any], words: str
) -> None:
    edit(model, lambda m: m["architecture"]["branches"][0]["layers"][0].update(change))
    with pytest.raises(InputError) as caught:
        load_bundle(model)
    assert words in caught.value.message
    assert str(model / "model.json") in caught.value.message


def test_the_description_is_read_without_torch(model: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from leech.models.bundle import read_bundle; "
        "bundle = read_bundle(Path(sys.argv[1])); assert bundle.positive_label == 'charged'; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(model)], check=True, timeout=60)


def test_a_recipe_that_means_something_else_now_is_refused_with_both_digests(model: Path) -> None:
    edit(model, lambda content: content["recipe"].update(motif_offset=3))
    changed = make_recipe(samples_before=60, samples_after=60, bases_before=9, bases_after=9, motif_offset=3)
    with pytest.raises(MismatchError) as caught:
        read_bundle(model)
    assert f"recorded {RECIPE.digest()}, now {changed.digest()}" in caught.value.message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda state: state.pop("output.bias"), "'output.bias' is missing"),
        (lambda state: state.update(extra=torch.zeros(1)), "'extra' is not part of the network"),
        (
            # Three signal channels and a feature, each as focus and mean: 8 into the one logit.
            lambda state: state.update({"output.weight": torch.zeros(1, 9)}),
            "'output.weight': expected (1, 8), found (1, 9)",
        ),
    ],
)
def test_weights_of_another_network_are_refused_tensor_by_tensor(
    model: Path, change: Callable[[dict[str, torch.Tensor]], object], words: str
) -> None:
    edit_weights(model, change)
    with pytest.raises(MismatchError) as caught:
        load_bundle(model)
    assert words in caught.value.message
    assert str(model / "model.safetensors") in caught.value.message


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(labels=["charged", "uncharged"], positive_label="uncharged"),
        # Both fit the weights, and would give other numbers without a word.
        lambda m: m["architecture"].update(features=["level_mean"]),
        lambda m: m["architecture"]["branches"][0]["layers"][0].update(activation="silu"),
    ],
)
def test_a_description_that_fits_the_weights_but_was_changed_is_refused(
    model: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    edit(model, change)
    with pytest.raises(MismatchError, match="was changed since it was trained"):
        load_bundle(model)


def test_weights_of_the_same_network_trained_otherwise_are_refused(model: Path, tmp_path: Path) -> None:
    other = save(tmp_path / "other", seed=1)
    (model / "model.safetensors").write_bytes((other / "model.safetensors").read_bytes())
    with pytest.raises(MismatchError, match="was changed since it was trained"):
        load_bundle(model)


def test_another_operating_point_may_be_chosen_later(model: Path) -> None:
    edit(model, lambda m: m["operating_point"].update(threshold_cl=120, source="me"))
    assert load_bundle(model).bundle.threshold_cl == 120


CALIBRATION = Calibration(method="isotonic", knots=((-1.5, 0.1), (2.25, 1 / 3)), num_reads=40, prevalence=0.5)

ACHIEVED = Achieved(
    num_reads=3,
    num_positive=3,
    tp=2,
    fp=0,
    tn=0,
    fn=1,
    tpr=Figure(2 / 3, (0.2, 0.9)),
    fpr=Figure(None),
    precision=Figure(1.0),
    balanced_accuracy=Figure(None),
    mcc=Figure(None),
    f1=Figure(0.8),
    references={"tRNA-Ala-GGC-1-1": CallCounts(tp=2, fp=0, tn=0, fn=1)},
)


def test_a_model_is_written_again_with_other_choices_and_all_that_lies_beside_it(model: Path, tmp_path: Path) -> None:
    (model / "history.jsonl").write_text("{}\n")
    (tmp_path / "new").mkdir()
    point = OperatingPoint(threshold_cl=77, source="FPR", target={"fpr": 0.02}, achieved={"test": ACHIEVED})
    returned = copy_bundle(model, tmp_path / "new", calibration=CALIBRATION, operating_point=point)
    bundle = load_bundle(tmp_path / "new").bundle
    assert bundle == returned
    # Numbers survive JSON exactly, and the digest stands, because neither choice is part of it.
    assert (bundle.calibration, bundle.operating_point) == (CALIBRATION, point)
    for name in ("model.safetensors", "history.jsonl"):
        assert (tmp_path / "new" / name).read_bytes() == (model / name).read_bytes()
    before, after = (json.loads((folder / "model.json").read_text()) for folder in (model, tmp_path / "new"))
    assert {key for key in before if before[key] != after[key]} == {"calibration", "operating_point"}
    assert list(before) == list(after)
    rows = dict(row for row in describe(tmp_path / "new").tables()[0].rows)
    assert rows["calibration"] == "isotonic, 2 knots"
    assert rows["  on the test split"] == "TPR 0.667, 3 reads"


def test_a_model_from_before_references_were_counted_still_loads(model: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    point = OperatingPoint(threshold_cl=77, source="FPR", achieved={"test": ACHIEVED})
    copy_bundle(model, tmp_path / "new", calibration=None, operating_point=point)
    path = tmp_path / "new" / "model.json"
    content = json.loads(path.read_text())
    del content["operating_point"]["achieved"]["test"]["references"]
    path.write_text(json.dumps(content))
    achieved = load_bundle(tmp_path / "new").bundle.operating_point.achieved
    assert achieved == {"test": replace(ACHIEVED, references=None)}


def test_a_calibration_is_saved_with_its_model(tmp_path: Path) -> None:
    bundle = ModelBundle(**{**vars(make_bundle()), "calibration": CALIBRATION})
    (tmp_path / "model").mkdir()
    save_bundle(bundle, make_network(), tmp_path / "model")
    assert read_bundle(tmp_path / "model").calibration == CALIBRATION


def test_a_truncated_weights_file_is_refused(model: Path) -> None:
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(LeechError, match="Cannot read weights"):
        load_bundle(model)


def test_a_description_counts_parameters_by_branch(model: Path) -> None:
    result = describe(model)
    # signal_branch: 3 kernels of 5 and 3 biases. joined: a block over 4 channels with 4 + 4 of the normalisation,
    # 4 x 4 x 3 + 4 of the wide and 4 x 4 + 4 of the pointwise convolution. output: focus and mean of 4 channels, and a bias.
    assert result.parameters == {"signal_branch": 18, "joined": 80, "output": 9}
    assert json.loads(json.dumps(result.to_mapping()))["parameters"]["total"] == 107
    network = load_bundle(model).network
    assert sum(parameter.numel() for parameter in network.parameters()) == 107


def test_a_description_is_shown_as_text(model: Path) -> None:
    tables = describe(model).tables()
    rows = dict(row for table in tables for row in table.rows)
    assert rows["labels"] == "uncharged (negative), charged (positive)"
    assert rows["called positive"] == "cl >= 180 (calibration split)"
    assert rows["parameters"] == "107"
    assert rows["motif"] == "CCAGGC"
    assert rows["epoch"] == "3"


def test_a_description_as_text_rounds_and_holds_no_json(model: Path) -> None:
    run = {"settings": {"epochs": 3, "patience": None}, "architecture": "sha256:a", "recipe": {"motif": "CCAGGC"}}
    run |= {"corpus": "sha256:c", "sources": ["sha256:s"]}
    training = {"validation": {"auroc": 0.9540513833992095}, "references": [f"r{n}" for n in range(20)], "run": run}
    training |= {"counts_by_label": {"a": {"seen": 3, "used": 2}}, "basecall_models": []}
    bundle = replace(describe(model).bundle, training=training)
    tables = {table.title: dict(table.rows) for table in replace(describe(model), bundle=bundle).tables()}
    assert tables["Training"] == {
        "validation": "",
        "  auroc": "0.9541",
        "references": "20: r0, r1, r2, ... (all with --json)",
        "architecture_digest": "sha256:a",
        "source_digests": "sha256:s",
        "counts_by_label": "",
        "  a": "seen 3, used 2",
        "basecall_models": "",
    }
    assert tables["Settings of the training"] == {"epochs": "3", "patience": ""}
    content = replace(describe(model), bundle=bundle).to_mapping()
    assert content["training"] == training
