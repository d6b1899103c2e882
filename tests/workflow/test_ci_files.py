"""The files under .github: they parse, hold to the rules for workflows, and refer only to what is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
GITHUB = REPOSITORY / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").iterdir())

RELEASE_FOLDER = "release/"
"""What release.yml makes itself and passes from job to job."""


def load(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs(workflow):
    return workflow["jobs"].items()


def steps(workflow):
    return [step for _, job in jobs(workflow) for step in job["steps"]]


def commands(workflow):
    return [step["run"] for step in steps(workflow) if "run" in step]


@pytest.fixture(params=WORKFLOWS, ids=lambda path: path.name)
def workflow(request):
    return load(request.param)


def test_the_workflows_are_all_there():
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "escapepod-sync.yml", "nightly.yml", "release.yml"]


def test_every_workflow_starts_from_no_permission_and_each_job_names_its_own(workflow):
    assert workflow["permissions"] == {}
    assert all(job["permissions"] for _, job in jobs(workflow))


# Everything else reads only; a new power in any workflow has to be written down here too.
def test_only_the_jobs_that_must_may_write():
    writing = {
        (path.stem, name): {power for power, level in job["permissions"].items() if level == "write"}
        for path in WORKFLOWS
        for name, job in jobs(load(path))
        if set(job["permissions"].values()) != {"read"}
    }
    assert writing == {
        ("escapepod-sync", "sync"): {"contents", "pull-requests"},
        ("release", "publish"): {"id-token"},
        ("release", "announce"): {"contents"},
    }


def test_every_job_has_a_time_limit_of_an_hour_at_most(workflow):
    assert all(0 < job["timeout-minutes"] <= 60 for _, job in jobs(workflow))


def test_every_action_is_pinned_to_a_commit(workflow):
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert used
    assert [name for name in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", name)] == []


def test_one_action_has_one_version_everywhere():
    used = {step["uses"] for path in WORKFLOWS for step in steps(load(path)) if "uses" in step}
    names = [name.split("@")[0] for name in used]
    assert sorted(names) == sorted(set(names))


def test_the_version_of_every_pinned_action_is_written_beside_it():
    lines = [line for path in WORKFLOWS for line in path.read_text(encoding="utf-8").splitlines() if "uses:" in line]
    assert [line for line in lines if not re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)] == []


def test_no_checkout_leaves_its_token_behind(workflow):
    checkouts = [step for step in steps(workflow) if step.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


# A name of a branch or a version put into a command as text could be made to run as one.
def test_no_command_has_an_expression_put_into_it(workflow):
    assert [command for command in commands(workflow) if "${{" in command] == []


def test_every_command_is_bash_that_parses(workflow):
    for command in commands(workflow):
        subprocess.run(["bash", "-n"], input=command, text=True, check=True, timeout=20)


def test_every_file_that_a_command_names_is_there(workflow):
    words = [word.strip("'\"") for command in commands(workflow) for word in command.split()]
    named = [word for word in words if re.fullmatch(r"[\w.][\w./-]*(/[\w.-]+|\.(lock|toml|md|py|sh))", word)]
    made = [word for word in named if word.startswith((RELEASE_FOLDER, ".venv/"))]
    assert [word for word in named if word not in made and not (REPOSITORY / word).exists()] == []


def test_every_file_that_an_action_is_given_is_there(workflow):
    keys = ("cache-dependency-path", "sparse-checkout")
    named = [step["with"][key] for step in steps(workflow) for key in keys if key in step.get("with", {})]
    assert [name for name in named if not (REPOSITORY / name).is_file()] == []


def test_every_target_of_make_is_one(workflow):
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    asked = {target for command in commands(workflow) for target in re.findall(r"\bmake ([\w-]+)", command)}
    assert asked <= targets


def test_every_job_that_another_needs_is_there(workflow):
    for _, job in jobs(workflow):
        needs = job.get("needs", [])
        assert {needs} <= set(workflow["jobs"]) if isinstance(needs, str) else set(needs) <= set(workflow["jobs"])


def test_every_output_of_a_step_comes_from_an_earlier_step_that_writes_it():
    path = GITHUB / "workflows" / "escapepod-sync.yml"
    used = re.findall(r"steps\.([\w-]+)\.outputs\.([\w-]+)", path.read_text(encoding="utf-8"))
    script = (GITHUB / "scripts" / "escapepod_sync.py").read_text(encoding="utf-8")
    assert used == [("pins", "changed"), ("pins", "version")]
    assert [step.get("id") for step in steps(load(path))].index("pins") == 2
    assert 'results = {"changed": "false", "version": ""}' in script


def test_python_is_tested_from_the_oldest_that_is_promised():
    versions = set()
    for _, job in jobs(load(GITHUB / "workflows" / "ci.yml")):
        asked = [step["with"]["python-version"] for step in job["steps"] if "python-version" in step.get("with", {})]
        versions |= set(job.get("strategy", {}).get("matrix", {}).get("python", [])) or set(asked)
    pyproject = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    assert f'requires-python = ">={sorted(versions)[0]}"' in pyproject
    assert sorted(versions) == ["3.10", "3.11", "3.12", "3.13"]


def test_ci_can_be_started_by_hand_as_the_proposal_tells():
    # YAML reads the bare word on as true.
    workflow = load(GITHUB / "workflows" / "ci.yml")
    assert "workflow_dispatch" in workflow[True]
    assert f"*{workflow['name']}*" in (GITHUB / "escapepod-sync.md").read_text(encoding="utf-8")


def test_what_runs_by_the_clock_can_be_started_by_hand_too(workflow):
    events = workflow[True]
    if "schedule" in events:
        assert "workflow_dispatch" in events
        assert all(re.fullmatch(r"[0-5]?\d [01]?\d \* \* \*", entry["cron"]) for entry in events["schedule"])


def test_nothing_is_published_before_it_was_tested_built_and_tried():
    release = load(GITHUB / "workflows" / "release.yml")["jobs"]
    assert (release["publish"]["needs"], release["announce"]["needs"]) == (["build", "try"], "publish")
    assert [step["run"].split()[1] for step in release["build"]["steps"] if "run" in step][1:] == [
        ".github/scripts/escapepod_sync.py",
        ".ci/run",
        ".github/scripts/build_distributions.sh",
    ]


def test_dependabot_looks_after_the_package_and_the_actions():
    dependabot = load(GITHUB / "dependabot.yml")
    assert dependabot["version"] == 2
    assert [update["package-ecosystem"] for update in dependabot["updates"]] == ["pip", "github-actions"]
    assert all((REPOSITORY / update["directory"].lstrip("/")).is_dir() for update in dependabot["updates"])


def test_no_file_names_an_address():
    texts = {
        path: path.read_text(encoding="utf-8") for path in GITHUB.rglob("*") if path.is_file() and path.suffix != ".pyc"
    }
    assert [path.name for path, text in texts.items() if "://" in text] == []
    assert len(texts) > len(WORKFLOWS)


@pytest.mark.parametrize(
    "name", ["escapepod_sync.py", "check_release.py", "build_distributions.sh", "propose_escapepod_sync.sh"]
)
def test_every_script_can_be_run_as_a_program(name):
    path = GITHUB / "scripts" / name
    assert path.stat().st_mode & 0o111
    assert path.read_text(encoding="utf-8").startswith("#!/usr/bin/env ")
