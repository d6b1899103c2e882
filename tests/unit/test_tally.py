"""Counting calls by reference, and which groups a reference belongs to."""

from __future__ import annotations

from collections import Counter

import pytest

from leech.errors import InputError
from leech.prediction.calls import Call
from leech.prediction.fractions import Corrections
from leech.prediction.names import SUMMARIES
from leech.prediction.summary import Summarised, shown, write_summary
from leech.prediction.tally import (
    Tally,
    assign_groups,
    read_reference_groups,
    warn_of_unassigned,
)


def call(reference, positive=None, reason=""):
    return Call("r", reference, None, None, positive, reason)


def filled():
    tally = Tally()
    for reference, positive, reason in [
        ("tRNA-Ala-GGC-1-1", True, ""),
        ("tRNA-Ala-GGC-1-2", False, ""),
        ("tRNA-Ala-TGC-1-1", None, "low_confidence"),
        ("tRNA-Ala-TGC-1-1", None, "no_moves"),
        ("tRNA-Ala-TGC-1-1", None, "secondary"),
        ("spike", True, ""),
        ("", None, "unmapped"),
    ]:
        tally.count(call(reference, positive, reason))
    return tally


def test_each_read_of_a_reference_is_counted_once_and_others_not():
    found = filled().by_reference()
    assert list(found) == ["spike", "tRNA-Ala-GGC-1-1", "tRNA-Ala-GGC-1-2", "tRNA-Ala-TGC-1-1"]
    assert found["tRNA-Ala-TGC-1-1"].reasons() == {"no_moves": 1, "low_confidence": 1}
    assert filled().total().num_called == 3
    assert Tally.from_mapping(filled().to_mapping()).to_mapping() == filled().to_mapping()


def test_references_roll_up_to_isodecoders_isoacceptors_and_amino_acids():
    tally = filled()
    groups = assign_groups(tally.by_reference(), {})
    counts = {
        level: {
            name: (group.num_positive, group.num_negative, group.num_no_call)
            for name, group in tally.rolled_up(groups, level).items()
        }
        for level in ("isodecoder", "isoacceptor", "amino_acid")
    }
    assert counts == {
        "isodecoder": {"Ala-GGC-1": (1, 1, 0), "Ala-TGC-1": (0, 0, 2), "unassigned": (1, 0, 0)},
        "isoacceptor": {"Ala-GGC": (1, 1, 0), "Ala-TGC": (0, 0, 2), "unassigned": (1, 0, 0)},
        "amino_acid": {"Ala": (1, 1, 2), "unassigned": (1, 0, 0)},
    }


def test_a_table_says_more_than_a_name(tmp_path, caplog):
    path = tmp_path / "groups.tsv"
    path.write_bytes(
        b"# made by hand\r\nreference\tamino_acid\tisoacceptor\r\nspike\tSpike\t\r\ntRNA-Ala-GGC-1-1\tGly\t\r\n"
    )
    groups = assign_groups(["spike", "tRNA-Ala-GGC-1-1", "other"], read_reference_groups(path))
    assert groups["spike"] == {"isodecoder": "", "isoacceptor": "", "amino_acid": "Spike"}
    assert groups["tRNA-Ala-GGC-1-1"] == {"isodecoder": "Ala-GGC-1", "isoacceptor": "Ala-GGC", "amino_acid": "Gly"}
    warn_of_unassigned(groups)
    assert "names of 1 of 3 references tell no amino acid" in caplog.text
    assert "other" in caplog.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("reference\n", "one of the levels are needed"),
        ("name\tamino_acid\n", "unknown: name"),
        ("reference\taminoacid\n", "unknown: aminoacid"),
        ("reference\tamino_acid\na\tAla\na\tGly\n", "line 3 names reference 'a' a second time"),
        ("reference\tamino_acid\n\tAla\n", "line 2 names no reference"),
        ("reference\tamino_acid\na\n", "line 2 has 1 cells and the header 2"),
        ("reference\tamino_acid\tamino_acid\n", "a column twice"),
    ],
)
def test_a_table_of_groups_that_cannot_be_right_is_refused(tmp_path, text, message):
    path = tmp_path / "groups.tsv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_reference_groups(path)


def test_reasons_keep_the_order_of_examination():
    tally = filled().total()
    assert tally.no_calls == Counter({"low_confidence": 1, "no_moves": 1})
    assert list(tally.reasons()) == ["no_moves", "low_confidence"]


def test_the_work_of_a_summary_grows_with_the_references_and_no_faster(tmp_path, monkeypatch):
    # Sorting all references anew for each took 8 s at 4,000 references, and minutes at a transcriptome's.
    names = [f"tRNA-Ala-GGC-{number}-1" for number in range(50)]
    tally = Tally.from_mapping({name: {"positive": 3, "negative": 4, "no_calls": {}} for name in names})
    summarised = Summarised(tally, assign_groups(names, {}), Corrections(None, None, None, None), 50)
    asked = []
    sort = Tally.by_reference
    monkeypatch.setattr(Tally, "by_reference", lambda self: asked.append(1) or sort(self))
    for level in SUMMARIES:
        write_summary(tmp_path / level, summarised, level)
    shown(summarised, ("no", "yes"), "")
    assert 0 < len(asked) < 20
