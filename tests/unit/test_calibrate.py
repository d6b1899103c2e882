"""``calibrate``: what fits, what judges, what is kept, and what is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from leech.config import build
from leech.console import SilentProgress
from leech.data.compose import merge
from leech.data.config import MergeConfig
from leech.data.corpus import Corpus
from leech.errors import ConfigError, InputError
from leech.evaluation import calibrate as module
from leech.evaluation.calibrate import CalibrationResult, Judgement, calibrate
from leech.evaluation.config import CalibrateConfig, EvalConfig
from leech.evaluation.evaluate import Scores, evaluate
from leech.evaluation.intervals import Estimate
from leech.evaluation.summary import Calibratedness
from leech.models.bundle import ModelBundle, OperatingPoint, load_bundle, save_bundle
from leech.models.calibration import sigmoid
from leech.models.description import describe
from leech.models.learnt import Learnt
from leech.models.spec import build_network, load_architecture
from planted import RECIPE, STAMP, planted_chunks, write_chunks

LABELS = ("uncharged", "charged")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    sources = [
        write_chunks(folder / label, planted_chunks(400, label=label, strength=0, seed=number))
        for number, label in enumerate(LABELS)
    ]
    config = build(MergeConfig, {"split": [0.1, 0.1, 0.4, 0.4], "positive_label": "charged"})
    merge(sources, config, folder / "merged", force=False, stamp=STAMP)
    return folder / "merged"


def write_model(folder: Path, point: OperatingPoint | None = None) -> Path:
    spec = load_architecture("tcn")
    bundle = ModelBundle(
        spec=spec,
        recipe=RECIPE,
        labels=LABELS,
        training={},
        stamp={},
        operating_point=point or OperatingPoint(),
    )
    folder.mkdir()
    save_bundle(bundle, build_network(spec, RECIPE, seed=3), folder)
    (folder / "history.jsonl").write_text("{}\n")
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


def scorer(scale: Callable[[str], float], shift: float = 0.0) -> Callable[..., Scores]:
    """Return a stand-in for the network: true log odds, drawn by row, times a factor by split, plus a shift."""

    def score(network, corpus, rows, *_, on_batch=None, calibration=None):  # type: ignore[no-untyped-def]
        assert calibration is None, "a calibration is fitted to raw logits, of a calibrated model too"
        labels = corpus.gather(rows, ["label"])["label"].astype(np.int64)
        positive = labels == corpus.labels.index("charged")
        # Two normal distributions 2 apart: the log odds of x are 2 x.
        x = np.random.default_rng(5).normal(size=len(corpus))[rows] + np.where(positive, 1, -1)
        split = "test" if set(rows) <= set(corpus.rows("test")) else "calibration"
        logits = scale(split) * 2 * x + shift
        return Scores(rows, labels, sigmoid(logits), logits)

    return score


@pytest.fixture
def overconfident(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "score", scorer(lambda split: 4.0))


def run(model: Path, data: Path, output: Path | None, *, force: bool = False, **values: object) -> CalibrationResult:
    config = build(CalibrateConfig, {"device": "cpu", "bootstrap": 50, **values})
    return calibrate(model, data, config, output, force=force, progress=SilentProgress(), stamp=STAMP)


@pytest.mark.usefixtures("overconfident")
def test_an_overconfident_model_is_cured_and_what_was_found_is_written(
    model: Path, corpus: Path, tmp_path: Path
) -> None:
    result = run(model, corpus, tmp_path / "new", method="temperature")
    bundle = load_bundle(tmp_path / "new").bundle
    assert result.kept is not None
    assert bundle.calibration == result.fitted
    # The network is four times as sure as it may be; 320 reads tell the factor within some 10 %.
    assert result.fitted.scale == pytest.approx(0.25, rel=0.3)
    assert (result.fitted.num_reads, result.fitted.prevalence) == (320, 0.5)
    assert result.fitted.corpus_digest == Corpus.open(corpus).manifest.digest
    judged = result.judgement
    assert judged.after.ece.value is not None
    assert judged.before.ece.value is not None
    assert judged.after.ece.value < 0.06 < judged.before.ece.value
    assert judged.ece_change.value == pytest.approx(judged.after.ece.value - judged.before.ece.value)
    assert judged.brier_change.interval is not None
    assert judged.brier_change.interval.high < 0
    record = json.loads((tmp_path / "new" / "calibration.json").read_text())
    assert (record["format"], record["schema_version"], record["kept"]) == ("leech-calibration", 1, True)
    assert set(record["log_loss"]) == {"none", "temperature", "platt", "isotonic"}
    assert record["num_reads"] == {split: {"uncharged": 160, "charged": 160} for split in ("calibration", "test")}
    assert record["test"]["ece_change"]["value"] < 0
    assert record["provenance"] == STAMP.to_mapping()
    assert (tmp_path / "new" / "history.jsonl").read_text() == "{}\n"
    # The model that was given is as it was.
    assert load_bundle(model).bundle.calibration is None
    assert not (model / "calibration.json").exists()


@pytest.mark.usefixtures("overconfident")
def test_the_method_is_the_one_of_least_cross_validated_loss(model: Path, corpus: Path, tmp_path: Path) -> None:
    result = run(model, corpus, tmp_path / "new")
    losses = {method: loss for method, loss in result.losses.items() if method != "none"}
    assert losses[result.fitted.method] == min(losses.values())
    assert result.losses["none"] > min(losses.values())


def test_a_calibration_that_the_test_split_does_not_confirm_is_not_kept(
    model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Overconfident on the calibration split alone: the cure makes the test split worse.
    monkeypatch.setattr(module, "score", scorer(lambda split: 1.0 if split == "test" else 4.0))
    result = run(model, corpus, tmp_path / "new", method="temperature")
    assert result.kept is None
    assert load_bundle(tmp_path / "new").bundle.calibration is None
    record = json.loads((tmp_path / "new" / "calibration.json").read_text())
    assert (record["kept"], record["calibration"]["method"]) == (False, "temperature")
    assert "not kept" in caplog.text
    assert "not kept" in result.tables()[1].title


@pytest.mark.usefixtures("overconfident")
def test_without_an_output_the_model_itself_is_replaced_but_only_by_force(model: Path, corpus: Path) -> None:
    weights = (model / "model.safetensors").read_bytes()
    with pytest.raises(ConfigError) as caught:
        run(model, corpus, None)
    assert "--force" in (caught.value.hint or "")
    assert load_bundle(model).bundle.calibration is None
    result = run(model, corpus, None, force=True)
    assert load_bundle(model).bundle.calibration == result.fitted
    assert (model / "model.safetensors").read_bytes() == weights
    assert [path.name for path in model.parent.iterdir()] == ["model"]


@pytest.mark.usefixtures("overconfident")
def test_calibrating_again_starts_from_the_network(model: Path, corpus: Path, tmp_path: Path) -> None:
    once = run(model, corpus, tmp_path / "once")
    twice = run(tmp_path / "once", corpus, tmp_path / "twice")
    assert twice.fitted == once.fitted
    assert twice.judgement == once.judgement


@pytest.mark.parametrize(
    ("ece", "brier", "kept"), [(-0.1, -0.1, True), (-0.1, 0.1, False), (0.1, -0.1, False), (0.0, -0.1, False)]
)
def test_both_the_calibration_error_and_the_brier_score_must_get_better(ece: float, brier: float, kept: bool) -> None:
    any_of = Calibratedness(Estimate(0.2), Estimate(0.2), ())
    assert Judgement(any_of, any_of, Estimate(ece), Estimate(brier)).is_better is kept


@pytest.mark.usefixtures("overconfident")
def test_a_run_that_fails_leaves_the_model_as_it_was(
    model: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    monkeypatch.setattr(module, "_write_record", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(model, corpus, None, force=True)
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before
    assert [path.name for path in model.parent.iterdir()] == ["model"]


@pytest.mark.usefixtures("overconfident")
@pytest.mark.parametrize(
    ("option", "goal", "value"),
    [("target_fpr", "fpr", 0.1), ("target_precision", "precision", 0.9), ("target_recall", "recall", 0.9)],
)
def test_an_operating_point_reaches_its_target_on_the_calibration_split(
    model: Path, corpus: Path, tmp_path: Path, option: str, goal: str, value: float
) -> None:
    result = run(model, corpus, tmp_path / "new", **{option: value})
    point = load_bundle(tmp_path / "new").bundle.operating_point
    assert point == result.operating_point
    assert point.target == {goal: value}
    assert point.achieved is not None
    achieved = getattr(point.achieved["calibration"], "tpr" if goal == "recall" else goal)
    assert achieved.value <= value if goal == "fpr" else achieved.value >= value
    assert achieved.interval[0] <= achieved.value <= achieved.interval[1]
    tested = point.achieved["test"]
    assert (tested.num_reads, tested.num_positive) == (320, 160)
    assert (tested.tp + tested.fn, tested.fp + tested.tn) == (160, 160)
    assert tested.tpr.value == tested.tp / 160
    assert tested.references is not None
    assert len(tested.references) > 1
    for name in ("tp", "fp", "tn", "fn"):
        assert sum(getattr(one, name) for one in tested.references.values()) == getattr(tested, name)
    assert tested != point.achieved["calibration"]
    assert point.source.endswith("on the calibration split")


@pytest.mark.usefixtures("overconfident")
def test_a_calibrated_model_s_target_is_met_anew_and_a_point_without_one_is_kept(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    earlier = OperatingPoint(threshold_cl=3, source="FPR", target={"fpr": 0.1})
    anew = run(write_model(tmp_path / "a", earlier), corpus, tmp_path / "anew").operating_point
    asked = run(write_model(tmp_path / "b"), corpus, tmp_path / "asked", target_fpr=0.1).operating_point
    assert anew == asked
    kept = run(write_model(tmp_path / "c", OperatingPoint(threshold_cl=77, source="me")), corpus, tmp_path / "kept")
    assert (kept.operating_point.threshold_cl, kept.operating_point.source) == (77, "me")
    assert "cl >= 77 (me) is kept" in caplog.text
    default = run(write_model(tmp_path / "d"), corpus, tmp_path / "default").operating_point
    assert (default.threshold_cl, default.source, default.target) == (200, "default", None)
    assert default.achieved is not None
    rows = dict(row[:2] for row in describe(tmp_path / "anew").tables()[0].rows)
    assert "320 reads" in rows["  on the test split"]


def test_a_target_out_of_reach_writes_nothing(
    model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Certain of all reads of the calibration split, the wrong ones too, and not to be cured: cl is 0 or 255 there.
    monkeypatch.setattr(module, "score", scorer(lambda split: 1.0 if split == "test" else 1e6))
    with pytest.raises(InputError, match=r"No threshold reaches FPR <= 0 "):
        run(model, corpus, tmp_path / "new", target_fpr=0.0)
    assert not (tmp_path / "new").exists()


def test_a_target_of_less_than_one_read_is_warned_of(
    model: Path, corpus: Path, tmp_path: Path, overconfident: None, caplog: pytest.LogCaptureFixture
) -> None:
    run(model, corpus, tmp_path / "new", target_recall=0.999)
    assert "less than one error among 160 reads" in caplog.text


def test_targets_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="only one can be met"):
        build(CalibrateConfig, {"target_fpr": 0.1, "target_recall": 0.9})


def test_eval_test_calls_at_the_operating_point_that_was_stored(
    model: Path, corpus: Path, tmp_path: Path, overconfident: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = run(model, corpus, tmp_path / "new", target_fpr=0.1)
    config = build(EvalConfig, {"device": "cpu", "bootstrap": 0})
    metrics = evaluate(
        tmp_path / "new",
        corpus,
        config,
        tmp_path / "metrics.json",
        force=False,
        progress=SilentProgress(),
        stamp=STAMP,
    ).metrics
    assert metrics.calls.threshold_cl == found.operating_point.threshold_cl != 200
    assert metrics.uncalibrated is not None


def test_a_corpus_without_a_calibration_split_is_refused_and_how_to_make_one_is_said(
    model: Path, corpus: Path, tmp_path: Path
) -> None:
    sources = [corpus.parent / label for label in LABELS]
    config = build(MergeConfig, {"split": [0.6, 0.2, 0.2], "positive_label": "charged"})
    merge(sources, config, tmp_path / "merged", force=False, stamp=STAMP)
    for data in (tmp_path / "merged", sources[0]):
        with pytest.raises(InputError) as caught:
            run(model, data, tmp_path / "new")
        assert "no calibration split" in caught.value.message
        assert "--split 0.6 0.15 0.15 0.1" in (caught.value.hint or "")


@pytest.mark.usefixtures("overconfident")
def test_too_few_reads_are_refused_and_few_are_warned_of(
    model: Path, corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sources = [corpus.parent / label for label in LABELS]
    for name, share in (("few", 0.1), ("too-few", 0.02)):
        config = build(MergeConfig, {"split": [0.3, 0.2, 0.5 - share, share], "positive_label": "charged"})
        merge(sources, config, tmp_path / name, force=False, stamp=STAMP)
    run(model, tmp_path / "few", tmp_path / "new")
    assert "Only 40 reads of 'charged' in the calibration split" in caplog.text
    with pytest.raises(InputError, match="has 8 reads of 'uncharged' in its calibration split, and at least 10"):
        run(model, tmp_path / "too-few", tmp_path / "newer")


@pytest.mark.usefixtures("overconfident")
def test_reads_of_either_split_that_the_model_learnt_from_are_warned_of(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = Corpus.open(corpus)
    rows = np.concatenate([opened.rows("calibration")[:3], opened.rows("test")[:4], opened.rows("train")])
    learnt = Learnt.of(opened.gather(rows, ["parent_id"])["parent_id"], opened.categories["run"])
    model = write_model(tmp_path / "model")
    content = json.loads((model / "model.json").read_text())
    content["training"] |= learnt.to_mapping()
    (model / "model.json").write_text(json.dumps(content))
    learnt.save(model)
    run(model, corpus, tmp_path / "new")
    # 800 reads, of which both splits have 0.4.
    assert f"Model '{model}' learnt from 7 of the 640 reads" in caplog.text
    assert "make sure that it learnt from none" not in caplog.text
    # The calibrated folder knows as much.
    assert load_bundle(tmp_path / "new").learnt.runs == learnt.runs
    assert load_bundle(tmp_path / "new").learnt.sketch is not None


def test_a_corpus_that_the_model_was_not_trained_on_is_warned_of(
    corpus: Path, tmp_path: Path, overconfident: None, caplog: pytest.LogCaptureFixture
) -> None:
    model = write_model(tmp_path / "model")
    content = json.loads((model / "model.json").read_text())
    for digest, warned in ((Corpus.open(corpus).manifest.digest, False), ("sha256:other", True)):
        content["training"]["corpus_digest"] = digest
        (model / "model.json").write_text(json.dumps(content))
        caplog.clear()
        run(model, corpus, tmp_path / f"new-{warned}")
        assert ("make sure that it learnt from none of these reads" in caplog.text) == warned


@pytest.mark.usefixtures("overconfident")
def test_equal_runs_give_equal_models(model: Path, corpus: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        run(model, corpus, tmp_path / name, target_fpr=0.1)
    for name in ("model.json", "calibration.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.usefixtures("overconfident")
def test_tables_are_text_of_equal_width(model: Path, corpus: Path, tmp_path: Path) -> None:
    result = run(model, corpus, tmp_path / "new")
    for table in result.tables():
        for row in table.rows:
            assert len(row) == len(table.columns)
            assert all(isinstance(cell, str) for cell in row)
    assert json.loads(json.dumps(result.to_mapping(), allow_nan=False))["kept"] is True
