"""The pipeline's rules against the real command line, and what every rule must say; no snakemake needed."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
import yaml
from rules_as_text import (
    REPOSITORY,
    RULE_FILES,
    RULES,
    WORKFLOWS,
    leech_arguments,
    pipeline,
    read_rules,
    settle,
    written_out,
)

from leech.cli.main import leech
from leech.cli.session import Session
from leech.config import load_toml
from leech.errors import ConfigError

SPARSE = settle(prepare={"motif": "CCAGGC", "motif_offset": 2}, merge={"positive_label": "charged"})

FULL = settle(
    train_gpus=4,
    batch_size=256,
    prepare={"motif": "CCAGGC", "motif_offset": -2, "kmer_table": "a table.txt", "options": "prepare.toml"},
    merge={"positive_label": "charged", "hold_out": ["flow_cell=A,B", "reference=tRNA-Ala"], "balance": True},
    check={"allow": ["flow_cell", "run"], "fail_above": 0.6},
    train={"network": "net.toml", "options": "train.toml", "seed": 3},
    calibrate={"method": "platt", "target_fpr": 0.05},
    predict={"options": "predict.toml"},
)

BED = settle(prepare={"sites": "sites.bed"}, merge={"positive_label": "charged"}, calibrate={"target_recall": 0.9})

LEECH_RULES = [rule for rule in RULES if leech_arguments(written_out(rule, SPARSE)) is not None]


class AcceptedError(Exception):
    """A command got as far as its work: flags, required ones and their values were right."""


@pytest.fixture
def resolve(tmp_path, monkeypatch):
    """Return a function that gives a command line to leech, up to its work, and returns what the flags say."""
    monkeypatch.chdir(tmp_path)
    for name in ("prepare", "train", "predict"):
        Path(f"{name}.toml").touch()

    def stop(*_arguments):
        raise AcceptedError(click.get_current_context().params)

    monkeypatch.setattr(Session, "start", stop)

    def run(arguments):
        with pytest.raises(AcceptedError) as accepted:
            leech.main(arguments, obj=["leech", *arguments], standalone_mode=False)
        return accepted.value.args[0]

    return run


def test_the_rules_are_all_seen():
    names = [rule.name for rule in RULES]
    assert len(names) == len(set(names))
    assert len(names) == sum(
        len(re.findall(r"^\s*(?:rule|checkpoint)\b", path.read_text(), re.MULTILINE)) for path in RULE_FILES
    )
    included = re.findall(r'^include: "(.*)"$', (REPOSITORY / "Snakefile").read_text(), re.MULTILINE)
    assert sorted(REPOSITORY / name for name in included) == RULE_FILES


def test_rules_call_leech_alone_but_for_basecalling_alignment_and_the_filter():
    others = {rule.name for rule in RULES} - {rule.name for rule in LEECH_RULES}
    assert others == {
        "download_basecaller", "basecall", "index_reference", "align_bwa", "align_minimap2", "install_escpod", "filter_pod5",
    }  # fmt: skip


@pytest.mark.parametrize("config", [SPARSE, FULL, BED], ids=["sparse", "full", "bed"])
@pytest.mark.parametrize("rule", LEECH_RULES, ids=lambda rule: rule.name)
def test_every_command_line_is_one_that_leech_takes(rule, config, resolve):
    assert resolve(leech_arguments(written_out(rule, config)))


@pytest.mark.parametrize(
    "line",
    [
        "leech data prepares --pod5 a --bam b --reference c -o d",
        "leech data prepare --pod5 a --bam b --reference c --lable x -o d",
        "leech data prepare --pod5 a --bam b -o d",
        "leech data prepare --pod5 a --bam b --reference c --workers many -o d",
        "leech data prepare --pod5 a --bam b --reference c --motif CCA -o d",
    ],
)
def test_a_command_line_that_leech_does_not_take_is_found(line, resolve):
    with pytest.raises((click.UsageError, ConfigError)):
        resolve(leech_arguments(line))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_says_where_it_writes_and_what_it_needs(rule):
    assert {"log", "benchmark", "threads", "resources", "conda", "shell", "output"} <= set(rule.directives)
    assert re.search(r"\bmem_mb=", rule.directives["resources"])
    assert re.search(r"\bruntime=", rule.directives["resources"])
    environment = re.search(r'"\.\./(.*)"', rule.directives["conda"]).group(1)
    assert (WORKFLOWS / environment).is_file()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_everything_that_may_hold_a_space_is_quoted_and_all_that_is_said_goes_to_the_log(rule):
    numbers = {"threads", "params.threads_a_rank", "params.device"}
    unquoted = set(re.findall(r"\{([\w.]+)\}", rule.shell)) - numbers
    assert unquoted == set()
    assert re.search(r"(?:&>|2>) \{log:q\}$", rule.shell)


def test_a_rule_written_badly_would_be_found():
    (rule,) = read_rules(
        'rule a:\n    output:\n        "b",\n    shell:\n        "leech predict {input} "\n        "> {output:q}"\n'
    )
    assert set(rule.directives) == {"output", "shell"}
    assert rule.shell == "leech predict {input} > {output:q}"


def test_training_goes_on_where_it_was_whoever_starts_it_again(resolve):
    (train,) = [rule for rule in RULES if rule.name == "train"]
    assert resolve(leech_arguments(written_out(train, SPARSE)))["resume"]
    assert "retries" in train.directives
    assert yaml.safe_load((WORKFLOWS / "profiles" / "slurm" / "config.yaml").read_text())["slurm-requeue"]


def test_one_key_says_how_many_gpus_there_are_to_command_scheduler_cpus_and_memory(resolve):
    (train,) = [rule for rule in RULES if rule.name == "train"]
    flags = [resolve(leech_arguments(written_out(train, settle(train_gpus=number)))) for number in (0, 1, 4)]
    assert [(given["gpus"], given["device"]) for given in flags] == [(1, "cpu"), (1, "cuda"), (4, "cuda")]
    resources = train.directives["resources"]
    assert 'pipeline.gpu_count(config, config["train_gpus"])' in resources
    assert 'pipeline.gpu_gres(config, config["train_gpus"])' in resources
    assert 'pipeline.lsf_gpus(config["train_gpus"])' in resources
    assert "pipeline.train_memory_mb(config, input.corpora)" in resources
    assert "pipeline.train_threads(config)" in train.directives["threads"]


@pytest.mark.parametrize("name", ["local", "slurm", "lsf"])
def test_profiles_name_stock_executors_and_nothing_that_a_rule_says(name):
    profile = yaml.safe_load((WORKFLOWS / "profiles" / name / "config.yaml").read_text())
    assert profile.get("executor", "local") == name
    assert not {"set-resources", "set-threads"} & set(profile)


def test_the_filter_is_installed_at_the_tag_of_the_pins():
    (install,) = [rule for rule in RULES if rule.name == "install_escpod"]
    assert 'tag=PINS["escpod"]["tag"]' in install.directives["params"]
    assert "cargo install --locked" in install.shell
    assert set(load_toml(WORKFLOWS / "pins.toml")["escpod"]) == {"git", "tag"}


def test_the_example_configuration_and_sheet_agree():
    config = settle(**yaml.safe_load((REPOSITORY / "config" / "config.yaml").read_text()))
    rows = pipeline.read_samples(REPOSITORY / config["samples"])
    blank = dict.fromkeys(("bam", "label", "condition", "flow_cell"), "")
    assert list(pipeline.settle_samples([{**blank, **row} for row in rows], config)) == [
        "charged",
        "uncharged",
        "treated",
    ]
