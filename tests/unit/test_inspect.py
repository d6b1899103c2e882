"""What ``leech data inspect`` counts, measures and draws."""

from __future__ import annotations

import hashlib
import json
import re
import tracemalloc
from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pytest

from corpora import RECIPE, chunks, rewrite_manifest, write
from leech.cli.main import main
from leech.config import build
from leech.data import inspect as inspecting
from leech.data.compose import merge
from leech.data.config import InspectConfig, MergeConfig
from leech.data.corpus import SPLITS, UNUSED_CODE, ChunkArrays, Corpus, column_layout
from leech.data.inspect import inspect
from leech.data.page import mean_dwell, median_signal
from leech.data.recipe import Recipe
from leech.data.squiggle import POINTS_PER_BASE, view
from leech.errors import InputError
from leech.provenance import Stamp

STAMP = Stamp.make(["leech", "data", "inspect"], "2026-01-01T00:00:00+00:00")

WIDE = build(
    Recipe,
    {
        "motif": "CCAGGC",
        "motif_offset": 2,
        "samples_before": 30,
        "samples_after": 40,
        "bases_before": 4,
        "bases_after": 4,
        "feature_start": -2,
        "feature_end": 2,
    },
)
"""Nine bases, five with features; of ten samples each they reach from -10 to 80 of a window of 70."""


def stepped(levels, label, references, *, recipe=WIDE, expected=None):
    """Return chunks whose bases last ten samples each and have the given normalised levels, a row of nine per chunk."""
    levels = np.asarray(levels, dtype=float)
    count = len(levels)
    columns = {name: np.zeros((count, *shape), dtype) for name, (dtype, shape) in column_layout(recipe).items()}
    base = np.arange(recipe.num_samples) // 10 + 1  # the window begins with the second base
    columns["signal"][:] = 500 + 100 * levels[:, base]
    columns["level_mean"][:] = 500 + 100 * levels[:, 2:7]
    columns["valid_end"][:] = recipe.num_samples
    columns["shift"][:], columns["scale"][:] = 500, 100
    columns["focus_base_start"][:] = recipe.samples_before
    columns["dwell"][:] = 10
    columns["median_dwell"][:] = 12
    columns["sequence"][:] = np.arange(recipe.num_bases + 8) % 4
    columns["read_id"][:] = np.random.default_rng(len(label)).integers(0, 256, (count, 16))
    columns["parent_id"][:] = columns["read_id"]
    if expected is not None:
        columns["expected_level"][:] = expected
    names = list(dict.fromkeys(references))
    columns["reference"][:] = [names.index(name) for name in references]
    return ChunkArrays(
        columns, {"reference": names, "flow_cell": ["F"], "run": ["R"], "sample": ["S"], "label": [label]}
    )


def seen(folder, *batches, recipe=WIDE, **numbers):
    corpus = Corpus.open(write(folder, *batches, recipe=recipe))
    return view(corpus, numbers.get("sample", 1000), numbers.get("examples", 2), numbers.get("seed", 0))


def test_all_rows_are_counted_whatever_the_blocks(tmp_path, monkeypatch):
    two = [
        write(tmp_path / "a", chunks(40, seed=1, label="a", references=("x", "y"), flow_cells=("F", "G"))),
        write(tmp_path / "b", chunks(30, seed=2, label="b", references=("z", "y"), flow_cells=("G", "H"))),
    ]
    merge(two, build(MergeConfig, {"subsample": 25}), tmp_path / "m", force=False, stamp=STAMP)
    corpus = Corpus.open(tmp_path / "m")
    names = {column: np.array(corpus.categories[column]) for column in ("label", "reference", "flow_cell")}
    splits = [{UNUSED_CODE: "unused"}.get(code) or SPLITS[code] for code in corpus.column("split").tolist()]
    expected = Counter(
        zip(
            *(names[column][corpus.column(column)].tolist() for column in ("label", "reference", "flow_cell")),
            splits,
            strict=True,
        )
    )
    for rows in (7, 2**18):
        monkeypatch.setattr(inspecting, "_BLOCK_ROWS", rows)
        result = inspect(tmp_path / "m", build(InspectConfig, {"sample": 0}), force=False, stamp=STAMP)
        assert result.groups == expected
        assert sum(result.junction.values()) == 70
    tables = {table.title: table for table in result.tables()}
    assert tables["Chunks"].columns == ("label", "train", "validation", "test", "unused")
    # 25 of each label are kept: edges at 17.5, 21.25 and 25, so 18, 3 and 4.
    assert tables["Chunks"].rows == (("a", "18", "3", "4", "15"), ("b", "18", "3", "4", "5"))
    assert tables["Records of every source, by outcome"].columns[0] == "outcome"
    # What was left out is not looked at.
    assert sum(one.num_chunks for one in result.view.labels) == 0
    assert sum(one.num_chunks for one in view(corpus, 1000, 0, 0).labels) == 50


def test_the_median_signal_is_read_base_by_base(tmp_path):
    levels = [[9, 1, 2, 3, 4, 5, 6, 7, 8], [9, 1, 4, 3, 4, 5, 6, 7, 8]]
    (one,) = seen(tmp_path / "c", stepped(levels, "a", ["x", "x"])).labels
    # The five feature bases are those at 2 to 6; the first of them is 2 in one read and 4 in the other.
    assert one.level.tolist() == [3, 3, 4, 5, 6]
    assert one.signal.tolist() == np.repeat([3, 3, 4, 5, 6], POINTS_PER_BASE).tolist()
    assert one.signal_low.tolist() == np.repeat([2, 3, 4, 5, 6], POINTS_PER_BASE).tolist()
    assert one.signal_high.tolist() == np.repeat([4, 3, 4, 5, 6], POINTS_PER_BASE).tolist()
    assert one.signal_reads.tolist() == [2] * 5 * POINTS_PER_BASE
    assert one.dwell == pytest.approx([10] * 5)


def test_labels_do_not_differ_by_which_references_they_hold_more_of(tmp_path):
    low, high = [0] * 9, [1] * 9
    batches = [
        stepped([low, low, low, high], "a", ["x", "x", "x", "y"]),
        stepped([low, high, high, high, [5] * 9], "bb", ["x", "y", "y", "y", "z"]),
    ]
    result = seen(tmp_path / "c", *batches)
    # Half of x and half of y; z is only in one label.
    assert result.num_references == 2
    for one in result.labels:
        assert one.level.tolist() == [0.5] * 5
        assert set(one.signal.tolist()) == {0.5}
    apart = seen(tmp_path / "d", stepped([low], "a", ["x"]), stepped([high], "bb", ["y"]))
    assert apart.num_references == 0
    assert [one.level[0] for one in apart.labels] == [0, 1]


def test_one_wild_read_moves_neither_the_line_nor_the_band(tmp_path):
    # Nine reads of one level and one of 25; the 84 % quantile of ten is the ninth.
    plain = stepped([[1] * 9] * 9 + [[25] * 9], "a", ["x"] * 5 + ["y"] * 5)
    (one,) = seen(tmp_path / "c", plain).labels
    for values in (one.signal_low, one.signal, one.signal_high, one.level):
        assert set(values.tolist()) == {1}


def test_dwell_is_averaged_by_its_logarithm(tmp_path):
    batch = stepped([[1] * 9] * 4, "a", ["x", "x", "x", "y"])
    batch.columns["dwell"][:, 4] = [8, 8, 64, 4]
    (one,) = seen(tmp_path / "c", batch).labels
    # Powers of two: (3 + 3 + 6) / 3 = 4 for x and 2 for y, which weigh the same: 2^3.
    assert one.dwell[2] == pytest.approx(8)


def test_points_that_few_reads_reach_are_counted_and_not_drawn(tmp_path):
    batch = stepped([[1] * 9] * 5, "a", ["x"] * 5)
    # Base -2 lies at samples 10 to 20, base -1 at 20 to 30: two of five reads have the first, four the second.
    batch.columns["valid_start"][:] = [0, 0, 20, 20, 30]
    batch.columns["dwell"][4, 2:4] = 0
    batch.columns["dwell"][2:4, 2] = 0
    result = seen(tmp_path / "c", batch)
    (one,) = result.labels
    assert one.signal_reads[::POINTS_PER_BASE].tolist() == [2, 4, 5, 5, 5]
    assert one.base_reads.tolist() == [2, 4, 5, 5, 5]
    # Half of five is more than two.
    assert one.enough(one.base_reads).tolist() == [False, True, True, True, True]
    told = one.to_mapping()
    assert (told["median_level"][0], told["reads_base"][0], told["reads_averaged"]) == (1, 2, 5)
    assert mean_dwell(result).count("<circle") == 4
    (line,) = re.findall(r'<polyline points="([^"]*)"', median_signal(result))
    assert len(line.split()) == 4 * POINTS_PER_BASE


def test_where_there_is_no_signal_there_is_no_median(tmp_path):
    batch = stepped([[1] * 9, [1] * 9], "a", ["x", "x"])
    # The window's first 15 samples are beyond the read: base -2 (samples 10 to 20) shows its second half only.
    batch.columns["valid_start"][:] = 15
    batch.columns["signal"][:, :15] = 0
    # The focus base of both reads is deleted, and what follows begins where it would.
    batch.columns["dwell"][:, 4] = 0
    (one,) = seen(tmp_path / "c", batch).labels
    known = np.isfinite(one.signal).reshape(5, POINTS_PER_BASE)
    assert known.sum(axis=1).tolist() == [4, 8, 0, 8, 8]
    assert np.isnan(one.level[2])
    assert np.isnan(one.dwell[2])
    assert one.shares == {
        "full_window": 0,
        "padded_start": 1,
        "padded_end": 0,
        "focus_without_signal": 1,
    }
    # Bases with a sample in [15, 70): -2, -1, 1, 2, 3, 4.
    assert one.spreads["bases_in_window"] == (6, 6, 6)
    # 12 samples at 4 kHz.
    assert one.spreads["ms_per_base"] == (3, 3, 3)
    assert one.to_mapping()["median_level"] == [1, 1, None, 1, 1]


def test_the_correlation_with_expected_levels_is_that_of_each_read(tmp_path):
    recipe = build(Recipe, {**vars(WIDE), "kmer_table_sha256": "sha256:0", "kmer_size": 9, "kmer_centre": 2})
    rising = np.arange(9.0)
    expected = np.array([[2, 3, 4, 5, 6], [6, 5, 4, 3, 2], [2, 3, 4, np.nan, np.nan]])
    batch = stepped([rising] * 3, "a", ["x"] * 3, recipe=recipe, expected=expected)
    (one,) = seen(tmp_path / "c", batch, recipe=recipe).labels
    # 1 and -1; three bases are too few to say. Quantiles of (-1, 1) by straight lines: -0.9, 0 and 0.9.
    assert one.spreads["level_correlation"] == pytest.approx((-0.9, 0, 0.9))


def test_examples_show_boundaries_and_letters_and_depend_on_the_seed(tmp_path):
    generator = np.random.default_rng(0)
    batches = [
        stepped(generator.normal(size=(30, 9)), "a", ["x", "y", "y"] * 10),
        stepped(generator.normal(size=(30, 9)), "bb", ["y", "x", "z"] * 10),
    ]
    result = seen(tmp_path / "c", *batches)
    shown = [(example.label, example.reference) for example in result.examples]
    # x and y are in both labels, and come before z in one and the same order.
    assert sorted(shown) == [("a", "x"), ("a", "y"), ("bb", "x"), ("bb", "y")]
    assert [reference for _, reference in shown[:2]] == [reference for _, reference in shown[2:]]
    more = view(Corpus.open(tmp_path / "c"), 1000, 5, 0).examples
    assert [example.reference for example in more[5:]] == [shown[0][1], shown[1][1], "z", shown[0][1], shown[1][1]]
    example = result.examples[0]
    # Sequence codes run 0 1 2 3 0 ...: the focus, the ninth of 17, is A; the window begins with the second base, C.
    assert [base.letter for base in example.bases] == list("CGTACGT")
    assert [(base.offset, base.start, base.end) for base in example.bases][:2] == [(-3, 0, 10), (-2, 10, 20)]
    corpus = Corpus.open(tmp_path / "c")
    assert example.signal.tolist() == ((corpus.column("signal")[example.row] - 500.0) / 100).tolist()
    assert result.letters == "GTACG"
    again = [view(corpus, 1000, 2, seed).examples for seed in (0, 1)]
    assert [one.row for one in again[0]] == [one.row for one in result.examples]
    assert [one.row for one in again[1]] != [one.row for one in result.examples]


def test_a_corpus_without_labels_is_shown_without_inventing_one(tmp_path):
    batch = stepped([[1] * 9] * 3, "a", ["x"] * 3)
    batch.columns["label"][:] = -1
    path = write(tmp_path / "c", ChunkArrays(batch.columns, {**batch.categories, "label": []}), recipe=WIDE)
    config = build(InspectConfig, {"html": tmp_path / "page.html"})
    result = inspect(path, config, force=False, stamp=STAMP)
    assert result.groups == {("", "x", "F", ""): 3}
    content = result.to_mapping()
    assert content["chunks"][0]["label"] is None
    assert [one["label"] for one in content["view"]["labels"]] == [None]
    tables = {table.title: table for table in result.tables()}
    assert tables["Chunks"].rows == (("(none)", "3"),)
    assert tables["Motif in the alignment"].rows == (("(none)", "no indel", "3"),)
    assert "no label" in (tmp_path / "page.html").read_text()


def test_refinement_of_every_source_of_a_merged_corpus_is_shown(tmp_path):
    told = {"refined": 3, "kept_moves": 1, "unrefinable": 0, "refined_share": 0.75}
    told |= {"correlation_before": 0.5, "correlation_after": 0.75}
    parts = [write(tmp_path / label, chunks(20, seed=seed, label=label)) for seed, label in enumerate(("yes", "no"))]
    manifest = json.loads((parts[0] / "manifest.json").read_text())
    rewrite_manifest(parts[0], {**manifest, "settings": {"refinement": told}})
    merge(parts, build(MergeConfig, {}), tmp_path / "m", force=False, stamp=STAMP)
    result = inspect(tmp_path / "m", InspectConfig(), force=False, stamp=STAMP)
    (table,) = (table for table in result.tables() if table.title == "Boundary refinement")
    assert [row[1] for row in table.rows] == ["3 (75.0%)", "1 (25.0%)", "0 (0.0%)", "0.500", "0.750"]
    assert [one["refinement"] for one in result.to_mapping()["records"] if "refinement" in one] == [told]
    plain = inspect(parts[1], InspectConfig(), force=False, stamp=STAMP)
    assert "Boundary refinement" not in [table.title for table in plain.tables()]


class Reader(HTMLParser):
    """Checks that tags close in order, and keeps what a reader and a browser would act on."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.links, self.text = [], Counter(), [], []

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        self.links += [value for name, value in attributes if name in ("src", "href", "xlink:href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags[tag] += 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_is_one_file_without_scripts_network_or_unescaped_names(tmp_path):
    name = "<script>&\"'"
    path = write(tmp_path / "c", stepped([[1] * 9] * 3, name, [f"x{name}"] * 3), recipe=WIDE)
    page = tmp_path / "page.html"
    config = build(InspectConfig, {"html": page, "examples": 2})
    inspect(path, config, force=False, stamp=STAMP)
    text = page.read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert reader.links == []
    assert not {"script", "link", "img", "iframe"} & set(reader.tags)
    assert "http" not in text
    assert "url(" not in text
    # Median signal, median dwell and two examples.
    assert reader.tags["svg"] == 4
    assert name in "".join(reader.text)
    assert not any("nan" in points for points in re.findall(r'points="([^"]*)"', text))
    with pytest.raises(InputError, match="exists already"):
        inspect(path, config, force=False, stamp=STAMP)
    inspect(path, config, force=True, stamp=STAMP)
    assert page.read_text(encoding="utf-8") == text
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["c", "page.html"]


def test_the_command_prints_tables_or_json(tmp_path, capsys):
    path = write(tmp_path / "c", stepped([[1] * 9] * 3, "a", ["x"] * 3), recipe=WIDE)
    assert main(["data", "inspect", str(path), "--json", "--examples", "1"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["chunks"] == [{"label": "a", "reference": "x", "flow_cell": "F", "split": None, "chunks": 3}]
    assert content["view"]["labels"][0]["median_level"] == [1] * 5
    assert len(content["view"]["examples"]) == 1
    assert content["records"][0]["counts"] == {"seen": 3, "used": 3}
    assert main(["data", "inspect", str(path)]) == 0
    out = capsys.readouterr().out
    assert "Chunks by reference\nlabel  reference  flow cell  chunks\na      x          F               3\n" in out
    assert "Level (median) and dwell in samples (geometric mean) around the focus, over 1 shared references" in out


def test_codes_that_mean_nothing_are_refused(tmp_path):
    folder = write(tmp_path / "c", chunks(3))
    np.save(folder / "reference.npy", np.full(3, 99, dtype="<i4"))
    with pytest.raises(InputError, match=r"reference\.npy"):
        inspect(folder, InspectConfig(), force=False, stamp=STAMP)


def test_memory_does_not_grow_with_the_corpus(tmp_path):
    # Sparse column files of 400 MB in all; tracemalloc sees what numpy allocates and not what is mapped.
    folder = write(tmp_path / "c", chunks(1))
    manifest = json.loads((folder / "manifest.json").read_text())
    num_chunks = 2_000_000
    for name, (dtype, shape) in column_layout(RECIPE).items():
        with (folder / f"{name}.npy").open("r+b") as file:
            header = {"descr": dtype.str, "fortran_order": False, "shape": (num_chunks, *shape)}
            np.lib.format.write_array_header_1_0(file, header)
            file.truncate(128 + num_chunks * dtype.itemsize * int(np.prod(shape, dtype=np.int64)))
        manifest["columns"][name]["shape"][0] = num_chunks
    manifest["num_chunks"] = num_chunks
    scale = np.lib.format.open_memmap(folder / "scale.npy", mode="r+")
    scale[:] = 1
    scale.flush()
    for name, (_, shape) in column_layout(RECIPE).items():
        if not shape:
            values = np.load(folder / f"{name}.npy", mmap_mode="r")
            manifest["columns"][name]["sha256"] = hashlib.sha256(values.tobytes()).hexdigest()
    rewrite_manifest(folder, manifest)
    tracemalloc.start()
    try:
        result = inspect(folder, build(InspectConfig, {"sample": 2000}), force=False, stamp=STAMP)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(result.groups.values()) == num_chunks
    # 2 bytes and a flag per row, one row number of 8 bytes, and a block of rows.
    assert peak < 60e6
