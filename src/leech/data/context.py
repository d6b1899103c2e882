"""How many samples the bases of ``context_bases`` span, so that a window that holds them can be named.

Hides: that spans are counted in steps. Belongs here: the tally and what it advises; where windows are cut is ``chunks.py``'s.
Invariants: mergeable and of bounded size; a window named holds at least the share asked for of the chunks counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

_STEP_SAMPLES = 25


@dataclass
class ContextTally:
    """Chunks by the samples that their context spans before the focus position and from it on.

    :ivar num_cut: whose context does not fit into the window.
    :ivar before: in steps of 25 samples, rounded up; ``after`` likewise.
    """

    num_cut: int = 0
    before: Counter[int] = field(default_factory=Counter)
    after: Counter[int] = field(default_factory=Counter)

    @classmethod
    def of(cls, before: NDArray[np.int64], after: NDArray[np.int64], window: tuple[int, int]) -> ContextTally:
        """Count chunks.

        :param before: samples of each chunk's context before its focus position, (n,); ``after`` from it on.
        :param window: samples that there is room for on either side.
        """
        spans = [Counter((-(-side.clip(0) // _STEP_SAMPLES)).tolist()) for side in (before, after)]
        return cls(int(((before > window[0]) | (after > window[1])).sum()), *spans)

    def merge(self, other: ContextTally) -> None:
        """Add another tally's counts."""
        self.num_cut += other.num_cut
        self.before.update(other.before)
        self.after.update(other.after)

    def window_for(self, share: float) -> tuple[int, int]:
        """Return samples before and from the focus position on that hold the whole context of at least this share.

        Half of the others may be lost on either side, which is never too few, whichever chunks those are.
        """
        return _covering(self.before, (1 + share) / 2), _covering(self.after, (1 + share) / 2)


def _covering(spans: Counter[Any], share: float) -> int:
    reached = 0
    for steps in sorted(spans):
        reached += spans[steps]
        if reached >= share * spans.total() - 1e-9:
            return int(steps) * _STEP_SAMPLES
    return 0
