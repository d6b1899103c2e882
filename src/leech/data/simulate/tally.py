"""What a simulated library holds, counted while it is made.

Hides: counting in memory that does not grow with the library. Belongs here: numbers that follow from the truth; the truth
itself is written read by read. Invariants: tallies add up over blocks in any order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

READS, CHARGED, USABLE, USABLE_CHARGED = range(4)


@dataclass
class Tally:
    """Counts of molecules and records.

    :ivar expected: records by what ``prepare`` should count them as.
    :ivar by_reference: int64 (num_references, 4): molecules, charged ones, and the same of those that ``prepare`` uses.
    :ivar indels: reads with an indel across the junction, uncharged and charged.
    :ivar nuisances: molecules by nuisance.
    """

    by_reference: NDArray[np.int64]
    num_in_pod5: int = 0
    expected: Counter[str] = field(default_factory=Counter)
    nuisances: Counter[str] = field(default_factory=Counter)
    indels: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2, dtype=np.int64))

    @classmethod
    def of(cls, num_references: int) -> Tally:
        """Return an empty tally."""
        return cls(np.zeros((num_references, 4), dtype=np.int64))

    @property
    def num_reads(self) -> int:
        """Molecules."""
        return int(self.by_reference[:, READS].sum())

    @property
    def num_charged(self) -> int:
        """Charged molecules."""
        return int(self.by_reference[:, CHARGED].sum())

    @property
    def num_records(self) -> int:
        """Records of the BAM."""
        return sum(self.expected.values())

    def add(self, other: Tally) -> None:
        """Add the counts of other molecules."""
        self.by_reference += other.by_reference
        self.num_in_pod5 += other.num_in_pod5
        self.expected += other.expected
        self.nuisances += other.nuisances
        self.indels += other.indels

    def indel_shares(self) -> dict[str, float | None]:
        """Return the share of reads with an indel across the junction, by state; None for a state without reads."""
        numbers = (self.num_reads - self.num_charged, self.num_charged)
        states = zip(("uncharged", "charged"), self.indels.tolist(), numbers, strict=True)
        return {state: indels / number if number else None for state, indels, number in states}
