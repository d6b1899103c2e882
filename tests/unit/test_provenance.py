"""Stamps, and output that stands complete under its name or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
from multiprocessing import get_context

import pytest

from leech import provenance
from leech.errors import ConfigError, InputError
from leech.provenance import Identity, Stamp, atomic_file, atomic_folder, final_path, refuse_input_as_output

TIME = "2026-01-01T00:00:00+00:00"


def fill(folder, text="new"):
    (folder / "manifest.json").write_text(text)


def test_a_folder_appears_with_its_content_and_its_missing_parents(tmp_path):
    path = tmp_path / "a" / "b" / "corpus"
    with atomic_folder(path) as partial:
        assert partial.name == f"corpus.partial-{os.getpid()}"
        assert partial.parent == path.parent
        assert not path.exists()
        fill(partial)
    assert (path / "manifest.json").read_text() == "new"
    assert [entry.name for entry in path.parent.iterdir()] == ["corpus"]


def test_a_file_appears_with_its_content_and_its_missing_parents(tmp_path):
    path = tmp_path / "a" / "calls.bam"
    with atomic_file(path) as partial:
        assert not path.exists()
        partial.write_text("new")
    assert path.read_text() == "new"
    assert [entry.name for entry in path.parent.iterdir()] == ["calls.bam"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("begin", [atomic_folder, atomic_file])
def test_nothing_is_left_when_the_work_fails_half_way(tmp_path, begin, error):
    def work():
        with begin(tmp_path / "output") as partial:
            assert partial.exists()
            raise error

    with pytest.raises(error):
        work()
    assert list(tmp_path.iterdir()) == []


def test_the_old_artefact_stays_whole_when_its_replacement_fails(tmp_path):
    path = tmp_path / "corpus"
    path.mkdir()
    fill(path, "old")

    def work():
        with atomic_folder(path, force=True) as partial:
            fill(partial)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert (path / "manifest.json").read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_with_force_a_folder_is_replaced_at_the_end_and_no_old_file_remains(tmp_path):
    path = tmp_path / "corpus"
    path.mkdir()
    fill(path, "old")
    (path / "gone.npy").write_text("")
    with atomic_folder(path, force=True) as partial:
        fill(partial)
        assert (path / "manifest.json").read_text() == "old"
    assert {entry.name: entry.read_text() for entry in path.iterdir()} == {"manifest.json": "new"}
    assert list(tmp_path.iterdir()) == [path]


def test_with_force_a_file_is_replaced_at_the_end(tmp_path):
    path = tmp_path / "metrics.json"
    path.write_text("old")
    with atomic_file(path, force=True) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


@pytest.mark.parametrize("begin", [atomic_folder, atomic_file])
def test_without_force_an_existing_output_is_refused_before_any_work(tmp_path, begin):
    path = tmp_path / "output"
    if begin is atomic_folder:
        path.mkdir()
    else:
        path.touch()
    with pytest.raises(InputError, match="exists already") as refusal, begin(path):
        pytest.fail("the work began")
    assert "--force" in refusal.value.hint


@pytest.mark.parametrize("begin", [atomic_folder, atomic_file])
def test_without_force_what_came_to_stand_there_during_the_work_is_not_replaced(tmp_path, begin):
    path = tmp_path / "output"
    make = path.mkdir if begin is atomic_folder else path.touch
    with pytest.raises(InputError, match="exists already"), begin(path):
        make()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_is_never_replaced_by_a_file(tmp_path, force):
    precious = tmp_path / "results" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("years")
    with (
        pytest.raises(InputError, match="is a folder, and the output is a file"),
        atomic_file(precious.parent, force=force),
    ):
        pytest.fail("the work began")
    assert precious.read_text() == "years"


@pytest.mark.parametrize("force", [False, True])
def test_a_file_is_never_replaced_by_a_folder(tmp_path, force):
    path = tmp_path / "thesis.txt"
    path.write_text("years")
    with pytest.raises(InputError, match="is a file, and the output is a folder"), atomic_folder(path, force=force):
        pytest.fail("the work began")
    assert path.read_text() == "years"


def test_force_does_not_delete_a_folder_that_leech_did_not_write(tmp_path):
    precious = tmp_path / "home" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("years")
    with pytest.raises(InputError, match="leech did not write"), atomic_folder(precious.parent, force=True):
        pytest.fail("the work began")
    assert precious.read_text() == "years"


@pytest.mark.parametrize("sign", ["provenance.json", "manifest.json", "model.json"])
def test_force_replaces_every_kind_of_artefact(tmp_path, sign):
    path = tmp_path / "artefact"
    path.mkdir()
    (path / sign).touch()
    with atomic_folder(path, force=True) as partial:
        fill(partial)
    assert [entry.name for entry in path.iterdir()] == ["manifest.json"]


def test_force_replaces_an_empty_folder(tmp_path):
    with atomic_folder(tmp_path / "new", force=True) as partial:
        fill(partial)
    (tmp_path / "empty").mkdir()
    with atomic_folder(tmp_path / "empty", force=True) as partial:
        fill(partial)
    assert (tmp_path / "empty" / "manifest.json").is_file()


def test_force_does_not_replace_a_link_to_a_folder(tmp_path):
    # rename() cannot put a folder over a link: found at the end only, the work would be lost.
    (tmp_path / "scratch").mkdir()
    fill(tmp_path / "scratch", "old")
    (tmp_path / "corpus").symlink_to(tmp_path / "scratch")
    with pytest.raises(InputError, match="link or a device"), atomic_folder(tmp_path / "corpus", force=True):
        pytest.fail("the work began")
    assert (tmp_path / "scratch" / "manifest.json").read_text() == "old"


def test_a_link_that_leads_nowhere_is_refused_for_a_folder_before_any_work(tmp_path):
    (tmp_path / "out").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is a link"), atomic_folder(tmp_path / "out"):
        pytest.fail("work began")


def test_an_output_never_takes_the_place_of_an_input(tmp_path):
    corpus = tmp_path / "outer" / "corpus"
    corpus.mkdir(parents=True)
    (tmp_path / "link").symlink_to(corpus)
    for output in (corpus, tmp_path / "outer", tmp_path / "link", corpus / ".." / "corpus"):
        with pytest.raises(ConfigError, match="is the input"):
            refuse_input_as_output(output, [None, tmp_path / "elsewhere", corpus])
    # Within an input, or beside it, nothing is lost.
    for output in (corpus / "calls.bam", tmp_path / "outer" / "model"):
        refuse_input_as_output(output, [corpus])


def test_force_does_not_replace_a_device():
    with pytest.raises(InputError, match="link or a device"), atomic_file(provenance.Path("/dev/null"), force=True):
        pytest.fail("the work began")


@pytest.mark.parametrize("name", [".", "..", "/"])
def test_an_output_needs_a_name_of_its_own(name):
    with pytest.raises(InputError, match="no name for an output"), atomic_folder(provenance.Path(name), force=True):
        pytest.fail("the work began")


@pytest.mark.parametrize("begin", [atomic_folder, atomic_file])
def test_a_file_in_place_of_the_parent_is_refused(tmp_path, begin):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="Cannot write beside"), begin(tmp_path / "file" / "output"):
        pytest.fail("the work began")


def test_a_full_disk_is_said_in_words(tmp_path):
    with pytest.raises(InputError, match="No space left") as refusal, atomic_folder(tmp_path / "corpus"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert refusal.value.hint == "Free some space, or write elsewhere."


def test_another_error_of_the_work_keeps_its_type(tmp_path):
    # A file that the work could not open is no failure of writing.
    with pytest.raises(FileNotFoundError), atomic_folder(tmp_path / "corpus"):
        (tmp_path / "missing").read_text()


def test_a_killed_process_leaves_nothing_under_the_final_name(tmp_path):
    path = tmp_path / "corpus"
    program = (
        "import sys, time; from pathlib import Path; from leech.provenance import atomic_folder\n"
        "with atomic_folder(Path(sys.argv[1])) as partial:\n"
        "    (partial / 'manifest.json').write_text('half'); print('writing', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "writing\n"
        process.kill()
        assert process.wait(timeout=30) == -signal.SIGKILL
    assert not path.exists()
    assert [entry.name for entry in tmp_path.iterdir()] == [f"corpus.partial-{process.pid}"]


def test_a_small_file_is_known_by_its_content(tmp_path):
    path = tmp_path / "reference.fa"
    path.write_bytes(b">a\nACGT\n")
    identity = Identity.of(path)
    assert identity == Identity(
        path=str(path),
        num_bytes=8,
        num_files=1,
        modified_ns=path.stat().st_mtime_ns,
        sha256=hashlib.sha256(b">a\nACGT\n").hexdigest(),
    )


def test_a_large_file_is_known_by_size_and_time_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "HASHED_BYTES", 7)
    path = tmp_path / "reads.pod5"
    path.write_bytes(b"12345678")
    identity = Identity.of(path)
    assert (identity.num_bytes, identity.sha256) == (8, None)


def test_a_folder_is_known_by_its_files_and_a_link_in_a_circle_ends(tmp_path):
    # 3 + 5 bytes in two files; the link leads back to the top.
    (tmp_path / "run" / "deeper").mkdir(parents=True)
    (tmp_path / "run" / "a.pod5").write_bytes(b"123")
    (tmp_path / "run" / "deeper" / "b.pod5").write_bytes(b"12345")
    (tmp_path / "run" / "deeper" / "up").symlink_to(tmp_path / "run")
    identity = Identity.of(tmp_path / "run")
    assert (identity.num_bytes, identity.num_files, identity.sha256) == (8, 2, None)


def test_what_is_not_there_has_no_identity(tmp_path):
    assert Identity.of(tmp_path / "missing") is None
    assert Stamp.make(["leech"], TIME, inputs=[None, tmp_path / "missing", provenance.Path("-")]).inputs == ()


def test_a_stamp_says_who_how_from_what_and_when(tmp_path):
    (tmp_path / "in.fa").write_text("x")
    stamp = Stamp.make(["leech", "demo"], TIME, config={"DemoConfig": {"seed": 0}}, inputs=[tmp_path / "in.fa"])
    stamp.write(tmp_path)
    written = json.loads((tmp_path / "provenance.json").read_text())
    assert written == stamp.to_mapping()
    assert written["command"] == ["leech", "demo"]
    assert written["time_utc"] == TIME
    assert {"leech", "python", "numpy", "torch", "escapepod"} <= set(written["versions"])
    assert [entry["path"] for entry in written["inputs"]] == [str(tmp_path / "in.fa")]
    # sha256 of the text {"DemoConfig":{"seed":0}}
    expected = hashlib.sha256(b'{"DemoConfig":{"seed":0}}').hexdigest()
    assert written["config_digest"] == f"sha256:{expected}"


def test_the_config_digest_does_not_depend_on_order_and_does_on_values():
    def digest(**settings):
        return Stamp.make([], TIME, config=settings).config_digest

    assert digest(a=1, b=2) == digest(b=2, a=1)
    assert digest(a=1, b=2) != digest(a=1, b=3)
    assert Stamp.make([], TIME).config_digest is None


def test_versions_are_read_without_importing_the_packages():
    program = (
        "import sys; from leech.provenance import Stamp; Stamp.make([], '')\n"
        "print([name for name in ('numpy', 'torch', 'pysam', 'escapepod') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


@pytest.mark.parametrize("name", ["provenance.json", "manifest.json", "model.json"])
def test_force_does_not_replace_the_file_that_makes_an_artefact(tmp_path, name):
    (tmp_path / name).write_text("{}")
    with pytest.raises(InputError, match="what makes its folder an artefact"), atomic_file(tmp_path / name, force=True):
        raise AssertionError
    assert (tmp_path / name).read_text() == "{}"


def test_a_path_in_a_folder_that_is_being_made_is_named_as_it_will_be(tmp_path):
    with atomic_folder(tmp_path / "demo") as outer:
        with atomic_folder(outer / "corpus") as inner:
            assert final_path(inner / "x.npy") == tmp_path / "demo" / "corpus" / "x.npy"
            # A process started by this one, as ranks are, names it so too.
            with get_context("spawn").Pool(1) as pool:
                assert pool.apply(final_path, (inner / "x.npy",)) == tmp_path / "demo" / "corpus" / "x.npy"
            fill(inner)
        fill(outer)
    # What another process left behind, or whoever named a folder so, keeps its name.
    for name in (
        "corpus",
        "corpus.partial-0",
        "corpus.partial",
        f"x.partial-{os.getpid()}y",
        f".partial-{os.getpid()}",
    ):
        assert final_path(tmp_path / name) == tmp_path / name
