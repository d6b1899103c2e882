"""Finding the site on a reference."""

from __future__ import annotations

import pytest

from leech.config import build
from leech.data.anchors import Site, find_motif, find_site, read_fasta
from leech.data.levels import encode_bases
from leech.data.recipe import Recipe
from leech.errors import ConfigError, InputError

ARM = "GGCTTCTTCTTGCTCTT"


def recipe(**changes):
    values = {"motif": "CCAGGC", "motif_offset": 2, "bases_before": 2, "bases_after": 1, "feature_start": 0}
    return build(Recipe, {**values, "feature_end": 1, **changes})


def test_the_junction_is_the_occurrence_that_the_arm_follows():
    # Two CCAGGC, at 2 and at 14; the arm GGCTTC... begins at 17, three bases into the second.
    sequence = "TT" + "CCAGGC" + "AAAAAA" + "CCA" + ARM + "AAAA"
    site = find_site(sequence, recipe(), None)
    assert isinstance(site, Site)
    assert (site.motif_start, site.focus) == (14, 16)
    # Base window -2..1 around 16 with four bases of context: reference 10..21.
    assert site.sequence.tolist() == encode_bases(sequence[10:22]).tolist()


@pytest.mark.parametrize(("occurrence", "start"), [("first", 1), ("last", 9), ("only", "several_motifs")])
def test_the_occurrence_is_chosen_by_name(occurrence, start):
    found = find_site("AGTTCAAAAGTTCAAAA", recipe(motif="GUUC", motif_occurrence=occurrence), None)
    assert (found.motif_start if isinstance(found, Site) else found) == start


@pytest.mark.parametrize(
    ("sequence", "changes", "reason"),
    [
        ("ACGTACGT", {}, "no_motif"),
        ("AACCAGGCAAAA", {}, "no_junction"),
        ("AACCAGGCAAAA", {"motif_occurrence": "first", "motif_offset": 40}, "focus_outside_reference"),
        ("AACCAGGCAAAA", {"motif_occurrence": "first", "motif_offset": -3}, "focus_outside_reference"),
    ],
)
def test_a_reference_without_site_gives_its_reason(sequence, changes, reason):
    assert find_site(sequence, recipe(**changes), None) == reason


def test_a_window_that_overhangs_the_reference_holds_unknown_bases():
    site = find_site("CCAGG", recipe(motif="CCA", motif_occurrence="first"), None)
    # Focus 2, window 0..3, context -4..7; the reference ends at 5.
    assert site.sequence.tolist() == [4, 4, 4, 4, 1, 1, 0, 2, 2, 4, 4, 4]


def test_iupac_codes_match_what_they_stand_for_and_overlapping_occurrences_are_found():
    assert find_motif("AAGAGA", "RGA") == [1, 3]
    assert find_motif("AAAA", "AA") == [0, 1, 2]
    assert find_motif("ANA", "ANA") == []


def test_letters_that_are_no_nucleotide_code_are_refused():
    with pytest.raises(ConfigError, match="X"):
        recipe(motif="CCX")


def test_fasta_is_read_upper_case_with_u_as_t_and_leaves_no_index(tmp_path):
    path = tmp_path / "r.fa"
    path.write_text(">a some words\nacgu\nNN\n>b\nGG\n")
    assert read_fasta(path) == {"a": "ACGTNN", "b": "GG"}
    assert [file.name for file in tmp_path.iterdir()] == ["r.fa"]


@pytest.mark.parametrize("text", ["", "no fasta at all\n", ">a\nAC\n>a\nGG\n"])
def test_a_fasta_that_cannot_be_meant_is_refused(tmp_path, text):
    path = tmp_path / "broken.fa"
    path.write_text(text)
    with pytest.raises(InputError, match=r"broken\.fa"):
        read_fasta(path)


def test_a_missing_fasta_is_named(tmp_path):
    with pytest.raises(InputError, match=r"gone\.fa"):
        read_fasta(tmp_path / "gone.fa")
