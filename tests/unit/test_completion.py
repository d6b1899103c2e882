"""Completion in the shell: the scripts that leech gives, and what it answers to bash."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEECH = "from leech.cli.main import entry_point; entry_point()"


def ask(instruction, **variables):
    """Run leech as the console script with a shell's question in its environment."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "_LEECH_COMPLETE": instruction, **variables}
    return subprocess.run(
        [sys.executable, "-c", LEECH], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def completions(line):
    """Return what leech offers for the last word of a line, as (kind, text)."""
    done = ask("bash_complete", COMP_WORDS=line, COMP_CWORD=str(line.count(" ")))
    assert (done.returncode, done.stderr) == (0, "")
    return [tuple(answer.split(",", 1)) for answer in done.stdout.splitlines() if answer]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("leech da", ["data"]),
        ("leech data pre", ["prepare"]),
        ("leech ", ["data", "model", "eval", "predict", "report", "demo"]),
        ("leech model ", ["train", "calibrate", "inspect", "benchmark"]),
        ("leech data prepare --motif-o", ["--motif-occurrence", "--motif-offset"]),
        ("leech data prepare --base-justify ", ["start", "center", "end"]),
        ("leech nothing", []),
    ],
)
def test_what_may_stand_next_is_offered(line, offered):
    assert sorted(text for kind, text in completions(line) if kind == "plain") == sorted(offered)


def test_behind_a_command_that_there_is_not_the_shell_shows_no_error():
    completions("leech nothing mo")
    completions("leech data nothing --")


@pytest.mark.parametrize("line", ["leech data prepare --bam ", "leech predict --model "])
def test_the_shell_is_asked_for_files_where_a_path_belongs(line):
    assert completions(line) == [("file", "")]


@pytest.mark.parametrize("line", ["leech data prepare --pod5 a b ", "leech report --calls a "])
def test_behind_the_first_of_several_values_comes_another(line):
    assert completions(line) == [("file", "")]


def test_behind_a_value_that_stands_alone_comes_nothing_but_a_flag():
    assert completions("leech data prepare --bam a ") == []


def test_an_argument_behind_several_numbers_is_a_file():
    assert completions("leech data merge --split 0.7 0.15 0.15 in/") == [("file", "in/")]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("leech model train --model ", [("file", ""), ("plain", "conv_lstm"), ("plain", "tcn")]),
        ("leech model benchmark --model t", [("file", "t"), ("plain", "tcn")]),
        ("leech model train --model my", [("file", "my")]),
    ],
)
def test_an_architecture_is_a_name_of_leech_or_a_file(line, offered):
    assert completions(line) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_asks_leech(shell):
    done = ask(f"{shell}_source")
    assert done.returncode == 0
    assert f"_LEECH_COMPLETE={shell}_complete" in done.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True, timeout=20)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("leech da", "data\n"),
        ("leech model train --model t", "tcn\n"),
        ("leech data merge --split-by r", "read\nreference\nrun\n"),
    ],
)
def test_bash_completes_through_the_script(tmp_path, words, offered):
    program = tmp_path / "leech"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{LEECH}" "$@"\n')
    program.chmod(0o755)
    # What readline does when the tab key is pressed. Outside of it there is no compopt.
    script = f"""
        compopt() {{ :; }}
        eval "$(_LEECH_COMPLETE=bash_source leech)"
        COMP_WORDS=({words}) COMP_CWORD={words.count(" ")}
        function=$(complete -p leech | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
        $function leech
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == (offered, "")


def test_an_answer_imports_nothing_heavy():
    report = f"import sys, atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); {LEECH}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "_LEECH_COMPLETE": "bash_complete"}
    environment |= {"COMP_WORDS": "leech model train --da", "COMP_CWORD": "3"}
    done = subprocess.run(
        [sys.executable, "-c", report], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "plain,--data\n"
    assert {"torch", "numpy", "pysam"} & set(done.stderr.split()) == set()


def test_the_variable_in_the_page_is_the_one_that_leech_reads():
    from leech.cli.main import COMPLETION_VARIABLE

    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert set(re.findall(r"_LEECH\w+", page)) == {COMPLETION_VARIABLE}
    assert {shell for shell in ("bash", "zsh", "fish") if f"={shell}_source leech" in page} == {"bash", "zsh", "fish"}
