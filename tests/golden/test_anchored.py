"""Sites that are not the motif in the reference: in the basecall, from a BED, from a table of reads; by hand."""

from __future__ import annotations

import numpy as np
import pytest

from leech.config import build
from leech.console import SilentProgress
from leech.data.config import PrepareConfig
from leech.data.corpus import Corpus
from leech.data.levels import encode_bases
from leech.data.prepare import prepare
from leech.data.recipe import Recipe
from leech.errors import InputError
from leech.models.bundle import ModelBundle, save_bundle
from leech.models.spec import build_network, load_architecture
from leech.prediction.config import PredictConfig
from leech.prediction.predict import predict
from leech.provenance import Stamp
from tiny_run import STAMP_TIME, TinyRecord, ramp, read_id, write_run

REFERENCES = {"tRNA-A": "ACGTACGTAC", "tRNA-B": "ACGTACGTAC", "tRNA-C": "ACGTACGTAC"}
WINDOW = {"samples_before": 10, "samples_after": 8, "bases_before": 2, "bases_after": 2}
WINDOW |= {"feature_start": -1, "feature_end": 1}
STAMP = Stamp.make(["test"], STAMP_TIME)


def run(sources, output, recipe, **config):
    settings = build(PrepareConfig, {"label": "state", **config})
    recipe = build(Recipe, {"refinement": "none", **WINDOW, **recipe})
    return prepare(sources, recipe, settings, output, force=False, progress=SilentProgress(), stamp=STAMP)


def column(path, name):
    return Corpus.open(path).column(name)


def labels(path):
    corpus = Corpus.open(path)
    return [[*corpus.labels, None][code] for code in corpus.column("label")]


def test_in_the_basecall_the_window_lies_on_the_reads_own_bases(tmp_path):
    # SEQ is AGTACTTTCA; its only GTAC starts at 1, so offset 1 makes base 2 of SEQ the focus: reversed [12, 18) of 60.
    # The reference has GTAC at 2 and 6, and the alignment starts at reference 4: neither matters.
    record = TinyRecord(read_id(1), sequence="AGTACTTTCA", cigar="2S6M2S", position=4)
    sources = write_run(tmp_path / "run", [record], {read_id(1): ramp(60)}, REFERENCES)
    recipe = {"anchor": "basecall", "motif": "GTAC", "motif_offset": 1, "motif_occurrence": "only"}
    run(sources, tmp_path / "c", recipe)
    # Reversed 12 is raw 47; the window is reversed [2, 20) = raw 57 down to 40.
    assert column(tmp_path / "c", "focus_raw_sample").tolist() == [47]
    assert column(tmp_path / "c", "signal")[0].tolist() == list(range(57, 39, -1))
    assert column(tmp_path / "c", "dwell")[0].tolist() == [6] * 5
    # Bases 0..4 of SEQ with four of context on either side: none before, 5..8 behind.
    assert column(tmp_path / "c", "sequence")[0].tolist() == [4, 4, 4, 4, *encode_bases("AGTACTTTC").tolist()]
    # The motif is SEQ 1..5, and SEQ 0..2 is clipped: not covered.
    assert column(tmp_path / "c", "junction_indel").tolist() == [2]


def test_bases_beyond_the_read_have_no_samples_in_the_basecall_frame(tmp_path):
    record = TinyRecord(read_id(1), sequence="GTACTTTTTT")
    sources = write_run(tmp_path / "run", [record], {read_id(1): ramp(60)}, REFERENCES)
    run(sources, tmp_path / "c", {"anchor": "basecall", "motif": "GTAC", "motif_offset": 1, "motif_occurrence": "only"})
    # Focus 1, window -1..3: base -1 does not exist.
    assert column(tmp_path / "c", "dwell")[0].tolist() == [0, 6, 6, 6, 6]


def test_reads_whose_basecall_lacks_the_motif_are_counted(tmp_path):
    records = [
        TinyRecord(read_id(1), sequence="AGTACTTTCA"),
        TinyRecord(read_id(2), sequence="A" * 10),
        TinyRecord(read_id(3), sequence="GTACGTACTT"),
        TinyRecord(read_id(4), sequence="TTTTTTTGTA"),
    ]
    sources = write_run(tmp_path / "run", records, {read_id(n): ramp(60) for n in range(1, 5)}, REFERENCES)
    recipe = {"anchor": "basecall", "motif": "GTA", "motif_offset": 3, "motif_occurrence": "only"}
    result = run(sources, tmp_path / "c", recipe)
    expected = {"seen": 4, "no_motif": 1, "several_motifs": 1, "focus_outside_reference": 1, "used": 1}
    assert result.counts.ladder() == expected


@pytest.mark.parametrize(
    ("cigar", "state"),
    [
        ("10M", 0),
        ("2M1I7M", 1),  # SEQ 2 is inserted, and the motif is SEQ 1..5
        ("3M1D7M", 1),  # a reference base is missing between SEQ 2 and 3
        ("1M1D9M", 0),  # between SEQ 0 and 1, so before the motif
        ("3M1N7M", 1),
        ("3M7S", 2),
    ],
)
def test_in_the_basecall_frame_an_indel_counts_within_the_motif_on_seq(tmp_path, cigar, state):
    record = TinyRecord(read_id(1), sequence="AGTACTTTCA", cigar=cigar)
    references = {"tRNA-A": "ACGTACGTACGT"}
    sources = write_run(tmp_path / "run", [record], {read_id(1): ramp(60)}, references)
    run(sources, tmp_path / "c", {"anchor": "basecall", "motif": "GTAC", "motif_offset": 1, "motif_occurrence": "only"})
    assert column(tmp_path / "c", "junction_indel").tolist() == [state]


def bed_run(tmp_path, **sources):
    records = [TinyRecord(read_id(n), reference=n - 1) for n in (1, 2, 3)]
    return write_run(tmp_path / "run", records, {read_id(n): ramp(60) for n in (1, 2, 3)}, REFERENCES, **sources)


def test_a_bed_places_the_focus_by_reference(tmp_path):
    bed = tmp_path / "s.bed"
    bed.write_text("tRNA-A\t3\t6\tcharged\ntRNA-C\t7\t8\n")
    result = run(bed_run(tmp_path), tmp_path / "c", {}, sites=bed)
    assert result.counts.ladder() == {"seen": 3, "no_site": 1, "used": 2}
    # Base 3 starts at reversed 18 = raw 41; base 7 at reversed 42 = raw 17.
    assert column(tmp_path / "c", "focus_raw_sample").tolist() == [41, 17]
    assert labels(tmp_path / "c") == ["state", "state"]
    assert Corpus.open(tmp_path / "c").bed_sites().text == bed.read_bytes()


def test_names_of_a_bed_can_be_labels(tmp_path):
    bed = tmp_path / "s.bed"
    bed.write_text("tRNA-A\t3\t6\tcharged\ntRNA-B\t3\t6\tuncharged\ntRNA-C\t7\t8\t.\n")
    result = run(bed_run(tmp_path), tmp_path / "c", {}, sites=bed, label=None, label_from_name=True)
    assert labels(tmp_path / "c") == ["charged", "uncharged", None]
    clean = {"clean": 1, "indel": 0, "not_covered": 0}
    assert result.junction == {"": clean, "charged": clean, "uncharged": clean}


def test_a_bed_of_other_references_is_refused(tmp_path):
    bed = tmp_path / "s.bed"
    bed.write_text("chr1\t3\t6\n")
    with pytest.raises(InputError, match="None of the 1 references of the BED"):
        run(bed_run(tmp_path), tmp_path / "c", {}, sites=bed)


def test_a_table_gives_every_read_its_own_focus_and_label(tmp_path):
    table = tmp_path / "reads.tsv"
    rows = [(read_id(3), 7, "no"), (read_id(1), 3, "yes"), (read_id(77), 5, "yes")]
    table.write_text("read_id\tposition\tlabel\n" + "".join(f"{i}\t{p}\t{label}\n" for i, p, label in rows))
    sources = bed_run(tmp_path, read_sites=table)
    result = run(sources, tmp_path / "c", {}, label=None)
    assert result.counts.ladder() == {"seen": 3, "read_not_listed": 1, "used": 2}
    assert column(tmp_path / "c", "focus_raw_sample").tolist() == [41, 17]
    assert labels(tmp_path / "c") == ["yes", "no"]
    # Two workers give the same bytes: sites travel with the reads.
    run(sources, tmp_path / "two", {}, label=None, workers=2, batch_reads=1)
    for name in ("signal", "sequence", "dwell", "label"):
        assert np.array_equal(column(tmp_path / "c", name), column(tmp_path / "two", name))


def test_a_position_beyond_the_reference_is_counted(tmp_path):
    table = tmp_path / "reads.tsv"
    table.write_text(f"read_id\tposition\n{read_id(1)}\t10\n{read_id(2)}\t9\n")
    result = run(bed_run(tmp_path, read_sites=table), tmp_path / "c", {})
    assert result.counts.ladder() == {"seen": 3, "read_not_listed": 1, "focus_outside_reference": 1, "used": 1}


def test_a_clean_junction_is_required_only_when_asked_and_its_yield_is_told_by_label_either_way(tmp_path):
    # GTAC at 6 of the reference: one read covers it, one has a base inserted in it, one ends within it.
    records = [
        TinyRecord(read_id(1)),
        TinyRecord(read_id(2), cigar="8M1I1M"),
        TinyRecord(read_id(3), cigar="8M2S"),
        TinyRecord(read_id(4)),
    ]
    sources = write_run(tmp_path / "run", records, {read_id(n): ramp(60) for n in range(1, 5)}, REFERENCES)
    motif = {"motif": "GTAC", "motif_offset": 1, "motif_occurrence": "last"}
    table = {"state": {"clean": 2, "indel": 1, "not_covered": 1}}
    open_gate = run(sources, tmp_path / "open", motif)
    assert open_gate.counts.ladder() == {"seen": 4, "used": 4}
    assert open_gate.junction == table
    gated = run(sources, tmp_path / "gated", {**motif, "require_clean_junction": True})
    assert gated.counts.ladder() == {"seen": 4, "junction_indel": 2, "used": 2}
    assert gated.junction == table
    assert Corpus.open(tmp_path / "gated").manifest.settings["junction"] == table
    assert column(tmp_path / "gated", "junction_indel").tolist() == [0, 0]
    assert gated.tables()[1].rows == (("state", "2", "1", "1", "50.0%"),)


@pytest.fixture
def predict_tiny(tmp_path):
    """Return a function that trains nothing, but cuts by the recipe of a corpus and what a model folder keeps of it."""

    def call(corpus_path, sources):
        corpus = Corpus.open(corpus_path)
        spec = load_architecture("tcn")
        folder = tmp_path / "model"
        folder.mkdir()
        bundle = ModelBundle(spec=spec, recipe=corpus.recipe, labels=("no", "yes"), training={}, stamp={})
        save_bundle(bundle, build_network(spec, corpus.recipe), folder)
        if corpus.bed_sites() is not None:
            corpus.bed_sites().save(folder)
        config = build(PredictConfig, {"device": "cpu"})
        out = tmp_path / "calls.bam"
        return predict(folder, sources, config, out, force=False, progress=SilentProgress(), stamp=STAMP)

    return call


@pytest.mark.parametrize("kind", ["bed", "table", "basecall"])
def test_predict_finds_sites_as_prepare_did(tmp_path, predict_tiny, kind):
    wide = {"samples_before": 30, "samples_after": 30, "bases_before": 20, "bases_after": 20}
    wide |= {"feature_start": -8, "feature_end": 8}
    bed, table = tmp_path / "s.bed", tmp_path / "reads.tsv"
    bed.write_text("tRNA-A\t3\t6\ntRNA-C\t7\t8\n")
    table.write_text(f"read_id\tposition\n{read_id(1)}\t3\n{read_id(3)}\t7\n")
    sources = bed_run(tmp_path, **({"read_sites": table} if kind == "table" else {}))
    motif = {"anchor": "basecall", "motif": "GTAC", "motif_offset": 1, "motif_occurrence": "last"}
    recipe = {**wide, **(motif if kind == "basecall" else {})}
    config = {"sites": bed} if kind == "bed" else {}
    prepared = run(sources, tmp_path / "c", recipe, **config)
    bed.unlink()
    assert predict_tiny(tmp_path / "c", sources).counts.ladder() == prepared.counts.ladder()
