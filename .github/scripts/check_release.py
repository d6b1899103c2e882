#!/usr/bin/env python3
"""Check that a tag, the package's version and the changelog name the same release, and cut the release's notes.

The version stands in one place, ``src/leech/__init__.py``. A release 1.2.3 has the tag ``v1.2.3`` and a section
``## 1.2.3 - YYYY-MM-DD`` in ``CHANGELOG.md``; nothing is left under ``## Unreleased``. What is tested and built belongs to
``.ci/run`` and ``build_distributions.sh``.

Exit codes: 0 all agree; 1 they do not, and every disagreement is named; 2 the command line is wrong.
"""

from __future__ import annotations

import argparse
import re
import sys
from datetime import datetime
from pathlib import Path

VERSION_FILE = Path("src/leech/__init__.py")
CHANGELOG = Path("CHANGELOG.md")


def sections(changelog: str) -> list[tuple[str, str]]:
    """Return (heading, text) of the second-level sections of a changelog, both stripped."""
    parts = re.split(r"^## +(.*)$", changelog, flags=re.MULTILINE)
    return [(heading.strip(), text.strip()) for heading, text in zip(parts[1::2], parts[2::2], strict=True)]


def is_date(text: str) -> bool:
    """Tell whether a text is YYYY-MM-DD and a day that there is."""
    try:
        return len(text) == 10 and bool(datetime.strptime(text, "%Y-%m-%d"))
    except ValueError:
        return False


def disagreements(tag: str, version: str, changelog: list[tuple[str, str]]) -> tuple[list[str], str]:
    """Return what is wrong, one sentence each, and the text of the release's section ('' where there is none)."""
    wrong = []
    if tag != f"v{version}":
        wrong.append(f"The tag is {tag}, but {VERSION_FILE} says {version}: the tag must be v{version}.")
    if not re.fullmatch(r"(?:0|[1-9][0-9]*)(?:\.(?:0|[1-9][0-9]*)){2}", version):
        wrong.append(
            f"{VERSION_FILE} says {version}, which is no final release of the form 1.2.3; others are not published."
        )
    found = [text for heading, text in changelog if is_date(heading.removeprefix(f"{version} - "))]
    if not found:
        wrong.append(f"{CHANGELOG} has no section '## {version} - YYYY-MM-DD'.")
    elif len(found) > 1:
        wrong.append(f"{CHANGELOG} has {len(found)} sections about {version}; the notes would hold one of them.")
    elif not found[0]:
        wrong.append(f"{CHANGELOG} says nothing about {version}.")
    if any(text and heading.strip("[] ").casefold() == "unreleased" for heading, text in changelog):
        wrong.append(f"{CHANGELOG} still lists changes under Unreleased; move them to the section of {version}.")
    return wrong, found[0] if found else ""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tag", help="the tag, such as v1.2.3")
    parser.add_argument("--notes", type=Path, help="write the changelog's text about this release here")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2], help="the repository")
    options = parser.parse_args(arguments)
    # Read as text: importing leech would need it installed, and might find another one.
    try:
        package, changelog = ((options.root / path).read_text("utf-8") for path in (VERSION_FILE, CHANGELOG))
    except (OSError, UnicodeDecodeError) as error:
        print(f"Version and changelog cannot be read: {error}", file=sys.stderr)
        return 1
    version = re.search(r'^__version__ = "([^"]+)"$', package, re.MULTILINE)
    if version is None:
        print(f'{VERSION_FILE} has no line __version__ = "...".', file=sys.stderr)
        return 1
    wrong, notes = disagreements(options.tag, version[1], sections(changelog))
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    if wrong:
        return 1
    if options.notes:
        options.notes.write_text(notes + "\n", "utf-8")
    print(f"{options.tag}: tag, version and changelog agree.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
