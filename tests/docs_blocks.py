"""Fenced blocks of Markdown pages: which of them are commands, and running them as a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

_FENCE = re.compile(
    r"(?:^<!-- not run: (?P<why>[^\n]+?) -->\n+)?^(?P<indent> *)```(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


def docs_program(name: str) -> Path | None:
    """Return a program of docs/requirements.lock: that beside this Python, or of the environment that 'make docs' makes."""
    places = [Path(sys.executable).with_name(name), ROOT / ".venv-docs" / "bin" / name]
    return next((place for place in places if place.is_file()), None)


class Block(NamedTuple):
    """A fenced block.

    :ivar line: of the page, at which the fence opens.
    :ivar text: what stands inside, without the indent of the fence.
    :ivar why: why it is not run, as the comment before it says; None where there is no such comment.
    """

    page: str
    line: int
    language: str
    text: str
    why: str | None

    @property
    def script(self) -> str:
        """The commands of the block: all of it, or the lines behind a prompt in a record of a terminal."""
        if self.language != "console":
            return self.text
        lines = [line[2:] for line in self.text.splitlines() if line.startswith(("$ ", "> "))]
        return "\n".join(lines) + "\n"


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in their order."""
    content = page.read_text(encoding="utf-8")
    found = []
    for fence in _FENCE.finditer(content):
        indent = len(fence["indent"])
        text = "".join(line[indent:] for line in fence["text"].splitlines(keepends=True))
        line = content.count("\n", 0, fence.start("language")) + 1
        found.append(Block(page.relative_to(ROOT).as_posix(), line, fence["language"], text, fence["why"]))
    return found


def runnable(page: Path) -> list[Block]:
    """Return the blocks of a page that a test can run."""
    return [block for block in blocks(page) if block.language in ("bash", "console", "python") and block.why is None]


def run(block: Block, folder: Path, timeout: float = 150) -> None:
    """Run a block in a folder, with the leech of this Python and this checkout; what it prints is shown where it fails."""
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": search, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    script = ["bash", "-euo", "pipefail", "-c"] if block.language != "python" else [sys.executable, "-c"]
    done = subprocess.run(
        [*script, block.script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, (
        f"{block.page}:{block.line} ended with {done.returncode}\n{block.script}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    )
