"""Options of ``leech data prepare`` that cannot be carried out, or that the data speak against."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from leech.cli.main import main
from leech.config import build
from leech.console import SilentProgress
from leech.data.config import PrepareConfig, ReadSources
from leech.data.manifest import manifest_digest
from leech.data.prepare import prepare
from leech.data.recipe import Recipe
from leech.errors import ConfigError
from leech.provenance import Stamp

SIMULATED = ["--reads", "60", "--num-references", "4", "--charged-fraction", "1", "--seed", "5"]

STAMP = Stamp.make(["leech", "data", "prepare"], "2026-01-01T00:00:00+00:00")


@pytest.mark.parametrize("name", ["", " ", "charged ", "a\tb", "a\nb"])
@pytest.mark.parametrize("option", ["label", "sample"])
def test_a_label_or_sample_that_is_no_name_is_refused(option, name):
    with pytest.raises(ConfigError, match=f"--{option} .* is no name"):
        build(PrepareConfig, {option: name})


def test_names_may_hold_spaces_and_any_letters():
    assert build(PrepareConfig, {"label": "ψ 55, x=1"}).label == "ψ 55, x=1"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kmer_centre": 2}, "--kmer-centre 2 lies outside the k-mers of the table, whose positions are 0 to 1"),
        # 4 + 1 + 4 bases and 15 on either side are 39, and refinement takes 40.
        ({"bases_before": 4, "bases_after": 4, "feature_start": 0, "feature_end": 0}, "needs at least 40 bases .* 39"),
    ],
)
def test_what_the_levels_cannot_serve_is_refused_before_any_work(tmp_path, options, words):
    table = tmp_path / "table.tsv"
    pairs = ("".join(letters) for letters in itertools.product("ACGT", repeat=2))
    table.write_text("".join(f"{pair}\t{number}.5\n" for number, pair in enumerate(pairs)))
    absent = Path("nowhere")
    with pytest.raises(ConfigError, match=words):
        prepare(
            build(ReadSources, {"pod5": [absent], "bam": absent, "reference": absent}),
            build(Recipe, {"motif": "CCA", "motif_offset": 0, "refinement": "kmer", **options}),
            build(PrepareConfig, {"kmer_table": table}),
            tmp_path / "c",
            force=False,
            progress=SilentProgress(),
            stamp=STAMP,
        )
    assert not (tmp_path / "c").exists()


def test_levels_that_do_not_fit_the_reads_are_told(tmp_path, capsys):
    library = tmp_path / "s"
    assert main(["-q", "data", "simulate", "-o", str(library), *SIMULATED]) == 0
    inputs = ["--pod5", str(library), "--bam", str(library / "mappings.bam")]
    inputs += ["--reference", str(library / "reference.fa"), "--kmer-table", str(library / "kmer_levels.tsv")]
    command = ["-q", "data", "prepare", *inputs, "--motif", "CCAGGC", "--motif-offset", "2"]
    # The simulator's own table carries its levels at the first of five bases.
    for centre, is_told in (("0", False), ("4", True)):
        capsys.readouterr()
        assert main([*command, "-o", str(tmp_path / centre), "--kmer-centre", centre]) == 0
        assert ("fit the levels of the k-mer table badly" in capsys.readouterr().err) == is_told


def test_a_corpus_can_be_prepared_that_goes_with_one_from_before_steps_and_indels(tmp_path, capsys):
    def prepared(name, seed, *options):
        library, corpus = tmp_path / f"reads_{seed}", tmp_path / name
        if not library.exists():
            assert main(["-q", "data", "simulate", "-o", str(library), *SIMULATED[:-1], seed]) == 0
        inputs = ["--pod5", str(library), "--bam", str(library / "mappings.bam")]
        inputs += ["--reference", str(library / "reference.fa"), "--motif", "CCAGGC", "--motif-offset", "2"]
        assert main(["-q", "data", "prepare", *inputs, "-o", str(corpus), "--label", name, *options]) == 0
        return corpus

    as_before = ["--refinement", "none", "--no-indels"]
    older = prepared("older", "5", *as_before)
    assert not (older / "indels.npy").exists()
    manifest = json.loads((older / "manifest.json").read_text())
    # Without the fields, it is what was written then.
    del manifest["recipe"]["refinement"], manifest["recipe"]["indels"]
    (older / "manifest.json").write_text(json.dumps({**manifest, "digest": manifest_digest(manifest)}))
    merge = ["-q", "data", "merge", str(older)]

    assert main([*merge, str(prepared("today", "6")), "-o", str(tmp_path / "mixed")]) == 1
    told = capsys.readouterr().err
    assert "different recipes: refinement (none / step), indels (False / True)" in told
    # The hint names the options that are used here.
    assert " ".join(as_before) in told
    assert not (tmp_path / "mixed").exists()
    assert main([*merge, str(prepared("alike", "6", *as_before)), "-o", str(tmp_path / "merged")]) == 0
