"""What can be wrong or unusual with single reads of a run: the registry behind ``--nuisance NAME=FRACTION``.

Hides: how each fault looks in tags, sequence and signal. Belongs here: one entry per fault, with what ``prepare`` should say
of the read; which reads are hit, and the records beside a read, are decided in ``block.py``. Invariants: a fault changes the
draft it is given and nothing else; reads that it does not hit are the same with and without it. No numpy at import, because
the command line makes its help from these names.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from leech.config import nearest
from leech.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

USED = "used"

Place = Literal["run", "corrupt", "truncated"]
"""The run's own POD5 files, or the one whose reads cannot be decoded, or the one that is cut short."""


@dataclass
class Draft:
    """One read on its way to the files, still to be changed.

    :ivar name: QNAME; the read's id.
    :ivar cigar: (length, letter).
    :ivar moves: 0/1 per block of ``stride`` samples, in time order; None for no mv tag.
    :ivar moves_type: letter of the mv tag's array type.
    :ivar trimmed: samples before the used ones, the ts tag; None for no tag.
    :ivar used_end: end of the used samples, the ns tag; None for no tag.
    :ivar tags: further tags as SAM text.
    :ivar signal: of the whole POD5 read in time order.
    :ivar focus: first and last sample (half open) of the focus base in ``signal``.
    :ivar is_repeated: whether the signal lies in a second POD5 file too.
    """

    name: str
    flag: int
    reference: str
    position: int
    mapq: int
    cigar: list[tuple[int, str]]
    sequence: str
    stride: int
    moves: NDArray[np.int8] | None
    trimmed: int | None
    used_end: int | None
    signal: NDArray[np.int16]
    focus: tuple[int, int]
    moves_type: str = "c"
    tags: list[str] = field(default_factory=list)
    calibration_scale: float | None = None
    place: Place = "run"
    is_repeated: bool = False


Change = Callable[[Draft, Any], bool]
"""Changes a draft, given a random generator; False where the fault cannot be put on this read."""


@dataclass(frozen=True)
class Nuisance:
    """One kind of fault.

    :ivar meaning: what the read is like.
    :ivar outcome: what ``prepare`` should count it as, "used" or a reason.
    :ivar is_exclusive: whether a read that has it has no other exclusive one and is not split; the others come together.
    :ivar fraction: share of molecules where none is given.
    :ivar aligned_past: adapter bases up to which the read is aligned; None for as far as the aligner comes.
    """

    name: str
    meaning: str
    outcome: str
    change: Change
    is_exclusive: bool
    fraction: float
    aligned_past: int | None

    @property
    def is_seen_in_record(self) -> bool:
        """Whether the record alone shows it, before its signal is looked for."""
        return self.outcome in _RECORD_OUTCOMES


_RECORD_OUTCOMES = frozenset(("reverse_strand", "bad_read_id", "no_moves", "bad_moves", "split_without_offset"))

NUISANCES: dict[str, Nuisance] = {}
"""All faults by name, in the order in which they are put on a read."""


def register(
    outcome: str = USED,
    *,
    is_exclusive: bool = True,
    fraction: float = 0.0,
    aligned_past: int | None = None,
) -> Callable[[Change], Change]:
    """Enter a fault under its function's name; the function's docstring says what the read is like."""

    def enter(change: Change) -> Change:
        name = change.__name__
        NUISANCES[name] = Nuisance(
            name, (change.__doc__ or "").rstrip("."), outcome, change, is_exclusive, fraction, aligned_past
        )
        return change

    return enter


def parse_fractions(words: tuple[str, ...]) -> dict[str, float]:
    """Return the share of molecules by fault, of all that have any.

    :param words: NAME=FRACTION; of a name given twice, the last counts.
    :raises ConfigError: not of that form, an unknown name, a share outside 0 to 1, or exclusive ones beyond 1 together.
    """
    fractions = {name: nuisance.fraction for name, nuisance in NUISANCES.items()}
    for word in words:
        name, equals, number = word.partition("=")
        if not equals:
            raise ConfigError(
                f"--nuisance '{word}' is not NAME=FRACTION.", hint="For example: --nuisance no_moves=0.1."
            )
        if name not in NUISANCES:
            close = nearest(name, list(NUISANCES))
            hint = f"Did you mean '{close}'?" if close else f"There are: {', '.join(NUISANCES)}."
            raise ConfigError(f"--nuisance '{word}': there is no '{name}'.", hint=hint)
        try:
            fractions[name] = float(number)
        except ValueError:
            raise ConfigError(f"--nuisance '{word}': '{number}' is not a number.") from None
        if not 0 <= fractions[name] <= 1:
            raise ConfigError(f"--nuisance '{word}': the share must be between 0 and 1.")
    total = sum(share for name, share in fractions.items() if NUISANCES[name].is_exclusive)
    if total > 1 + 1e-9:
        raise ConfigError(
            f"The shares of --nuisance that exclude one another sum to {total:g}, more than all reads.",
            hint="A read has one of these at most: "
            + ", ".join(name for name, nuisance in NUISANCES.items() if nuisance.is_exclusive and fractions[name])
            + ".",
        )
    return {name: share for name, share in fractions.items() if share > 0}


# Move table


@register("no_moves")
def no_moves(draft: Draft, generator: Any) -> bool:
    """No mv tag."""
    draft.moves = None
    return True


@register("bad_moves")
def bad_moves(draft: Draft, generator: Any) -> bool:
    """A 2 in the mv tag."""
    assert draft.moves is not None
    draft.moves = draft.moves.copy()
    draft.moves[0] = 2
    return True


@register("mv_mismatch")
def moves_cut(draft: Draft, generator: Any) -> bool:
    """The last 3 elements of mv are lost."""
    assert draft.moves is not None
    draft.moves = draft.moves[:-3]
    return True


@register("mv_mismatch")
def trimmed_sequence(draft: Draft, generator: Any) -> bool:
    """SEQ trimmed by 20 bases after basecalling, mv whole."""
    draft.sequence = draft.sequence[20:]
    draft.cigar, skipped = cut_front(draft.cigar, 20)
    draft.position += skipped
    return True


# Used interval


@register()
def no_ts(draft: Draft, generator: Any) -> bool:
    """Used from the first sample on, so without ts."""
    _drop_leader(draft)
    draft.trimmed = None
    return True


@register("mv_mismatch")
def lost_ts(draft: Draft, generator: Any) -> bool:
    """The ts tag is lost."""
    draft.trimmed = None
    return True


@register()
def no_ns(draft: Draft, generator: Any) -> bool:
    """Used to the last sample, so without ns."""
    draft.signal = draft.signal[: draft.used_end]
    draft.used_end = None
    return True


@register("ns_beyond_signal")
def ns_beyond_signal(draft: Draft, generator: Any) -> bool:
    """Ns lies beyond the signal."""
    draft.used_end = len(draft.signal) + 1234
    return True


@register("no_signal")
def empty_signal(draft: Draft, generator: Any) -> bool:
    """POD5 read without samples."""
    draft.signal = draft.signal[:0]
    draft.trimmed = draft.used_end = None
    return True


@register("constant_signal")
def constant_signal(draft: Draft, generator: Any) -> bool:
    """One ADC value all through."""
    draft.signal = draft.signal * 0 + 321
    return True


@register("focus_not_aligned")
def short_read(draft: Draft, generator: Any) -> bool:
    """Called and aligned with 3 bases at the 5' end."""
    assert draft.moves is not None
    assert draft.trimmed is not None
    # The three last moves in time; what comes before them is trimmed.
    first = int(draft.moves.nonzero()[0][-3])
    draft.moves = draft.moves[first:]
    draft.trimmed += first * draft.stride
    draft.sequence = draft.sequence[:3]
    draft.cigar = [(3, "M")]
    return True


# Alignment


@register("reverse_strand")
def reverse_strand(draft: Draft, generator: Any) -> bool:
    """Flag 16: aligned to the reverse strand."""
    draft.flag |= 16
    draft.sequence = draft.sequence[::-1].translate(str.maketrans("ACGT", "TGCA"))
    draft.cigar = draft.cigar[::-1]
    return True


@register(is_exclusive=False)
def mapq_zero(draft: Draft, generator: Any) -> bool:
    """Mapping quality 0, as among isodecoders."""
    was_zero, draft.mapq = draft.mapq == 0, 0
    return not was_zero


@register(aligned_past=5)
def clipped_adapter(draft: Draft, generator: Any) -> bool:
    """Alignment ends two bases behind the motif."""
    return True


@register("focus_not_aligned", aligned_past=-4)
def clipped_junction(draft: Draft, generator: Any) -> bool:
    """Alignment ends before the CCA end."""
    return True


# Names


@register("bad_read_id")
def bad_read_id(draft: Draft, generator: Any) -> bool:
    """Read id that is no UUID."""
    draft.name = "read_" + draft.name
    return True


@register()
def capital_id(draft: Draft, generator: Any) -> bool:
    """Read id in capitals in the BAM."""
    draft.name = draft.name.upper()
    return True


@register("split_without_offset")
def split_without_offset(draft: Draft, generator: Any) -> bool:
    """Pi tag without sp."""
    draft.tags.append(f"pi:Z:{draft.name}")
    return True


# POD5


@register("signal_unreadable")
def corrupt_signal(draft: Draft, generator: Any) -> bool:
    """Signal that cannot be decoded, all of it in pod5/corrupt.pod5."""
    draft.place = "corrupt"
    return True


@register("not_in_pod5")
def truncated_pod5(draft: Draft, generator: Any) -> bool:
    """Signal in pod5/truncated.pod5, of which the second half is missing."""
    draft.place = "truncated"
    return True


@register()
def repeated_pod5(draft: Draft, generator: Any) -> bool:
    """Signal in pod5/repeated.pod5 too."""
    draft.is_repeated = True
    return True


@register()
def zero_calibration(draft: Draft, generator: Any) -> bool:
    """Calibration scale 0; bad_calibration with --normalisation picoamp."""
    draft.calibration_scale = 0.0
    return True


# Tags that come with sound reads


@register(is_exclusive=False)
def two_ts(draft: Draft, generator: Any) -> bool:
    """Ts:A beside ts:i, as minimap2 writes it."""
    # Before the basecaller's, so that the first ts found is the wrong one.
    draft.tags.insert(0, "ts:A:+")
    return True


@register(is_exclusive=False)
def wide_moves(draft: Draft, generator: Any) -> bool:
    """Mv as an array of 32-bit numbers."""
    draft.moves_type = "i"
    return draft.moves is not None


@register(is_exclusive=False)
def read_group(draft: Draft, generator: Any) -> bool:
    """RG tag whose @RG the header lacks."""
    draft.tags.append("RG:Z:simulated_rna004_sup")
    return True


@register(is_exclusive=False)
def scaling_tags(draft: Draft, generator: Any) -> bool:
    """Scaling tags sm, sd and sv."""
    draft.tags += [f"sm:f:{generator.normal(80, 4):.4f}", f"sd:f:{generator.normal(17, 1.2):.4f}", "sv:Z:pa"]
    return True


@register(is_exclusive=False, fraction=0.5)
def modified_bases(draft: Draft, generator: Any) -> bool:
    """Modified-base tags MM, ML and MN."""
    likelihood = int(generator.integers(0, 256))
    # MM counts along the strand that was sequenced.
    if ("T" if draft.flag & 16 else "A") not in draft.sequence:
        return False
    draft.tags += [f"MN:i:{len(draft.sequence)}", "MM:Z:A+a.,0;", f"ML:B:C,{likelihood}"]
    return True


def cut_front(cigar: list[tuple[int, str]], number: int) -> tuple[list[tuple[int, str]], int]:
    """Return a CIGAR without its first ``number`` bases of SEQ, and the reference bases that went with them.

    What is left starts with a match or a clip.
    """
    letters = "".join(letter * length for length, letter in cigar)
    place = skipped = clipped = 0
    while number or letters[place] in "ID":
        skipped += letters[place] in "MD"
        if letters[place] != "D":
            # An inserted base behind the cut stays in SEQ, and an alignment cannot begin with it.
            clipped += number == 0
            number = max(0, number - 1)
        place += 1
    rest = "S" * clipped + letters[place:]
    return [(len(list(run)), letter) for letter, run in itertools.groupby(rest)], skipped


def _drop_leader(draft: Draft) -> None:
    assert draft.trimmed is not None
    assert draft.used_end is not None
    start = draft.trimmed
    draft.signal = draft.signal[start:]
    draft.used_end -= start
    draft.focus = (draft.focus[0] - start, draft.focus[1] - start)
