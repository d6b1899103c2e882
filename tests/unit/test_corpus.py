"""Corpora on disk."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from corpora import RECIPE, chunks, rewrite_manifest, write
from leech.data.corpus import ChunkArrays, Corpus, CorpusWriter, column_layout
from leech.data.manifest import read_manifest
from leech.errors import InputError, LeechError, MismatchError


def test_what_was_written_is_read_back_as_real_npy_files(tmp_path):
    batch = chunks(7)
    corpus = Corpus.open(write(tmp_path / "c", batch))
    assert len(corpus) == 7
    for name, values in batch.columns.items():
        expected = values
        if name == "reference":  # codes are given in order of first appearance
            order = list(dict.fromkeys(values.tolist()))
            assert corpus.categories["reference"] == [("a", "b")[code] for code in order]
            expected = np.array([order.index(code) for code in values])
        assert np.array_equal(np.load(tmp_path / "c" / f"{name}.npy", allow_pickle=False), expected), name
        assert np.array_equal(corpus.column(name), expected), name


def test_the_bytes_do_not_depend_on_how_rows_were_batched(tmp_path):
    whole = chunks(9)
    parts = [
        ChunkArrays({name: values[rows] for name, values in whole.columns.items()}, whole.categories)
        for rows in (slice(0, 2), slice(2, 9))
    ]
    write(tmp_path / "one", whole)
    write(tmp_path / "two", *parts)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "two").iterdir())
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


def test_rows_are_gathered_in_the_order_asked_for(tmp_path):
    batch = chunks(5)
    corpus = Corpus.open(write(tmp_path / "c", batch))
    rows = np.array([3, 0, 3])
    assert np.array_equal(corpus.gather(rows, ["signal"])["signal"], batch.columns["signal"][rows])


def test_a_folder_without_manifest_is_no_corpus(tmp_path):
    folder = write(tmp_path / "c", chunks(3))
    (folder / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"no manifest\.json"):
        Corpus.open(folder)
    with pytest.raises(InputError, match="does not exist"):
        Corpus.open(tmp_path / "gone")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "other"}, "not a leech corpus"),
        ({"schema_version": 99}, "schema version 99"),
        ({"num_chunks": "many"}, "num_chunks"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_manifest_of_another_kind_or_version_is_refused(tmp_path, change, words):
    folder = write(tmp_path / "c", chunks(3))
    content = json.loads((folder / "manifest.json").read_text()) | change
    (folder / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=words):
        Corpus.open(folder)


def test_a_recipe_that_no_longer_means_the_same_is_refused(tmp_path):
    folder = write(tmp_path / "c", chunks(3))
    content = json.loads((folder / "manifest.json").read_text())
    content["recipe"]["samples_before"] = 6
    rewrite_manifest(folder, content)
    with pytest.raises(MismatchError, match="recipe"):
        Corpus.open(folder)


def test_a_manifest_that_was_edited_is_refused(tmp_path):
    folder = write(tmp_path / "c", chunks(3, label="charged"))
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"charged"', '"uncharged"'))
    with pytest.raises(InputError, match="not as it was written"):
        Corpus.open(folder)


@pytest.mark.parametrize("name", ["label", "signal", "level_mean"])
def test_a_column_that_changed_is_found_when_it_is_verified(tmp_path, name):
    folder = write(tmp_path / "c", chunks(30))
    Corpus.open(folder).verify()
    path = folder / f"{name}.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    corpus = Corpus.open(folder)
    corpus.verify(["mapq"])
    with pytest.raises(InputError, match=rf"{name}\.npy' is not as it was written"):
        corpus.verify()


def test_an_empty_column_file_is_named(tmp_path):
    folder = write(tmp_path / "c", chunks(3))
    (folder / "label.npy").write_bytes(b"")
    with pytest.raises(InputError, match=r"label\.npy"):
        Corpus.open(folder).column("label")


def test_a_truncated_column_is_named(tmp_path):
    folder = write(tmp_path / "c", chunks(30))
    path = folder / "signal.npy"
    path.write_bytes(path.read_bytes()[:200])
    corpus = Corpus.open(folder)
    with pytest.raises(InputError, match=r"signal\.npy"):
        corpus.column("signal")


@pytest.mark.parametrize(("column", "value"), [("shift", np.nan), ("level_mean", np.inf), ("scale", 0.0)])
def test_values_that_no_later_step_could_use_are_refused_when_written(tmp_path, column, value):
    batch = chunks(3)
    batch.columns[column][1] = value
    (tmp_path / "c").mkdir()
    with CorpusWriter(tmp_path / "c", RECIPE) as writer, pytest.raises(LeechError, match="must be counted"):
        writer.append(batch)


def test_an_absent_label_stays_absent(tmp_path):
    batch = chunks(3)
    batch.columns["label"][:] = -1
    corpus = Corpus.open(write(tmp_path / "c", ChunkArrays(batch.columns, {**batch.categories, "label": []})))
    assert corpus.labels == []
    assert corpus.column("label").tolist() == [-1, -1, -1]


def test_a_corpus_that_is_not_split_says_so(tmp_path):
    corpus = Corpus.open(write(tmp_path / "c", chunks(3)))
    with pytest.raises(InputError, match="no splits"):
        corpus.rows("test")
    assert corpus.rows().tolist() == [0, 1, 2]


def test_opening_costs_the_same_at_any_size(tmp_path):
    # Not a timing: the column files are sparse and far larger than anything that could be read in a test.
    folder = write(tmp_path / "c", chunks(1))
    manifest = json.loads((folder / "manifest.json").read_text())
    num_chunks = 50_000_000
    for name, (dtype, shape) in column_layout(RECIPE).items():
        with (folder / f"{name}.npy").open("r+b") as file:
            header = {"descr": dtype.str, "fortran_order": False, "shape": (num_chunks, *shape)}
            np.lib.format.write_array_header_1_0(file, header)
            file.truncate(128 + num_chunks * dtype.itemsize * int(np.prod(shape, dtype=np.int64)))
        manifest["columns"][name]["shape"][0] = num_chunks
    manifest["num_chunks"] = num_chunks
    rewrite_manifest(folder, manifest)
    start = time.monotonic()
    corpus = Corpus.open(folder)
    assert corpus.gather(np.array([num_chunks - 1]), ["signal"])["signal"].shape == (1, 10)
    assert time.monotonic() - start < 5


def test_reading_needs_numpy_and_json_alone(tmp_path):
    folder = write(tmp_path / "c", chunks(4))
    manifest = read_manifest(folder)
    for name, entry in manifest.columns.items():
        array = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        assert (array.dtype.str, list(array.shape)) == (entry["dtype"], entry["shape"])
