"""What the pages of the guide say of the source: reasons, messages, errors, functions, figures, and the list of pages."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from pathlib import Path

import pytest
import yaml

from leech import errors
from leech.cli.reference import commands
from leech.data.reasons import REASONS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TOOLS = DOCS / "tools"
SOURCE = ROOT / "src" / "leech"
FAQ = (DOCS / "faq.md").read_text(encoding="utf-8")
VARIES = "…"


def tool(name):
    """Import a script that makes a part of the pages."""
    sys.path.insert(0, str(TOOLS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(TOOLS))


def words_of(node):
    """Return the text of a string in the source as a page quotes it: … for what varies."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"%\.?\d*[a-z]%?", VARIES, node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else VARIES for part in node.values)
    return ""


SAID = {
    words_of(node) for path in SOURCE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
} - {""}
"""Every string of the source."""

QUOTED = re.findall(r'^\*\*"(.+?)"\*\*', FAQ, re.MULTILINE)


def is_said(quoted):
    """Whether the fixed parts of a quotation follow one another in one string of the source."""
    wanted = re.compile(".*?".join(re.escape(part.strip()) for part in quoted.split(VARIES)), re.DOTALL)
    return any(wanted.search(text) for text in SAID)


def test_every_reason_stands_in_the_questions_with_its_meaning_and_its_remedy_in_its_order():
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", FAQ, re.MULTILINE)
    assert rows == [(name, reason.meaning, reason.remedy) for name, reason in REASONS.items()]


def test_there_are_messages_that_the_questions_quote():
    assert len(QUOTED) >= 30


@pytest.mark.parametrize("quoted", QUOTED)
def test_every_message_that_the_questions_quote_is_one_of_leech(quoted):
    assert is_said(quoted)


@pytest.mark.parametrize("quoted", ["was never checked for shortcakes", "reads have two labels … unmapped"])
def test_a_message_that_leech_does_not_say_is_found(quoted):
    assert not is_said(quoted)


def test_the_page_of_errors_is_current():
    page = tool("errors").page(SOURCE)
    assert (DOCS / "errors.md").read_text(encoding="utf-8") == page, "run make cli-docs"


def test_the_page_of_errors_knows_every_kind_of_error_and_its_exit_code():
    kinds = {
        name: kind.exit_code
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.LeechError)
    }
    assert kinds == tool("errors").KINDS


def test_an_error_is_listed_with_its_hint_and_with_its_varying_parts_left_open():
    source = (
        '_AGAIN = "Copy it again."\nraise InputError(f"\'{path}\' is " + what, hint=_AGAIN)\nraise ValueError("no")\n'
    )
    assert list(tool("errors").entries(ast.parse(source))) == [("InputError", "'…' is …", "Copy it again.")]


def test_every_error_on_the_page_has_a_remedy():
    assert [e.message for part in tool("errors").by_part(SOURCE).values() for e in part if not e.fix] == []


def test_every_remedy_that_was_written_for_the_page_is_shown():
    shown = {entry.fix for part in tool("errors").by_part(SOURCE).values() for entry in part}
    assert [fix for fix in tool("fixes").FIXES.values() if fix not in shown] == []


def test_most_errors_of_the_source_are_on_the_page():
    # Those whose message is put together before it is raised cannot be read off the source.
    tree = [ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py")]
    raised = sum(
        isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and ast.unparse(node.exc.func) in tool("errors").KINDS
        for module in tree
        for node in ast.walk(module)
    )
    listed = sum(len(part) for part in tool("errors").by_part(SOURCE).values())
    assert listed > 0.85 * raised


def test_the_figures_are_current():
    figures = tool("figures").FIGURES
    assert {path.name for path in (DOCS / "figures").iterdir()} == set(figures)
    for name, draw in figures.items():
        assert (DOCS / "figures" / name).read_text(encoding="utf-8") == draw(), "run make cli-docs"


def test_the_drawn_move_table_has_as_many_ones_as_bases():
    figures = tool("figures")
    assert sum(figures.MOVES) == len(figures.SEQUENCE) == len(figures.blocks_by_base())
    assert sum(figures.blocks_by_base()) == len(figures.MOVES)


def test_every_figure_is_shown_and_says_what_it_shows():
    shown = re.findall(r"^!\[(.+)\]\(figures/(.+)\)$", (DOCS / "concepts.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {name for _, name in shown} == {path.name for path in (DOCS / "figures").iterdir()}
    assert all(len(words) > 40 for words, _ in shown)


def test_every_command_has_its_function_and_options_on_the_page_of_python():
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `leech ([\w ]+)` \| (.+) \|$", page, re.MULTILINE))
    assert set(rows) == {" ".join(path) for path, command in commands() if not hasattr(command, "commands")}
    for row in rows.values():
        for dotted in re.findall(r"`(leech[\w.]+)`", row):
            module, _, attribute = dotted.rpartition(".")
            assert hasattr(importlib.import_module(module), attribute), dotted


def test_every_page_is_in_the_navigation_once():
    def pages(entries):
        for entry in entries:
            for value in entry.values():
                yield from [value] if isinstance(value, str) else pages(value)

    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert sorted(pages(site["nav"])) == sorted(there)


LINKS = [
    (page, link)
    for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
]


def test_every_link_of_a_page_leads_to_a_file():
    assert len(LINKS) > 50
    assert [(page.name, link) for page, link in LINKS if ":" in link or not (page.parent / link).is_file()] == []


def test_no_page_is_wider_than_the_source_may_be_but_for_tables():
    # Wrapped by hand, so that a change of a sentence is a small change.
    for page in sorted((DOCS / "howto").glob("*.md")):
        long = [
            line for line in page.read_text(encoding="utf-8").splitlines() if len(line) > 128 and line[0] not in "|!"
        ]
        assert long == []
