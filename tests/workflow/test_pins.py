"""The three places that name escapepod's version: read strictly, compared as numbers, moved together or not at all.

pip and git are stand-ins put first on PATH; what they answer is what the test says. The real git has its turn in
test_pins_proposed.py.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from leech.config import load_toml

REPOSITORY = Path(__file__).parents[2]
SCRIPT = REPOSITORY / ".github" / "scripts" / "escapepod_sync.py"

PYPROJECT = """\
[project]
name = "leech"
# Not the pin: "escapepod==0.9.0".
dependencies = [
    "click>=8.2",
    "escapepod=={version}",
    "escapepod-extra==0.9.0",
]

[project.optional-dependencies]
dev = ["pytest>=8"]
"""

LOCK = """\
# escapepod==0.9.0 is not the pin.
click==8.5.1
escapepod=={version}
escapepod-extra==0.9.0
"""

PINS = """\
[other]
tag = "v{version}"

[escpod]
git = "upstream"
tag = "{tag}"  # released with the package

[another]
tag = "v{version}"
"""


class Sandbox:
    """A repository with three pins, and the stand-ins that its script will find."""

    def __init__(self, folder):
        self.root = folder / "repository"
        self.programs = folder / "programs"
        self.asked = folder / "asked"
        self.outputs = folder / "outputs"
        (self.root / "workflows").mkdir(parents=True)
        self.programs.mkdir()
        self.pin("0.9.0", "0.9.0", "v0.9.0")
        self.pip("0.10.0, 0.9.0")
        self.git("v0.9.0", "v0.10.0")

    def pin(self, pyproject, lock, tag):
        """Write the three files; what stands around the pins never changes."""
        (self.root / "pyproject.toml").write_text(PYPROJECT.format(version=pyproject))
        (self.root / "requirements.lock").write_text(LOCK.format(version=lock))
        (self.root / "workflows" / "pins.toml").write_text(PINS.format(version="0.9.0", tag=tag))

    def program(self, name, body):
        path = self.programs / name
        path.write_text(f"#!/bin/sh\necho {name} \"$@\" >> '{self.asked}'\n{body}\n")
        path.chmod(0o755)

    def pip(self, versions, stderr="", code=0):
        listed = f"echo 'escapepod (0.0.0)'; echo 'Available versions: {versions}'" if versions else ""
        self.program("pip", f"echo '{stderr}' >&2\n{listed}\nexit {code}")

    def git(self, *tags, stderr="", code=0):
        lines = "\n".join(f"printf '%s\\trefs/tags/%s\\n' {number:040x} '{tag}'" for number, tag in enumerate(tags))
        self.program("git", f"echo '{stderr}' >&2\n{lines}\nexit {code}")

    def run(self, *arguments, path=None):
        self.outputs.unlink(missing_ok=True)
        environment = os.environ | {
            "PATH": path or f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "GITHUB_OUTPUT": str(self.outputs),
        }
        return subprocess.run(
            [sys.executable, str(SCRIPT), "--root", str(self.root), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def pins(self):
        files = ("pyproject.toml", "requirements.lock", "workflows/pins.toml")
        return {name: (self.root / name).read_bytes() for name in files}

    def results(self):
        return dict(line.split("=", 1) for line in self.outputs.read_text().splitlines())

    def questions(self):
        return self.asked.read_text().splitlines() if self.asked.exists() else []


@pytest.fixture
def sandbox(tmp_path):
    return Sandbox(tmp_path)


def expected(version):
    """Return the three files as they are when all name ``version``."""
    return {
        "pyproject.toml": PYPROJECT.format(version=version).encode(),
        "requirements.lock": LOCK.format(version=version).encode(),
        "workflows/pins.toml": PINS.format(version="0.9.0", tag=f"v{version}").encode(),
    }


SKEWS = {
    "pyproject.toml is ahead": ("0.10.0", "0.9.0", "v0.9.0"),
    "the lock is ahead": ("0.9.0", "0.10.0", "v0.9.0"),
    "the tag is ahead": ("0.9.0", "0.9.0", "v0.10.0"),
    "only the tag is behind": ("0.10.0", "0.10.0", "v0.9.0"),
    "all three differ": ("0.8.9", "0.10.0", "v0.9.0"),
}


def test_pins_that_agree_are_in_step_and_nobody_is_asked(sandbox):
    for action in ("--check", "--fix"):
        done = sandbox.run(action)
        assert (done.returncode, done.stderr) == (0, "")
        assert sandbox.results() == {"status": "in-step", "changed": "false", "version": "0.9.0"}
    assert sandbox.pins() == expected("0.9.0")
    assert sandbox.questions() == []


@pytest.mark.parametrize("versions", SKEWS.values(), ids=SKEWS)
def test_check_tells_of_a_skew_from_any_side_and_changes_nothing(sandbox, versions):
    sandbox.pin(*versions)
    before = sandbox.pins()
    done = sandbox.run("--check")
    assert done.returncode == 1
    assert "move all three to 0.10.0" in done.stdout
    assert sandbox.results() == {"status": "skew", "changed": "false", "version": "0.10.0"}
    assert sandbox.pins() == before
    assert sandbox.questions() == []


# 0.10 is above 0.9 as numbers and below it as text, so each of these goes the wrong way in a comparison of strings.
@pytest.mark.parametrize("versions", SKEWS.values(), ids=SKEWS)
def test_fix_moves_all_three_to_the_highest_and_no_other_byte(sandbox, versions):
    sandbox.pin(*versions)
    done = sandbox.run("--fix")
    assert (done.returncode, done.stderr) == (0, "")
    assert sandbox.results() == {"status": "fixed", "changed": "true", "version": "0.10.0"}
    assert sandbox.pins() == expected("0.10.0")
    assert sandbox.questions() == ["pip index versions escapepod", "git ls-remote --tags -- upstream refs/tags/v0.10.0"]


def test_a_second_fix_does_nothing(sandbox):
    sandbox.pin("0.10.0", "0.9.0", "v0.9.0")
    sandbox.run("--fix")
    fixed, questions = sandbox.pins(), sandbox.questions()
    assert sandbox.run("--fix").returncode == 0
    assert sandbox.results() == {"status": "in-step", "changed": "false", "version": "0.10.0"}
    assert (sandbox.pins(), sandbox.questions()) == (fixed, questions)


def test_line_ends_and_a_missing_last_one_are_kept(sandbox):
    sandbox.pin("0.10.0", "0.9.0", "v0.9.0")
    before = {name: content.replace(b"\n", b"\r\n").rstrip() for name, content in sandbox.pins().items()}
    for name, content in before.items():
        (sandbox.root / name).write_bytes(content)
    assert sandbox.run("--fix").returncode == 0
    assert sandbox.pins() == {
        name: content.replace(b"\n", b"\r\n").rstrip() for name, content in expected("0.10.0").items()
    }


# Each row: file, text that is there, text to put in its place, what the message must say.
UNUSABLE = {
    "no requirement": ("pyproject.toml", '    "escapepod==0.9.0",', "", "no requirement on escapepod"),
    "a lower bound": ("pyproject.toml", '    "escapepod==0.9.0"', '"escapepod>=0.9.0"', "does not pin one version"),
    "a wildcard": ("pyproject.toml", '    "escapepod==0.9.0"', '"escapepod==0.9.*"', "does not pin one version"),
    "a range": ("pyproject.toml", '    "escapepod==0.9.0"', '"escapepod==0.9.0,<2"', "does not pin one version"),
    "required twice": ("pyproject.toml", '["pytest>=8"]', '["escapepod==0.9.0"]', "required 2 times"),
    "named in a group too": (
        "pyproject.toml",
        "[project.opt",
        '[dependency-groups]\na = ["escapepod==0.8.0", {include-group = "b"}]\nb = []\n[project.opt',
        "required 2 times",
    ),
    "named in another table too": (
        "pyproject.toml",
        "[project.opt",
        '[tool.x]\na = ["escapepod==0.9.0"]\n[project.opt',
        "found 2 times",
    ),
    "no project but a list": ("pyproject.toml", "[project]\nname", "project = []\nname", "pyproject.toml"),
    "dependencies as one text": (
        "pyproject.toml",
        "dependencies = [\n",
        'dependencies = "x"\na = [\n',
        "no requirement on",
    ),
    "digits of another script": ("pyproject.toml", '    "escapepod==0.9.0"', '"escapepod==0.\u0669.0"', "not a final"),
    "broken TOML": ("pyproject.toml", "[project]", "[project", "not valid TOML"),
    "no line in the lock": ("requirements.lock", "\nescapepod==0.9.0", "", "no line for escapepod"),
    "two lines in the lock": ("requirements.lock", "click", "escapepod==0.9.0\nclick", "found 2 times"),
    "a second line in the lock with a space in front": (
        "requirements.lock",
        "click",
        " escapepod==0.8.0\nclick",
        "2 times",
    ),
    "hashes in the lock": ("requirements.lock", "pod==0.9.0\n", "pod==0.9.0 --hash=sha256:00\n", "does not pin one"),
    "a marker in the lock": ("requirements.lock", "pod==0.9.0\n", "pod==0.9.0; os_name=='nt'\n", "does not pin one"),
    "no table": ("workflows/pins.toml", "[escpod]", "[escapod]", r"no table [escpod]"),
    "no tag": ("workflows/pins.toml", 'tag = "v0.9.0"  #', "#", "must hold git"),
    "no repository": ("workflows/pins.toml", 'git = "upstream"', "", "must hold git"),
    "an option for a repository": ("workflows/pins.toml", '"upstream"', '"--upload-pack=x"', "must hold git"),
    "two tags": ("workflows/pins.toml", 'git = "up', 'tag = "v0.8.0"\ngit = "up', "not valid TOML"),
    "a tag without v": ("workflows/pins.toml", '"v0.9.0"  #', '"0.9.0"  #', "no v in front"),
    "two parts": ("workflows/pins.toml", '"v0.9.0"  #', '"v0.9"  #', "not a final release"),
    "a candidate as tag": ("workflows/pins.toml", '"v0.9.0"  #', '"v0.10.0-rc.1"  #', "not a final release"),
    "a candidate required": (
        "pyproject.toml",
        '    "escapepod==0.9.0"',
        '"escapepod==0.10.0rc1"',
        "not a final release",
    ),
    "a development version locked": ("requirements.lock", "\nescapepod==0.9.0", "\nescapepod==0.10.0.dev1", "final"),
    "a local version locked": ("requirements.lock", "\nescapepod==0.9.0", "\nescapepod==0.9.0+here", "final"),
}


@pytest.mark.parametrize("action", ["--check", "--fix"])
@pytest.mark.parametrize(("name", "there", "instead", "message"), UNUSABLE.values(), ids=UNUSABLE)
def test_pins_that_cannot_be_told_are_refused_by_name_of_the_file(sandbox, action, name, there, instead, message):
    path = sandbox.root / name
    assert path.read_text().count(there) == 1
    path.write_text(path.read_text().replace(there, instead))
    before = sandbox.pins()
    done = sandbox.run(action)
    assert done.returncode == 2
    assert message in done.stderr
    assert name in done.stderr
    assert "Traceback" not in done.stderr
    assert sandbox.results() == {"status": "unusable", "changed": "false", "version": ""}
    assert sandbox.pins() == before
    assert sandbox.questions() == []


def test_a_file_that_is_not_there_is_named(sandbox):
    (sandbox.root / "requirements.lock").unlink()
    done = sandbox.run("--check")
    assert done.returncode == 2
    assert "requirements.lock cannot be read" in done.stderr


def unchanged_after(sandbox, code, status, message):
    """Run the fix of a tag that is ahead, and see that it gives up without changing anything."""
    sandbox.pin("0.9.0", "0.9.0", "v0.10.0")
    before = sandbox.pins()
    done = sandbox.run("--fix")
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert sandbox.results() == {"status": status, "changed": "false", "version": "0.10.0"}
    assert sandbox.pins() == before


def test_a_package_that_is_not_released_yet_is_waited_for(sandbox):
    sandbox.pip("0.9.0, 0.8.0")
    unchanged_after(sandbox, 3, "unreleased", "package escapepod 0.10.0 is not released yet")


# A version that only begins or ends with the target is another version.
def test_versions_that_resemble_the_target_do_not_stand_for_it(sandbox):
    sandbox.pip("10.10.0, 0.10.0rc1, 0.10.0.1, 0.9.0")
    unchanged_after(sandbox, 3, "unreleased", "not released yet")


@pytest.mark.parametrize("tags", [(), ("0.10.0",), ("x/refs/tags/v0.10.0",), ("v0.10.0-rc.1", "v0.10.0^{}")])
def test_a_tag_that_is_not_there_yet_is_waited_for(sandbox, tags):
    sandbox.git(*tags)
    unchanged_after(sandbox, 3, "unreleased", "upstream has no tag v0.10.0")


# pip ends this way, word for word, both for a package that an index does not know and for an index out of reach.
def test_pip_that_finds_nothing_at_all_gave_no_answer(sandbox):
    sandbox.pip("", stderr="ERROR: No matching distribution found for escapepod", code=1)
    unchanged_after(sandbox, 4, "unanswered", "No matching distribution found")


def test_pip_that_lists_nothing_gave_no_answer(sandbox):
    sandbox.pip("")
    unchanged_after(sandbox, 4, "unanswered", "listed no versions")


def test_a_partial_list_after_trouble_with_one_of_two_indexes_is_no_answer(sandbox):
    sandbox.pip("0.9.0", stderr="WARNING: Retrying (Retry(total=0)) after connection broken by NewConnectionError")
    unchanged_after(sandbox, 4, "unanswered", "had trouble asking")


def test_trouble_with_one_index_does_not_matter_if_another_has_the_version(sandbox):
    sandbox.pin("0.9.0", "0.9.0", "v0.10.0")
    sandbox.pip(
        "0.10.0, 0.9.0", stderr="WARNING: Retrying (Retry(total=0)) after connection broken by NewConnectionError"
    )
    assert sandbox.run("--fix").returncode == 0
    assert sandbox.pins() == expected("0.10.0")


def test_git_that_cannot_reach_the_repository_gave_no_answer(sandbox):
    sandbox.git(stderr="fatal: unable to access upstream: could not resolve host", code=128)
    unchanged_after(sandbox, 4, "unanswered", "could not resolve host")


def test_a_program_that_is_not_installed_gave_no_answer(sandbox):
    sandbox.pin("0.9.0", "0.9.0", "v0.10.0")
    done = sandbox.run("--fix", path=str(sandbox.root))
    assert done.returncode == 4
    assert "cannot be run" in done.stderr
    assert sandbox.results()["status"] == "unanswered"


def test_bytes_that_are_no_text_do_not_hide_an_answer(sandbox):
    sandbox.pin("0.9.0", "0.9.0", "v0.10.0")
    sandbox.program("pip", "printf 'WARNING: \\377\\n' >&2; printf 'Available versions: 0.10.0\\377, 0.10.0\\n'")
    assert sandbox.run("--fix").returncode == 0
    assert sandbox.pins() == expected("0.10.0")


# 1 would say that the versions differ.
def test_outputs_that_cannot_be_written_are_a_failure_of_their_own(sandbox):
    sandbox.outputs.parent.joinpath("folder").mkdir()
    sandbox.outputs = sandbox.outputs.parent / "folder" / "missing" / "outputs"
    done = sandbox.run("--check")
    assert done.returncode == 5
    assert "outputs of this step cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def script():
    specification = importlib.util.spec_from_file_location("escapepod_sync", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    sys.modules["escapepod_sync"] = module
    specification.loader.exec_module(module)
    yield module
    del sys.modules["escapepod_sync"]


def test_a_file_that_cannot_be_written_leaves_all_as_they_were(sandbox, script, monkeypatch, capsys):
    sandbox.pin("0.9.0", "0.9.0", "v0.10.0")
    before = sandbox.pins()
    write = Path.write_bytes

    def full(path, content):
        if "requirements" in path.name:
            write(path, content[:10])
            raise OSError(28, "No space left on device", str(path))
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setenv("PATH", f"{sandbox.programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("GITHUB_OUTPUT", str(sandbox.outputs))
    assert script.main(["--root", str(sandbox.root), "--fix"]) == 5
    assert "cannot be written: [Errno 28] No space left" in capsys.readouterr().err
    assert sandbox.results() == {"status": "failed", "changed": "false", "version": "0.10.0"}
    assert sandbox.pins() == before
    assert [path.name for path in sandbox.root.rglob("*partial*")] == []


def test_a_defect_of_the_script_is_no_skew(sandbox, script, monkeypatch, capsys):
    monkeypatch.setattr(script, "read_lock", lambda text: 1 / 0)
    monkeypatch.setenv("GITHUB_OUTPUT", str(sandbox.outputs))
    assert script.main(["--root", str(sandbox.root), "--check"]) == 5
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert sandbox.results()["status"] == "failed"


@pytest.mark.parametrize("arguments", [(), ("--check", "--fix"), ("--fixx",), ("--che",)])
def test_a_wrong_command_line_is_refused(sandbox, arguments):
    assert sandbox.run(*arguments).returncode == 2


def test_outputs_are_added_to_those_of_earlier_steps(sandbox, monkeypatch):
    monkeypatch.setenv("GITHUB_OUTPUT", str(sandbox.outputs))
    sandbox.outputs.write_text("earlier=yes\n")
    subprocess.run([sys.executable, SCRIPT, "--root", sandbox.root, "--check"], check=True, capture_output=True)
    assert sandbox.results() == {"earlier": "yes", "status": "in-step", "changed": "false", "version": "0.9.0"}


def test_without_a_file_for_outputs_none_is_written(sandbox, monkeypatch):
    monkeypatch.delenv("GITHUB_OUTPUT", raising=False)
    before = sorted(sandbox.root.rglob("*"))
    subprocess.run([sys.executable, SCRIPT, "--root", sandbox.root, "--check"], check=True, capture_output=True)
    assert sorted(sandbox.root.rglob("*")) == before


def test_every_exit_code_is_told_in_the_help(sandbox):
    said = sandbox.run("--help").stdout
    assert all(f"\n  {code}  " in said for code in range(6))


# Whether they agree is a check of its own in ci.yml, so that a bump of one side can be merged and followed by the other.
def test_the_pins_of_this_repository_can_be_read():
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert [line.split()[-1] for line in done.stdout.splitlines()[:3]] == [
        "pyproject.toml",
        "requirements.lock",
        "workflows/pins.toml",
    ]


def test_the_repository_that_is_pinned_is_the_one_that_the_package_names():
    urls = importlib.metadata.metadata("escapepod").get_all("Project-URL") or []
    named = dict(url.split(", ", 1) for url in urls)
    pinned = load_toml(REPOSITORY / "workflows" / "pins.toml")
    assert pinned["escpod"]["git"] == named["Repository"]


def test_the_script_names_no_address():
    assert "://" not in SCRIPT.read_text(encoding="utf-8")
