"""The recipe: everything that decides a chunk's bytes, and its digest.

Hides: how a recipe becomes a digest. Belongs here: any knob that changes what is cut from a read; knobs that only change
how fast (workers) or where (paths) live in ``data/config.py``. Imports neither numpy nor torch, because the command
line's flags are made from it. Invariants: equal digests mean equal chunks from equal reads; a corpus and the model
trained on it carry the same recipe.

Frames: bases are counted along the reference, 5'->3', relative to the focus base (offset 0). Samples are counted in the
direction of the sequence (for RNA the raw signal reversed), relative to the window's first sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from leech.config import build, knob, to_mapping
from leech.provenance import digest_of

RECIPE_VERSION = 1
"""Raised whenever the same recipe and reads would give other bytes than before."""

MOST_SAMPLES = 16000
"""Of the window on either side of the focus position: places in it are stored in 16 bits."""

CONTEXT_BASES = 4
"""Bases of context kept on either side of the base window, so that 9-mers exist for every base of it."""

DEFAULT_ARM = "GGCTTCTTCTTGCTCTT"
"""The part that all 3' adapters share, right behind the CCA end."""

_AS_BEFORE: dict[str, Any] = {
    "anchor": "reference",
    "site_source": "motif",
    "require_clean_junction": False,
    "sites_sha256": None,
    "context_bases": None,
    "dwell_offset": 0,
    "mask_sequence": "none",
    "refinement": "none",
    "indels": False,
}
"""Fields that came after recipes were first written, with the value that means what was done until then. At that value a
field is no part of the digest, so that older corpora and models stay what they are."""


def with_later_fields(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a recipe that was written down, and those that came later, as what was done until then."""
    return {**_AS_BEFORE, **content}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is cut from a read, and how. Field help texts are the command line's."""

    anchor: Literal["reference", "basecall"] = knob(
        "reference",
        help="Sequence in which the motif is looked for and on which the window's bases lie: the reference, or the read's "
        "own basecall. Adducts garble the basecall around them, so that the latter loses more of the charged reads.",
    )
    motif: str | None = knob(
        None,
        help="Sequence to look for, 5'->3'; IUPAC codes allowed, T and U are the same. Needed unless --sites or "
        "--read-sites says where the site is.",
    )
    motif_offset: int | None = knob(
        None,
        help="Focus base, counted from the motif's first base (0); needed with --motif. Any integer is legal: a control "
        "site may lie outside.",
    )
    motif_occurrence: Literal["arm", "first", "last", "only"] = knob(
        "arm",
        help="Which occurrence of the motif in a reference is the site: the one that touches the adapter arm, the first, "
        "the last, or the only one (references with several are skipped).",
    )
    arm: str = knob(
        DEFAULT_ARM,
        help="Adapter arm that marks the junction when --motif-occurrence is 'arm'. In basecalls a shorter one survives "
        "errors better.",
    )
    require_clean_junction: bool = knob(
        False,
        help="Skip reads whose alignment has an indel at the site's motif or does not cover it. Adducts cause indels, so "
        "this loses more of the charged reads.",
    )
    site_source: Literal["motif", "sites", "read_sites"] = knob(
        "motif", expose=False, help="What says where the site is: the motif, a BED, or a table with one row per read."
    )
    sites_sha256: str | None = knob(
        None, expose=False, help="Digest of the BED's text, when it says where the sites are."
    )
    samples_before: int = knob(225, minimum=0, maximum=MOST_SAMPLES, help="Signal samples before the focus position.")
    samples_after: int = knob(225, minimum=1, maximum=MOST_SAMPLES, help="Signal samples from the focus position on.")
    base_justify: Literal["start", "center", "end"] = knob(
        "start", help="Which point of the focus base is the focus position."
    )
    bases_before: int = knob(
        20, minimum=0, maximum=500, help="Bases before the focus whose sequence and dwell are kept."
    )
    bases_after: int = knob(20, minimum=0, maximum=500, help="Bases after the focus whose sequence and dwell are kept.")
    feature_start: int = knob(-8, help="First base offset of the per-base level features (0 is the focus).")
    feature_end: int = knob(8, help="Last base offset of the per-base level features, inclusive.")
    context_bases: tuple[int, int] | None = knob(
        None,
        minimum=0,
        maximum=500,
        metavar="LEFT RIGHT",
        help="Signal from this many bases before the focus base to this many after it, the rest of the window being "
        "padding, so that fast and slow reads show the same bases; what does not fit into --samples-before and "
        "--samples-after is cut off. Default: all samples of the window.",
    )
    dwell_offset: int = knob(
        0,
        minimum=-500,
        maximum=500,
        help="Dwell channels show the base this far 3' of theirs, because the motor that sets the pace sits some bases "
        "away from where current is measured.",
    )
    mask_sequence: Literal["none", "before", "after"] = knob(
        "none",
        help="Side of the focus base whose sequence is hidden from the network, as letters and as expected levels, for "
        "example 'after' for an adapter that differs between libraries.",
    )
    normalisation: Literal["mad", "base_mad", "zscore", "quantile", "picoamp"] = knob(
        "base_mad",
        help="Per-read shift and scale, of the trimmed read: median and 1.4826 x MAD of its samples; the same of its "
        "bases' means, each base counting once; mean and standard deviation; middle and distance of the 10 % and 90 % "
        "quantiles; or the POD5's calibration.",
    )
    reverse_signal: bool = knob(
        True, help="Signal runs 3'->5' in time, as for direct RNA; --no-reverse-signal for DNA."
    )
    refinement: Literal["none", "step", "kmer"] = knob(
        "step",
        help="Where base boundaries around the focus lie: where the move table has them; where the current steps, within "
        "two blocks behind that; or where the current fits the levels of the k-mer table best, which needs one.",
    )
    indels: bool = knob(
        True,
        help="Keep which of the bases with features the alignment deletes, and behind which it inserts; --no-indels for a "
        "corpus that goes with corpora or models from before they were kept.",
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
        if self.site_source == "motif":
            self._settle_motif()
        else:
            self._refuse_motif()
        if self.feature_start > self.feature_end:
            raise ValueError(f"feature_start {self.feature_start} lies after feature_end {self.feature_end}")
        if self.feature_start < -self.bases_before or self.feature_end > self.bases_after:
            raise ValueError(
                f"feature offsets {self.feature_start}..{self.feature_end} reach beyond the base window "
                f"{-self.bases_before}..{self.bases_after}; widen --bases-before/--bases-after"
            )
        start, end = self.feature_start + self.dwell_offset, self.feature_end + self.dwell_offset
        if start < -self.bases_before or end > self.bases_after:
            raise ValueError(
                f"dwell_offset {self.dwell_offset} asks for the dwell of bases {start}..{end}, beyond the base window "
                f"{-self.bases_before}..{self.bases_after}; widen --bases-before/--bases-after"
            )
        if self.context_bases is not None and (
            self.context_bases[0] > self.bases_before or self.context_bases[1] > self.bases_after
        ):
            raise ValueError(
                f"context_bases {self.context_bases[0]} {self.context_bases[1]} reach beyond the base window "
                f"{-self.bases_before}..{self.bases_after}; widen --bases-before/--bases-after"
            )

    def _settle_motif(self) -> None:
        """Write motif and arm in one way. Without a motif it is still open where the site is; see ``sites.settle_sites``."""
        object.__setattr__(self, "arm", self.arm.upper().replace("U", "T"))
        if self.motif_occurrence == "arm" and not self.arm:
            raise ValueError("motif_occurrence 'arm' needs an adapter arm; give --arm or choose first, last or only")
        if (self.motif is None) != (self.motif_offset is None):
            missing = "--motif" if self.motif is None else "--motif-offset"
            raise ValueError(f"a motif needs an offset of the focus base, and the reverse; give {missing} too")
        if self.motif is None:
            return
        motif = self.motif.upper().replace("U", "T")
        object.__setattr__(self, "motif", motif)
        unknown = sorted(set(motif) - set("ACGTRYSWKMBDHVN"))
        if unknown or not motif:
            raise ValueError(f"motif '{motif}' must be made of IUPAC nucleotide codes; not among them: {unknown}")

    def _refuse_motif(self) -> None:
        for name, unused in (
            ("anchor", "reference"),
            ("motif", None),
            ("motif_offset", None),
            ("motif_occurrence", "arm"),
            ("arm", DEFAULT_ARM),
        ):
            if getattr(self, name) != unused:
                file = "sites" if self.site_source == "sites" else "read-sites"
                raise ValueError(
                    f"{name} '{getattr(self, name)}' has no effect where --{file} says where the site is; "
                    f"leave out --{name.replace('_', '-')} or --{file}"
                )

    @property
    def site_words(self) -> str:
        """How the site is found, for people."""
        if self.site_source == "motif":
            return f"{self.motif} offset {self.motif_offset}, occurrence: {self.motif_occurrence}, in the {self.anchor}"
        return "one position per read" if self.sites_sha256 is None else f"BED {self.sites_sha256[:16]}"

    @property
    def junction_words(self) -> str:
        """What of the alignment the state of the junction is read from, for people."""
        return {"motif": "Motif", "sites": "Interval of the BED", "read_sites": "Base of the site"}[self.site_source]

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

    @classmethod
    def stored(cls, content: Mapping[str, Any], source: str) -> Recipe:
        """Return a recipe that was written down, when some fields of today may not have been there.

        :raises ConfigError: content that is no recipe; ``source`` names the file.
        """
        return build(cls, with_later_fields(content), source=source)

    def digest(self) -> str:
        """Return ``sha256:<hex>`` over the canonical JSON of the recipe version and all fields.

        Later fields are left out where they say what was done before there was the field.
        """
        fields = {
            name: value
            for name, value in to_mapping(self).items()
            if name not in _AS_BEFORE or value != _AS_BEFORE[name]
        }
        return digest_of({"recipe_version": RECIPE_VERSION, **fields})

    def differences(self, other: Recipe) -> list[tuple[str, Any, Any]]:
        """Return (field, value here, value there) of every field that differs."""
        here, there = to_mapping(self), to_mapping(other)
        return [(name, here[name], there[name]) for name in here if here[name] != there[name]]
