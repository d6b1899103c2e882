"""Groups of scored reads: what names tell, rates in groups of one class, and the strata of the junction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from corpora import chunks, write
from leech.data.corpus import Corpus
from leech.data.grouping import Groups, isoacceptor
from leech.errors import InputError
from leech.evaluation.groups import corpus_groups, measure_groups


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("tRNA-Ala-GGC-1-1", "Ala-GGC"),
        ("host-tRNA-Arg-ACG-1-1", "Arg-ACG"),
        ("tRNA-Ile2-CAT-1-1", "Ile-CAT"),
        ("tRNA-fMet-CAU-1", "Met-CAT"),
        ("mt_Leu(UAA)", "Leu-TAA"),
    ],
)
def test_a_name_tells_amino_acid_and_anticodon(name: str, told: str) -> None:
    assert isoacceptor(name) == told


@pytest.mark.parametrize("name", ["tRNA-Ala", "chr1", "tRNA-Ala-NNN-1"])
def test_a_name_that_tells_no_anticodon_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=name):
        isoacceptor(name)


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
