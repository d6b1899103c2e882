"""Files that say where sites are, and which recipes have a use for them."""

from __future__ import annotations

import gzip
import hashlib
import re
import uuid

import pytest

from leech.config import build
from leech.data.prepare import junction_table
from leech.data.recipe import Recipe
from leech.data.sites import BedSites, Place, ReadSites, settle_labels, settle_sites, sites_for_model, stored_bed
from leech.errors import ConfigError, InputError, MismatchError

MOTIF = {"motif": "CCAGGC", "motif_offset": 2}


def write(path, text):
    path.write_text(text)
    return path


def identity(number):
    return uuid.UUID(int=number)


def test_a_bed_gives_one_interval_per_reference_and_remarks_are_passed_over(tmp_path):
    text = "# made by hand\ntrack name=x\nbrowser position\na\t3\t6\tcharged\t0\t+\n\nb\t0\t1\t.\nc 7 8\n"
    sites = BedSites.load(write(tmp_path / "s.bed", text))
    assert sites.places == {"a": Place(3, 6, "charged"), "b": Place(0, 1, None), "c": Place(7, 8, None)}
    assert sites.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert sites.has_labels
    assert not sites.without_labels().has_labels


def test_a_compressed_bed_has_the_digest_of_its_text(tmp_path):
    (tmp_path / "s.bed.gz").write_bytes(gzip.compress(b"a\t3\t4\n"))
    assert BedSites.load(tmp_path / "s.bed.gz").sha256 == BedSites.parse(b"a\t3\t4\n").sha256


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\t3\t4\nb\t5\t6\tn\t0\t-\n", "line 2 .* lies on the reverse strand"),
        ("a\t3\t4\na\t5\t6\n", "line 2 .* second site on reference 'a'"),
        ("a\t4\t4\n", "line 1 .* holds no base"),
        ("a\t4\n", "line 1 .* is not 'reference, start, end'"),
        ("a\t-1\t4\n", "line 1 .* is not 'reference, start, end'"),
        ("# nothing\n", "holds no site"),
    ],
)
def test_a_bed_that_cannot_be_meant_is_refused_with_its_line(tmp_path, text, words):
    with pytest.raises(InputError, match=words):
        BedSites.load(write(tmp_path / "s.bed", text))


def test_a_table_of_reads_is_found_by_id_in_any_order_of_rows_and_columns(tmp_path):
    # Reads 2 and 3 share their first eight bytes, so that the second half must tell them apart.
    rows = [("9", identity(3), "no"), ("0", identity(1 << 100), ""), ("12", identity(2), "yes")]
    text = "position\tother\tread_id\tlabel\n" + "".join(f"{p}\tx\t{str(i).upper()}\t{label}\n" for p, i, label in rows)
    sites = ReadSites.load(write(tmp_path / "reads.tsv", text))
    assert len(sites) == 3
    assert sites.find(identity(2).bytes) == Place(12, 13, "yes")
    assert sites.find(identity(3).bytes) == Place(9, 10, "no")
    assert sites.find(identity(1 << 100).bytes) == Place(0, 1, None)
    assert sites.find(identity(4).bytes) is None
    assert sites.find(identity((1 << 128) - 1).bytes) is None


def test_a_table_written_on_another_system_is_read_the_same(tmp_path):
    (tmp_path / "reads.tsv").write_bytes(f"\ufeffread_id\tposition\tlabel\r\n{identity(1)}\t5\tyes\r\n".encode())
    assert ReadSites.load(tmp_path / "reads.tsv").find(identity(1).bytes) == Place(5, 6, "yes")


def test_a_table_without_labels_has_none(tmp_path):
    sites = ReadSites.load(write(tmp_path / "reads.tsv", f"read_id\tposition\n{identity(1)}\t5\n"))
    assert sites.labels is None
    assert sites.find(identity(1).bytes) == Place(5, 6, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("read_id\tpositions\n", "no column 'position'.*"),
        ("readid\tposition\n", "no column 'read_id'"),
        ("", "no column 'read_id'"),
        ("read_id\tposition\n", "lists no read"),
        (f"read_id\tposition\n{identity(1)}\t-2\n", "Line 2 .* position counted from 0"),
        (f"read_id\tposition\n{identity(1)}\t{10**19}\n", r"Line 2 .* position counted from 0"),
        (f"read_id\tposition\n{identity(1)}\n", "Line 2 .* position counted from 0"),
        ("read_id\tposition\nread7\t2\n", r"Line 2 .* read id \(UUID\)"),
        (f"read_id\tposition\n{identity(1)}\t2\n{identity(1)}\t3\n", "1 reads more than once"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(tmp_path, text, words):
    with pytest.raises(InputError, match=words):
        ReadSites.load(write(tmp_path / "reads.tsv", text))


def test_a_misspelt_column_is_shown_with_the_right_name(tmp_path):
    with pytest.raises(InputError) as refusal:
        ReadSites.load(write(tmp_path / "reads.tsv", "read_id\tpositions\n"))
    assert refusal.value.hint == "Rename 'positions' to 'position'."


def test_missing_files_are_named(tmp_path):
    with pytest.raises(InputError, match=r"gone\.bed"):
        BedSites.load(tmp_path / "gone.bed")
    with pytest.raises(InputError, match=r"gone\.tsv"):
        ReadSites.load(tmp_path / "gone.tsv")


def test_the_recipe_says_which_file_was_used(tmp_path):
    bed = write(tmp_path / "s.bed", "a\t3\t4\n")
    table = write(tmp_path / "reads.tsv", f"read_id\tposition\n{identity(1)}\t5\n")
    by_bed, sites = settle_sites(build(Recipe, {}), bed, None)
    assert isinstance(sites, BedSites)
    assert (by_bed.site_source, by_bed.sites_sha256) == ("sites", sites.sha256)
    by_table, sites = settle_sites(build(Recipe, {}), None, table)
    assert isinstance(sites, ReadSites)
    assert (by_table.site_source, by_table.sites_sha256) == ("read_sites", None)
    motif = build(Recipe, MOTIF)
    assert settle_sites(motif, None, None) == (motif, None)
    assert len({recipe.digest() for recipe in (by_bed, by_table, motif)}) == 3


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (MOTIF, "motif 'CCAGGC' has no effect where --sites says"),
        ({"arm": "GGCTTC"}, "arm 'GGCTTC' has no effect"),
        ({"motif_occurrence": "last"}, "leave out --motif-occurrence or --sites"),
        ({"anchor": "basecall"}, "anchor 'basecall' has no effect"),
    ],
)
def test_what_describes_a_motif_contradicts_a_file_of_sites(tmp_path, given, words):
    with pytest.raises(ConfigError, match=words):
        settle_sites(build(Recipe, given), write(tmp_path / "s.bed", "a\t3\t4\n"), None)


def test_the_site_must_be_said_in_exactly_one_way(tmp_path):
    bed = write(tmp_path / "s.bed", "a\t3\t4\n")
    with pytest.raises(ConfigError, match="both say where"):
        settle_sites(build(Recipe, {}), bed, bed)
    with pytest.raises(ConfigError, match="Nothing says where the site is"):
        settle_sites(build(Recipe, {}), None, None)
    for half in ({"motif": "CCA"}, {"motif_offset": 1}):
        with pytest.raises(ConfigError, match="give --motif"):
            build(Recipe, half)


def test_names_of_a_bed_are_labels_only_when_asked_and_never_beside_a_label_for_all():
    sites = BedSites.parse(b"a\t3\t4\tcharged\n")
    assert not settle_labels(sites, "x", from_name=False).has_labels
    assert settle_labels(sites, None, from_name=True).has_labels
    with pytest.raises(ConfigError, match="Label 'x' was given for all reads"):
        settle_labels(sites, "x", from_name=True)
    with pytest.raises(ConfigError, match="no line has one"):
        settle_labels(BedSites.parse(b"a\t3\t4\n"), None, from_name=True)
    with pytest.raises(ConfigError, match="there is no --sites"):
        settle_labels(None, None, from_name=True)


def test_labels_of_a_table_contradict_a_label_for_all(tmp_path):
    sites = ReadSites.load(write(tmp_path / "r.tsv", f"read_id\tposition\tlabel\n{identity(1)}\t5\tyes\n"))
    assert settle_labels(sites, None, from_name=False) is sites
    with pytest.raises(ConfigError, match="the file of sites has its own"):
        settle_labels(sites, "x", from_name=False)


def test_a_folder_gives_back_its_bed_and_refuses_another(tmp_path):
    recipe, sites = settle_sites(build(Recipe, {}), write(tmp_path / "s.bed", "a\t3\t4\tname\n"), None)
    sites.save(tmp_path)
    assert stored_bed(tmp_path, recipe) == sites
    assert sites_for_model(tmp_path, recipe, None) == sites.without_labels()
    (tmp_path / "sites.bed").write_text("a\t4\t5\n")
    with pytest.raises(MismatchError, match="have digest"):
        stored_bed(tmp_path, recipe)


def test_a_model_asks_for_a_table_of_reads_when_it_was_trained_with_one_and_only_then(tmp_path):
    table = write(tmp_path / "r.tsv", f"read_id\tposition\n{identity(1)}\t5\n")
    recipe, _ = settle_sites(build(Recipe, {}), None, table)
    assert len(sites_for_model(tmp_path, recipe, table)) == 1
    with pytest.raises(ConfigError, match="these reads need one too") as refusal:
        sites_for_model(tmp_path, recipe, None)
    assert "--read-sites" in refusal.value.hint
    with pytest.raises(ConfigError, match=re.escape("--read-sites has no effect")):
        sites_for_model(tmp_path, build(Recipe, MOTIF), table)


def test_a_recipe_that_does_what_was_always_done_keeps_its_digest():
    # Recorded before recipes could say anything but a motif in the reference.
    assert (
        Recipe.stored({**MOTIF, "normalisation": "mad"}, "a file").digest()
        == "sha256:4bfce50a6a212e7337735f3940280e64da95d68027ada87713d203f725327a7a"
    )
    assert build(Recipe, {**MOTIF, "anchor": "basecall"}).digest() != build(Recipe, MOTIF).digest()


@pytest.mark.parametrize("position", ["3\t" + "9" * 19, "9" * 19 + "\t" + "9" * 20])
def test_a_position_that_is_no_number_of_a_reference_is_refused(position):
    with pytest.raises(InputError, match="is not 'reference, start, end'"):
        BedSites.parse(f"a\t{position}\n".encode())


def test_spaces_at_the_end_of_a_name_are_no_part_of_it(tmp_path):
    sites = BedSites.parse(b"a\t3\t4\tcharged\nb\t3\t4\tcharged \n")
    assert [place.label for place in sites.places.values()] == ["charged", "charged"]
    rows = f"read_id\tposition\tlabel\n{identity(1)}\t5\tyes\n{identity(2)}\t5\tyes \n"
    assert ReadSites.load(write(tmp_path / "r.tsv", rows)).labels == ("yes",)


def test_a_reference_whose_name_begins_like_a_remark_has_its_site():
    assert list(BedSites.parse(b"track name=x\ntrack1\t3\t4\nbrowserless\t3\t4\n").places) == ["track1", "browserless"]


def test_a_damaged_gzip_is_named(tmp_path):
    content = bytearray(gzip.compress(b"a\t3\t4\n" * 50))
    # The first block's type becomes 3, which there is not.
    content[10] |= 6
    (tmp_path / "s.bed.gz").write_bytes(content)
    with pytest.raises(InputError, match=r"Cannot read BED .*s\.bed\.gz"):
        BedSites.load(tmp_path / "s.bed.gz")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"motif": "CCA", "motif_offset": 0}, "Motif"),
        ({"site_source": "sites", "sites_sha256": "sha256:0"}, "Interval of the BED"),
        ({"site_source": "read_sites"}, "Base of the site"),
    ],
)
def test_the_table_of_clean_alignments_says_what_was_looked_at(given, words):
    table = junction_table({"a": {"clean": 3, "indel": 1, "not_covered": 0}}, build(Recipe, given))
    assert table.title == f"{words} in the alignment of reads that can be cut"
    assert table.rows == (("a", "3", "1", "0", "75.0%"),)
