"""The whole pipeline on simulated reads: preempted once, killed once, and then to the end; and once more with nothing to do."""

from __future__ import annotations

import gzip
import json
import subprocess

import pytest
from snakemake_runs import REPOSITORY, PipelineFolder, program, write_program

pytestmark = pytest.mark.timeout(1200)

READS = 120

CONFIG = """\
samples: sample sheet.tsv
reference: in/charged/reference.fa
results: "all results"
prepare: {motif: CCAGGC, motif_offset: 2, workers: 1}
merge: {positive_label: charged}
check: {allow: [flow_cell, run]}
train: {options: train options.toml, retries: 1}
predict: {workers: 1}
"""

SHEET = (
    "# made for a test\r\n"
    "sample\tpod5\tbam\tcondition\tflow_cell\r\n"
    "charged-1\tin/charged/reads.pod5\tin/charged/mappings.bam\tcharged\tFC0\r\n"
    "\r\n"
    "uncharged.1\tin/uncharged/reads.pod5\tin/uncharged/mappings.bam\tuncharged\tFC1\r\n"
    "mixture\tin/mix ture/reads.pod5\tin/mix ture/mappings.bam\t\t\r\n"
)

# The first training is told to end as a cluster does it once it has saved something, the second says that it has gone on.
LEECH = """\
#!/bin/bash
if [[ "$1 $2" == "model train" ]]; then
    saved="$RUN_FOLDER/all results/model.resume"
    echo "$*" >> "$RUN_FOLDER/train.calls"
    if [[ $(wc -l < "$RUN_FOLDER/train.calls") == 1 ]]; then
        training=$$
        (until [[ -e "$saved" ]]; do sleep 0.05; done; kill -TERM $training) > /dev/null 2>&1 &
    elif [[ $(wc -l < "$RUN_FOLDER/train.calls") == 2 ]]; then
        (until grep -q "Going on after step" "$RUN_FOLDER/all results/logs/train.log"; do sleep 0.05; done
            touch "$RUN_FOLDER/second training") > /dev/null 2>&1 &
    fi
fi
exec "$REAL_LEECH" "$@"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with three simulated libraries, a configuration and a sheet."""
    folder = PipelineFolder(tmp_path_factory.mktemp("pipe line"))
    for seed, (name, fraction) in enumerate({"charged": 1, "uncharged": 0, "mix ture": 0.3}.items()):
        arguments = [
            "-o",
            f"in/{name}",
            "--reads",
            str(READS),
            "--charged-fraction",
            str(fraction),
            "--seed",
            str(seed),
        ]
        arguments += ["--num-references", "4", "--sample", name, "--flow-cell", f"FC{seed}", "--quiet"]
        subprocess.run(
            [folder.leech, "data", "simulate", *arguments],
            cwd=folder.root,
            env=folder.environment,
            check=True,
            stdout=subprocess.PIPE,
        )
    folder.write("config.yaml", CONFIG)
    folder.write("sample sheet.tsv", SHEET)
    folder.write("train options.toml", "epochs = 2\nsave_minutes = 0.0\n")
    write_program(folder.stand_ins / "leech", LEECH)
    return folder


@pytest.fixture(scope="module")
def finished(folder):
    """Run the pipeline as a bad night would: training is preempted, then everything killed, then started again."""
    results = folder.root / "all results"
    folder.run_and_kill("--cores", "2", once=folder.root / "second training")
    left = {path.name for path in results.iterdir()}
    assert folder.run("--unlock").returncode == 0
    profile = REPOSITORY / "workflows" / "profiles" / "local"
    run = folder.run("--workflow-profile", str(profile), "--cores", "2")
    assert run.returncode == 0, run.stdout
    return results, left


def test_a_training_that_was_preempted_is_begun_again_and_goes_on(folder, finished):
    results, _ = finished
    # Preempted, killed, finished; each start but the first went on, and the second was killed once it had said so.
    assert len(folder.attempts("train")) == 3
    assert (folder.root / "second training").exists()
    assert "Going on after step" in (results / "logs" / "train.log").read_text()
    assert (folder.root / "killed.log").read_text().count("Trying to restart job") == 1
    assert not (results / "model.resume").exists()


def test_what_was_killed_left_nothing_under_a_final_name(finished):
    _, left = finished
    assert "corpus" in left
    assert "model.resume" in left
    assert not {"model", "model.calibrated", "metrics.json"} & left


def test_everything_up_to_the_report_is_there(finished):
    results, _ = finished
    metrics = json.loads((results / "metrics.json").read_text())
    assert "model.calibrated" in metrics["model"]
    assert json.loads((results / "check.json").read_text())
    assert "<html" in (results / "corpus.html").read_text()
    report = (results / "report.html").read_text()
    for sample in ("charged-1", "uncharged.1", "mixture"):
        assert (results / "calls" / f"{sample}.bam").stat().st_size > 0
        assert sample in report
        with gzip.open(results / "tables" / sample / f"{sample}.charging_calls.tsv.gz", "rt") as table:
            assert len(table.readlines()) > READS
    with gzip.open(results / "scores.tsv.gz", "rt") as table:
        assert len(table.readlines()) > 20


def test_every_job_left_a_log_and_a_benchmark(finished):
    results, _ = finished
    logs, benchmarks = (
        {path.relative_to(results / kind).with_suffix("") for path in (results / kind).rglob("*.*") if path.is_file()}
        for kind in ("logs", "benchmarks")
    )
    assert logs == benchmarks
    assert len(logs) == 2 + 3 + 3 + 3 + 1  # prepare, predict; merge, inspect, check; train, calibrate, test; report


def test_a_second_run_has_nothing_to_do(folder, finished):
    again = folder.run("--cores", "2")
    assert again.returncode == 0
    assert "Nothing to be done" in again.stdout


def test_another_seed_of_the_split_trains_and_calls_anew_but_cuts_nothing(folder, finished):
    folder.write("another.yaml", CONFIG.replace("merge: {", "merge: {seed: 7, "))
    jobs = folder.plan("another.yaml")
    assert {"merge", "check", "train", "calibrate", "test", "predict"} <= jobs
    assert "prepare" not in jobs


def test_another_limit_of_the_check_trains_nothing_again(folder, finished):
    folder.write("another.yaml", CONFIG + "check: {fail_above: 0.99}\n")
    jobs = folder.plan("another.yaml")
    assert "check" in jobs
    assert not jobs & {"prepare", "merge", "train", "calibrate", "test", "predict"}


def test_linters_find_nothing(folder):
    linted = folder.run("--lint")
    assert linted.returncode == 0, linted.stdout
    formatted = subprocess.run(
        [program("snakefmt"), "--check", REPOSITORY / "Snakefile", REPOSITORY / "workflows" / "rules"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert formatted.returncode == 0, formatted.stderr


def test_reads_without_a_bam_are_basecalled_aligned_and_filtered_if_asked_for(folder):
    folder.write("no bam.tsv", "sample\tpod5\nmixture\tin/mix ture/reads.pod5\n")
    lines = ["samples: no bam.tsv", "reference: in/charged/reference.fa", "results: other", "model: in"]
    lines += ["basecall: {model: rna004, aligner: %s}", "filter: {enabled: true}"]
    steps = {"download_basecaller", "basecall", "filter_pod5", "install_escpod", "predict"}
    for aligner, more in {"bwa": {"index_reference", "align_bwa"}, "minimap2": {"align_minimap2"}}.items():
        folder.write("another.yaml", "\n".join(lines) % aligner)
        assert folder.plan("another.yaml") >= steps | more


def test_the_results_folder_may_be_written_with_a_slash_at_its_end_or_a_dot_in_front(folder, finished):
    folder.write("another.yaml", CONFIG.replace('"all results"', '"./all results//"'))
    assert folder.plan("another.yaml") == set()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("config.yaml", CONFIG.replace("train:", "trian:"), "there is no key 'trian', did you mean 'train'?"),
        ("config.yaml", CONFIG + "train_gpus: two\n", "The configuration: train_gpus: 'two' is not"),
        ("sample sheet.tsv", SHEET.replace("flow_cell", "flowcell"), "no column 'flowcell', did you mean 'flow_cell'?"),
        ("sample sheet.tsv", SHEET.replace("charged-1", "charged/1", 1), "sample sheet.tsv, sample charged/1: "),
    ],
)
def test_what_the_schemas_do_not_allow_is_named(folder, name, text, words):
    kept = (folder.root / name).read_text()
    folder.write(name, text)
    try:
        refused = folder.run("--dry-run", "--cores", "2")
    finally:
        folder.write(name, kept)
    assert refused.returncode != 0
    assert words in refused.stdout
