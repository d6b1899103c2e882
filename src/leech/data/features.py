"""Per-base features: measured once when a chunk is cut, shaped into network channels when a batch is made.

Hides: how a channel is computed from the stored measurements. Belongs here: everything per base (dwell, level
statistics, residuals); per-sample signal belongs in ``chunks.py`` and ``batches.py``. Invariants: stored levels are ADC
units in float32, dwell is in samples; a base without signal has dwell 0 and yields 0 in its channels; channels are
float32 of shape (num_chunks, num_feature_bases) in the order of the offsets feature_start..feature_end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import escapepod
import numpy as np
from numpy.typing import NDArray

from leech.config import nearest
from leech.data.moves import DELETED, INSERTED_BEHIND
from leech.data.recipe import Recipe
from leech.errors import ConfigError

Floats = NDArray[np.float32]

LEVEL_COLUMNS = ("level_mean", "level_median", "level_sd", "level_range")
"""Stored level statistics, in the order in which :func:`measure_levels` returns them."""

LOCAL_DWELL_REACH = 2
"""Bases on either side that count as a base's neighbourhood in the local dwell statistics."""


def measure_levels(signals: Sequence[NDArray[np.int16]], bounds: NDArray[np.int64]) -> tuple[Floats, ...]:
    """Measure mean, median, standard deviation and range of every base's samples.

    :param signals: one int16 ADC array per read, sequence direction.
    :param bounds: base boundaries into each read's own signal, shape (num_reads, num_bases + 1).
    :returns: four float32 arrays (num_reads, num_bases) in ADC units, 0 for a base without signal.
    """
    num_reads, num_edges = bounds.shape
    if num_reads == 0:
        return tuple(np.zeros((0, num_edges - 1), dtype=np.float32) for _ in LEVEL_COLUMNS)
    # Only the measured stretch of each read is copied: the whole reads are a hundred times as long.
    starts, ends = bounds[:, 0], bounds[:, -1]
    offsets = np.concatenate([[0], np.cumsum(ends - starts)])
    stretch = np.concatenate([signal[start:end] for signal, start, end in zip(signals, starts, ends, strict=True)])
    local = bounds - starts[:, None]
    spans = np.stack([local[:, :-1], local[:, 1:]], axis=-1).reshape(-1, 2)
    _, mean, sd, median, value_range = escapepod.span_statistics_batch(
        stretch.astype(np.float32),
        offsets.astype(np.int64),
        spans,
        num_edges - 1,
        median=True,
        range=True,
        fill=0.0,
    )
    return mean, median, sd, value_range


def base_bounds(columns: Mapping[str, NDArray[Any]], recipe: Recipe) -> NDArray[np.int32]:
    """Return base boundaries in window samples, int32 (n, num_bases + 1), from dwell and the focus base's start."""
    dwell = np.asarray(columns["dwell"]).astype(np.int32)
    edges = np.zeros((len(dwell), recipe.num_bases + 1), dtype=np.int32)
    np.cumsum(dwell, axis=1, out=edges[:, 1:])
    edges += (np.asarray(columns["focus_base_start"], dtype=np.int32) - edges[:, recipe.bases_before])[:, None]
    return edges


@dataclass(frozen=True)
class BaseMeasurements:
    """What a channel may be computed from; all arrays float32 (num_chunks, num_feature_bases) unless said otherwise.

    :ivar dwell: samples per base over the whole base window, shape (num_chunks, num_bases).
    :ivar window: columns of ``dwell`` that the feature bases show, ``dwell_offset`` from their own.
    :ivar median_dwell: the read's median dwell in samples, shape (num_chunks, 1).
    :ivar level: normalised level statistics by column name; sd and range are scaled only, the others shifted too.
    :ivar expected: expected normalised level, NaN where unknown; None without a k-mer table.
    :ivar indels: bits of what the alignment says of each base, uint8; None in chunks from before they were kept.
    """

    dwell: Floats
    window: slice
    median_dwell: Floats
    level: Mapping[str, Floats]
    expected: Floats | None
    indels: NDArray[np.uint8] | None

    def local(self, statistic: Callable[[Floats], Any]) -> Floats:
        """Apply ``statistic`` over the last axis of each base's log-dwell neighbourhood, NaN marking absent bases."""
        reach = LOCAL_DWELL_REACH
        log_dwell = np.where(self.dwell > 0, np.log(np.maximum(self.dwell, 1)), np.nan)
        padded = np.pad(log_dwell, ((0, 0), (reach, reach)), constant_values=np.nan)
        windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1, axis=1)
        # Where a base itself is absent its channel is zeroed later; a placeholder keeps all-NaN windows quiet.
        windows = np.where(np.isnan(windows).all(axis=-1, keepdims=True), 0.0, windows)[:, self.window]
        return np.asarray(statistic(windows), dtype=np.float32)


def _log_dwell(base: BaseMeasurements) -> Floats:
    return np.log(np.maximum(base.dwell[:, base.window], 1)) - np.float32(np.log(36.0))


def _relative_log_dwell(base: BaseMeasurements) -> Floats:
    return np.log(np.maximum(base.dwell[:, base.window], 1) / base.median_dwell)


def _dwell_local_mean(base: BaseMeasurements) -> Floats:
    return base.local(partial(np.nanmean, axis=-1)) - np.log(base.median_dwell)


def _dwell_local_sd(base: BaseMeasurements) -> Floats:
    return base.local(partial(np.nanstd, axis=-1))


def _residual(base: BaseMeasurements) -> Floats:
    if base.expected is None:
        raise ConfigError(
            "The network uses expected levels, but the chunks were cut without a k-mer table.",
            hint="Prepare the corpus with --kmer-table, or choose a network without level residuals.",
        )
    return np.where(np.isnan(base.expected), 0, base.level["level_mean"] - base.expected)


def _expected(base: BaseMeasurements) -> Floats:
    _residual(base)
    assert base.expected is not None
    return np.nan_to_num(base.expected)


def _indel(base: BaseMeasurements, bit: int) -> Floats:
    if base.indels is None:
        raise ConfigError(
            "The network uses indels of the alignment, but the chunks were cut with --no-indels or by a version of leech that "
            "did not keep them.",
            hint="Prepare the corpus again, with --indels, or choose a network without the channels 'deleted' and "
            "'inserted_behind'.",
        )
    return np.asarray(base.indels & bit > 0, dtype=np.float32)


FEATURES: dict[str, Callable[[BaseMeasurements], Floats]] = {
    # 36 samples per base is the usual RNA004 dwell on tRNA; the constant only centres the channel near 0.
    "log_dwell": _log_dwell,
    "relative_log_dwell": _relative_log_dwell,
    "dwell_local_mean": _dwell_local_mean,
    "dwell_local_sd": _dwell_local_sd,
    "level_mean": lambda base: base.level["level_mean"],
    "level_median": lambda base: base.level["level_median"],
    "level_sd": lambda base: base.level["level_sd"],
    "level_range": lambda base: base.level["level_range"],
    "expected_level": _expected,
    "level_residual": _residual,
    "absolute_level_residual": lambda base: np.abs(_residual(base)),
    "deleted": partial(_indel, bit=DELETED),
    "inserted_behind": partial(_indel, bit=INSERTED_BEHIND),
}
"""Channel name -> function; a new channel is one entry."""


DWELL_FEATURES = frozenset(("log_dwell", "relative_log_dwell", "dwell_local_mean", "dwell_local_sd"))
"""Channels that show the base ``dwell_offset`` away, and are 0 where that one has no signal."""


def refuse_unmeasured(names: Iterable[str], recipe: Recipe) -> None:
    """Refuse channels of what chunks of this recipe do not hold, before anything is computed of them.

    :param names: known channels.
    :raises ConfigError: saying what is not there.
    """
    # A channel itself knows what it needs: each is asked for those of no chunk.
    none = np.zeros((0, recipe.num_feature_bases), dtype=np.float32)
    base = BaseMeasurements(
        dwell=np.zeros((0, recipe.num_bases), dtype=np.float32),
        window=slice(0, recipe.num_feature_bases),
        median_dwell=np.zeros((0, 1), dtype=np.float32),
        level=dict.fromkeys(LEVEL_COLUMNS, none),
        expected=None if recipe.kmer_table_sha256 is None else none,
        indels=none.astype(np.uint8) if recipe.indels else None,
    )
    for name in names:
        FEATURES[name](base)


def feature_channels(columns: Mapping[str, NDArray[Any]], recipe: Recipe, names: Sequence[str]) -> Floats:
    """Compute the named channels of a batch of chunks.

    :param columns: chunk columns by name (see ``docs/formats.md``).
    :returns: float32, shape (num_chunks, len(names), num_feature_bases).
    :raises ConfigError: an unknown channel, or one that needs a k-mer table that was not used.
    """
    for name in names:
        if name not in FEATURES:
            close = nearest(name, list(FEATURES))
            raise ConfigError(
                f"Unknown feature channel '{name}'.",
                hint=f"Did you mean '{close}'?" if close else f"Known: {', '.join(FEATURES)}.",
            )
    first = recipe.bases_before + recipe.feature_start
    own, shown = (slice(start, start + recipe.num_feature_bases) for start in (first, first + recipe.dwell_offset))
    dwell = np.asarray(columns["dwell"]).astype(np.float32)
    shift = np.asarray(columns["shift"], dtype=np.float32)[:, None]
    scale = np.asarray(columns["scale"], dtype=np.float32)[:, None]
    base = BaseMeasurements(
        dwell=dwell,
        window=shown,
        median_dwell=np.asarray(columns["median_dwell"], dtype=np.float32)[:, None],
        level={
            "level_mean": np.asarray((columns["level_mean"] - shift) / scale, np.float32),
            "level_median": np.asarray((columns["level_median"] - shift) / scale, np.float32),
            "level_sd": np.asarray(columns["level_sd"] / scale, np.float32),
            "level_range": np.asarray(columns["level_range"] / scale, np.float32),
        },
        expected=np.asarray(columns["expected_level"], np.float32) if "expected_level" in columns else None,
        indels=np.asarray(columns["indels"]) if "indels" in columns else None,
    )
    channels = np.empty((len(dwell), len(names), recipe.num_feature_bases), dtype=np.float32)
    present, shown_present = dwell[:, own] > 0, dwell[:, shown] > 0
    for index, name in enumerate(names):
        mask = shown_present if name in DWELL_FEATURES else present
        channels[:, index] = np.where(mask, FEATURES[name](base), 0)
    return channels
