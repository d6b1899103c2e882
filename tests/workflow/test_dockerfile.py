"""The Dockerfile as text, since no container engine runs where leech is developed: a linter, and what a linter cannot know."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs_blocks import docs_program

REPOSITORY = Path(__file__).parents[2]
TEXT = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")


def instructions():
    """Return (name, arguments) of every instruction, continued lines joined, comments left out."""
    lines = "\n".join(line for line in TEXT.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return [tuple(line.split(None, 1)) for line in lines.replace("\\\n", " ").splitlines()]


def arguments():
    return {rest.partition("=")[0] for name, rest in instructions() if name == "ARG"}


def test_the_linter_has_nothing_to_say():
    linter = docs_program("hadolint")
    if linter is None:
        pytest.skip("hadolint is not installed; 'make docs' installs it")
    command = [linter, "--no-color", "--failure-threshold", "style", REPOSITORY / "Dockerfile"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_is_copied_is_there_and_goes_to_the_builder():
    ignored = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {line[1:] for line in ignored if line.startswith("!")}
    copied = [
        word for name, rest in instructions() if name == "COPY" and "--from" not in rest for word in rest.split()[:-1]
    ]
    assert len(copied) == 5
    assert [name for name in copied if not (REPOSITORY / name).exists()] == []
    assert set(copied) == sent
    assert "*" in ignored


def test_everything_that_building_the_package_reads_is_copied():
    project = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    read = re.findall(r'^readme = "(.+)"$|^license-files = \["(.+)"\]$', project, re.MULTILINE)
    copied = " ".join(rest for name, rest in instructions() if name == "COPY")
    assert len(read) == 2
    assert all(fnmatch.filter(copied.split(), "".join(name)) for name in read)


def test_every_shell_command_parses():
    scripts = [rest for name, rest in instructions() if name == "RUN"]
    assert len(scripts) >= 4
    for script in scripts:
        subprocess.run(["sh", "-n"], input=script, text=True, check=True, timeout=20)


@pytest.mark.parametrize(("device", "code"), [("cpu", 0), ("cuda", 0), ("gpu", 1)])
def test_the_device_is_cpu_or_cuda_and_nothing_else(device, code):
    script = next(rest for name, rest in instructions() if name == "RUN" and "$DEVICE" in rest)
    # Stand-ins on the path: what python would say of torch is not the question here.
    stubs = f"python() {{ :; }}; leech() {{ :; }}; DEVICE={device}; {script}"
    assert subprocess.run(["sh", "-c", stubs], capture_output=True, timeout=20, check=False).returncode == code


def test_a_torch_without_cuda_is_refused_for_a_gpu():
    script = next(rest for name, rest in instructions() if name == "RUN" and "$DEVICE" in rest)
    check = re.search(r'cuda\) python -c "(.+?)"', script)[1]
    stub = (
        "import sys, types; torch = types.ModuleType('torch'); torch.version = types.SimpleNamespace(cuda={}); "
        "sys.modules['torch'] = torch; "
    )
    for cuda, code in (("None", 1), ("'12.8'", 0)):
        done = subprocess.run(
            [sys.executable, "-c", stub.format(cuda) + check], capture_output=True, timeout=20, check=False
        )
        assert done.returncode == code


def test_versions_come_from_the_lock():
    installs = [rest for name, rest in instructions() if name == "RUN" and "pip install" in rest]
    assert all(part.count("--constraint requirements.lock") == 1 for rest in installs for part in rest.split("&&"))


def test_both_stages_have_the_same_python_and_leech_allows_it():
    bases = [rest.split()[0] for name, rest in instructions() if name == "FROM"]
    assert len(bases) == 2
    assert len(set(bases)) == 1
    version = re.search(r"^ARG PYTHON_VERSION=3\.(\d+)$", TEXT, re.MULTILINE)
    assert int(version[1]) >= 10


def test_leech_does_not_run_as_root():
    names = [name for name, _ in instructions()]
    assert dict(instructions())["USER"] == "1000"
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert dict(instructions())["ENTRYPOINT"] == '["leech"]'


def test_the_page_on_installation_tells_every_argument_and_no_other():
    page = (REPOSITORY / "docs" / "install.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE))
    assert told == arguments()
    assert set(re.findall(r"--build-arg (\w+)=", page)) <= arguments()
