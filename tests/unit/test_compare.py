"""``compare``: which reads are the same, what differs, what flips, and what is refused."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import leech.evaluation.compare as module
from leech.config import build
from leech.console import SilentProgress
from leech.data.corpus import Corpus
from leech.data.recipe import Recipe
from leech.errors import ConfigError, InputError, MismatchError
from leech.evaluation.compare import Comparison, compare
from leech.evaluation.config import CompareConfig, EvalConfig
from leech.evaluation.evaluate import evaluate
from leech.evaluation.scores import load_scores
from leech.models.bundle import ModelBundle, OperatingPoint, save_bundle
from leech.models.learnt import Learnt
from leech.models.spec import build_network, load_architecture
from planted import RECIPE, STAMP, write_planted

QUIET = {"force": False, "progress": SilentProgress(), "stamp": STAMP}
HEADER = ("read_id", "parent_id", "reference", "label", "positive_label", "p", "cl", "call")


def untrained(folder: Path, seed: int, recipe: Recipe = RECIPE, training: Mapping[str, Any] | None = None) -> Path:
    spec = load_architecture("tcn")
    bundle = ModelBundle(
        spec=spec,
        recipe=recipe,
        labels=("uncharged", "charged"),
        training=training or {},
        stamp={},
        operating_point=OperatingPoint(threshold_cl=128, source="test"),
    )
    folder.mkdir(parents=True)
    save_bundle(bundle, build_network(spec, recipe, seed=seed), folder)
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("planted"), (60, 60))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    return [untrained(folder / name, seed) for seed, name in enumerate(("one", "two"), 3)]


def run(models: list[Path], output: Path, **values: object) -> Comparison:
    config = build(CompareConfig, {"device": "cpu", "bootstrap": 20, **values})
    return compare(models, config, output, force=False, progress=SilentProgress(), stamp=STAMP)


def table(path: Path, p: dict[str, float], positive: set[str], **changes: dict[str, str]) -> Path:
    """Write scores as ``eval test --scores`` does; called positive from 0.5 on."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(HEADER)
        for name, value in p.items():
            label = "charged" if name in positive else "uncharged"
            call = "charged" if value >= 0.5 else "uncharged"
            row = dict(zip(HEADER, (name, name, "r", label, "charged", value, round(255 * value), call), strict=True))
            writer.writerow({**row, **changes.get(name, {})}.values())
    return path


def test_flips_do_not_replace_the_scores_that_are_compared(tmp_path: Path) -> None:
    first, second = (table(tmp_path / name, {"a": p, "b": 0.3}, {"a"}) for name, p in (("1.tsv", 0.9), ("2.tsv", 0.4)))
    before = second.read_bytes()
    config = build(CompareConfig, {"bootstrap": 0, "flips": second})
    with pytest.raises(ConfigError, match="which would be lost"):
        compare([first, second], config, tmp_path / "c.json", force=True, progress=SilentProgress(), stamp=STAMP)
    assert second.read_bytes() == before


def test_two_tables_are_compared_by_hand(tmp_path: Path) -> None:
    # a and b are charged. The first calls b wrongly, the second c; orders a c b d (3 of 4 pairs) and a b c d.
    first = table(tmp_path / "first.tsv", {"a": 0.9, "b": 0.2, "c": 0.4, "d": 0.1}, {"a", "b"})
    second = table(tmp_path / "second.tsv", {"d": 0.1, "c": 0.6, "b": 0.7, "a": 0.9}, {"a", "b"})
    result = run([first, second], tmp_path / "c.json", flips=tmp_path / "flips.tsv")
    (contrast,) = result.contrasts
    assert [model.figures["auroc"].value for model in result.models] == [0.75, 1.0]
    assert contrast.auroc.estimate.value == contrast.differences["auroc"].value == 0.25
    # ((0.01 + 0.64 + 0.16 + 0.01) - (0.01 + 0.09 + 0.36 + 0.01)) / 4
    assert contrast.differences["brier"].value == pytest.approx(-0.0875)
    assert contrast.calls == (1, 1, 1.0)
    assert (result.num_reads, result.num_positive, result.num_flips, contrast.num_flips) == (4, 2, 2, 2)
    rows = [line.split("\t") for line in (tmp_path / "flips.tsv").read_text().splitlines()]
    assert rows == [
        ["read_id", "reference", "label", "first_p", "first_cl", "first_call", "second_p", "second_cl", "second_call"],
        ["b", "r", "charged", "0.2", "51", "uncharged", "0.7", "178", "charged"],
        ["c", "r", "uncharged", "0.4", "102", "uncharged", "0.6", "153", "charged"],
    ]
    content = json.loads((tmp_path / "c.json").read_text())
    assert {key: content[key] for key in result.to_mapping()} == json.loads(json.dumps(result.to_mapping()))
    assert (content["format"], content["baseline"]) == ("leech-comparison", "first")
    assert content["contrasts"][0]["mcnemar"] == {"only_first": 1, "only_second": 1, "p_value": 1.0}
    for shown in result.tables():
        for row in shown.rows:
            assert len(row) == len(shown.columns)
            assert all(isinstance(text, str) for text in row)


def test_models_are_scored_as_eval_test_scores_them(models: list[Path], corpus: Path, tmp_path: Path) -> None:
    result = run(models, tmp_path / "c.json", data=[corpus])
    config = build(EvalConfig, {"device": "cpu", "bootstrap": 20, "scores": tmp_path / "two.tsv.gz"})
    metrics = evaluate(
        models[1], corpus, config, tmp_path / "m.json", force=False, progress=SilentProgress(), stamp=STAMP
    ).metrics
    figures = result.models[1].figures
    assert figures["auroc"] == metrics.auroc
    assert figures["brier"] == metrics.calibratedness.brier
    assert figures["balanced_accuracy"] == metrics.calls.balanced_accuracy
    # A table in place of the folder gives the same.
    mixed = run([models[0], tmp_path / "two.tsv.gz"], tmp_path / "mixed.json", data=[corpus])
    assert [model.figures for model in mixed.models] == [model.figures for model in result.models]
    assert mixed.contrasts[0]._replace(name="two") == result.contrasts[0]
    assert [model.name for model in mixed.models] == ["one", "two"]
    assert [model.data for model in mixed.models] == [corpus, None]


def test_a_model_that_learnt_from_the_reads_is_named_and_a_table_is_not_known_of(
    models: list[Path], corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = Corpus.open(corpus)
    learnt = Learnt.of(opened.gather(opened.rows("test")[:5], ["parent_id"])["parent_id"], opened.categories["run"])
    knowing = untrained(tmp_path / "knowing", 5, training=learnt.to_mapping())
    learnt.save(knowing)
    evaluate(models[0], corpus, build(EvalConfig, {"scores": tmp_path / "s.tsv"}), tmp_path / "m.json", **QUIET)
    caplog.clear()
    run([models[0], knowing, tmp_path / "s.tsv"], tmp_path / "c.json", data=[corpus])
    told = {one["name"]: one["learnt_from"] for one in json.loads((tmp_path / "c.json").read_text())["models"]}
    assert told["knowing"] == {"state": "yes", "num_compared": 24, "num_found": 5}
    assert told["one"] == told["s"] == {"state": "unknown", "num_compared": 0, "num_found": 0}
    assert f"Model '{knowing}' learnt from 5 of the 24 reads" in caplog.text


def test_the_interval_of_a_difference_is_paired(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    names = [f"r{number}" for number in range(200)]
    p = dict(zip(names, generator.random(200).round(4).tolist(), strict=True))
    positive = {name for name in names if generator.random() < p[name]}
    first = table(tmp_path / "a.tsv", p, positive)
    second = table(tmp_path / "b.tsv", {name: value**1.05 for name, value in p.items()}, positive)
    result = run([first, second], tmp_path / "c.json", bootstrap=200)
    own, change = result.models[0].figures["brier"].interval, result.contrasts[0].differences["brier"].interval
    assert own is not None
    assert change is not None
    assert change.high - change.low < 0.2 * (own.high - own.low)


def test_three_models_are_compared_with_the_first_and_flips_are_those_of_any(tmp_path: Path) -> None:
    scores = [{"a": 0.9, "b": 0.1, "c": 0.6}, {"a": 0.9, "b": 0.8, "c": 0.6}, {"a": 0.3, "b": 0.1, "c": 0.6}]
    tables = [table(tmp_path / f"{number}.tsv", p, {"a"}) for number, p in enumerate(scores)]
    result = run(tables, tmp_path / "c.json")
    assert [(item.name, item.num_flips) for item in result.contrasts] == [("1", 1), ("2", 1)]
    assert result.num_flips == 2


def test_a_model_of_another_recipe_needs_a_corpus_of_its_own(
    models: list[Path], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(RECIPE, motif_offset=3)
    other = untrained(tmp_path / "m" / "other", 5, recipe)
    own = write_planted(tmp_path / "own", (60, 60), recipe=recipe)
    with monkeypatch.context() as patch:
        # Nothing is scored before it is told.
        patch.setattr(module, "score_model", lambda *_: 1 / 0)
        with pytest.raises(MismatchError) as caught:
            run([models[0], other], tmp_path / "c.json", data=[corpus])
    assert "motif_offset (model 3, corpus 2)" in caught.value.message
    assert "--data A --data B" in (caught.value.hint or "")
    # The same seeds make the same read ids in both.
    result = run([models[0], other], tmp_path / "c.json", data=[corpus, own])
    assert result.num_reads == 24
    assert [model.data for model in result.models] == [corpus, own]


def test_other_reads_are_refused_unless_common_ones_are_asked_for(tmp_path: Path) -> None:
    first = table(tmp_path / "first.tsv", {"a": 0.9, "b": 0.2, "c": 0.4}, {"a", "b"})
    second = table(tmp_path / "second.tsv", {"b": 0.7, "c": 0.6, "d": 0.1, "e": 0.3}, {"b"})
    with pytest.raises(MismatchError) as caught:
        run([first, second], tmp_path / "c.json")
    assert "3 in" in caught.value.message
    assert "4 in" in caught.value.message
    assert "2 in all" in caught.value.message
    assert "--common-reads" in (caught.value.hint or "")
    assert list(tmp_path.glob("c.json*")) == []
    result = run([first, second], tmp_path / "c.json", common_reads=True)
    assert (result.num_reads, result.num_left_out) == (2, 3)
    nothing = table(tmp_path / "third.tsv", {"x": 0.7}, {"x"})
    with pytest.raises(MismatchError, match="0 in all"):
        run([first, nothing], tmp_path / "d.json", common_reads=True)


def test_another_truth_another_positive_label_and_a_repeated_read_are_refused(tmp_path: Path) -> None:
    p = {"a": 0.9, "b": 0.2}
    first = table(tmp_path / "first.tsv", p, {"a"})
    with pytest.raises(MismatchError, match=r"1 reads have another label .* read 'b' 'charged' instead of 'uncharged'"):
        run([first, table(tmp_path / "s.tsv", p, {"a", "b"})], tmp_path / "c.json")
    turned = table(tmp_path / "t.tsv", p, {"a"}, a={"positive_label": "uncharged"}, b={"positive_label": "uncharged"})
    with pytest.raises(MismatchError, match="probability of 'uncharged'"):
        run([first, turned], tmp_path / "c.json")
    twice = table(tmp_path / "u.tsv", p, {"a"}, b={"read_id": "a"})
    with pytest.raises(InputError, match="read 'a' has several scores"):
        run([first, twice], tmp_path / "c.json")


def test_what_does_not_add_up_is_refused_at_once(models: list[Path], corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two models or more"):
        run(models[:1], tmp_path / "c.json", data=[corpus])
    with pytest.raises(ConfigError, match="has to be scored on a corpus"):
        run(models, tmp_path / "c.json")
    with pytest.raises(ConfigError, match="3 corpora for 2 models"):
        run(models, tmp_path / "c.json", data=[corpus] * 3)
    with pytest.raises(ConfigError, match="Parquet"):
        run(models, tmp_path / "c.json", data=[corpus], flips=tmp_path / "f.parquet")
    with pytest.raises(ConfigError, match="cannot both"):
        run(models, tmp_path / "c.tsv", data=[corpus], flips=tmp_path / "c.tsv")
    with pytest.raises(InputError, match="does not exist"):
        run([models[0], tmp_path / "none"], tmp_path / "c.json", data=[corpus])
    assert list(tmp_path.iterdir()) == []


def test_models_of_one_name_are_told_apart_by_their_paths(models: list[Path], corpus: Path, tmp_path: Path) -> None:
    twin = untrained(tmp_path / "m" / "one", 9)
    result = run([models[0], twin, models[0]], tmp_path / "c.json", data=[corpus])
    assert [model.name for model in result.models] == [f"{models[0]} (1)", str(twin), f"{models[0]} (3)"]
    same = result.contrasts[1]
    assert (same.num_flips, same.auroc.estimate.value, same.auroc.p_value) == (0, 0.0, None)


def test_a_written_table_reads_back_for_comparing(models: list[Path], corpus: Path, tmp_path: Path) -> None:
    config = build(EvalConfig, {"device": "cpu", "bootstrap": 0, "scores": tmp_path / "s.tsv"})
    evaluate(models[0], corpus, config, tmp_path / "m.json", force=False, progress=SilentProgress(), stamp=STAMP)
    assert len(load_scores(tmp_path / "s.tsv")) == 24
