"""The recipe: everything that decides a chunk's bytes, and its digest.

Hides: how a recipe becomes a digest. Belongs here: any knob that changes what is cut from a read; knobs that only change
how fast (workers) or where (paths) live in ``data/config.py``. Imports neither numpy nor torch, because the command
line's flags are made from it. Invariants: equal digests mean equal chunks from equal reads; a corpus and the model
trained on it carry the same recipe.

Frames: bases are counted along the reference, 5'->3', relative to the focus base (offset 0). Samples are counted in the
direction of the sequence (for RNA the raw signal reversed), relative to the window's first sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from leech.config import knob, to_mapping
from leech.provenance import digest_of

RECIPE_VERSION = 1
"""Raised whenever the same recipe and reads would give other bytes than before."""

CONTEXT_BASES = 4
"""Bases of context kept on either side of the base window, so that 9-mers exist for every base of it."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is cut from a read, and how. Field help texts are the command line's."""

    motif: str = knob(help="Sequence to look for in the reference, 5'->3'; IUPAC codes allowed, T and U are the same.")
    motif_offset: int = knob(
        help="Focus base, counted from the motif's first base (0). Any integer is legal: a control site may lie outside."
    )
    motif_occurrence: Literal["arm", "first", "last", "only"] = knob(
        "arm",
        help="Which occurrence of the motif in a reference is the site: the one that touches the adapter arm, the first, "
        "the last, or the only one (references with several are skipped).",
    )
    arm: str = knob("GGCTTCTTCTTGCTCTT", help="Adapter arm that marks the junction when --motif-occurrence is 'arm'.")
    samples_before: int = knob(225, minimum=0, maximum=16000, help="Signal samples before the focus position.")
    samples_after: int = knob(225, minimum=1, maximum=16000, help="Signal samples from the focus position on.")
    base_justify: Literal["start", "center", "end"] = knob(
        "start", help="Which point of the focus base is the focus position."
    )
    bases_before: int = knob(
        20, minimum=0, maximum=500, help="Bases before the focus whose sequence and dwell are kept."
    )
    bases_after: int = knob(20, minimum=0, maximum=500, help="Bases after the focus whose sequence and dwell are kept.")
    feature_start: int = knob(-8, help="First base offset of the per-base level features (0 is the focus).")
    feature_end: int = knob(8, help="Last base offset of the per-base level features, inclusive.")
    normalisation: Literal["mad"] = knob(
        "mad", help="Per-read shift and scale: median and 1.4826 x MAD of the trimmed read."
    )
    reverse_signal: bool = knob(
        True, help="Signal runs 3'->5' in time, as for direct RNA; --no-reverse-signal for DNA."
    )
    refinement: Literal["none", "kmer"] = knob(
        "none",
        help="Move base boundaries around the focus to where the current fits the k-mer table's levels best; "
        "needs a k-mer table.",
    )
    kmer_table_sha256: str | None = knob(
        None, expose=False, help="Digest of the k-mer level table's text, when expected levels are part of the chunks."
    )
    kmer_size: int | None = knob(None, expose=False, help="k of the k-mer table.")
    kmer_centre: int | None = knob(
        None,
        minimum=0,
        help="Position within the k-mer (0-based) whose base carries the level; default: chosen by the data.",
    )

    def __post_init__(self) -> None:
        motif = self.motif.upper().replace("U", "T")
        object.__setattr__(self, "motif", motif)
        object.__setattr__(self, "arm", self.arm.upper().replace("U", "T"))
        unknown = sorted(set(motif) - set("ACGTRYSWKMBDHVN"))
        if unknown or not motif:
            raise ValueError(f"motif '{self.motif}' must be made of IUPAC nucleotide codes; not among them: {unknown}")
        if self.motif_occurrence == "arm" and not self.arm:
            raise ValueError("motif_occurrence 'arm' needs an adapter arm; give --arm or choose first, last or only")
        if self.feature_start > self.feature_end:
            raise ValueError(f"feature_start {self.feature_start} lies after feature_end {self.feature_end}")
        if self.feature_start < -self.bases_before or self.feature_end > self.bases_after:
            raise ValueError(
                f"feature offsets {self.feature_start}..{self.feature_end} reach beyond the base window "
                f"{-self.bases_before}..{self.bases_after}; widen --bases-before/--bases-after"
            )

    @property
    def num_samples(self) -> int:
        """Length of the signal window."""
        return self.samples_before + self.samples_after

    @property
    def num_bases(self) -> int:
        """Length of the base window."""
        return self.bases_before + 1 + self.bases_after

    @property
    def num_feature_bases(self) -> int:
        """Number of bases with level features."""
        return self.feature_end - self.feature_start + 1

    def digest(self) -> str:
        """Return ``sha256:<hex>`` over the canonical JSON of all fields and the recipe version."""
        return digest_of({"recipe_version": RECIPE_VERSION, **to_mapping(self)})

    def differences(self, other: Recipe) -> list[tuple[str, Any, Any]]:
        """Return (field, value here, value there) of every field that differs."""
        here, there = to_mapping(self), to_mapping(other)
        return [(name, here[name], there[name]) for name in here if here[name] != there[name]]
