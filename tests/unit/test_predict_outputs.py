"""Which files ``leech predict`` leaves, and what their tables say."""

from __future__ import annotations

import csv
import gzip
import json
import uuid
from pathlib import Path

import numpy as np
import pysam
import pytest

from leech.config import build, to_mapping
from leech.console import SilentProgress
from leech.data.config import ReadSources
from leech.data.recipe import Recipe
from leech.errors import ConfigError, InputError, LeechError, MismatchError
from leech.models.bundle import ModelBundle, OperatingPoint, copy_bundle, save_bundle
from leech.models.calibration import Calibration
from leech.models.inference import Predictor
from leech.models.learnt import Learnt
from leech.models.spec import build_network, load_architecture
from leech.prediction.config import PredictConfig
from leech.prediction.predict import Caller, predict, predict_run
from leech.prediction.record import CLASSES_FORMAT, FORMAT, read_record
from leech.provenance import Stamp
from tiny_run import TinyRecord, ramp, read_id, write_run

STAMP = Stamp.make(["leech", "predict"], "2026-01-01T00:00:00+00:00")
RECIPE = {"motif": "GTAC", "motif_offset": 1, "motif_occurrence": "last"}
TABLES = [
    "s.charging.cpm.tsv.gz",
    "s.charging_calls.tsv.gz",
    "s.charging_prob.tsv.gz",
    "s.charging_summary.amino_acid.tsv.gz",
    "s.charging_summary.isoacceptor.tsv.gz",
    "s.charging_summary.isodecoder.tsv.gz",
    "s.charging_summary.tsv.gz",
    "s.predict.json",
]
REFERENCES = {"tRNA-Ala-GGC-1-1": "ACGTACGTAC", "tRNA-Ala-TGC-1-1": "ACGTACGTAC"}


def make_model(folder: Path, training=None, labels=("no", "yes")) -> Path:
    spec, recipe = load_architecture("tcn"), build(Recipe, RECIPE)
    bundle = ModelBundle(spec=spec, recipe=recipe, labels=labels, training=training or {}, stamp={})
    folder.mkdir()
    save_bundle(bundle, build_network(spec, recipe), folder)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("outputs") / "model")


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Eight reads on the first reference, four on the second, sorted; the last read's signal is missing."""
    names = [read_id(n) for n in range(1, 13)]
    records = [TinyRecord(name, reference=int(number >= 8)) for number, name in enumerate(names)]
    signals = {name: ramp(60) for name in names[:-1]}
    return write_run(tmp_path_factory.mktemp("run") / "run", records, signals, REFERENCES)


@pytest.fixture(autouse=True)
def says(monkeypatch):
    """Let the network say 0.95, 0.70 and 0.05 in turn, or what a test puts into this list."""
    probabilities = [0.95, 0.7, 0.05]
    turn = []

    def answer(self, inputs):
        start = sum(turn)
        turn.append(len(inputs.signal))
        p = np.array(probabilities)
        return np.log(p / (1 - p))[(start + np.arange(len(inputs.signal))) % len(p)][:, None]

    monkeypatch.setattr(Predictor, "logits", answer)
    return probabilities


def run(model, sources, output, *, force=False, clock=None, progress=None, **config):
    settings = build(PredictConfig, {"device": "cpu", **config})
    shown = {"force": force, "progress": progress or SilentProgress(), "stamp": STAMP}
    if clock is not None:
        return predict_run(Caller.load(model, settings), sources, settings, output, identity=None, clock=clock, **shown)
    return predict(model, sources, settings, output, **shown)


def rows(path):
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("config", "output", "expected"),
    [
        ({}, "s.bam", ["s.bam"]),
        ({"format": "bam"}, "s.bam", ["s.bam"]),
        ({"format": "both"}, "s.bam", sorted(["s.bam", *TABLES])),
        ({"format": "both", "index": True}, "s.bam", sorted(["s.bam", "s.bam.bai", *TABLES])),
        ({"tables": "t"}, "s.bam", ["s.bam", *(f"t/{name}" for name in TABLES)]),
        ({"format": "tsv", "sample": "s"}, "t", [f"t/{name}" for name in TABLES]),
    ],
)
def test_each_format_leaves_its_files_and_no_others(model, sources, tmp_path, config, output, expected):
    config = {**config, **({"tables": tmp_path / "t"} if "tables" in config else {})}
    run(model, sources, tmp_path / output, **config)
    assert files(tmp_path) == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"format": "bam", "tables": "t"}, "--tables says where they go"),
        ({"format": "tsv", "tables": "t"}, "leave out --tables"),
        ({"format": "tsv", "index": True}, "--index goes with a BAM"),
        ({"threshold": 0.5, "threshold_cl": 128}, "give one of them"),
        ({"fpr": 0.1}, "give both or neither"),
        ({"tpr": 0.1}, "give both or neither"),
        ({"fpr": 0.5, "tpr": 0.5}, "must lie above --fpr"),
        ({"negative_control": "n.tsv"}, "give both or neither"),
        ({"negative_control": "n.tsv", "positive_control": "p.tsv", "fpr": 0.1, "tpr": 0.9}, "one or the other"),
        ({"call_rates": (0.0, 0.5)}, "must lie above 0"),
        ({"call_rates": (0.5, 7.0)}, "up to 1"),
        ({"min_confidence": 1.5}, "between"),
    ],
)
def test_options_that_contradict_each_other_are_refused(config, message):
    with pytest.raises(ConfigError, match=message):
        build(PredictConfig, config).refuse_contradictions()


def test_a_bam_is_named_bam_and_standard_input_needs_a_name_for_its_tables(model, sources, tmp_path):
    with pytest.raises(ConfigError, match=r"must end in \.bam"):
        run(model, sources, tmp_path / "s.tsv")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is the folder of the tables"):
        run(model, sources, tmp_path / "file", format="tsv", sample="s")
    piped = build(ReadSources, {"pod5": sources.pod5, "bam": Path("-"), "reference": sources.reference})
    with pytest.raises(ConfigError, match="no name for the tables"):
        run(model, piped, tmp_path / "t", format="tsv")


def test_the_summary_counts_calls_no_calls_and_fractions_per_reference(model, sources, tmp_path):
    # Reads 1..11 score .95 .70 .05 in turn: 95 is called positive at cl >= 200 (P >= 0.78), the others negative.
    # First reference, reads 1..8: 3 positive, 5 negative. Second, reads 9..12: .05 .95 .70 and one without signal.
    run(model, sources, tmp_path, format="tsv", sample="s", min_depth=8)
    first, second = rows(tmp_path / "s.charging_summary.tsv.gz")
    assert {name: first[name] for name in ("reference", "isodecoder", "isoacceptor", "amino_acid")} == {
        "reference": "tRNA-Ala-GGC-1-1",
        "isodecoder": "Ala-GGC-1",
        "isoacceptor": "Ala-GGC",
        "amino_acid": "Ala",
    }
    counts = ("n_positive", "n_negative", "n_no_call", "no_call_reasons", "fraction", "enough")
    assert [first[name] for name in counts] == ["3", "5", "0", "", "0.375", "1"]
    assert [second[name] for name in counts] == ["1", "2", "1", "not_in_pod5=1", "0.333333", "0"]
    # Wilson's interval of 3 in 8, worked out with z = 1.96: (0.375 + 0.2401 -+ 0.2883) / 1.4802.
    assert float(first["fraction_low"]) == pytest.approx(0.1368, abs=2e-4)
    assert float(first["fraction_high"]) == pytest.approx(0.6943, abs=2e-4)
    assert {first[name] for name in first if "corrected" in name} == {""}
    (amino,) = rows(tmp_path / "s.charging_summary.amino_acid.tsv.gz")
    assert [amino[name] for name in ("amino_acid", *counts)] == [
        "Ala",
        "4",
        "7",
        "1",
        "not_in_pod5=1",
        "0.363636",
        "1",
    ]
    assert [row["isoacceptor"] for row in rows(tmp_path / "s.charging_summary.isoacceptor.tsv.gz")] == [
        "Ala-GGC",
        "Ala-TGC",
    ]


def test_corrected_figures_stand_beside_the_raw_one(model, sources, tmp_path):
    options = {"fpr": 0.05, "tpr": 0.9, "call_rates": (0.5, 1.0)}
    result = run(model, sources, tmp_path, format="tsv", sample="s", **options)
    first, _ = rows(tmp_path / "s.charging_summary.tsv.gz")
    # (0.375 - 0.05) / 0.85 = 0.382353; of 0.382353 / 0.5 to 0.617647 / 1 that is 0.764706 / 1.382353.
    assert [first["fraction"], first["error_corrected"], first["no_call_corrected"]] == [
        "0.375",
        "0.382353",
        "0.553191",
    ]
    assert float(first["error_corrected_low"]) < 0.382353 < float(first["error_corrected_high"])
    record = json.loads((tmp_path / "s.predict.json").read_text())
    assert record["corrections"]["error_rates_from"] == "options"
    heads = result.tables()[0].columns
    assert "error-corrected" in heads
    assert "no-call-corrected" in heads


def test_reads_below_the_confidence_have_no_tag_but_a_reason_and_their_probability(model, sources, tmp_path):
    result = run(model, sources, tmp_path / "s.bam", format="both", min_confidence=0.9)
    calls = rows(tmp_path / "s.charging_calls.tsv.gz")
    assert [row["cl"] for row in calls] == ["242", "", "13"] * 3 + ["242", "", ""]
    assert [row["p"] for row in calls[:2]] == ["0.95", "0.7"]
    assert [row["reason"] for row in calls] == ["", "low_confidence", ""] * 3 + ["", "low_confidence", "not_in_pod5"]
    with pysam.AlignmentFile(str(tmp_path / "s.bam")) as file:
        assert ["cl" in dict(record.get_tags()) for record in file.fetch(until_eof=True)] == [
            row["cl"] != "" for row in calls
        ]
    assert result.counts.ladder() == {"seen": 12, "not_in_pod5": 1, "low_confidence": 4, "used": 7}


def test_reads_left_uncalled_as_asked_for_are_no_failures(model, sources, tmp_path, says, caplog):
    # 0.70 is under 0.9 either way: 7 of 11 reads with signal in turn .70 .95 .70, so more than half of 12.
    says[:] = [0.7, 0.95, 0.7]
    strict = build(ReadSources, {**to_mapping(sources), "max_fail_frac": 0.1})
    run(model, strict, tmp_path / "s.bam", min_confidence=0.9)
    # The one read without signal is the only failure: 8.3 %.
    assert "58.3% of 12 candidate records were left out as asked for: low_confidence 7." in caplog.text
    assert "failed" not in caplog.text


def test_when_no_read_is_sure_enough_the_run_fails_and_says_so(model, sources, tmp_path):
    with pytest.raises(InputError, match="low_confidence"):
        run(model, sources, tmp_path / "s.bam", min_confidence=0.99)
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    ("config", "threshold", "positive"),
    [({}, 200, 4), ({"threshold_cl": 128}, 128, 8), ({"threshold": 0.7}, 178, 8), ({"threshold": 0.71}, 181, 4)],
)
def test_a_threshold_as_a_probability_calls_every_read_at_it_or_above(
    model, sources, tmp_path, config, threshold, positive
):
    # 0.7 * 255 = 178.5, rounded to the even 178, as the reads at 0.7 are.
    result = run(model, sources, tmp_path / "s.bam", **config)
    assert result.threshold == threshold
    assert result.summarised.tally.total().num_positive == positive


def test_the_index_finds_the_reads_of_a_reference(model, sources, tmp_path):
    run(model, sources, tmp_path / "s.bam", index=True)
    with pysam.AlignmentFile(str(tmp_path / "s.bam")) as file:
        assert [file.count("tRNA-Ala-GGC-1-1"), file.count("tRNA-Ala-TGC-1-1")] == [8, 4]
    assert (tmp_path / "s.bam.bai").stat().st_mtime_ns >= (tmp_path / "s.bam").stat().st_mtime_ns


def test_an_index_of_records_that_are_not_sorted_is_refused_and_nothing_is_left(model, tmp_path):
    names = [read_id(n) for n in (1, 2)]
    records = [TinyRecord(names[0], reference=1), TinyRecord(names[1], reference=0)]
    unsorted = write_run(tmp_path / "run", records, {name: ramp(60) for name in names}, REFERENCES)
    with pytest.raises(InputError, match="Record 2 of the alignments") as caught:
        run(model, unsorted, tmp_path / "out" / "s.bam", index=True)
    assert "samtools sort" in caught.value.hint
    assert files(tmp_path / "out") == []
    run(model, unsorted, tmp_path / "out" / "s.bam")


@pytest.mark.parametrize("index", [False, True])
def test_an_index_of_an_earlier_bam_does_not_stay(model, sources, tmp_path, index):
    stale = [tmp_path / name for name in ("s.bam.bai", "s.bai", "s.bam.csi")]
    for path in stale:
        path.write_text("of an earlier BAM")
    with pytest.raises(InputError, match="exists already"):
        run(model, sources, tmp_path / "s.bam", index=index)
    assert files(tmp_path) == ["s.bai", "s.bam.bai", "s.bam.csi"]
    run(model, sources, tmp_path / "s.bam", index=index, force=True)
    assert files(tmp_path) == (["s.bam", "s.bam.bai"] if index else ["s.bam"])
    if index:
        with pysam.AlignmentFile(str(tmp_path / "s.bam")) as file:
            assert file.count("tRNA-Ala-TGC-1-1") == 4


def test_an_unlike_run_is_told_of_once(sources, tmp_path, caplog):
    training = {"sample_rates": [5000], "basecall_models": ["rna004_130bps_sup@v5.1.0"]}
    names = [read_id(n) for n in range(1, 5)]
    group = {"ts": 0, "ns": 60, "RG": "0011_rna004_130bps_sup@v5.3.0_barcode01"}
    records = [TinyRecord(name, tags=group) for name in names]
    unlike = write_run(tmp_path / "run", records, {name: ramp(60) for name in names}, REFERENCES)
    run(make_model(tmp_path / "model", training), unlike, tmp_path / "s.bam", batch_size=1)
    assert (
        caplog.text.count("'rna004_130bps_sup@v5.3.0', and the model learnt from reads of 'rna004_130bps_sup@v5.1.0'")
        == 1
    )
    assert caplog.text.count("was sampled at 4000 Hz, and the model learnt from runs at 5000 Hz") == 1


def test_a_run_like_the_training_s_is_not_warned_of_nor_one_that_nothing_is_known_of(sources, tmp_path, caplog):
    alike = {"sample_rates": [4000], "basecall_models": ["rna004_130bps_sup@v5.1.0"]}
    run(make_model(tmp_path / "alike", alike), sources, tmp_path / "a.bam")
    run(make_model(tmp_path / "unknown"), sources, tmp_path / "u.bam")
    assert "learnt" not in caplog.text


def test_the_time_left_is_told_from_how_much_of_the_bam_is_read(model, tmp_path):
    names = [read_id(n) for n in range(1, 2501)]
    sources = write_run(
        tmp_path / "run", [TinyRecord(name) for name in names], {name: ramp(60) for name in names}, REFERENCES
    )
    told = []

    class Told(SilentProgress):
        def task(self, name, *, unit, total=None):
            from contextlib import nullcontext
            from types import SimpleNamespace

            assert unit == "reads"
            return nullcontext(SimpleNamespace(advance=lambda amount: None, describe=told.append))

    times = iter(range(0, 1000, 10))
    run(model, sources, tmp_path / "s.bam", progress=Told(), clock=lambda: next(times))
    assert told.pop() == ""
    assert told
    assert all("% of the BAM, about " in text and text.endswith(" left") for text in told)


def test_the_record_holds_what_a_report_needs(model, sources, tmp_path):
    run(model, sources, tmp_path, format="tsv", sample="s")
    record = json.loads((tmp_path / "s.predict.json").read_text())
    assert record["format"] == "leech-predict"
    assert record["labels"] == ["no", "yes"]
    assert record["tally"]["tRNA-Ala-TGC-1-1"] == {"positive": 1, "negative": 2, "no_calls": {"not_in_pod5": 1}}
    # 255 * 0.05 = 12.75, 255 * 0.7 = 178.5 and 255 * 0.95 = 242.25.
    assert {cl: count for cl, count in enumerate(record["cl_histogram"]) if count} == {13: 3, 178: 4, 242: 4}
    assert record["counts"] == {"seen": 12, "not_in_pod5": 1, "used": 11}


@pytest.mark.parametrize("config", [{"threshold": 0.5, "threshold_cl": 128}, {"fpr": 0.1}])
def test_a_contradiction_is_found_before_any_work(model, tmp_path, config):
    nowhere = build(ReadSources, {"pod5": [tmp_path / "p"], "bam": tmp_path / "b", "reference": tmp_path / "r"})
    with pytest.raises(ConfigError, match="give"):
        run(model, nowhere, tmp_path / "s.bam", **config)


TABLE = "s.charging_summary.tsv.gz"


def controls(model, sources, folder, says, states=(0.05, 0.95), **config):
    """Call the twelve reads as a library of either state, and return the options that name their tables."""
    before = list(says)
    for name, p in zip("np", states, strict=True):
        says[:] = [p] if isinstance(p, float) else list(p)
        run(model, sources, folder / name, format="tsv", sample="s", **config)
    says[:] = before
    return {"negative_control": folder / "n" / TABLE, "positive_control": folder / "p" / TABLE}


def test_tables_of_control_libraries_correct_a_later_run(model, sources, tmp_path, says):
    known = controls(model, sources, tmp_path, says)
    result = run(model, sources, tmp_path / "c", format="tsv", sample="s", **known)
    total = result.summarised.tally.total()
    (amino,) = rows(tmp_path / "c" / "s.charging_summary.amino_acid.tsv.gz")
    assert amino["fraction"] == f"{total.num_positive / total.num_called:.6g}"
    # Eleven reads without an error are no proof that there are none.
    assert float(amino["error_corrected"]) == pytest.approx(float(amino["fraction"]), abs=0.05)
    assert float(amino["error_corrected_low"]) < float(amino["error_corrected"]) < float(amino["error_corrected_high"])
    record = json.loads((tmp_path / "c" / "s.predict.json").read_text())
    assert record["corrections"]["error_rates_from"] == "controls"
    assert record["corrections"]["error_rates"]["tpr"] == {"value": 1.0, "num_trials": 11, "variance": None}
    # The one read without signal is lost whatever its state.
    assert record["corrections"]["call_rates"] == {"positive": 1.0, "negative": 1.0}
    assert record["total"]["fraction"]["value"] == total.num_positive / total.num_called
    assert record["total"]["error_corrected"]["interval"][0] > 0
    # Nothing is corrected by equal rates, so nothing is repeated.
    assert "no-call-corrected" not in result.tables()[0].columns


def test_controls_that_the_model_learnt_from_are_warned_of(sources, tmp_path, says, caplog):
    ids = np.array([list(uuid.UUID(read_id(number)).bytes) for number in (3, 4)], dtype=np.uint8)
    learnt = Learnt.of(ids, ["run-of-FC1"])
    model = make_model(tmp_path / "model", learnt.to_mapping())
    learnt.save(model)
    known = controls(model, sources, tmp_path, says)
    assert caplog.text.count(f"Model '{model}' learnt from 2 of the 11 reads") == 2
    caplog.clear()
    run(model, sources, tmp_path / "c", format="tsv", sample="s", **known)
    assert caplog.text.count("holds reads that the model learnt from, or was chosen by (2 of 11 compared)") == 2
    # A record from before this was kept tells nothing, and nothing is claimed of it.
    for name in "np":
        path = tmp_path / name / "s.predict.json"
        record = json.loads(path.read_text())
        del record["learnt_from"]
        path.write_text(json.dumps(record))
    caplog.clear()
    run(model, sources, tmp_path / "d", format="tsv", sample="s", **known)
    assert "holds reads that the model learnt from" not in caplog.text


def test_shares_of_called_reads_come_from_controls_with_the_same_abstention(model, sources, tmp_path, says, caplog):
    # Every second positive read has 0.7, which is no sure call: beginning with the 12th word, 6 of 11 are called.
    known = controls(model, sources, tmp_path, says, (0.05, (0.7, 0.95)), min_confidence=0.9)
    result = run(model, sources, tmp_path / "c", format="tsv", sample="s", min_confidence=0.9, **known)
    rates = result.summarised.corrections.calls
    assert rates == (pytest.approx(6 / 11), 1.0)
    assert "no-call-corrected" in result.tables()[0].columns
    caplog.clear()
    alone = run(model, sources, tmp_path / "a", format="tsv", sample="s", min_confidence=0.9)
    assert "no-call-corrected" not in alone.tables()[0].columns
    told = [record.message for record in caplog.records if "left uncalled" in record.message]
    assert len(told) == 1
    assert told[0].startswith("4 of 12 reads were left uncalled as asked for (low_confidence 4)")
    assert "--call-rates" in told[0]


@pytest.mark.parametrize(
    ("made", "used", "message"),
    [
        ({"threshold_cl": 100}, {}, r"threshold_cl \(100 there, 200 here\)"),
        ({}, {"threshold": 0.5}, r"threshold_cl \(200 there, 128 here\)"),
        ({"min_confidence": 0.8}, {}, r"min_confidence \(0.8 there, none here\)"),
        ({}, {"abstain_junction_indel": True}, r"abstain_junction_indel \(no there, yes here\)"),
    ],
)
def test_controls_called_by_other_rules_are_refused(model, sources, tmp_path, says, made, used, message):
    known = controls(model, sources, tmp_path, says, **made)
    with pytest.raises(MismatchError, match=message) as caught:
        run(model, sources, tmp_path / "c", format="tsv", sample="s", **used, **known)
    assert "Call the control library" in caught.value.hint
    assert not (tmp_path / "c").exists()


def test_controls_of_another_model_or_calibration_are_refused(model, sources, tmp_path, says):
    known = controls(model, sources, tmp_path, says)
    other, calibrated = make_model(tmp_path / "other", labels=("fresh", "spent")), tmp_path / "calibrated"
    calibrated.mkdir()
    copy_bundle(model, calibrated, calibration=Calibration(method="platt", scale=1.1), operating_point=OperatingPoint())
    with pytest.raises(
        MismatchError, match=r"model \(sha256:\w{12} there, .* labels \(no and yes there, fresh and spent"
    ):
        run(other, sources, tmp_path / "c", format="tsv", sample="s", **known)
    with pytest.raises(MismatchError, match=r"calibration \(none there, sha256:\w{12} here\)"):
        run(calibrated, sources, tmp_path / "c", format="tsv", sample="s", **known)


def test_a_control_without_its_record_or_beside_another_s_is_refused(model, sources, tmp_path, says):
    known = controls(model, sources, tmp_path, says)
    record = tmp_path / "n" / "s.predict.json"
    content = json.loads(record.read_text())
    for changed, message in (
        ({**content, "tally": {}}, "not of one run"),
        ({name: value for name, value in content.items() if name != "model_digest"}, "earlier version of leech"),
    ):
        record.write_text(json.dumps(changed))
        with pytest.raises(LeechError, match=message):
            run(model, sources, tmp_path / "c", format="tsv", sample="s", **known)
    record.unlink()
    with pytest.raises(InputError, match=r"has no 's\.predict\.json' beside it"):
        run(model, sources, tmp_path / "c", format="tsv", sample="s", **known)
    renamed = known["positive_control"].rename(tmp_path / "p" / "mine.tsv.gz")
    with pytest.raises(InputError, match=r"is not named SAMPLE\.charging_summary\.tsv\.gz"):
        run(model, sources, tmp_path / "c", format="tsv", sample="s", **{**known, "negative_control": renamed})


@pytest.mark.parametrize(
    ("columns", "row", "message"),
    [
        ("sample\treference\tn_positive\tn_negative", "s\ta\t1\t2", "over several samples"),
        ("reference\tpositive", "a\t1", "no column 'n_positive'"),
        ("reference\tn_positive\tn_negative", "a\tmany\t2", "line 2: a count is no whole number"),
        ("reference\tn_positive\tn_negative", "a\t-5\t2", "line 2: a count is no whole number"),
        ("reference\tn_positive\tn_negative", "a\t²\t2", "line 2: a count is no whole number"),
        ("reference\tn_positive\tn_negative", "a\t1\t2\na\t1\t2", "line 3 names reference 'a' a second time"),
    ],
)
def test_a_table_that_is_no_summary_is_no_control(model, sources, tmp_path, columns, row, message):
    path = tmp_path / TABLE
    path.write_text(f"{columns}\n{row}\n")
    with pytest.raises(InputError, match=message):
        run(model, sources, tmp_path / "s.bam", negative_control=path, positive_control=path)


def test_controls_of_other_references_are_refused_and_of_some_are_told_of(model, sources, tmp_path, says, caplog):
    records = [TinyRecord(read_id(number)) for number in range(1, 5)]
    other = write_run(
        tmp_path / "run", records, {one.name: ramp(60) for one in records}, {"tRNA-His-GTG-1-1": "ACGTACGTAC"}
    )
    with pytest.raises(MismatchError, match="None of the 1 references of the controls") as caught:
        run(model, sources, tmp_path / "c", format="tsv", sample="s", **controls(model, other, tmp_path / "h", says))
    assert "tRNA-His-GTG-1-1" in caught.value.message
    assert not (tmp_path / "c" / TABLE).exists()
    first = write_run(tmp_path / "first", records, {one.name: ramp(60) for one in records}, REFERENCES)
    run(model, sources, tmp_path / "c", format="tsv", sample="s", **controls(model, first, tmp_path / "f", says))
    assert "no read of 1 of 2 references called" in caplog.text


@pytest.mark.parametrize("option", ["negative_control", "reference_groups"])
def test_tables_that_are_read_are_not_replaced_by_force(model, sources, tmp_path, option):
    # The control of an earlier run lies where this run's own summary would go.
    run(model, sources, tmp_path, format="tsv", sample="s")
    run(model, sources, tmp_path / "p", format="tsv", sample="s")
    table = tmp_path / "s.charging_summary.tsv.gz"
    before = table.read_bytes()
    other = {"positive_control": tmp_path / "p" / table.name} if option == "negative_control" else {}
    with pytest.raises(ConfigError, match="which would be lost"):
        run(model, sources, tmp_path, format="tsv", sample="s", force=True, **{option: table}, **other)
    assert table.read_bytes() == before


def test_tables_of_a_model_of_more_states_do_not_stay_beside_the_new_record(model, sources, tmp_path):
    run(model, sources, tmp_path / "s.bam", tables=tmp_path)
    for name in ("s.states.tsv.gz", "s.states_summary.tsv.gz", "other.states.tsv.gz"):
        (tmp_path / name).write_text("of an earlier run")
    run(model, sources, tmp_path / "s.bam", tables=tmp_path, force=True)
    assert files(tmp_path) == sorted(["other.states.tsv.gz", "s.bam", *TABLES])


@pytest.mark.parametrize(
    ("there", "here", "words"),
    [
        (CLASSES_FORMAT, FORMAT, "by a model of more than two states, and here a model of two is asked"),
        (FORMAT, CLASSES_FORMAT, "by a model of two states, and here a model of more than two is asked"),
    ],
)
def test_a_record_of_a_model_of_another_number_of_states_says_so(tmp_path, there, here, words):
    path = tmp_path / "s.predict.json"
    path.write_text(json.dumps({"format": there, "schema_version": 1}))
    assert read_record(path, "again", there)["format"] == there
    with pytest.raises(MismatchError, match=words) as caught:
        read_record(path, "again", here)
    assert caught.value.hint == "again"
    for content in ('{"format": "leech-model"}', "[]", "{"):
        path.write_text(content)
        with pytest.raises(InputError, match=r"predict\.json"):
            read_record(path, "again", here)
