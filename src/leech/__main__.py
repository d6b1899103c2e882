"""``python -m leech``: the command ``leech`` with the Python that is named, where its folder of programs is not on PATH.

Hides: nothing. Belongs here: the one call; commands, errors and exit codes are in ``cli/main.py``. Invariant: importing this
module runs nothing, since worker processes import it too.
"""

from __future__ import annotations

from leech.cli.main import entry_point

if __name__ == "__main__":
    entry_point()
