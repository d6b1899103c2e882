"""What a release consists of: tag, version and changelog that agree, and a wheel in which no file is missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import leech

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = REPOSITORY / ".github" / "scripts"

CHANGELOG = """\
# Changelog

## Unreleased

## 1.2.3 - 2026-01-31

### Added

- A thing.

## 1.2.2 - 2026-01-01

- An older thing.
"""


@pytest.fixture
def check(tmp_path):
    """Return a function that runs the check of a tag on a repository of version 1.2.3."""
    (tmp_path / "src" / "leech").mkdir(parents=True)

    def run(tag, version="1.2.3", changelog=CHANGELOG):
        (tmp_path / "src" / "leech" / "__init__.py").write_text(f'"""leech."""\n\n__version__ = "{version}"\n')
        (tmp_path / "CHANGELOG.md").write_text(changelog)
        command = [
            sys.executable,
            SCRIPTS / "check_release.py",
            tag,
            "--root",
            tmp_path,
            "--notes",
            tmp_path / "notes.md",
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


def test_a_tag_that_agrees_gives_the_notes_of_its_version_alone(check, tmp_path):
    assert check("v1.2.3").returncode == 0
    assert (tmp_path / "notes.md").read_text() == "### Added\n\n- A thing.\n"


# Each row: tag, version, text of the changelog that is there, text in its place, what must be said.
WRONG = {
    "another version": ("v1.2.2", "1.2.3", "", "", "the tag must be v1.2.3"),
    "no v": ("1.2.3", "1.2.3", "", "", "the tag must be v1.2.3"),
    "no section": ("v1.2.4", "1.2.4", "", "", "no section '## 1.2.4 - YYYY-MM-DD'"),
    "no date": ("v1.2.3", "1.2.3", "1.2.3 - 2026-01-31", "1.2.3", "no section '## 1.2.3 - YYYY-MM-DD'"),
    "a longer version": ("v1.2.3", "1.2.3", "## 1.2.3 -", "## 11.2.3 -", "no section '## 1.2.3"),
    "nothing said": ("v1.2.3", "1.2.3", "### Added\n\n- A thing.\n", "", "says nothing about 1.2.3"),
    "no such day": ("v1.2.3", "1.2.3", "2026-01-31", "2026-01-32", "no section '## 1.2.3 - YYYY-MM-DD'"),
    "two sections": ("v1.2.3", "1.2.3", "1.2.2 - 2026-01-01", "1.2.3 - 2026-01-01", "2 sections about 1.2.3"),
    "a candidate": ("v1.2.3rc1", "1.2.3rc1", "1.2.3 -", "1.2.3rc1 -", "no final release"),
    "two numbers": ("v1.2", "1.2", "1.2.3 -", "1.2 -", "no final release"),
    "changes left over in brackets": (
        "v1.2.3",
        "1.2.3",
        "## Unreleased\n",
        "## [unreleased]\n\n- More.\n",
        "Unreleased",
    ),
    "changes left over": ("v1.2.3", "1.2.3", "## Unreleased\n", "## Unreleased\n\n- More.\n", "under Unreleased"),
}


@pytest.mark.parametrize(("tag", "version", "there", "instead", "message"), WRONG.values(), ids=WRONG)
def test_a_tag_that_does_not_agree_is_refused(check, tmp_path, tag, version, there, instead, message):
    done = check(tag, version, CHANGELOG.replace(there, instead) if there else CHANGELOG)
    assert done.returncode == 1
    assert message in done.stderr
    assert not (tmp_path / "notes.md").exists()


def test_every_disagreement_is_named_at_once(check):
    assert (
        len(check("v9", "1.2.4", CHANGELOG.replace("## Unreleased\n", "## Unreleased\n- x\n")).stderr.splitlines()) == 3
    )


def test_a_repository_without_a_changelog_is_refused_in_words(tmp_path):
    (tmp_path / "src" / "leech").mkdir(parents=True)
    (tmp_path / "src" / "leech" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    command = [sys.executable, SCRIPTS / "check_release.py", "v1.2.3", "--root", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "CHANGELOG.md" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_package_without_a_version_is_refused(check):
    done = check("v1.2.3", version='1.2.3"  # "')
    assert done.returncode == 1
    assert "no line __version__" in done.stderr


def test_the_version_of_this_package_is_found_where_the_check_looks():
    done = subprocess.run(
        [sys.executable, SCRIPTS / "check_release.py", f"v{leech.__version__}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "the tag must be" not in done.stderr
    assert "no line" not in done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the distributions from a copy of what is committed or would be; return the folder that holds them."""
    copy = tmp_path_factory.mktemp("release") / "leech"
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in names:
        if name and (REPOSITORY / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, copy / name)
    command = ["bash", copy / ".github" / "scripts" / "build_distributions.sh", sys.executable, "release/dist"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return copy / "release" / "dist"


def test_a_release_is_one_source_distribution_and_one_wheel(built):
    version = leech.__version__
    assert sorted(path.name for path in built.iterdir()) == [
        f"leech-{version}-py3-none-any.whl",
        f"leech-{version}.tar.gz",
    ]


def test_the_wheel_holds_every_file_of_the_package(built):
    source = built.parents[1] / "src"
    wanted = {str(path.relative_to(source)) for path in (source / "leech").rglob("*") if path.is_file()}
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
        metadata = wheel.read(f"leech-{leech.__version__}.dist-info/METADATA").decode()
    assert held == wanted
    assert "leech/models/architectures/tcn.toml" in held
    assert "Requires-Dist: escapepod==" in metadata


def test_the_source_distribution_holds_the_licence(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as source:
        assert f"leech-{leech.__version__}/LICENSE" in source.getnames()


def test_an_old_distribution_in_the_way_stops_the_build(tmp_path):
    (tmp_path / "leech-0.0.1.tar.gz").touch()
    command = ["bash", SCRIPTS / "build_distributions.sh", sys.executable, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "is not empty" in done.stderr
