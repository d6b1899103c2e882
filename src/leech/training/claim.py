"""One run at a time for one output.

Hides: file locks. Belongs here: keeping two runs from writing the same model folder and the same resume file; what may be
replaced once nobody else writes is ``leech.provenance``'s. Invariants: the system gives a claim back when its process ends,
however that was; a file system without locks lets everyone pass, and says so.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from leech.console import logger
from leech.errors import InputError


@contextmanager
def claimed(output: Path) -> Iterator[None]:
    """Hold ``<output>.lock`` during a block.

    :raises InputError: another run holds it, or there is no writing beside ``output``.
    """
    path = output.with_name(f"{output.name}.lock")
    file = _locked(path, output)
    try:
        yield
    finally:
        # While it is locked still: nobody else's can be removed.
        path.unlink(missing_ok=True)
        file.close()


def _locked(path: Path, output: Path) -> IO[str]:
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("a")
        except OSError as error:
            raise InputError(f"Cannot write beside '{output}': {error.strerror or error}.") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise InputError(
                f"Another run is making '{output}': it holds '{path}'. Two would overwrite each other's state.",
                hint="Wait for it or end it, or give another --output. If there is none, delete that file.",
            ) from None
        except OSError as error:
            logger.info("'%s' cannot be locked (%s): nothing keeps a second run from the same output.", path, error)
            return file
        # The last holder may have removed the file after it was opened here.
        if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
            return file
        file.close()
