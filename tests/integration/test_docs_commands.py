"""The commands of README and guide, run as they stand there, on the reads that the guide's own first command simulates.

The quick start comes first; the other pages begin with a copy of the folder that it leaves, as their readers do. A block that
cannot run says why in a comment before it, ``<!-- not run: needs a GPU -->``; its commands are compared with what there is.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import click
import pytest

from docs_blocks import ROOT, blocks, run, runnable
from leech.cli.reference import commands

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

QUICK_START = ROOT / "docs" / "index.md"

FRESH = [ROOT / "README.md", ROOT / "docs" / "simulate.md"]
"""Pages that simulate their reads or stand at the beginning themselves, and so begin in a folder of their own."""

LANGUAGES = {"bash", "console", "python", "text", "yaml"}

SHORTER = {
    "leech model train --data corpus -o model\n": "leech model train --data corpus -o model --epochs 2\n",
    "leech data check corpus\n": "leech data check corpus --max-reads 100 --bootstrap 100\n",
    "leech data check corpus -o check.json\n": "leech data check corpus -o check.json --max-reads 100 --bootstrap 100\n",
}
"""Commands whose defaults take longer than a test may -> what is run in their place."""

COMMANDS = {" ".join(path): command for path, command in commands() if not isinstance(command, click.Group)}

OTHERS = [page for page in PAGES if page != QUICK_START and runnable(page)]


def name(page):
    return page.relative_to(ROOT).as_posix()


def lay_out_as_the_readers_own(quick, folder):
    """Copy simulated libraries to the names that README has for the files of its reader."""
    for library in ("charged", "uncharged", "new"):
        shutil.copytree(quick / library, folder / library)
        shutil.copy(quick / library / "mappings.bam", folder / f"{library}.bam")
    shutil.copy(quick / "charged" / "reference.fa", folder / "trna.fa")
    (folder / "new" / "pod5").mkdir()
    shutil.move(folder / "new" / "reads.pod5", folder / "new" / "pod5")


def read(found, folder):
    """Run blocks in their order, in one folder, and return it."""
    for block in found:
        text = block.text
        for written, shorter in SHORTER.items():
            text = text.replace(written, shorter)
        run(block._replace(text=text), folder)
    return folder


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Run all pages, two at a time, and return page -> what came of it: the folder that it leaves, or an error."""
    base = tmp_path_factory.mktemp("docs")
    folders = {page: base / name(page).replace("/", "-") for page in PAGES}
    first, *rest = runnable(QUICK_START)
    for page in (QUICK_START, *FRESH):
        folders[page].mkdir()
    quick = read([first], folders[QUICK_START])
    lay_out_as_the_readers_own(quick, folders[ROOT / "README.md"])
    with ThreadPoolExecutor(2) as pool:
        results = {QUICK_START: pool.submit(read, rest, quick)}
        results |= {page: pool.submit(read, runnable(page), folders[page]) for page in FRESH}
        results[QUICK_START].result()
        # The longest first, so that none is left over at the end.
        for page in sorted(OTHERS, key=lambda page: -len(runnable(page))):
            if page not in results:
                shutil.copytree(quick, folders[page])
                results[page] = pool.submit(read, runnable(page), folders[page])
    return results


def test_the_quick_start_ends_with_calls_and_a_report(outcomes):
    folder = outcomes[QUICK_START].result()
    assert (folder / "report.html").stat().st_size > 10_000
    assert (folder / "new.calls.bam").is_file()


@pytest.mark.parametrize("page", OTHERS, ids=name)
def test_every_command_of_a_page_runs(outcomes, page):
    assert any(outcomes[page].result().iterdir())


def test_the_pages_that_show_commands_are_among_those_that_run():
    run_here = {name(page) for page in OTHERS}
    assert {"README.md", "docs/api.md", "docs/install.md", "docs/simulate.md"} <= run_here
    assert {name(page) for page in PAGES if "howto" in page.parts} <= run_here


def test_every_command_that_is_shortened_is_there():
    written = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [command for command in SHORTER if f"\n{command}" not in written] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_says_in_what_language_it_is(page):
    assert [f"line {block.line}" for block in blocks(page) if block.language not in LANGUAGES] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_fence_is_found(page):
    fences = re.findall(r"^ *```", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) == 2 * len(blocks(page))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_does_not_run_here_is_bash_that_parses(page):
    for block in blocks(page):
        if block.language in ("bash", "console") and block.why:
            subprocess.run(["bash", "-n"], input=block.script, text=True, check=True, timeout=20)


def leech_calls(script):
    """Return the words of every leech command in a script, wherever on its line it begins."""
    joined = script.replace("\\\n", " ")
    for line in joined.splitlines():
        words = shlex.split(line, comments=True)
        for place, word in enumerate(words):
            if word == "leech" and (place == 0 or words[place - 1] not in ("--tag", "bash_source", "-o")):
                yield words[place + 1 :]
            elif " leech " in f" {word} " and " " in word:
                yield from leech_calls(word)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_that_do_not_run_here_name_commands_and_options_that_exist(page):
    for block in blocks(page):
        if block.language != "bash" or not block.why:
            continue
        for words in leech_calls(block.script):
            command = next((text for text in COMMANDS if words[: len(text.split())] == text.split()), None)
            if command is None:
                assert set(words) <= {"--help", "."} or "bash_source" in block.script, (
                    f"{block.page}:{block.line}: {words}"
                )
                continue
            known = {flag for option in COMMANDS[command].params for flag in (*option.opts, *option.secondary_opts)}
            given = {word for word in words if re.fullmatch(r"--?[a-z][\w-]*", word)}
            assert given <= known | {"-v", "-q"}, f"{block.page}:{block.line}: {given - known}"
