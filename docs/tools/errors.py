"""The page ``docs/errors.md``: every error that the source raises, and its remedy.

Hides: how a message stands in the source. Belongs here: the page's form; the words are those of the source, so that they
cannot drift, and a test compares page and source. Invariants: parts that depend on the run stand as …; errors stand
by the part of leech that finds them, in the order of the source, each once. ``python docs/tools/errors.py src/leech`` prints
the page.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fixes import FIXES

KINDS = {
    "LeechError": 1,
    "ConfigError": 2,
    "InputError": 1,
    "MismatchError": 1,
    "MissingExtraError": 1,
    "InterruptedRunError": 75,
}
"""Error class -> exit code; a test compares them with ``leech.errors``."""

VARIES = "…"

PARTS = {
    "data/simulate": "leech data simulate",
    "data": "Reads, sites, corpora: leech data, and the reading part of leech predict",
    "models": "Networks and model folders",
    "prediction": "leech predict",
    "evaluation/report": "leech report",
    "evaluation": "leech eval, leech model calibrate, leech data check",
    "training": "leech model train, leech model benchmark",
    "cli": "The command line",
    "": "Configuration files, outputs",
}
"""Folder below src/leech -> heading, in the order of the page; a file belongs to the longest folder that it is in."""

_HEAD = """# All errors

Made from the source by `make cli-docs`; do not edit. A part that differs from run to run stands as …, so search this page for
words of your message that look the same everywhere. Messages that are put together at run time have their hint on the terminal.
The number is the exit code: 1, the data or the environment are wrong; 2, the command or its configuration; 75, the same command
goes on later. More on the most common ones, and on what happens to single reads, is in [Questions and reasons](faq.md).
"""


class Entry(NamedTuple):
    """One error as the source words it; ``fix`` is its hint, or what ``fixes.py`` has in place of one."""

    kind: str
    message: str
    fix: str


def template(node: ast.expr | None, names: Mapping[str, ast.expr]) -> str:
    """Return the text of a string expression with … for what is not fixed; '' for None and for text made elsewhere.

    :param names: what the module's own names stand for.
    """
    if isinstance(node, ast.Name) and node.id in names:
        return template(names[node.id], {})
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else VARIES for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (template(node.left, names) or VARIES) + (template(node.right, names) or VARIES)
    if isinstance(node, ast.IfExp):
        yes, no = template(node.body, names), template(node.orelse, names)
        return yes if yes == no or not no else no if not yes else f"{yes} / {no}"
    return ""


def remedy(message: str) -> str:
    """Return what ``fixes.py`` has for a message, or ''."""
    text = " ".join(message.split())
    return next((fix for fragment, fix in FIXES.items() if fragment in text), "")


def entries(tree: ast.Module) -> Iterator[Entry]:
    """Return the errors that a module makes, in the order of its lines, where the source holds words of their message."""
    names = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        kind = ast.unparse(call.func)
        if kind not in KINDS or not call.args:
            continue
        hint = next((word.value for word in call.keywords if word.arg == "hint"), None)
        message = template(call.args[0], names)
        if message.replace(VARIES, "").strip(" .:'"):
            yield Entry(kind, message, template(hint, names) or remedy(message))


def by_part(source: Path) -> dict[str, list[Entry]]:
    """Return heading -> errors, in the order of the page."""
    found: dict[str, list[Entry]] = {heading: [] for heading in PARTS.values()}
    for path in sorted(source.rglob("*.py")):
        folder = path.relative_to(source).parent.as_posix().removeprefix(".")
        while folder not in PARTS:
            folder = folder.rpartition("/")[0]
        for entry in entries(ast.parse(path.read_text(encoding="utf-8"))):
            if entry not in found[PARTS[folder]]:
                found[PARTS[folder]].append(entry)
    return {heading: listed for heading, listed in found.items() if listed}


def _shown(text: str) -> str:
    """Return text of one line, in which Markdown sees neither links nor emphasis."""
    text = " ".join(text.split())
    for mark in "\\`*_[]#":
        text = text.replace(mark, "\\" + mark)
    return text.replace("<", "&lt;").replace(">", "&gt;")


def page(source: Path) -> str:
    """Return the page."""
    lines = [_HEAD]
    for heading, listed in by_part(source).items():
        lines.append(f"## {heading}\n")
        for entry in listed:
            lines.append(f"- ({KINDS[entry.kind]}) {_shown(entry.message)}")
            if entry.fix:
                lines.append(f"    - **Fix:** {_shown(entry.fix)}")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(page(Path(sys.argv[1])))
