"""A block of molecules, from random numbers to what is written of them.

Hides: ids, split reads, tags, the records beside a read, and which molecules a nuisance hits. Belongs here: everything about
single reads that the files say; files are ``write.py``'s, what a nuisance does to a read is ``nuisances.py``'s. Pure: a block
depends on the settings and its number alone, so any process may make it. Invariants: every molecule has one row of truth and
one primary record, or two where it is written twice; molecules, basecalls, ids and nuisances are drawn from streams of their
own, so that switching one nuisance on leaves everything else as it was.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.data.simulate.basecall import STRIDE, Basecalls, basecall
from leech.data.simulate.config import SimulateConfig
from leech.data.simulate.design import Design
from leech.data.simulate.layout import Layout
from leech.data.simulate.molecules import IndelModel, Molecules, Pore
from leech.data.simulate.nuisances import NUISANCES, USED, Draft, Nuisance, Place, parse_fractions
from leech.data.simulate.tally import CHARGED, READS, USABLE, USABLE_CHARGED, Tally

BLOCK_MOLECULES = 100
"""Molecules in a block; another number would give other reads for a seed."""

TRUTH_COLUMNS = (
    "read_id",
    "parent_id",
    "reference",
    "charged",
    "in_pod5",
    "junction_indel",
    "oracle_logit",
    "speed",
    "focus_start_sample",
    "focus_end_sample",
    "flow_cell",
    "run",
    "nuisances",
    "outcomes",
)
"""Focus: the A of CCA; its samples as a half-open range of the POD5 read's raw signal in time order. Nuisances: by name,
with commas. Outcomes: of all BAM records with this molecule's sequence, with commas, the primary one's first."""

_MOLECULES, _BASECALLS, _READS, _NUISANCES = range(4)
"""Streams of random numbers in a block."""

_MOVE_TEXT = np.frombuffer(b",0,1,2", dtype=np.uint8).reshape(3, 2)
_EXTRA_KINDS = ("duplicate", "secondary", "supplementary", "unmapped")
_SUPPLEMENTARY_BASES = 30


class Pod5Read(NamedTuple):
    """A read to be written into POD5.

    :ivar molecule: number in the library that decides on its file; it never falls from one read to the next.
    :ivar calibration_scale: None for the usual.
    """

    read_id: str
    molecule: int
    num_samples: int
    place: Place
    is_repeated: bool
    calibration_scale: float | None


@dataclass(frozen=True)
class Block:
    """What is to be written of some molecules.

    :ivar records: SAM lines.
    :ivar truth: lines of the truth table.
    :ivar reads: POD5 reads, whose samples follow one another in ``signal``.
    """

    records: bytes
    truth: bytes
    reads: list[Pod5Read]
    signal: NDArray[np.int16]
    tally: Tally
    charged: NDArray[np.bool_]
    logits: NDArray[np.float64]


class BlockMaker:
    """Makes any block of a library; picklable settings in, plain values out."""

    def __init__(self, config: SimulateConfig, design: Design, indels: IndelModel) -> None:
        self._config, self._indels = config, indels
        self._pore = Pore(design, config.speed_charged)
        self._layout = Layout.plan(config)
        self._names = list(design.references)
        self._charged_fractions = np.array([design.charged_fractions[name] for name in self._names])
        self._aligned_ends = np.array(
            [[design.aligned_end(name, state) for state in (False, True)] for name in self._names]
        )
        shares = parse_fractions(config.nuisance)
        self._exclusive = [(NUISANCES[name], share) for name, share in shares.items() if NUISANCES[name].is_exclusive]
        self._shared = [(NUISANCES[name], share) for name, share in shares.items() if not NUISANCES[name].is_exclusive]

    def make(self, block: int) -> Block:
        """Return the block with this number."""
        first = block * BLOCK_MOLECULES
        number = min(BLOCK_MOLECULES, self._config.reads - first)
        streams = [
            np.random.default_rng(np.random.SeedSequence(self._config.seed, spawn_key=(block, stream)))
            for stream in (_MOLECULES, _BASECALLS, _READS, _NUISANCES)
        ]
        references = streams[_MOLECULES].integers(0, len(self._names), number)
        charged = streams[_MOLECULES].random(number) < self._charged_fractions[references]
        molecules = self._pore.draw(streams[_MOLECULES], references, charged)
        hit = self._draw_nuisances(streams[_NUISANCES], number)
        junctions = self._pore.junctions[references] - molecules.first
        ends = self._aligned_ends[references, charged.astype(np.int64)] - molecules.first
        indels = streams[_BASECALLS].random(number) < self._indels.chance(molecules.signal_logit)
        for place, nuisances in enumerate(hit):
            for past in (nuisance.aligned_past for nuisance in nuisances if nuisance.aligned_past is not None):
                ends[place] = min(ends[place], junctions[place] + past)
                # There is no indel to be seen where nothing is aligned.
                indels[place] &= past >= 3
        qualities = streams[_BASECALLS].normal(12, 2, number)
        mapqs = streams[_BASECALLS].integers(0, 61, number)
        called = basecall(streams[_BASECALLS], molecules, junctions, indels, ends)
        drafts = _draft(self._names, molecules, called, junctions - 1, mapqs, qualities)
        writer = _BlockWriter(self._config, self._layout, self._names, first, molecules, indels, streams[_READS])
        return writer.write(drafts, hit, streams[_NUISANCES])

    def _draw_nuisances(self, generator: np.random.Generator, number: int) -> list[list[Nuisance]]:
        """Return the nuisances of each molecule: at most one exclusive one, then any of the others."""
        borders = np.cumsum([share for _, share in self._exclusive])
        chosen = np.searchsorted(borders, generator.random(number), side="right").tolist()
        hit = [[self._exclusive[place][0]] if place < len(self._exclusive) else [] for place in chosen]
        for nuisance, share in self._shared:
            for place in np.flatnonzero(generator.random(number) < share).tolist():
                hit[place].append(nuisance)
        return hit


def _draft(
    names: Sequence[str],
    molecules: Molecules,
    called: Basecalls,
    focus: NDArray[np.int64],
    mapqs: NDArray[np.int64],
    qualities: NDArray[np.float64],
) -> list[Draft]:
    """Return reads as they are without nuisances, still without names.

    :param focus: number of the focus base in each molecule.
    """
    base = molecules.base_offsets[:-1] + focus
    # Sequence direction to time: [a, b) of n used samples becomes [n - b, n - a).
    leader, used_end = molecules.leader, molecules.leader + molecules.used
    start, end = (used_end - molecules.ends[place] for place in (base, base - 1))
    drafts = []
    for place, signal in enumerate(np.split(molecules.signal, molecules.sample_offsets[1:-1])):
        draft = Draft(
            name="",
            flag=0,
            reference=names[molecules.references[place]],
            position=int(called.positions[place]),
            mapq=int(mapqs[place]),
            cigar=called.cigars[place],
            sequence=called.sequences[place],
            stride=STRIDE,
            moves=called.moves[place],
            trimmed=int(leader[place]),
            used_end=int(used_end[place]),
            signal=signal,
            focus=(int(start[place]), int(end[place])),
            tags=[f"qs:f:{qualities[place]:.4f}"],
        )
        drafts.append(draft)
    return drafts


class _BlockWriter:
    """Collects what is to be written of one block, read by read.

    :param first: number in the library of the block's first molecule.
    :param generator: for everything but nuisances; what is drawn of it does not depend on them.
    """

    def __init__(
        self,
        config: SimulateConfig,
        layout: Layout,
        names: Sequence[str],
        first: int,
        molecules: Molecules,
        indels: NDArray[np.bool_],
        generator: np.random.Generator,
    ) -> None:
        number = len(molecules)
        self._layout, self._names, self._first, self._molecules, self._indels = layout, names, first, molecules, indels
        self._own_ids, self._parent_ids, self._unmapped_ids = (_uuids(generator, number) for _ in range(3))
        # Half as many pairs as split molecules: each pair takes the next sound one too.
        self._starts_pair = generator.random(number) < config.split_fraction / (2 - config.split_fraction)
        self._is_missing = generator.random(number) < config.missing_fraction
        chances = [getattr(config, f"{kind}_fraction") for kind in _EXTRA_KINDS]
        self._extras = generator.random((number, len(chances))) < chances
        self._others = generator.integers(0, len(names), (number, 2))
        self._lines: list[str] = []
        self._truth: list[str] = []
        self._reads: list[Pod5Read] = []
        self._signals: list[NDArray[np.int16]] = []
        self._usable = np.zeros(number, dtype=bool)
        self._tally = Tally.of(len(names))

    def write(
        self, drafts: Sequence[Draft], hit: Sequence[Sequence[Nuisance]], generator: np.random.Generator
    ) -> Block:
        """Write reads of one molecule, and those of two that the basecaller split.

        :param hit: nuisances of each molecule.
        :param generator: for what nuisances draw.
        """
        applied: list[list[Nuisance]] = []
        waiting: int | None = None
        for place, draft in enumerate(drafts):
            draft.name = str(uuid.UUID(bytes=self._own_ids[place], version=4))
            applied.append([nuisance for nuisance in hit[place] if nuisance.change(draft, generator)])
            is_whole = any(nuisance.is_exclusive for nuisance in applied[place])
            if is_whole or (waiting is None and not self._starts_pair[place]):
                self._write_read([place], place, drafts, applied)
            elif waiting is None:
                waiting = place
            else:
                self._write_read([waiting, place], place, drafts, applied)
                waiting = None
        if waiting is not None:
            self._write_read([waiting], len(drafts) - 1, drafts, applied)
        self._count()
        return Block(
            records="".join(self._lines).encode(),
            truth="".join(self._truth).encode(),
            reads=self._reads,
            signal=np.concatenate([np.zeros(0, dtype=np.int16), *self._signals]),
            tally=self._tally,
            charged=self._molecules.charged,
            logits=self._molecules.signal_logit,
        )

    def _write_read(
        self, places: Sequence[int], now: int, drafts: Sequence[Draft], applied: Sequence[Sequence[Nuisance]]
    ) -> None:
        """Write one POD5 read and the records of the molecules in it.

        :param now: how far the block is written; the read goes where that molecule's does, whenever its own was drawn.
        """
        first = places[0]
        ids = self._own_ids if len(places) == 1 else self._parent_ids
        parent = str(uuid.UUID(bytes=ids[first], version=4))
        molecule = self._first + now
        is_missing = bool(self._is_missing[first])
        if not is_missing:
            draft = drafts[first]
            num_samples = sum(len(drafts[place].signal) for place in places)
            place_of_read = (draft.place, draft.is_repeated, draft.calibration_scale)
            self._reads.append(Pod5Read(parent, molecule, num_samples, *place_of_read))
            self._signals += [drafts[place].signal for place in places]
        offset = 0
        for place in places:
            draft = drafts[place]
            if len(places) > 1:
                draft.tags += [f"pi:Z:{parent}", f"sp:i:{offset}"]
            outcomes = self._write_records(place, draft, _outcome(applied[place], is_missing))
            is_in_pod5 = not is_missing and draft.place != "truncated"
            self._write_truth(place, draft, parent, is_in_pod5, applied[place], outcomes, offset, molecule)
            offset += len(draft.signal)

    def _write_records(self, place: int, draft: Draft, outcome: str) -> list[str]:
        """Write a molecule's primary record and those that come beside it; return what ``prepare`` should make of them."""
        outcomes = [outcome]
        lines = [sam_line(draft)]
        for kind, is_there in zip(_EXTRA_KINDS, self._extras[place].tolist(), strict=True):
            if not is_there:
                continue
            if kind == "duplicate":
                lines.append(lines[0])
                # What the record or the POD5 index shows is found before the repetition is.
                outcomes.append(outcome if outcome in _BEFORE_REPETITION else kind)
                continue
            lines.append(sam_line(self._extra(place, draft, kind)))
            outcomes.append(kind)
        self._lines += lines
        self._tally.expected.update(outcomes)
        self._usable[place] = outcome == USED
        return outcomes

    def _extra(self, place: int, draft: Draft, kind: str) -> Draft:
        if kind == "unmapped":
            name = str(uuid.UUID(bytes=self._unmapped_ids[place], version=4))
            return replace(draft, name=name, flag=4, reference="*", position=-1, mapq=0, cigar=[])
        secondary, supplementary = (self._names[number] for number in self._others[place].tolist())
        if kind == "secondary":
            return replace(draft, flag=256, reference=secondary, sequence="*")
        kept = draft.sequence[:_SUPPLEMENTARY_BASES]
        clipped = len(draft.sequence) - len(kept)
        cigar = [(len(kept), "M"), *([(clipped, "H")] if clipped else [])]
        return replace(draft, flag=2048, reference=supplementary, sequence=kept, cigar=cigar)

    def _write_truth(
        self,
        place: int,
        draft: Draft,
        parent: str,
        is_in_pod5: bool,
        applied: Sequence[Nuisance],
        outcomes: Sequence[str],
        offset: int,
        molecule: int,
    ) -> None:
        molecules = self._molecules
        names = [nuisance.name for nuisance in applied]
        self._tally.num_in_pod5 += is_in_pod5
        self._tally.nuisances.update(names)
        run = self._layout.run_of(molecule)
        cells = (
            str(uuid.UUID(bytes=self._own_ids[place], version=4)),
            parent,
            draft.reference,
            int(molecules.charged[place]),
            int(is_in_pod5),
            int(self._indels[place]),
            f"{molecules.signal_logit[place]:.6g}",
            f"{molecules.speed[place]:.4f}",
            *(offset + sample for sample in draft.focus),
            run.flow_cell,
            run.name,
            ",".join(names),
            ",".join(outcomes),
        )
        self._truth.append("\t".join(map(str, cells)) + "\n")

    def _count(self) -> None:
        references, charged = self._molecules.references, self._molecules.charged
        everywhere = np.ones(len(references), dtype=bool)
        columns = {READS: everywhere, CHARGED: charged, USABLE: self._usable, USABLE_CHARGED: charged & self._usable}
        for column, chosen in columns.items():
            np.add.at(self._tally.by_reference[:, column], references[chosen], 1)
        for state in (0, 1):
            self._tally.indels[state] = (self._indels & (charged == state)).sum()


_BEFORE_REPETITION = frozenset(
    ("not_in_pod5", *(nuisance.outcome for nuisance in NUISANCES.values() if nuisance.is_seen_in_record))
)


def _outcome(applied: Sequence[Nuisance], is_missing: bool) -> str:
    """Return what ``prepare`` should count a primary record as."""
    fault = next((nuisance for nuisance in applied if nuisance.outcome != USED), None)
    if fault is not None and fault.is_seen_in_record:
        return fault.outcome
    if is_missing:
        return "not_in_pod5"
    return USED if fault is None else fault.outcome


def sam_line(draft: Draft) -> str:
    """Return a read as a line of SAM."""
    cigar = "".join(f"{length}{letter}" for length, letter in draft.cigar) or "*"
    quality = "*" if draft.sequence == "*" else "5" * len(draft.sequence)
    tags = list(draft.tags)
    if draft.used_end is not None:
        tags.append(f"ns:i:{draft.used_end}")
    if draft.trimmed is not None:
        tags.append(f"ts:i:{draft.trimmed}")
    if draft.moves is not None:
        moves = _MOVE_TEXT[draft.moves].tobytes().decode("ascii")
        tags.append(f"mv:B:{draft.moves_type},{draft.stride}{moves}")
    fields = (draft.name, draft.flag, draft.reference, draft.position + 1, draft.mapq, cigar)
    return "\t".join([*map(str, fields), "*", "0", "0", draft.sequence, quality, *tags]) + "\n"


def _uuids(generator: np.random.Generator, number: int) -> list[bytes]:
    """Return the bytes of read ids."""
    raw = generator.bytes(16 * number)
    return [raw[start : start + 16] for start in range(0, 16 * number, 16)]
