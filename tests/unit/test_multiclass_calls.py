"""Calls of more than two states: rules, counts, tags and tables, on values that can be followed by eye."""

from __future__ import annotations

import gzip
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pysam
import pytest

from leech.config import build
from leech.errors import ConfigError
from leech.prediction.config import PredictConfig
from leech.prediction.multiclass.calls import ClassCall, ClassRules, decide, judge
from leech.prediction.multiclass.tally import ClassTally
from leech.prediction.multiclass.writers import (
    ClassBam,
    ClassTables,
    comment_on_labels,
    require_distinct_columns,
    require_plain_labels,
    shown,
    write_summary,
)
from leech.prediction.writers import header_with_program

LABELS = ("ala", "gly", "val")
P = np.array([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2], [0.1, 0.2, 0.7]])


def rules(**values: object) -> ClassRules:
    return ClassRules.of(build(PredictConfig, values), SimpleNamespace(labels=LABELS))  # type: ignore[arg-type]


def test_the_most_probable_state_is_called_and_the_first_of_equal_ones() -> None:
    verdicts = decide(P, np.array([0, 1, 2], np.uint8), ClassRules())
    assert verdicts.states.tolist() == [1, 0, 2]
    assert verdicts.reasons.tolist() == ["", "", ""]


def test_what_is_unsure_or_disrupted_is_left_uncalled_as_asked_for() -> None:
    junction = np.array([0, 1, 2], np.uint8)
    # At the limit itself a read is called.
    assert decide(P, junction, rules(min_confidence=0.5)).reasons.tolist() == ["", "low_confidence", ""]
    both = decide(P, junction, rules(min_confidence=0.5, abstain_junction_indel=True))
    assert both.reasons.tolist() == ["", "junction_indel", "junction_indel"]


@pytest.mark.parametrize(
    "values",
    [
        {"threshold": 0.5},
        {"threshold_cl": 100},
        {"fpr": 0.1, "tpr": 0.9},
        {"call_rates": [0.9, 0.8]},
        {"negative_control": "a.tsv.gz", "positive_control": "b.tsv.gz"},
        {"reference_groups": "groups.tsv"},
    ],
)
def test_options_of_two_states_are_refused_by_name(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as caught:
        rules(**values)
    assert caught.value.message.startswith(f"--{next(iter(values)).replace('_', '-')} is about a positive state")
    assert "ala, gly, val" in caught.value.message


def batch(outcomes: list[str]) -> SimpleNamespace:
    records = [SimpleNamespace(query_name=f"r{number}", reference_name="t") for number in range(len(outcomes))]
    chunks = SimpleNamespace(columns={"junction_indel": np.zeros(outcomes.count("used"), np.uint8)})
    return SimpleNamespace(records=records, outcomes=outcomes, cut=SimpleNamespace(chunks=chunks))


def test_every_record_gets_its_own_call_or_reason() -> None:
    found = [call for _, call in judge(batch(["used", "no_moves", "used"]), P[:2], ClassRules(min_confidence=0.45))]  # type: ignore[arg-type]
    assert [(call.read_id, call.state, call.reason) for call in found] == [
        ("r0", 1, ""),
        ("r1", None, "no_moves"),
        ("r2", None, "low_confidence"),
    ]
    assert found[0].probabilities is not None
    assert found[0].probabilities.tolist() == [0.2, 0.5, 0.3]
    assert found[1].probabilities is None
    assert found[2].probabilities is not None
    assert [call.is_called for call in found] == [True, False, False]
    with pytest.raises(AssertionError, match="more probabilities"):
        list(judge(batch(["used"]), P[:1].repeat(2, axis=0), ClassRules()))  # type: ignore[arg-type]


def call(state: int | None, reference: str = "t", reason: str = "") -> ClassCall:
    return ClassCall("r", reference, None if reason == "no_moves" else P[0], state, reason)


def tally() -> ClassTally:
    """Return 3 ala and 1 val on u, 1 uncalled on t, and records that stand for no read."""
    found = ClassTally(3)
    for one in (
        *[call(0, "u")] * 3,
        call(2, "u"),
        call(None, "t", "low_confidence"),
        call(None, "u", "secondary"),
        call(None, "", "unmapped"),
    ):
        found.count(one)
    return found


def test_calls_are_counted_by_reference_and_added_up() -> None:
    found = tally()
    assert list(found.by_reference()) == ["t", "u"]
    assert found.by_reference()["u"].num_by_label == [3, 0, 1]
    assert found.by_reference()["t"].reasons() == {"low_confidence": 1}
    total = found.total()
    assert (total.num_called, total.num_no_call, total.num_by_label) == (4, 1, [3, 0, 1])


def read(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in gzip.decompress(path.read_bytes()).decode().rstrip("\n").split("\n")]


def test_fractions_stand_beside_counts_and_are_empty_without_calls(tmp_path: Path) -> None:
    write_summary(tmp_path / "s.tsv.gz", tally(), LABELS, min_depth=4)
    head, t, u = read(tmp_path / "s.tsv.gz")
    assert head[:7] == ["reference", "n_ala", "n_gly", "n_val", "n_no_call", "no_call_reasons", "enough"]
    assert head[7:10] == ["fraction_ala", "fraction_ala_low", "fraction_ala_high"]
    assert t == ["t", "0", "0", "0", "1", "low_confidence=1", "0", *[""] * 9]
    assert u[:7] == ["u", "3", "0", "1", "0", "", "1"]
    # Wilson of 3 in 4: centre (0.75 + 0.48) / 1.96, half 1.96 / 1.96 x sqrt(0.75 x 0.25 / 4 + 0.24 / 4), by z^2 / 4 = 0.96.
    assert [float(cell) for cell in u[7:10]] == pytest.approx([0.75, 0.3006, 0.9544], abs=1e-3)
    assert u[10:12] == ["0", "0"]
    table = shown(tally(), LABELS, 4)
    assert table.rows[-1] == ("all", "3", "0", "1", "1", "0.750", "0.000", "0.250", "")
    assert table.rows[0] == ("t", "0", "0", "0", "1", "", "", "", "few reads")


def test_of_many_labels_a_terminal_shows_counts_alone() -> None:
    many = ClassTally(7)
    many.count(ClassCall("r", "t", np.full(7, 1 / 7), 6, ""))
    table = shown(many, tuple("abcdefg"), 1)
    assert table.columns == ("reference", *"abcdefg", "no call", "")
    assert list(table.rows) == [("t", *"0000001", "0", ""), ("all", *"0000001", "0", "")]


def test_a_row_has_the_probabilities_of_every_label_where_the_network_was_asked(tmp_path: Path) -> None:
    tables = ClassTables(tmp_path / "c.tsv.gz", LABELS)
    for one in (call(1), call(None, reason="low_confidence"), call(None, reason="no_moves")):
        tables.write(one)
    tables.close()
    tables.close()
    assert read(tmp_path / "c.tsv.gz") == [
        ["read_id", "reference", "call", "p_ala", "p_gly", "p_val", "reason"],
        ["r", "t", "gly", "0.2", "0.5", "0.3", ""],
        ["r", "t", "", "0.2", "0.5", "0.3", "low_confidence"],
        ["r", "t", "", "", "", "", "no_moves"],
    ]


def test_tags_hold_the_label_and_rounded_probabilities_and_earlier_ones_go(tmp_path: Path) -> None:
    header = pysam.AlignmentHeader.from_dict({"SQ": [{"SN": "t", "LN": 9}]})
    path = tmp_path / "a.bam"
    bam = ClassBam(path, path, header, LABELS)
    for one, earlier in ((call(1), ""), (call(1), "old"), (call(None, reason="low_confidence"), "old")):
        record = pysam.AlignedSegment(header)
        record.query_name, record.flag = "r", 4
        record.set_tag("cl", 9, value_type="C")
        if earlier:
            record.set_tag("lc", earlier)
        bam.write(record, one)
    bam.close()
    with pysam.AlignmentFile(str(path), check_sq=False) as file:
        first, second, third = (dict(record.get_tags()) for record in file)
    # 255 x 0.2, 0.5 and 0.3 are 51, 127.5 and 76.5; halves go to the even neighbour.
    assert first == {"cl": 9, "lc": "gly", "lp": first["lp"]}
    assert first["lp"].tolist() == [51, 128, 76]
    assert second["lc"] == "gly"
    assert third == {"cl": 9}
    assert bam.num_replaced == 2


def test_the_header_names_the_labels_behind_its_program() -> None:
    header = pysam.AlignmentHeader.from_text("@PG\tID:leech\tPN:leech\n@CO\tmine\n")
    found = str(header_with_program(header, "1", "x", lambda program: comment_on_labels(program, ("a", 'b "c"'))))
    assert found.rstrip("\n").split("\n")[-2:] == [
        "@PG\tID:leech.1\tPN:leech\tPP:leech\tVN:1\tCL:x",
        '@CO\tleech:{"program": "leech.1", "tag": "lp", "labels": ["a", "b \\"c\\""]}',
    ]


def test_labels_that_a_tag_cannot_hold_are_refused() -> None:
    require_plain_labels(["a b", "x-1"])
    with pytest.raises(ConfigError, match="printable ASCII"):
        require_plain_labels(["a", "Ψ55"])


@pytest.mark.parametrize(
    ("labels", "column"),
    [
        (["a", "b", "no_call"], "n_no_call"),
        (["a", "a_low", "b"], "fraction_a_low"),
        (["a_high", "a", "b"], "fraction_a_high"),
    ],
)
def test_labels_that_would_give_two_columns_one_name_are_refused(labels: list[str], column: str) -> None:
    require_distinct_columns(["low", "high", "call", "reason", "p_x", "x"])
    with pytest.raises(ConfigError, match=f"'{column}'"):
        require_distinct_columns(labels)
