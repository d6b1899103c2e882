"""The guide as a site: it builds without a warning, quickly, and its pages load nothing from elsewhere.

Needs the environment of 'make docs', which .ci/run makes before the tests.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from docs_blocks import docs_program

REPOSITORY = Path(__file__).parents[2]
LOCK = REPOSITORY / "docs" / "requirements.lock"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site strictly into a folder of its own and return it."""
    mkdocs = docs_program("mkdocs")
    if mkdocs is None:
        pytest.skip("mkdocs is not installed; 'make docs' installs it")
    folder = tmp_path_factory.mktemp("site")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "NO_MKDOCS_2_WARNING": "1"
    }
    command = [mkdocs, "build", "--strict", "--quiet", "--site-dir", folder]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_every_page_becomes_one_of_the_site(site):
    pages = {path.relative_to(REPOSITORY / "docs").with_suffix("") for path in (REPOSITORY / "docs").rglob("*.md")}
    assert pages | {Path("404")} == {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}


def test_scripts_of_the_repository_and_its_lock_are_no_part_of_the_site(site):
    assert [path for path in site.rglob("*") if path.suffix in {".py", ".lock"}] == []


# A link that a reader may follow is none of these; what a page loads by itself is.
def test_no_page_loads_anything_from_elsewhere(site):
    loaded = re.compile(
        r"""(?:<(?:script|img|iframe|source)[^>]*\ssrc|<link[^>]*\shref)=["']?(?:https?:)?//[^"'\s>]+"""
    )
    found = [
        (page.name, hit) for page in site.rglob("*.html") for hit in loaded.findall(page.read_text(encoding="utf-8"))
    ]
    # sitemap and canonical address are not set, so that no address is needed at all.
    assert found == []


def test_no_style_loads_anything_from_elsewhere(site):
    found = [
        (path.name, hit)
        for path in site.rglob("*.css")
        for hit in re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)\"']+", path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_the_figures_are_on_the_site(site):
    assert len(list((site / "figures").glob("*.svg"))) >= 4


def test_the_lock_pins_every_package_to_one_version_and_names_no_address():
    lines = [line for line in LOCK.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    assert len(lines) > 20
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+(; .+)?", line)] == []
