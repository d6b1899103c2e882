"""What can happen to a record, and counting it.

Hides: nothing but words. Belongs here: the one list of outcomes; whoever finds an outcome names it from here, so that
the ladder of counts, the calls table and the errors use the same terms. Invariants: every record seen has exactly one
outcome; counts add up over workers and inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

USED = "used"
"""The outcome of a record that gave a chunk."""


class Reason(NamedTuple):
    """Why a record was not used: what that means, and what the user can do."""

    meaning: str
    remedy: str


REASONS: dict[str, Reason] = {
    "unmapped": Reason("not aligned to any reference", "Align the basecalls to the tRNA references and keep the tags."),
    "secondary": Reason("secondary alignment; the primary one is used", "Nothing to do."),
    "supplementary": Reason("supplementary alignment; the primary one is used", "Nothing to do."),
    "duplicate": Reason("read id seen before, or flagged as duplicate", "Look for files that were merged twice."),
    "reverse_strand": Reason(
        "aligned to the reverse strand, which direct RNA cannot be", "Check the references' strand."
    ),
    "low_mapq": Reason("mapping quality under --min-mapq", "Lower --min-mapq; isodecoders give good reads quality 0."),
    "bad_read_id": Reason(
        "read id is not a UUID, so it cannot be in a POD5", "Use the BAM as the basecaller named it."
    ),
    "no_moves": Reason(
        "no move table (mv tag)",
        "Basecall with move tables (dorado: --emit-moves) and keep tags in alignment.",
    ),
    "bad_moves": Reason("move table is not a stride and a row of 0 and 1", "Basecall again with --emit-moves."),
    "split_without_offset": Reason("split read (pi tag) without its offset (sp tag)", "Keep the sp tag beside pi."),
    "reference_not_in_fasta": Reason("reference is not in the FASTA", "Give the FASTA that the reads were aligned to."),
    "no_site": Reason("the BED gives no site on the reference", "Add a line for the reference to --sites."),
    "read_not_listed": Reason("the table of reads does not list the read", "Add the read to --read-sites."),
    "no_motif": Reason(
        "reference (with --anchor basecall: the read) does not hold the motif", "Check --motif against the sequences."
    ),
    "no_junction": Reason(
        "no occurrence of the motif touches the adapter arm",
        "Choose --motif-occurrence first, last or only, or check --arm.",
    ),
    "several_motifs": Reason(
        "reference (with --anchor basecall: the read) holds the motif more than once",
        "Choose --motif-occurrence first, last or arm.",
    ),
    "focus_outside_reference": Reason(
        "focus base lies outside the reference (with --anchor basecall: the read)", "Check --motif-offset or the file."
    ),
    "focus_not_aligned": Reason(
        "alignment does not reach the focus base", "Nothing to do; the read ends before the site."
    ),
    "not_in_pod5": Reason("read id is in none of the POD5 files", "Give all POD5 files of the run with --pod5."),
    "signal_unreadable": Reason("signal cannot be decoded", "Check the POD5 file; copy it again."),
    "no_signal": Reason("no samples between ts and ns", "Nothing to do."),
    "ns_beyond_signal": Reason(
        "used interval (sp, ts, ns) ends beyond the raw signal", "POD5 and BAM are not of one run."
    ),
    "mv_mismatch": Reason(
        "move table disagrees with the sequence or the signal",
        "The reads were trimmed after basecalling; use the basecaller's own BAM, aligned without hard clipping.",
    ),
    "constant_signal": Reason("signal is constant", "Nothing to do."),
    "bad_calibration": Reason(
        "the POD5's calibration (offset, scale) is no use", "Choose another --normalisation, or mend the POD5."
    ),
    "junction_indel": Reason(
        "the alignment has an indel at the site's motif or does not cover it",
        "You asked for it with --require-clean-junction (predict: --abstain-junction-indel); adducts cause indels.",
    ),
    "low_confidence": Reason(
        "probability of the state that would be called is under --min-confidence",
        "Nothing to do, you asked for it; a lower --min-confidence leaves fewer out.",
    ),
    "repeated": Reason("the same read at the same site is in another corpus too", "Merge each read once."),
    "subsampled": Reason("beyond the number that --subsample keeps", "Nothing to do."),
    "held_out": Reason("held out of all folds for a last test", "Merge without --folds to test on it."),
    "held_out_parent": Reason("of one parent read with a held-out chunk, but not held out itself", "Nothing to do."),
    "several_groups": Reason("of a parent read whose groups lie in different splits", "Nothing to do."),
    "unbalanced": Reason("beyond what --balance keeps of its label", "Nothing to do."),
}
"""All reasons, in the order in which a record is examined."""

LEFT_OUT = ("repeated", "subsampled", "held_out", "held_out_parent", "several_groups", "unbalanced")
"""Reasons for which ``leech data merge`` leaves a chunk out."""

STATE_MAY_CAUSE = frozenset(("low_mapq", "focus_not_aligned", "no_motif", "junction_indel", "low_confidence"))
"""Reasons that reads of one state may have more often than those of the other, because the state bends basecall and signal."""

ASKED_FOR = frozenset(("junction_indel", "low_confidence"))
"""Reasons of reads that are left out only because an option asks for it."""

NOT_A_LOSS = frozenset(("unmapped", "secondary", "supplementary", "duplicate"))
"""Reasons of records that are no read of their own on a reference, however frequent they are."""


@dataclass
class Counts:
    """Records by outcome."""

    by_outcome: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: str, number: int = 1) -> None:
        """Count records of one outcome."""
        if outcome != USED and outcome not in REASONS:
            raise ValueError(f"unknown outcome '{outcome}'")
        self.by_outcome[outcome] += number

    def add_all(self, outcomes: Iterable[str]) -> None:
        """Count one record per outcome."""
        for outcome, number in Counter(outcomes).items():
            self.add(outcome, number)

    @property
    def seen(self) -> int:
        """Number of records."""
        return sum(self.by_outcome.values())

    @property
    def used(self) -> int:
        """Number of records that gave a chunk."""
        return self.by_outcome[USED]

    @property
    def candidates(self) -> int:
        """Number of records that stand for a read of their own on a reference, used or failed."""
        return self.seen - sum(self.by_outcome[reason] for reason in NOT_A_LOSS)

    @property
    def asked_for(self) -> int:
        """Number of candidates that were left out because an option asks for it."""
        return sum(self.by_outcome[reason] for reason in ASKED_FOR)

    @property
    def failed(self) -> int:
        """Number of candidates that were not used, although nothing asked to leave them out."""
        return self.candidates - self.used - self.asked_for

    def ladder(self) -> dict[str, int]:
        """Return ``seen``, every reason that occurred in the order of examination, and ``used``."""
        reasons = {reason: self.by_outcome[reason] for reason in REASONS if self.by_outcome[reason]}
        return {"seen": self.seen, **reasons, USED: self.used}

    def top_reason(self) -> str | None:
        """Return the most frequent reason for not using a record, or None when all were used."""
        reasons = {reason: number for reason, number in self.by_outcome.items() if reason != USED and number}
        return max(reasons, key=lambda reason: reasons[reason]) if reasons else None

    def top_failure(self) -> str | None:
        """Return the most frequent reason among the failed candidates, or None when none failed."""
        no_failure = NOT_A_LOSS | ASKED_FOR
        lost = {name: number for name, number in self.by_outcome.items() if name in REASONS and name not in no_failure}
        return max(lost, key=lambda name: lost[name]) if any(lost.values()) else None

    @classmethod
    def from_ladder(cls, ladder: Mapping[str, int]) -> Counts:
        """Return the counts that a stored ladder describes."""
        return cls(Counter({outcome: number for outcome, number in ladder.items() if outcome != "seen"}))
