"""Cutting chunks: usable reads and their signal to columns of a corpus.

Hides: how a window is placed and measured. Belongs here: everything that needs signal and alignment together. Pure: the
same reads, signal, sites and recipe give the same arrays, in ``prepare`` as in ``predict``. Invariants: one outcome per
read, in order; chunks are in the order of the reads that were used; columns as in ``corpus.column_layout``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leech.data.anchors import Site
from leech.data.corpus import ChunkArrays, column_layout
from leech.data.features import LEVEL_COLUMNS, measure_levels
from leech.data.moves import (
    bounds_in_sequence,
    motif_indel,
    moves_agree,
    reference_bounds,
    trace_alignment,
)
from leech.data.normalise import median_mad
from leech.data.pod5 import RawRead
from leech.data.reads import AlignedRead
from leech.data.reasons import USED
from leech.data.recipe import Recipe
from leech.data.refine import MARGIN_BASES, Refinement, RefinementTally, refine_bounds

_LONGEST_DWELL = np.iinfo(np.uint16).max
"""Dwell is stored in 16 bits; a base held for more than 16 s at 4 kHz counts as this long."""


class CutResult(NamedTuple):
    """What became of a batch of reads.

    :ivar chunks: the chunks of the reads whose outcome is "used", in order.
    :ivar outcomes: one per read.
    :ivar sample_rates: Hz by run name.
    :ivar refinement: what became of the used reads' boundaries; empty without refinement.
    """

    chunks: ChunkArrays
    outcomes: tuple[str, ...]
    sample_rates: dict[str, int]
    refinement: RefinementTally


class Frame(NamedTuple):
    """One read ready to be cut.

    :ivar signal: used samples, int16, sequence direction.
    :ivar base_bounds: boundaries of the base window's bases in ``signal``, int64 (num_bases + 1,).
    :ivar median_dwell: over the read's basecalled bases as the moves have them, in samples.
    :ivar refinement: what became of the boundaries; None where none was asked for.
    """

    signal: NDArray[np.int16]
    base_bounds: NDArray[np.int64]
    shift: float
    scale: float
    median_dwell: float
    refinement: Refinement | None


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


def frame_read(read: AlignedRead, raw: NDArray[np.int16], site: Site, recipe: Recipe) -> Frame | str:
    """Place one read's bases on its signal, or return the reason why it cannot be used."""
    used = trim(read, raw)
    if isinstance(used, str):
        return used
    alignment = trace_alignment(read.cigar, read.reference_start)
    if not alignment.covers(site.focus):
        return "focus_not_aligned"
    normalisation = median_mad(used)
    if normalisation is None:
        return "constant_signal"
    moves = np.frombuffer(read.move_table.moves, dtype=np.int8)
    query_bounds = bounds_in_sequence(moves, read.move_table.stride, len(used), recipe.reverse_signal)
    signal = used[::-1] if recipe.reverse_signal else used
    first = site.focus - recipe.bases_before
    refinement = None
    if site.stretch_level is None:
        base_bounds = reference_bounds(alignment, query_bounds, first, recipe.num_bases)
    else:
        margin = MARGIN_BASES
        wide = reference_bounds(alignment, query_bounds, first - margin, len(site.stretch_level))
        refinement = refine_bounds(signal, wide, site.stretch_level, margin + recipe.bases_before, *normalisation)
        base_bounds = refinement.bounds[margin : margin + recipe.num_bases + 1]
    return Frame(
        signal=signal,
        base_bounds=base_bounds,
        shift=normalisation[0],
        scale=normalisation[1],
        median_dwell=float(np.median(np.diff(query_bounds))),
        refinement=refinement,
    )


def focus_sample(base_bounds: NDArray[np.int64], recipe: Recipe) -> int:
    """Return the focus position in the read's signal: start, centre or end of the focus base."""
    start, end = int(base_bounds[recipe.bases_before]), int(base_bounds[recipe.bases_before + 1])
    return {"start": start, "center": (start + end) // 2, "end": end}[recipe.base_justify]


def cut(
    reads: Sequence[AlignedRead],
    signals: Mapping[bytes, RawRead | None],
    sites: Sequence[Site | str],
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
    :param label: state of all reads; None for unknown.
    :param sample: overrides the sample name of the POD5.
    """
    outcomes: list[str] = []
    used: list[tuple[AlignedRead, Site, RawRead, Frame]] = []
    for read in reads:
        raw = signals.get(read.parent_id, "not_in_pod5")
        site = sites[read.reference]
        if isinstance(site, str):
            outcomes.append(site)
        elif isinstance(raw, str) or raw is None:
            outcomes.append(raw or "signal_unreadable")
        else:
            frame = frame_read(read, raw.signal, site, recipe)
            outcomes.append(frame if isinstance(frame, str) else USED)
            if not isinstance(frame, str):
                used.append((read, site, raw, frame))
    rows = _allocate(len(used), recipe)
    categories = _Categories()
    tally = RefinementTally()
    for row, (read, site, raw, frame) in enumerate(used):
        _fill_signal(rows, row, read, frame, recipe)
        if frame.refinement is not None:
            tally.add(frame.refinement)
            rows["refined"][row] = frame.refinement.outcome == "refined"
        rows["sequence"][row] = site.sequence
        if site.expected_level is not None:
            rows["expected_level"][row] = site.expected_level
        motif_end = site.motif_start + len(recipe.motif)
        rows["junction_indel"][row] = motif_indel(read.cigar, read.reference_start, site.motif_start, motif_end)
        rows["mapq"][row] = read.mapq
        rows["reference"][row] = categories.code("reference", references[read.reference])
        rows["flow_cell"][row] = categories.code("flow_cell", raw.run.flow_cell)
        rows["run"][row] = categories.code("run", raw.run.run)
        rows["sample"][row] = categories.code("sample", raw.run.sample if sample is None else sample)
        rows["label"][row] = -1 if label is None else categories.code("label", label)
    _fill_levels(rows, [frame for *_, frame in used], recipe)
    rates = {raw.run.run: raw.run.sample_rate for _, _, raw, _ in used}
    return CutResult(ChunkArrays(rows, categories.names), tuple(outcomes), rates, tally)


class _Categories:
    """Codes of names in order of first appearance."""

    def __init__(self) -> None:
        self.names: dict[str, list[str]] = {name: [] for name in ("reference", "flow_cell", "run", "sample", "label")}
        self._codes: dict[tuple[str, str], int] = {}

    def code(self, column: str, name: str) -> int:
        key = (column, name)
        if key not in self._codes:
            self._codes[key] = len(self.names[column])
            self.names[column].append(name)
        return self._codes[key]


def _allocate(num_chunks: int, recipe: Recipe) -> dict[str, NDArray[Any]]:
    return {name: np.zeros((num_chunks, *shape), dtype=dtype) for name, (dtype, shape) in column_layout(recipe).items()}


def _fill_signal(rows: dict[str, NDArray[Any]], row: int, read: AlignedRead, frame: Frame, recipe: Recipe) -> None:
    length = len(frame.signal)
    focus = focus_sample(frame.base_bounds, recipe)
    start = focus - recipe.samples_before
    first, last = max(start, 0), min(start + recipe.num_samples, length)
    rows["signal"][row, first - start : last - start] = frame.signal[first:last]
    rows["valid_start"][row] = first - start
    rows["valid_end"][row] = last - start
    rows["shift"][row] = frame.shift
    rows["scale"][row] = frame.scale
    rows["focus_base_start"][row] = frame.base_bounds[recipe.bases_before] - start
    in_time = length - 1 - focus if recipe.reverse_signal else focus
    rows["focus_raw_sample"][row] = read.signal_start + in_time
    rows["dwell"][row] = np.minimum(np.diff(frame.base_bounds), _LONGEST_DWELL)
    rows["median_dwell"][row] = frame.median_dwell
    rows["read_id"][row] = np.frombuffer(read.read_id, dtype=np.uint8)
    rows["parent_id"][row] = np.frombuffer(read.parent_id, dtype=np.uint8)


def _fill_levels(rows: dict[str, NDArray[Any]], frames: Sequence[Frame], recipe: Recipe) -> None:
    first = recipe.bases_before + recipe.feature_start
    window = slice(first, first + recipe.num_feature_bases + 1)
    bounds = np.array([frame.base_bounds[window] for frame in frames], dtype=np.int64)
    bounds = bounds.reshape(len(frames), recipe.num_feature_bases + 1)
    levels = measure_levels([frame.signal for frame in frames], bounds)
    for name, values in zip(LEVEL_COLUMNS, levels, strict=True):
        rows[name][:] = values
