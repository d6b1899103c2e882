"""The daily workflow's steps, run with the real git: a scratch clone, its bare remote, and an upstream with tags.

pip and gh are stand-ins: pip lists the versions that the test says, gh keeps one open pull request in a file and writes down
what it was told.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / ".github" / "scripts"
BODY = Path(__file__).parents[2] / ".github" / "escapepod-sync.md"

PIP = """\
#!/bin/sh
echo "Available versions: $(cat "$SANDBOX/versions")"
"""

# 'pr list' answers with the open pull request's number, as the --jq expression would, and lets a test put something into that
# moment; 'pr create' opens number 7.
GH = """\
#!/bin/sh
echo "$*" >> "$SANDBOX/gh"
case "$1 $2" in
    "pr list") cat "$SANDBOX/open" 2>/dev/null; [ ! -e "$SANDBOX/meanwhile" ] || sh "$SANDBOX/meanwhile" ;;
    "pr create") echo 7 > "$SANDBOX/open" ;;
    "pr edit") [ "$3" = "$(cat "$SANDBOX/open")" ] ;;
    *) exit 1 ;;
esac
"""


class Hosted:
    """A bare remote with a branch main, an upstream with tags, and fresh clones as a workflow's checkout makes them."""

    def __init__(self, folder):
        self.folder = folder
        self.remote = folder / "remote.git"
        self.upstream = folder / "upstream"
        programs = folder / "programs"
        programs.mkdir()
        for name, text in {"pip": PIP, "gh": GH}.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self.environment = os.environ | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "SANDBOX": str(folder),
            "GITHUB_OUTPUT": str(folder / "outputs"),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            **{
                f"GIT_{who}_{what}": "robot@example.org"
                for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")
            },
        }
        self.call("git", "init", "--quiet", "--bare", "--initial-branch=main", self.remote)
        self.call("git", "init", "--quiet", "--initial-branch=main", self.upstream)
        self.call("git", "-C", self.upstream, "commit", "--quiet", "--allow-empty", "--message=first")
        self.release("0.9.0")
        self.seed()

    def call(self, *command, code=0, cwd=None):
        done = subprocess.run(
            [str(part) for part in command],
            cwd=cwd or self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout.strip()

    def release(self, version):
        """Bring a version out on both sides."""
        self.call("git", "-C", self.upstream, "tag", f"v{version}")
        versions = self.folder / "versions"
        versions.write_text(f"{version}, {versions.read_text() if versions.exists() else ''}")

    def seed(self):
        """Put the first commit onto main: three pins at 0.9.0 amid other lines, and a file that is not one of them."""
        clone = self.clone()
        (clone / "workflows").mkdir()
        (clone / "pyproject.toml").write_text(
            '[project]\ndependencies = [\n    "a>=1",\n    "escapepod==0.9.0",\n    "b",\n]\n'
        )
        (clone / "requirements.lock").write_text("a==1.0\nescapepod==0.9.0\nb==2.0\n")
        pins = f'# Why.\n[escpod]\ngit = "{self.upstream}"\ntag = "v0.9.0"\n'
        (clone / "workflows" / "pins.toml").write_text(pins)
        (clone / "README.md").write_text("leech\n")
        self.publish(clone, "main")

    def clone(self, branch="main"):
        clone = self.folder / f"clone-{len(list(self.folder.glob('clone-*')))}"
        self.call("git", "clone", "--quiet", self.remote, clone)
        if self.call("git", "-C", clone, "branch", "--remotes", "--list", f"origin/{branch}"):
            self.call("git", "-C", clone, "switch", "--quiet", branch)
        return clone

    def publish(self, clone, branch):
        self.call("git", "add", "--all", cwd=clone)
        self.call("git", "commit", "--quiet", "--message=change", cwd=clone)
        self.call("git", "push", "--quiet", "origin", f"HEAD:refs/heads/{branch}", cwd=clone)

    def bump(self, name, before, after, branch="main"):
        """Change one file of a branch, as a person or Dependabot would."""
        clone = self.clone(branch)
        path = clone / name
        path.write_text(path.read_text().replace(before, after))
        self.publish(clone, branch)

    def sync(self, code=0):
        """Run the workflow's two steps in a fresh checkout; return that and what the second one said."""
        (self.folder / "outputs").unlink(missing_ok=True)
        clone = self.clone()
        self.call(sys.executable, SCRIPTS / "escapepod_sync.py", "--root", clone, "--fix", code=code, cwd=clone)
        results = dict(line.split("=", 1) for line in (self.folder / "outputs").read_text().splitlines())
        if results["changed"] == "false":
            return clone, None
        return clone, self.propose(clone, results["version"])

    def propose(self, clone, version, code=0):
        return self.call("bash", SCRIPTS / "propose_escapepod_sync.sh", version, "main", BODY, code=code, cwd=clone)

    def shown(self, *arguments):
        return self.call("git", "-C", self.remote, *arguments)

    def told(self):
        """Return what gh was told so far but for its questions, and forget it."""
        log = self.folder / "gh"
        lines = (
            [line for line in log.read_text().splitlines() if not line.startswith("pr list")] if log.exists() else []
        )
        log.unlink(missing_ok=True)
        return lines


@pytest.fixture
def hosted(tmp_path):
    return Hosted(tmp_path)


def created(version):
    return (
        f"pr create --head escapepod-sync --base main --title Move escapepod and escpod to {version} --body-file {BODY}"
    )


def edited(version):
    return f"pr edit 7 --title Move escapepod and escpod to {version} --body-file {BODY}"


def changed_lines(diff):
    return [line for line in diff.splitlines() if line[0] in "+-" and not line.startswith(("+++", "---"))]


def test_nothing_is_proposed_while_all_is_in_step(hosted):
    hosted.sync()
    assert hosted.shown("branch", "--list") == "* main"
    assert hosted.told() == []


def test_a_bump_of_the_package_brings_the_lock_and_the_tag_along(hosted):
    hosted.release("0.10.0")
    hosted.bump("pyproject.toml", "escapepod==0.9.0", "escapepod==0.10.0")
    hosted.sync()
    assert changed_lines(hosted.shown("diff", "main", "escapepod-sync")) == [
        "-escapepod==0.9.0",
        "+escapepod==0.10.0",
        '-tag = "v0.9.0"',
        '+tag = "v0.10.0"',
    ]
    assert hosted.shown("log", "--format=%s", "main..escapepod-sync") == "Move escapepod and escpod to 0.10.0"
    assert hosted.told() == [created("0.10.0")]


def test_a_bump_of_the_tag_brings_the_package_along(hosted):
    hosted.release("0.10.0")
    hosted.bump("workflows/pins.toml", "v0.9.0", "v0.10.0")
    hosted.sync()
    assert changed_lines(hosted.shown("diff", "main", "escapepod-sync")) == [
        '-    "escapepod==0.9.0",',
        '+    "escapepod==0.10.0",',
        "-escapepod==0.9.0",
        "+escapepod==0.10.0",
    ]


def test_a_version_whose_tag_is_not_there_yet_is_proposed_once_it_is(hosted):
    hosted.bump("pyproject.toml", "escapepod==0.9.0", "escapepod==0.10.0")
    (hosted.folder / "versions").write_text("0.10.0, 0.9.0")
    clone, _ = hosted.sync(code=3)
    assert hosted.call("git", "status", "--porcelain", cwd=clone) == ""
    assert hosted.told() == []
    hosted.call("git", "-C", hosted.upstream, "tag", "v0.10.0")
    hosted.sync()
    assert hosted.told() == [created("0.10.0")]


def test_an_upstream_that_is_gone_is_no_missing_tag(hosted):
    hosted.release("0.10.0")
    hosted.bump("pyproject.toml", "escapepod==0.9.0", "escapepod==0.10.0")
    hosted.upstream.rename(hosted.folder / "elsewhere")
    clone, _ = hosted.sync(code=4)
    assert hosted.call("git", "status", "--porcelain", cwd=clone) == ""


def test_an_open_proposal_of_the_same_version_keeps_the_commits_that_people_added(hosted):
    hosted.release("0.10.0")
    hosted.bump("pyproject.toml", "escapepod==0.9.0", "escapepod==0.10.0")
    hosted.sync()
    hosted.bump("README.md", "leech", "leech, made to work with 0.10.0", branch="escapepod-sync")
    hosted.told()
    tip = hosted.shown("rev-parse", "escapepod-sync")
    _, said = hosted.sync()
    assert "stays as it is" in said
    assert hosted.shown("rev-parse", "escapepod-sync") == tip
    assert hosted.told() == [edited("0.10.0")]


def test_a_newer_version_replaces_the_open_proposal_on_the_same_branch(hosted):
    hosted.release("0.10.0")
    hosted.bump("pyproject.toml", "escapepod==0.9.0", "escapepod==0.10.0")
    hosted.sync()
    hosted.release("0.11.0")
    hosted.bump("pyproject.toml", "escapepod==0.10.0", "escapepod==0.11.0")
    hosted.told()
    hosted.sync()
    assert hosted.shown("log", "--format=%s", "main..escapepod-sync") == "Move escapepod and escpod to 0.11.0"
    assert hosted.shown("branch", "--list", "--format=%(refname:short)").splitlines() == ["escapepod-sync", "main"]
    assert hosted.told() == [edited("0.11.0")]


def test_a_branch_left_over_from_a_closed_proposal_is_used_again(hosted):
    hosted.release("0.10.0")
    hosted.bump("pyproject.toml", "escapepod==0.9.0", "escapepod==0.10.0")
    hosted.sync()
    (hosted.folder / "open").unlink()
    hosted.bump("README.md", "leech", "leech, later")
    hosted.told()
    hosted.sync()
    assert hosted.shown("merge-base", "main", "escapepod-sync") == hosted.shown("rev-parse", "main")
    assert hosted.told() == [created("0.10.0")]


def test_only_the_pins_are_committed(hosted):
    hosted.release("0.10.0")
    hosted.bump("pyproject.toml", "escapepod==0.9.0", "escapepod==0.10.0")
    clone = hosted.clone()
    hosted.call(sys.executable, SCRIPTS / "escapepod_sync.py", "--root", clone, "--fix", cwd=clone)
    (clone / "README.md").write_text("changed by accident\n")
    (clone / "left-over.txt").write_text("made by a step before\n")
    hosted.propose(clone, "0.10.0")
    assert hosted.shown("diff", "--name-only", "main", "escapepod-sync").splitlines() == [
        "requirements.lock",
        "workflows/pins.toml",
    ]


# The script asks gh between looking at the remote's branch and pushing to it: there somebody else's push gets in.
@pytest.mark.parametrize("branch_is_there", [False, True])
def test_a_push_that_came_in_between_is_not_overwritten(hosted, branch_is_there):
    hosted.release("0.10.0")
    hosted.bump("pyproject.toml", "escapepod==0.9.0", "escapepod==0.10.0")
    if branch_is_there:
        hosted.sync()
        hosted.release("0.11.0")
        hosted.bump("pyproject.toml", "escapepod==0.10.0", "escapepod==0.11.0")
    other = hosted.clone()
    hosted.call("git", "commit", "--quiet", "--allow-empty", "--message=somebody else's", cwd=other)
    push = f"git -C '{other}' push --quiet --force origin HEAD:refs/heads/escapepod-sync\n"
    (hosted.folder / "meanwhile").write_text(push)
    hosted.told()
    clone = hosted.clone()
    hosted.call(sys.executable, SCRIPTS / "escapepod_sync.py", "--root", clone, "--fix", cwd=clone)
    hosted.propose(clone, "0.11.0", code=1)
    assert hosted.shown("log", "-1", "--format=%s", "escapepod-sync") == "somebody else's"
    assert hosted.told() == []


def test_a_remote_that_cannot_be_asked_stops_before_anything_is_committed(hosted):
    hosted.release("0.10.0")
    hosted.bump("pyproject.toml", "escapepod==0.9.0", "escapepod==0.10.0")
    clone = hosted.clone()
    hosted.call(sys.executable, SCRIPTS / "escapepod_sync.py", "--root", clone, "--fix", cwd=clone)
    hosted.remote.rename(hosted.folder / "elsewhere")
    hosted.propose(clone, "0.10.0", code=128)
    assert hosted.call("git", "branch", "--show-current", cwd=clone) == "main"
    assert hosted.told() == []


def test_the_body_says_that_checks_must_be_started():
    assert "Start CI for it" in BODY.read_text(encoding="utf-8")
