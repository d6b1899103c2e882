"""Real reads from preparing to calibrated calls: what is tested, compared and predicted is the same."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pysam
import pytest

from leech.cli.main import main

NAMES = ("wt", "truB")


def run(*words: object) -> None:
    assert main([str(word) for word in words]) == 0


@pytest.fixture(scope="module")
def work(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two models of pseudouridine 55, one of them calibrated."""
    folder, source = tmp_path_factory.mktemp("psi55"), real_data / "ecoli_psi55"
    site = ("--motif", "GTTC", "--motif-offset", 2, "--motif-occurrence", "last")
    for name in NAMES:
        reads = ("--pod5", source / name / "reads.pod5", "--bam", source / name / "mappings.bam")
        run(
            "data",
            "prepare",
            *reads,
            "--reference",
            source / "reference.fa",
            *site,
            "--label",
            name,
            "-o",
            folder / name,
        )
    shares = ("--split", 0.4, 0.1, 0.25, 0.25)
    libraries = [folder / name for name in NAMES]
    run("data", "merge", *libraries, "-o", folder / "corpus", "--positive-label", "wt", *shares)
    for number in (1, 2):
        settings = ("--epochs", 6, "--device", "cpu", "--seed", number)
        run("model", "train", "--data", folder / "corpus", "-o", folder / f"model{number}", *settings)
    data = ("--data", folder / "corpus", "--device", "cpu", "--bootstrap", 50)
    run("model", "calibrate", "--model", folder / "model1", *data, "-o", folder / "calibrated", "--target-recall", 0.8)
    tested = ("-o", folder / "metrics.json", "--scores", folder / "scores.tsv.gz")
    run("eval", "test", "--model", folder / "calibrated", *data, *tested)
    compared = ("-o", folder / "comparison.json", "--flips", folder / "flips.tsv")
    run("eval", "compare", folder / "scores.tsv.gz", folder / "model2", *data, *compared)
    return folder


def rows(path: Path) -> list[dict[str, str]]:
    import gzip

    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_predict_gives_the_reads_of_the_test_split_what_eval_test_gave_them(work: Path, real_data: Path) -> None:
    tested = {row["read_id"]: row for row in rows(work / "scores.tsv.gz")}
    found = {}
    for name in NAMES:
        source = real_data / "ecoli_psi55"
        reads = ("--pod5", source / name / "reads.pod5", "--bam", source / name / "mappings.bam")
        options = ("--reference", source / "reference.fa", "--tables", work / "tables", "--device", "cpu")
        run("predict", "--model", work / "calibrated", *reads, *options, "-o", work / f"{name}.bam")
        with pysam.AlignmentFile(str(work / f"{name}.bam"), "rb") as file:
            found |= {record.query_name: record.get_tag("cl") for record in file if record.has_tag("cl")}
    assert len(tested) == 66
    assert {name: int(row["cl"]) for name, row in tested.items()} == {name: found[name] for name in tested}
    corrections = json.loads((work / "tables" / "wt.predict.json").read_text())["corrections"]
    assert corrections["error_rates_from"] == "operating point of the model, test split"
    counted = json.loads((work / "calibrated" / "model.json").read_text())["operating_point"]["achieved"]["test"]
    assert sum(one["tp"] for one in counted["references"].values()) == counted["tp"]
    assert set(corrections["error_rates_by_reference"]) == set(counted["references"])


def test_the_operating_point_is_one_value_everywhere(work: Path) -> None:
    point = json.loads((work / "calibrated" / "model.json").read_text())["operating_point"]
    metrics = json.loads((work / "metrics.json").read_text())
    assert point["target"] == {"recall": 0.8}
    assert point["achieved"]["calibration"]["tpr"]["value"] >= 0.8
    assert metrics["operating_point"]["threshold_cl"] == point["threshold_cl"]
    for figure in ("tp", "fp", "tn", "fn", "tpr", "fpr", "precision"):
        assert metrics["operating_point"][figure] == point["achieved"]["test"][figure]
    calls = [(int(row["cl"]) >= point["threshold_cl"], row["call"] == "wt") for row in rows(work / "scores.tsv.gz")]
    assert all(above == positive for above, positive in calls)


def test_real_names_give_isoacceptors_and_libraries_are_controls(work: Path) -> None:
    metrics = json.loads((work / "metrics.json").read_text())
    assert [group["name"] for group in metrics["groups"]["isoacceptor"]] == [
        "host-Ala-TGC",
        "host-Arg-ACG",
        "host-Gly-GCC",
    ]
    assert sum(group["num_reads"] for group in metrics["groups"]["junction"]) == metrics["num_reads"]
    # A library per state, each under its own sample name.
    assert metrics["controls"]["0"]["called_positive"]["value"] == metrics["operating_point"]["fpr"]["value"]
    assert metrics["controls"]["100"]["called_positive"]["value"] == metrics["operating_point"]["tpr"]["value"]


def test_flips_are_the_reads_whose_calls_differ(work: Path) -> None:
    comparison = json.loads((work / "comparison.json").read_text())
    flips = rows(work / "flips.tsv")
    assert len(flips) == comparison["num_flips"] == comparison["contrasts"][0]["num_flips"]
    assert all(row["scores_call"] != row["model2_call"] for row in flips)
    tested = {row["read_id"]: row for row in rows(work / "scores.tsv.gz")}
    assert all(row["scores_p"] == tested[row["read_id"]]["p"] for row in flips)
    right = [np.sum([row[f"{name}_call"] == row["label"] for row in flips]) for name in ("scores", "model2")]
    assert [comparison["contrasts"][0]["mcnemar"][key] for key in ("only_first", "only_second")] == right
