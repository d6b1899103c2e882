"""Cutting chunks: usable reads and their signal to columns of a corpus.

Hides: how a window is placed and measured. Belongs here: everything that needs signal and alignment together. Pure: the
same reads, signal, sites and recipe give the same arrays, in ``prepare`` as in ``predict``. Invariants: one outcome per
read, in order; chunks are in the order of the reads that were used; columns as in ``corpus.column_layout``.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.data.anchors import Site, Sites
from leech.data.context import ContextTally
from leech.data.corpus import ChunkArrays, column_layout
from leech.data.features import LEVEL_COLUMNS, measure_levels
from leech.data.moves import (
    INDEL_NONE,
    Alignments,
    ReadBounds,
    bounds_in_sequence,
    in_query,
    moves_agree,
)
from leech.data.normalise import Normalisation, UsedSignal, median_mad, normalise
from leech.data.pod5 import RawRead
from leech.data.reads import AlignedRead
from leech.data.reasons import USED
from leech.data.recipe import Recipe
from leech.data.refine import MARGIN_BASES, RefinementTally, refine_bounds
from leech.data.steps import MARGIN_BASES as STEP_MARGIN_BASES
from leech.data.steps import find_steps

_LONGEST_DWELL = np.iinfo(np.uint16).max
"""Dwell is stored in 16 bits; a base held for more than 16 s at 4 kHz counts as this long."""


class CutResult(NamedTuple):
    """What became of a batch of reads.

    :ivar chunks: the chunks of the reads whose outcome is "used", in order.
    :ivar outcomes: one per read.
    :ivar sample_rates: Hz by run name.
    :ivar junction: reads that could be cut, by (label, state of the motif in the alignment), whether or not
        ``require_clean_junction`` then took them out; a missing label is the empty text.
    :ivar refinement: what became of the used reads' boundaries; empty without refinement.
    :ivar context: samples that ``context_bases`` span; empty without them.
    """

    chunks: ChunkArrays
    outcomes: tuple[str, ...]
    sample_rates: dict[str, int]
    junction: Counter[tuple[str, int]]
    context: ContextTally
    refinement: RefinementTally


class Candidate(NamedTuple):
    """A read whose signal is there and agrees with its moves.

    :ivar place: which of the reads given it is.
    :ivar used: used samples, int16, in time order.
    """

    place: int
    read: AlignedRead
    site: Site
    raw: RawRead
    used: NDArray[np.int16]


def trim(read: AlignedRead, raw: NDArray[np.int16]) -> NDArray[np.int16] | str:
    """Return the used samples of the raw signal in time order, or the reason why there are none.

    The move table must fit them and the sequence.
    """
    end = len(raw) if read.signal_end is None else read.signal_end
    if end > len(raw):
        return "ns_beyond_signal"
    if not 0 <= read.signal_start < end:
        return "no_signal"
    table = read.move_table
    num_samples = end - read.signal_start
    if not moves_agree(len(table.moves), table.moves.count(1), table.stride, num_samples, read.num_bases):
        return "mv_mismatch"
    return raw[read.signal_start : end]


def _trace(candidates: Sequence[Candidate], recipe: Recipe) -> Alignments:
    """Return the alignments in the frame in which sites have their positions."""
    reads = [candidate.read for candidate in candidates]
    if recipe.anchor == "basecall":
        return Alignments.trace([in_query(read.cigar) for read in reads], [0] * len(reads))
    return Alignments.trace([read.cigar for read in reads], [read.reference_start for read in reads])


def _refusals(
    candidates: Sequence[Candidate], alignments: Alignments, query_bounds: ReadBounds, recipe: Recipe
) -> list[str | Normalisation]:
    """Return the normalisation of each read, or the reason why it cannot be used."""
    focus = np.array([candidate.site.focus for candidate in candidates], dtype=np.int64)
    if recipe.anchor == "basecall":
        fits = covered = np.ones(len(candidates), dtype=bool)
    else:
        fits = alignments.query_end <= np.array([candidate.read.num_bases for candidate in candidates], dtype=np.int64)
        covered = alignments.covers(focus)
    answers: list[str | Normalisation] = []
    bounds = [query_bounds.bounds[start:end] for start, end in itertools.pairwise(query_bounds.offsets.tolist())]
    each = zip(candidates, bounds, fits.tolist(), covered.tolist(), strict=True)
    for candidate, edges, has_sequence, has_focus in each:
        if not has_sequence:
            answers.append("mv_mismatch")
        elif not has_focus:
            answers.append("focus_not_aligned")
        else:
            used = candidate.used
            in_time = len(used) - edges[::-1] if recipe.reverse_signal else edges
            answers.append(normalise(recipe.normalisation, UsedSignal(used, in_time, candidate.raw.calibration)))
    return answers


def _junction_states(candidates: Sequence[Candidate], alignments: Alignments) -> NDArray[np.uint8]:
    sites = [candidate.site for candidate in candidates]
    intervals = np.array([(site.motif_start, site.motif_end) for site in sites], dtype=np.int64).reshape(-1, 2)
    return alignments.indels(intervals[:, 0], intervals[:, 1])


def _query_bounds(candidates: Sequence[Candidate], recipe: Recipe) -> ReadBounds:
    tables = [candidate.read.move_table for candidate in candidates]
    return bounds_in_sequence(
        [table.moves for table in tables],
        [table.stride for table in tables],
        [len(candidate.used) for candidate in candidates],
        recipe.reverse_signal,
    )


def _window_bounds(
    candidates: Sequence[Candidate], alignments: Alignments, query_bounds: ReadBounds, recipe: Recipe, margin: int
) -> NDArray[np.int64]:
    """Return the boundaries of the base windows' bases in each read's signal, (num_reads, num_bases + 1).

    :param margin: bases on either side of the base window whose boundaries are wanted too.
    """
    before, num_bases = recipe.bases_before + margin, recipe.num_bases + 2 * margin
    first = np.array([candidate.site.focus - before for candidate in candidates], dtype=np.int64)
    if recipe.anchor == "basecall":
        return query_bounds.at(first, num_bases)
    return alignments.bounds(query_bounds, first, num_bases)


def _refine(
    rows: dict[str, NDArray[Any]],
    candidates: Sequence[Candidate],
    signals: Sequence[NDArray[np.int16]],
    wide_bounds: NDArray[np.int64],
    recipe: Recipe,
) -> tuple[NDArray[np.int64], RefinementTally]:
    """Return the base windows' boundaries, refined within windows that are MARGIN_BASES wider, and what became of them."""
    tally = RefinementTally()
    window = slice(MARGIN_BASES, MARGIN_BASES + recipe.num_bases + 1)
    base_bounds = np.empty((len(candidates), recipe.num_bases + 1), dtype=np.int64)
    focus = MARGIN_BASES + recipe.bases_before
    for row, (candidate, signal) in enumerate(zip(candidates, signals, strict=True)):
        assert candidate.site.stretch_level is not None
        # Levels are in units of a read's spread, whatever normalisation the chunks get.
        spread = median_mad(candidate.used)
        refinement = refine_bounds(signal, wide_bounds[row], candidate.site.stretch_level, focus, spread)
        base_bounds[row] = refinement.bounds[window]
        rows["refined"][row] = refinement.outcome == "refined"
        tally.add(refinement)
    return base_bounds, tally


def focus_samples(base_bounds: NDArray[np.int64], recipe: Recipe) -> NDArray[np.int64]:
    """Return the focus position in each read's signal (num_reads,): start, centre or end of the focus base."""
    start, end = base_bounds[:, recipe.bases_before], base_bounds[:, recipe.bases_before + 1]
    return {"start": start, "center": (start + end) // 2, "end": end}[recipe.base_justify]


def cut(
    reads: Sequence[AlignedRead],
    signals: Mapping[bytes, RawRead | None],
    sites: Sites,
    references: Sequence[str],
    recipe: Recipe,
    *,
    label: str | None,
    sample: str | None,
) -> CutResult:
    """Cut one chunk per usable read.

    :param signals: decoded reads by parent id, None where decoding failed; a missing id is not in the POD5.
    :param sites: by reference number.
    :param references: names by reference number.
    :param label: state of all reads whose site does not say it; None for unknown.
    :param sample: overrides the sample name of the POD5.
    """
    outcomes, candidates = _find_candidates(reads, signals, sites)
    alignments, query_bounds = _trace(candidates, recipe), _query_bounds(candidates, recipe)
    turned = [candidate.used[::-1] if recipe.reverse_signal else candidate.used for candidate in candidates]
    answers = _refusals(candidates, alignments, query_bounds, recipe)
    states = _junction_states(candidates, alignments).tolist()
    junction: Counter[tuple[str, int]] = Counter()
    kept: list[int] = []
    normalisations: list[Normalisation] = []
    for number, (candidate, answer, state) in enumerate(zip(candidates, answers, states, strict=True)):
        if isinstance(answer, str):
            outcomes[candidate.place] = answer
            continue
        junction[candidate.site.label or label or "", state] += 1
        if recipe.require_clean_junction and state != INDEL_NONE:
            outcomes[candidate.place] = "junction_indel"
            continue
        kept.append(number)
        normalisations.append(answer)
    if len(kept) < len(candidates):
        candidates, states = [candidates[number] for number in kept], [states[number] for number in kept]
        turned = [turned[number] for number in kept]
        alignments, query_bounds = _trace(candidates, recipe), query_bounds.take(kept)
    rows = _allocate(len(candidates), recipe)
    rows["junction_indel"][:] = states
    if recipe.indels:
        first = np.array([candidate.site.focus for candidate in candidates], dtype=np.int64) + recipe.feature_start
        rows["indels"][:] = alignments.base_indels(first, recipe.num_feature_bases)
    tally = RefinementTally()
    if recipe.refinement == "none":
        base_bounds = _window_bounds(candidates, alignments, query_bounds, recipe, 0)
    elif recipe.refinement == "step":
        margin, strides = STEP_MARGIN_BASES, [candidate.read.move_table.stride for candidate in candidates]
        wide_bounds = _window_bounds(candidates, alignments, query_bounds, recipe, margin)
        found = find_steps(turned, wide_bounds, np.array(strides, dtype=np.int64), is_reversed=recipe.reverse_signal)
        base_bounds = found[:, margin:-margin]
    else:
        wide_bounds = _window_bounds(candidates, alignments, query_bounds, recipe, MARGIN_BASES)
        base_bounds, tally = _refine(rows, candidates, turned, wide_bounds, recipe)
    rows["median_dwell"][:] = query_bounds.median_dwell()
    rows["shift"][:] = [normalisation.shift for normalisation in normalisations]
    rows["scale"][:] = [normalisation.scale for normalisation in normalisations]
    rows["dwell"][:] = np.minimum(np.diff(base_bounds, axis=1), _LONGEST_DWELL)
    context = _fill_signal(rows, candidates, turned, base_bounds, recipe)
    _fill_levels(rows, turned, base_bounds, recipe)
    categories = _fill_descriptions(rows, candidates, references, label, sample)
    rates = {candidate.raw.run.run: candidate.raw.run.sample_rate for candidate in candidates}
    return CutResult(ChunkArrays(rows, categories), tuple(outcomes), rates, junction, context, tally)


def _find_candidates(
    reads: Sequence[AlignedRead], signals: Mapping[bytes, RawRead | None], sites: Sites
) -> tuple[list[str], list[Candidate]]:
    """Return one outcome per read, "used" as far as is known here, and the reads of those."""
    outcomes: list[str] = []
    candidates: list[Candidate] = []
    for place, read in enumerate(reads):
        raw = signals.get(read.parent_id, "not_in_pod5")
        site = sites[read.reference] if read.site is None else read.site
        assert site is not None
        if isinstance(site, str):
            outcomes.append(site)
        elif isinstance(raw, str) or raw is None:
            outcomes.append(raw or "signal_unreadable")
        else:
            used = trim(read, raw.signal)
            outcomes.append(used if isinstance(used, str) else USED)
            if not isinstance(used, str):
                candidates.append(Candidate(place, read, site, raw, used))
    return outcomes, candidates


def _allocate(num_chunks: int, recipe: Recipe) -> dict[str, NDArray[Any]]:
    return {name: np.zeros((num_chunks, *shape), dtype=dtype) for name, (dtype, shape) in column_layout(recipe).items()}


def _fill_signal(
    rows: dict[str, NDArray[Any]],
    candidates: Sequence[Candidate],
    signals: Sequence[NDArray[np.int16]],
    base_bounds: NDArray[np.int64],
    recipe: Recipe,
) -> ContextTally:
    """Fill in where the windows lie and what they hold; return what the context asked for spans."""
    length = np.array([len(signal) for signal in signals], dtype=np.int64)
    focus = focus_samples(base_bounds, recipe)
    start = focus - recipe.samples_before
    low, high = np.zeros_like(length), length
    if recipe.context_bases is not None:
        low = base_bounds[:, recipe.bases_before - recipe.context_bases[0]]
        high = base_bounds[:, recipe.bases_before + 1 + recipe.context_bases[1]]
    first, last = np.maximum(start, low), np.minimum(start + recipe.num_samples, high)
    rows["valid_start"][:], rows["valid_end"][:] = first - start, last - start
    windows = rows["signal"]
    from_to = zip((first - start).tolist(), (last - start).tolist(), first.tolist(), last.tolist(), strict=True)
    for row, (signal, (begin, end, source, source_end)) in enumerate(zip(signals, from_to, strict=True)):
        windows[row, begin:end] = signal[source:source_end]
    rows["focus_base_start"][:] = base_bounds[:, recipe.bases_before] - start
    in_time = length - 1 - focus if recipe.reverse_signal else focus
    rows["focus_raw_sample"][:] = in_time + np.array([c.read.signal_start for c in candidates], dtype=np.int64)
    if recipe.context_bases is None:
        return ContextTally()
    return ContextTally.of(focus - low, high - focus, (recipe.samples_before, recipe.samples_after))


def _fill_levels(
    rows: dict[str, NDArray[Any]],
    signals: Sequence[NDArray[np.int16]],
    base_bounds: NDArray[np.int64],
    recipe: Recipe,
) -> None:
    first = recipe.bases_before + recipe.feature_start
    levels = measure_levels(signals, base_bounds[:, first : first + recipe.num_feature_bases + 1])
    for name, values in zip(LEVEL_COLUMNS, levels, strict=True):
        rows[name][:] = values


def _fill_descriptions(
    rows: dict[str, NDArray[Any]],
    candidates: Sequence[Candidate],
    references: Sequence[str],
    label: str | None,
    sample: str | None,
) -> dict[str, list[str]]:
    """Fill in what is known of reads without their signal; return the names by categorical column."""
    names: dict[str, list[str | None]] = {
        "reference": [references[candidate.read.reference] for candidate in candidates],
        "flow_cell": [candidate.raw.run.flow_cell for candidate in candidates],
        "run": [candidate.raw.run.run for candidate in candidates],
        "sample": [candidate.raw.run.sample if sample is None else sample for candidate in candidates],
        "label": [label if candidate.site.label is None else candidate.site.label for candidate in candidates],
    }
    categories: dict[str, list[str]] = {}
    for column, values in names.items():
        # In order of first appearance.
        categories[column] = [name for name in dict.fromkeys(values) if name is not None]
        codes: dict[str | None, int] = {name: code for code, name in enumerate(categories[column])}
        rows[column][:] = [codes.get(name, -1) for name in values]
    rows["mapq"][:] = [candidate.read.mapq for candidate in candidates]
    for column, ids in (
        ("read_id", [candidate.read.read_id for candidate in candidates]),
        ("parent_id", [candidate.read.parent_id for candidate in candidates]),
    ):
        rows[column][:] = np.frombuffer(b"".join(ids), dtype=np.uint8).reshape(-1, 16)
    for row, candidate in enumerate(candidates):
        rows["sequence"][row] = candidate.site.sequence
        if candidate.site.expected_level is not None:
            rows["expected_level"][row] = candidate.site.expected_level
    return categories
