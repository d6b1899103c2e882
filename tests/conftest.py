"""What all tests share: where the real data lies, and importable modules of test material."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

# A shell that starts the tests in the background has them ignore interrupts, and so would the commands that they interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "distributed"))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of real reads, or skip where it is not there."""
    default = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("LEECH_REAL_DATA", default))
    if not folder.is_dir():
        pytest.skip("real reads are not here; set LEECH_REAL_DATA to their folder")
    return folder
