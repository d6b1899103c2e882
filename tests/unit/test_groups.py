"""Groups of scored reads: what names tell, rates in groups of one class, and the strata of the junction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from corpora import chunks, write
from leech.data.corpus import Corpus
from leech.data.grouping import LEVELS, Groups, groups_in_name
from leech.evaluation.groups import corpus_groups, measure_groups
from leech.prediction.tally import assign_groups


@pytest.mark.parametrize(
    ("reference", "groups"),
    [
        ("tRNA-Ala-GGC-1-1", ("Ala-GGC-1", "Ala-GGC", "Ala")),
        ("tRNA-Ala-UGC-10-2", ("Ala-TGC-10", "Ala-TGC", "Ala")),
        ("host-tRNA-Thr-CGT-1-2", ("host-Thr-CGT-1", "host-Thr-CGT", "host-Thr")),
        ("tRNA-Ile2-CAT-1-1", ("Ile2-CAT-1", "Ile2-CAT", "Ile")),
        ("tRNA-iMet-CAT-1-1", ("iMet-CAT-1", "iMet-CAT", "Met")),
        ("mito-tRNA-Leu1-TAA", ("mito-Leu1-TAA", "mito-Leu1-TAA", "mito-Leu")),
        ("tRNA-SeC-TCA-1-1", ("SeC-TCA-1", "SeC-TCA", "SeC")),
        ("tRNA-fMet-CAU-1", ("fMet-CAT-1", "fMet-CAT", "Met")),
        ("mt_Leu(UAA)", ("mt-Leu-TAA", "mt-Leu-TAA", "mt-Leu")),
        ("trna-ala-ggc-2", ("Ala-GGC-2", "Ala-GGC", "Ala")),
        ("tRNA-Ala-NNN-1", ("", "", "Ala")),
        ("Ala-GGC", ("Ala-GGC", "Ala-GGC", "Ala")),
        ("tRNA-Ala", ("", "", "Ala")),
        ("mt-tRNA-Phe", ("", "", "mt-Phe")),
        ("chr1.trna5", ("", "", "")),
        ("tRNA-Ala-Gly-1", ("", "", "")),
    ],
)
def test_a_name_tells_its_groups_or_nothing(reference: str, groups: tuple[str, ...]) -> None:
    assert groups_in_name(reference) == dict(zip(LEVELS, groups, strict=True))


def test_a_corpus_has_groups_by_name_flow_cell_sample_and_junction(tmp_path: Path) -> None:
    names = ("tRNA-Ala-GGC-1-1", "tRNA-Ala-TGC-1-1", "tRNA-Ala-GGC-2-1", "spike")
    corpus = Corpus.open(write(tmp_path / "c", chunks(40, references=names, flow_cells=("F", "G"))))
    rows = np.arange(3, 30)
    found = {groups.grouping: groups for groups in corpus_groups(corpus, rows)}
    assert list(found) == ["reference", "isoacceptor", "amino_acid", "flow_cell", "sample", "junction"]
    reference = [corpus.categories["reference"][code] for code in corpus.column("reference")[rows]]
    told = {"spike": None, **{name: name[5:12] for name in names[:3]}}
    for grouping, length in (("isoacceptor", 7), ("amino_acid", 3)):
        groups = found[grouping]
        named = [groups.names[code] if code >= 0 else None for code in groups.codes]
        assert named == [told[name] and told[name][:length] for name in reference]
    states = [["exact", "disrupted", "unmapped"][code] for code in corpus.column("junction_indel")[rows]]
    junction = found["junction"]
    assert [junction.names[code] for code in junction.codes] == states


def test_evaluation_and_prediction_put_references_into_the_same_groups(tmp_path: Path) -> None:
    names = (
        "tRNA-Ile2-CAT-1-1",
        "tRNA-iMet-CAT-1-1",
        "mito-tRNA-Met-CAT",
        "host-tRNA-Thr-CGT-1-2",
        "tRNA-Ala",
        "spike",
    )
    corpus = Corpus.open(write(tmp_path / "c", chunks(40, references=names)))
    rows = np.arange(len(corpus))
    found = {groups.grouping: groups for groups in corpus_groups(corpus, rows)}
    reference = [corpus.categories["reference"][code] for code in corpus.column("reference")]
    assert set(reference) == set(names)
    predicted = assign_groups(names, {})
    for level in ("isoacceptor", "amino_acid"):
        evaluated = [found[level].names[code] if code >= 0 else "" for code in found[level].codes]
        assert evaluated == [predicted[name][level] for name in reference]
    assert {predicted[name]["isoacceptor"] for name in names} >= {"Ile2-CAT", "iMet-CAT", "mito-Met-CAT", ""}


def test_a_group_of_one_class_has_its_rate_and_empty_cells() -> None:
    positive = np.array([True, True, True, False])
    called = np.array([True, True, False, False])
    groups = Groups("flow_cell", np.array([0, 0, 0, 1]), ["full", "empty"])
    empty, full = measure_groups(positive, called * 0.9, called, groups).groups
    assert (empty.name, empty.tpr.value, empty.fpr.value) == ("empty", None, 0.0)
    assert full.tpr.value == pytest.approx(2 / 3)
    assert (full.fpr.value, full.auroc.value, full.balanced_accuracy) == (None, None, None)
    table = measure_groups(positive, called * 0.9, called, groups).table("charged")
    assert table.rows[0][8:] == ("", "0.000", "")
    assert all(len(row) == len(table.columns) for row in table.rows)
