"""A corpus read by numpy and json alone, by what ``docs/formats.md`` says; leech is asked only for the right answer."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from leech.config import build
from leech.console import SilentProgress
from leech.data.batches import INPUT_COLUMNS, make_inputs
from leech.data.config import PrepareConfig, ReadSources
from leech.data.corpus import Corpus
from leech.data.features import FEATURES
from leech.data.prepare import prepare
from leech.data.recipe import _AS_BEFORE, Recipe
from leech.provenance import Stamp
from tiny_run import STAMP_TIME, TinyRecord, read_id, write_run


def level_table(path):
    """Write a table of 3-mers with levels around 0."""
    kmers = [a + b + c for a in "ACGT" for b in "ACGT" for c in "ACGT"]
    levels = np.random.default_rng(3).normal(0, 1, len(kmers)).round(3)
    path.write_text("".join(f"{kmer}\t{level}\n" for kmer, level in zip(kmers, levels, strict=True)))
    return path


@pytest.fixture(
    scope="module",
    params=[{}, {"context_bases": [3, 2], "dwell_offset": 2, "mask_sequence": "after", "normalisation": "quantile"}],
)
def corpus_folder(request, tmp_path_factory):
    """Return a corpus of five noisy reads, one of which ends at the focus."""
    folder, generator = tmp_path_factory.mktemp("elsewhere"), np.random.default_rng(0)
    sequence = "".join(generator.choice(list("ACGT"), 40))
    references = {"tRNA-A": sequence[:20] + "GTTCGA" + sequence[20:]}
    records, signals = [], {}
    for number in range(1, 6):
        moves = [move for dwell in generator.integers(1, 6, 46) for move in (1, *[0] * (int(dwell) - 1))]
        used = 6 * len(moves) + 3
        cigar = "22M24S" if number == 5 else "46M"
        tags = {"ts": 7, "ns": 7 + used}
        records.append(TinyRecord(read_id(number), sequence=references["tRNA-A"], moves=moves, cigar=cigar, tags=tags))
        signals[read_id(number)] = generator.integers(300, 900, used + 20).astype(np.int16)
    sources: ReadSources = write_run(folder / "run", records, signals, references)
    recipe = {"motif": "GTTC", "motif_offset": 1, "motif_occurrence": "first", "kmer_centre": 1, **request.param}
    recipe |= {"samples_before": 60, "samples_after": 50, "bases_before": 10, "bases_after": 8, "feature_end": 6}
    config = build(PrepareConfig, {"label": "charged", "kmer_table": level_table(folder / "levels.tsv")})
    stamp = Stamp.make(["test"], STAMP_TIME)
    prepare(sources, build(Recipe, recipe), config, folder / "c", force=False, progress=SilentProgress(), stamp=stamp)
    return folder / "c"


def read(folder):
    """Return manifest and columns, checked against one another, without leech."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["format"], manifest["schema_version"], manifest["kind"]) == ("leech-corpus", 1, "chunks")
    columns = {}
    for name, entry in manifest["columns"].items():
        column = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        assert (column.dtype.str, list(column.shape)) == (entry["dtype"], entry["shape"])
        assert hashlib.sha256(column.tobytes()).hexdigest() == entry["sha256"]
        columns[name] = np.array(column)
    return manifest, columns


def channels(columns, recipe, row):
    """Return the channels of one chunk by name, in float64."""
    first = recipe["bases_before"] + recipe["feature_start"]
    bases = range(first, first + recipe["feature_end"] - recipe["feature_start"] + 1)
    dwell = columns["dwell"][row].astype(float)
    shift, scale, median = (float(columns[name][row]) for name in ("shift", "scale", "median_dwell"))
    found = {name: [] for name in FEATURES}
    for place, base in enumerate(bases):
        shown = base + recipe["dwell_offset"]
        near = dwell[max(shown - 2, 0) : shown + 3]
        near = np.log(near[near > 0])
        has_dwell, has_level = dwell[shown] > 0, dwell[base] > 0
        found["log_dwell"].append(np.log(dwell[shown] / 36) if has_dwell else 0)
        found["relative_log_dwell"].append(np.log(dwell[shown] / median) if has_dwell else 0)
        found["dwell_local_mean"].append(near.mean() - np.log(median) if has_dwell else 0)
        found["dwell_local_sd"].append(near.std() if has_dwell else 0)
        for name in ("level_mean", "level_median"):
            found[name].append((columns[name][row, place] - shift) / scale if has_level else 0)
        for name in ("level_sd", "level_range"):
            found[name].append(columns[name][row, place] / scale if has_level else 0)
        expected = columns["expected_level"][row, place]
        known = has_level and np.isfinite(expected)
        residual = found["level_mean"][-1] - expected if known else 0
        found["expected_level"].append(expected if known else 0)
        found["level_residual"].append(residual)
        found["absolute_level_residual"].append(abs(residual))
        for name, bit in (("deleted", 1), ("inserted_behind", 2)):
            found[name].append(float(has_level and columns["indels"][row, place] & bit > 0))
    return found


def test_signal_boundaries_and_channels_follow_from_the_columns_as_documented(corpus_folder):
    manifest, columns = read(corpus_folder)
    recipe = manifest["recipe"]
    assert manifest["num_chunks"] == 5
    corpus = Corpus.open(corpus_folder)
    names = list(FEATURES)
    arrays = corpus.gather(np.arange(5), [*INPUT_COLUMNS, "expected_level", "indels"])
    inputs = make_inputs(arrays, corpus.recipe, names)
    for row in range(5):
        signal = (columns["signal"][row] - columns["shift"][row]) / columns["scale"][row]
        padding = np.ones(len(signal), dtype=bool)
        padding[columns["valid_start"][row] : columns["valid_end"][row]] = False
        signal[padding] = 0
        assert np.array_equal(signal, inputs.signal[row].numpy())
        edges = np.cumsum([0, *columns["dwell"][row]])
        edges += columns["focus_base_start"][row] - edges[recipe["bases_before"]]
        assert edges.tolist() == inputs.base_bounds[row].tolist()
        assert np.array_equal(columns["sequence"][row], inputs.sequence[row].numpy())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = channels(columns, recipe, row)
        for place, name in enumerate(names):
            assert inputs.features[row, place].numpy() == pytest.approx(np.array(found[name]), abs=1e-5), name
    # The test would say little if nothing were absent and nothing there.
    assert (columns["dwell"] == 0).any()
    assert np.isfinite(columns["expected_level"]).any()


def test_levels_are_those_of_the_window_where_it_holds_the_whole_base(corpus_folder):
    manifest, columns = read(corpus_folder)
    recipe, checked = manifest["recipe"], 0
    for row in range(manifest["num_chunks"]):
        edges = np.cumsum([0, *columns["dwell"][row]])
        edges += columns["focus_base_start"][row] - edges[recipe["bases_before"]]
        for place, offset in enumerate(range(recipe["feature_start"], recipe["feature_end"] + 1)):
            start, end = edges[recipe["bases_before"] + offset : recipe["bases_before"] + offset + 2]
            if start < end and columns["valid_start"][row] <= start and end <= columns["valid_end"][row]:
                samples = columns["signal"][row, start:end].astype(float)
                assert columns["level_mean"][row, place] == pytest.approx(samples.mean(), rel=1e-5)
                assert columns["level_sd"][row, place] == pytest.approx(samples.std(), rel=1e-4)
                assert columns["level_range"][row, place] == np.ptp(samples)
                checked += 1
    assert checked > 10


def test_codes_are_names_of_the_manifest_and_ids_are_uuid_bytes(corpus_folder):
    manifest, columns = read(corpus_folder)
    categories = manifest["categories"]
    assert [categories["label"][code] for code in columns["label"]] == ["charged"] * 5
    assert [categories["reference"][code] for code in columns["reference"]] == ["tRNA-A"] * 5
    assert manifest["runs"] == {categories["run"][0]: 4000}
    assert [columns["read_id"][row].tobytes().hex() for row in range(5)] == [
        read_id(number).replace("-", "") for number in range(1, 6)
    ]


def test_every_column_and_every_later_field_is_documented(corpus_folder):
    text = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    manifest, _ = read(corpus_folder)
    for name in (*manifest["columns"], *manifest, *FEATURES, *_AS_BEFORE):
        assert f"`{name}`" in text, name
