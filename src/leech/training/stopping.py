"""Being asked to end.

Hides: signal handlers. Belongs here: which signals ask for an end, and taking note of them; what is done about it is the
loop's, which ends after a whole step. Invariant: handlers are as they were when nobody listens any more.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STOPPING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
"""Signals that ask for an end: the first two are what batch systems send before they kill, the third is Ctrl-C."""


class StopRequest:
    """Whether this process was asked to end.

    :ivar signal: number of the signal; 0 while there was none.
    """

    def __init__(self) -> None:
        self.signal = 0

    def __call__(self, number: int, frame: object = None) -> None:
        """Take note; a second interrupt is not put off."""
        if number == signal.SIGINT and self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number

    @contextmanager
    def listening(self) -> Iterator[StopRequest]:
        """Take note of signals during a block, in the main thread; elsewhere Python lets nobody listen."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.getsignal(number) for number in STOPPING}
        for number, handler in before.items():
            # A rank that was told to ignore interrupts goes on doing so.
            if handler is not signal.SIG_IGN:
                signal.signal(number, self)
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
