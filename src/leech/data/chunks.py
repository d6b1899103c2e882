"""Cutting chunks: usable reads and their signal to columns of a corpus.

Hides: how a window is placed and measured. Belongs here: everything that needs signal and alignment together. Pure: the
same reads, signal, sites and recipe give the same arrays, in ``prepare`` as in ``predict``. Invariants: one outcome per
read, in order; chunks are in the order of the reads that were used; columns as in ``corpus.column_layout``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.data.anchors import Site, Sites
from leech.data.context import ContextTally
from leech.data.corpus import ChunkArrays, column_layout
from leech.data.features import LEVEL_COLUMNS, measure_levels
from leech.data.moves import Alignments, Integers, ReadBounds
from leech.data.normalise import median_mad
from leech.data.pod5 import RawRead
from leech.data.reads import AlignedReads
from leech.data.recipe import Recipe
from leech.data.refine import MARGIN_BASES, RefinementTally, refine_bounds
from leech.data.selection import ReadSites, Selection, numbered, select
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


def _trace(reads: AlignedReads, recipe: Recipe) -> Alignments:
    """Return the alignments in the frame in which sites have their positions."""
    if recipe.anchor == "basecall":
        return Alignments.trace(reads.cigars.in_query(), np.zeros(len(reads), dtype=np.int64))
    return Alignments.trace(reads.cigars, reads.reference_start)


def _window_bounds(
    selected: Selection, alignments: Alignments, query_bounds: ReadBounds, recipe: Recipe, margin: int
) -> Integers:
    """Return the boundaries of the base windows' bases in each read's signal, (num_reads, num_bases + 1).

    :param query_bounds: of the bases of SEQ, in the direction of the sequence.
    :param margin: bases on either side of the base window whose boundaries are wanted too.
    """
    first, num_bases = selected.sites.position("focus") - recipe.bases_before - margin, recipe.num_bases + 2 * margin
    if recipe.anchor == "basecall":
        return query_bounds.at(first, num_bases)
    return alignments.bounds(query_bounds, selected.places, first, num_bases)


def _refine(
    rows: dict[str, NDArray[Any]],
    selected: Selection,
    signals: Sequence[NDArray[np.int16]],
    wide_bounds: Integers,
    recipe: Recipe,
) -> tuple[Integers, RefinementTally]:
    """Return the base windows' boundaries, refined within windows that are MARGIN_BASES wider, and what became of them."""
    tally = RefinementTally()
    window = slice(MARGIN_BASES, MARGIN_BASES + recipe.num_bases + 1)
    base_bounds = np.empty((len(signals), recipe.num_bases + 1), dtype=np.int64)
    focus = MARGIN_BASES + recipe.bases_before
    which = selected.sites.which.tolist()
    for row, (used, signal, site) in enumerate(zip(selected.used, signals, which, strict=True)):
        levels = selected.sites.distinct[site].stretch_level
        assert levels is not None
        # Levels are in units of a read's spread, whatever normalisation the chunks get.
        refinement = refine_bounds(signal, wide_bounds[row], levels, focus, median_mad(used))
        base_bounds[row] = refinement.bounds[window]
        rows["refined"][row] = refinement.outcome == "refined"
        tally.add(refinement)
    return base_bounds, tally


def focus_samples(base_bounds: Integers, recipe: Recipe) -> Integers:
    """Return the focus position in each read's signal (num_reads,): start, centre or end of the focus base."""
    start, end = base_bounds[:, recipe.bases_before], base_bounds[:, recipe.bases_before + 1]
    return {"start": start, "center": (start + end) // 2, "end": end}[recipe.base_justify]


def cut(
    reads: AlignedReads,
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
    alignments = _trace(reads, recipe)
    selected = select(reads, signals, ReadSites.of(reads, sites), alignments, recipe, label)
    lengths = np.array([len(used) for used in selected.used], dtype=np.int64)
    turned, query_bounds = selected.used, selected.bounds
    if recipe.reverse_signal:
        turned, query_bounds = [used[::-1] for used in turned], query_bounds.backwards(lengths)
    rows = _allocate(len(turned), recipe)
    rows["junction_indel"][:] = selected.junction_state
    if recipe.indels:
        first = selected.sites.position("focus") + recipe.feature_start
        rows["indels"][:] = alignments.base_indels(selected.places, first, recipe.num_feature_bases)
    tally = RefinementTally()
    if recipe.refinement == "none":
        base_bounds = _window_bounds(selected, alignments, query_bounds, recipe, 0)
    elif recipe.refinement == "step":
        margin, strides = STEP_MARGIN_BASES, reads.stride[selected.places]
        wide_bounds = _window_bounds(selected, alignments, query_bounds, recipe, margin)
        found = find_steps(turned, wide_bounds, strides, is_reversed=recipe.reverse_signal)
        base_bounds = found[:, margin:-margin]
    else:
        wide_bounds = _window_bounds(selected, alignments, query_bounds, recipe, MARGIN_BASES)
        base_bounds, tally = _refine(rows, selected, turned, wide_bounds, recipe)
    rows["median_dwell"][:] = query_bounds.median_dwell()
    rows["shift"][:] = [normalisation.shift for normalisation in selected.normalisations]
    rows["scale"][:] = [normalisation.scale for normalisation in selected.normalisations]
    rows["dwell"][:] = np.minimum(np.diff(base_bounds, axis=1), _LONGEST_DWELL)
    context = _fill_signal(rows, turned, lengths, base_bounds, recipe)
    rows["focus_raw_sample"] += reads.signal_start[selected.places].astype(np.int32)
    _fill_levels(rows, turned, base_bounds, recipe)
    categories = _fill_descriptions(rows, reads, selected, references, label, sample)
    rates = {raw.run.run: raw.run.sample_rate for raw in selected.raws}
    chunks = ChunkArrays(rows, categories)
    return CutResult(chunks, tuple(selected.outcomes), rates, selected.junction, context, tally)


def _allocate(num_chunks: int, recipe: Recipe) -> dict[str, NDArray[Any]]:
    return {name: np.zeros((num_chunks, *shape), dtype=dtype) for name, (dtype, shape) in column_layout(recipe).items()}


def _fill_signal(
    rows: dict[str, NDArray[Any]],
    signals: Sequence[NDArray[np.int16]],
    length: Integers,
    base_bounds: Integers,
    recipe: Recipe,
) -> ContextTally:
    """Fill in where the windows lie in the used samples and what they hold; return what the context asked for spans."""
    focus = focus_samples(base_bounds, recipe)
    start = focus - recipe.samples_before
    low, high = np.zeros_like(length), length
    if recipe.context_bases is not None:
        low = base_bounds[:, recipe.bases_before - recipe.context_bases[0]]
        high = base_bounds[:, recipe.bases_before + 1 + recipe.context_bases[1]]
    first, last = np.maximum(start, low), np.minimum(start + recipe.num_samples, high)
    rows["valid_start"][:], rows["valid_end"][:] = first - start, last - start
    from_to = zip((first - start).tolist(), (last - start).tolist(), first.tolist(), last.tolist(), strict=True)
    for window, signal, (begin, end, source, source_end) in zip(rows["signal"], signals, from_to, strict=True):
        window[begin:end] = signal[source:source_end]
    rows["focus_base_start"][:] = base_bounds[:, recipe.bases_before] - start
    rows["focus_raw_sample"][:] = length - 1 - focus if recipe.reverse_signal else focus
    if recipe.context_bases is None:
        return ContextTally()
    return ContextTally.of(focus - low, high - focus, (recipe.samples_before, recipe.samples_after))


def _fill_levels(
    rows: dict[str, NDArray[Any]],
    signals: Sequence[NDArray[np.int16]],
    base_bounds: Integers,
    recipe: Recipe,
) -> None:
    first = recipe.bases_before + recipe.feature_start
    levels = measure_levels(signals, base_bounds[:, first : first + recipe.num_feature_bases + 1])
    for name, values in zip(LEVEL_COLUMNS, levels, strict=True):
        rows[name][:] = values


def _fill_descriptions(
    rows: dict[str, NDArray[Any]],
    reads: AlignedReads,
    selected: Selection,
    references: Sequence[str],
    label: str | None,
    sample: str | None,
) -> dict[str, list[str]]:
    """Fill in what is known of reads without their signal; return the names by categorical column."""
    places, sites, which_site = selected.places, selected.sites.distinct, selected.sites.which
    used_sites, which_used = numbered(which_site.tolist())
    distinct, which_reference = numbered(reads.reference[places].tolist())
    runs, which_run = numbered([raw.run for raw in selected.raws])
    names: dict[str, tuple[Sequence[str | None], Integers]] = {
        "reference": ([references[number] for number in distinct], which_reference),
        "flow_cell": ([run.flow_cell for run in runs], which_run),
        "run": ([run.run for run in runs], which_run),
        "sample": ([run.sample if sample is None else sample for run in runs], which_run),
        "label": ([_label_of(sites[number], label) for number in used_sites], which_used),
    }
    categories: dict[str, list[str]] = {}
    for column, (values, which) in names.items():
        categories[column], codes = _coded(values)
        rows[column][:] = codes[which]
    if len(places):
        rows["mapq"][:] = reads.mapq[places]
        for column, ids in (("read_id", reads.read_ids), ("parent_id", reads.parent_ids)):
            rows[column][:] = np.frombuffer(b"".join(ids), dtype=np.uint8).reshape(-1, 16)[places]
        rows["sequence"][:] = np.stack([site.sequence for site in sites])[which_site]
        if "expected_level" in rows:
            levels = [site.expected_level for site in sites if site.expected_level is not None]
            rows["expected_level"][:] = np.stack(levels)[which_site]
    return categories


def _label_of(site: Site, label: str | None) -> str | None:
    return label if site.label is None else site.label


def _coded(names: Sequence[str | None]) -> tuple[list[str], Integers]:
    """Return the distinct names in order of first appearance, and the code of each name, -1 for None."""
    distinct = [name for name in dict.fromkeys(names) if name is not None]
    codes: dict[str | None, int] = {name: code for code, name in enumerate(distinct)}
    return distinct, np.array([codes.get(name, -1) for name in names], dtype=np.int64)
