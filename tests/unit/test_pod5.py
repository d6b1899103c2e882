"""Finding POD5 files and reads."""

from __future__ import annotations

import numpy as np
import pytest

from leech.data.pod5 import Pod5Index, SignalSource, find_pod5, pack_read_id, unpack_read_id
from leech.data.reads import IdSet
from leech.errors import InputError
from tiny_run import ramp, read_id, write_pod5


def test_a_tree_is_searched_through_links_without_loops_or_hidden_files(tmp_path):
    run = tmp_path / "run"
    (run / "a" / "b").mkdir(parents=True)
    (run / ".hidden").mkdir()
    for name in ("a/one.pod5", "a/b/two.pod5", "._ghost.pod5", ".hidden/three.pod5"):
        write_pod5(run / name, {read_id(1): ramp(5)})
    (run / "a" / "b" / "up").symlink_to(run)
    (run / "again.pod5").symlink_to(run / "a" / "one.pod5")
    found = find_pod5([run, run / "a" / "one.pod5"])
    assert sorted(path.resolve().name for path in found) == ["one.pod5", "two.pod5"]


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs", b"\x8bPOD\r\n\x1a\n" + b"\0" * 500])
def test_a_file_that_is_no_pod5_is_named(tmp_path, content):
    path = tmp_path / "broken.pod5"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"broken\.pod5"):
        Pod5Index.build(find_pod5([path]))


def test_a_truncated_file_is_named(tmp_path):
    path = write_pod5(tmp_path / "cut.pod5", {read_id(n): ramp(5000) for n in range(20)})
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match=r"cut\.pod5"):
        Pod5Index.build(find_pod5([path]))


def test_an_empty_folder_and_a_missing_path_are_errors(tmp_path):
    (tmp_path / "x.fast5").touch()
    with pytest.raises(InputError, match=r"No \.pod5 file"):
        find_pod5([tmp_path])
    with pytest.raises(InputError, match="does not exist"):
        find_pod5([tmp_path / "gone"])


def test_read_ids_are_compared_without_case_and_must_be_uuids():
    text = "0000000A-0000-0000-0000-00000000000b"
    assert pack_read_id(text.upper()) == pack_read_id(text.lower())
    assert pack_read_id("read_17") is None


def test_reads_are_found_in_their_files_and_decoded(tmp_path):
    first = write_pod5(tmp_path / "a.pod5", {read_id(1): ramp(10), read_id(2): ramp(20)}, "FA")
    second = write_pod5(tmp_path / "b.pod5", {read_id(3): ramp(30), read_id(2): ramp(25)}, "FB")
    index = Pod5Index.build([first, second])
    ids = [pack_read_id(read_id(n)) for n in (3, 9, 2, 1)]
    positions = index.positions(ids)
    assert positions.tolist()[1] == -1
    # Read 2 lies in both files; the first one counts.
    assert index.file_numbers[positions[[0, 2, 3]]].tolist() == [1, 0, 0]
    got = SignalSource(index.files).fetch([(1, ids[0]), (0, ids[2]), (0, ids[3])])
    assert [len(got[key].signal) for key in (ids[0], ids[2], ids[3])] == [30, 20, 10]
    assert got[ids[0]].run.flow_cell == "FB"


def test_ids_that_share_their_first_half_are_told_apart(tmp_path):
    # read_id(n) differs in the last bytes only, so every id here shares its first eight.
    names = [read_id(n) for n in range(1, 60)]
    index = Pod5Index.build([write_pod5(tmp_path / "a.pod5", {name: ramp(5) for name in names})])
    assert index.positions([pack_read_id(name) for name in names]).tolist() == list(range(59))
    assert index.positions([pack_read_id(read_id(60)), pack_read_id(read_id(0))]).tolist() == [-1, -1]


def test_uncompressed_signal_reads_the_same(tmp_path):
    import escapepod

    path = tmp_path / "raw.pod5"
    compressed = write_pod5(tmp_path / "vbz.pod5", {read_id(1): ramp(1000)})
    reader = escapepod.Reader(str(compressed))
    read = reader.reads()[0]
    with escapepod.Writer(str(path), compress_signal=False) as writer:
        writer.add_run_info(reader.run_infos[0])
        writer.add_read_data(read, reader.get_signal(read))
    got = SignalSource([path]).fetch([(0, pack_read_id(read_id(1)))])
    assert np.array_equal(got[pack_read_id(read_id(1))].signal, ramp(1000))


def test_few_files_are_open_at_a_time_and_each_is_opened_once_while_it_stays(tmp_path, monkeypatch):
    import escapepod

    from leech.data import pod5

    files = [write_pod5(tmp_path / f"{n}.pod5", {read_id(n): ramp(10 + n)}) for n in range(1, 6)]
    opened = []
    reader = escapepod.Reader
    monkeypatch.setattr(pod5.escapepod, "Reader", lambda path: opened.append(path) or reader(path))
    monkeypatch.setattr(pod5, "_OPEN_FILES", 3)
    source = SignalSource(files)
    for number in (0, 1, 2, 0, 1, 2, 0):
        source.fetch([(number, pack_read_id(read_id(number + 1)))])
    assert len(opened) == 3
    # File 3 displaces file 1, which was used longest ago, and file 0 is still open.
    source.fetch([(3, pack_read_id(read_id(4))), (0, pack_read_id(read_id(1)))])
    assert (len(opened), len(source._open)) == (4, 3)
    source.fetch([(1, pack_read_id(read_id(2)))])
    assert (len(opened), len(source._open)) == (5, 3)


def test_files_are_closed_once_enough_was_decoded_so_that_their_pages_do_not_add_up(tmp_path, monkeypatch):
    import escapepod

    from leech.data import pod5

    files = [write_pod5(tmp_path / f"{n}.pod5", {read_id(n): ramp(20)}) for n in (1, 2)]
    opened = []
    reader = escapepod.Reader
    monkeypatch.setattr(pod5.escapepod, "Reader", lambda path: opened.append(path) or reader(path))
    # A read of 20 samples is 40 bytes; the third fetch brings them to 120, and the fourth begins anew.
    monkeypatch.setattr(pod5, "_DECODED_BYTES", 100)
    source = SignalSource(files)
    kept = []
    for number in (0, 1, 0, 1, 0):
        (read,) = source.fetch([(number, pack_read_id(read_id(number + 1)))]).values()
        kept.append(read.signal.tolist())
    assert [files.index(tmp_path / path) for path in opened] == [0, 1, 1, 0]
    assert kept == [ramp(20).tolist()] * 5


def test_five_thousand_reads_of_one_file_in_random_order_need_one_reader(tmp_path, monkeypatch):
    import escapepod

    from leech.data import pod5

    names = [read_id(n) for n in range(1, 5001)]
    file = write_pod5(tmp_path / "a.pod5", {name: ramp(20) for name in names})
    opened = []
    reader = escapepod.Reader
    monkeypatch.setattr(pod5.escapepod, "Reader", lambda path: opened.append(path) or reader(path))
    source = SignalSource([file])
    order = np.random.default_rng(0).permutation(5000)
    got = 0
    for start in range(0, 5000, 500):
        batch = [(0, pack_read_id(names[place])) for place in order[start : start + 500]]
        got += sum(read is not None and len(read.signal) == 20 for read in source.fetch(batch).values())
    assert (len(opened), got) == (1, 5000)


def test_a_read_id_of_thirty_two_characters_that_are_not_digits_is_none():
    assert pack_read_id("0000000000000000 0000000000000 0") is None
    assert pack_read_id("g" * 32) is None
    assert unpack_read_id(bytes(range(16))) == "00010203-0405-0607-0809-0a0b0c0d0e0f"


def test_a_set_of_ids_tells_new_ones_before_and_after_it_sorts_them():
    names = [pack_read_id(read_id(n)) for n in range(10)]
    ids = IdSet(fresh_limit=4)
    assert [ids.add(name) for name in names] == [True] * 10
    assert [ids.add(name) for name in reversed(names)] == [False] * 10
    assert len(ids) == 10
