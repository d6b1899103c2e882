"""One contract for all nuisances of simulated reads: ``prepare`` counts each as the truth says, and nothing else changes."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pysam
import pytest

from leech.config import build
from leech.console import SilentProgress
from leech.data.config import PrepareConfig, ReadSources
from leech.data.corpus import Corpus
from leech.data.prepare import prepare
from leech.data.reasons import REASONS, USED
from leech.data.recipe import Recipe
from leech.data.simulate.config import SimulateConfig
from leech.data.simulate.nuisances import NUISANCES, parse_fractions
from leech.data.simulate.write import simulate
from leech.errors import ConfigError, InputError
from leech.provenance import Stamp

STAMP = Stamp.make(["test"], "2026-01-01T00:00:00+00:00")
READS = 80
PLAIN = {
    "split_fraction": 0.1,
    "missing_fraction": 0.1,
    "duplicate_fraction": 0.2,
    "secondary_fraction": 0.1,
    "supplementary_fraction": 0.1,
    "unmapped_fraction": 0.1,
}
"""Every other oddity is there too, so that what comes first in the examination of a record is right."""

SHARE = 0.4


class Library(NamedTuple):
    folder: Path
    pod5: Path
    outcomes: dict[str, int]
    truth: list[dict[str, str]]
    records: dict[str, list[str]]

    @property
    def by_id(self) -> dict[str, dict[str, str]]:
        return {row["read_id"]: row for row in self.truth}


def make(folder, *nuisances, **settings):
    config = build(SimulateConfig, {"reads": READS, "num_references": 4, **PLAIN, "nuisance": nuisances, **settings})
    result = simulate(config, folder, force=False, stamp=STAMP, progress=SilentProgress())
    with (folder / "truth.tsv").open(newline="") as file:
        truth = list(csv.DictReader(file, delimiter="\t"))
    records = {}
    with pysam.AlignmentFile(str(folder / "mappings.bam")) as file:
        for record in file.fetch(until_eof=True):
            if not record.flag & (4 | 256 | 2048):
                records.setdefault(record.query_name, []).append(record.to_string())
    return Library(folder, result.pod5, result.outcomes, truth, records)


def counted(library, recipe=None, **sources):
    """Return what ``prepare`` makes of a library's records."""
    files = {
        "pod5": [library.pod5],
        "bam": library.folder / "mappings.bam",
        "reference": library.folder / "reference.fa",
        **sources,
    }
    result = prepare(
        build(ReadSources, files),
        build(Recipe, {"motif": "CCAGGC", "motif_offset": 2, **(recipe or {})}),
        build(PrepareConfig, {"label": "x"}),
        library.folder.with_suffix(".corpus"),
        force=True,
        progress=SilentProgress(),
        stamp=STAMP,
    )
    return {outcome: number for outcome, number in result.counts.ladder().items() if outcome != "seen"}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Reads without any nuisance of the registry."""
    return make(tmp_path_factory.mktemp("sound") / "l", "modified_bases=0")


@pytest.fixture(scope="module", params=sorted(NUISANCES))
def hit(request, tmp_path_factory):
    """(the nuisance, reads of which some have it)."""
    others = () if request.param == "modified_bases" else ("modified_bases=0",)
    folder = tmp_path_factory.mktemp(request.param) / "l"
    return NUISANCES[request.param], make(folder, *others, f"{request.param}={SHARE}")


def test_prepare_counts_what_the_truth_says(hit):
    nuisance, library = hit
    rows = [row for row in library.truth if row["nuisances"]]
    # 80 molecules at 0.4: 32, with a standard deviation of 4.4.
    assert 15 <= len(rows) <= 50
    assert {row["nuisances"] for row in rows} == {nuisance.name}
    primary = Counter(row["outcomes"].split(",")[0] for row in rows)
    assert set(primary) <= {nuisance.outcome, "not_in_pod5"}
    assert primary[nuisance.outcome] > 10
    outcomes = Counter(outcome for row in library.truth for outcome in row["outcomes"].split(","))
    assert outcomes == library.outcomes
    assert counted(library) == library.outcomes


def test_reads_that_it_does_not_hit_are_the_same_with_and_without_it(hit, sound):
    _, library = hit
    whole = {row["read_id"] for row in library.truth if not row["nuisances"] and row["parent_id"] == row["read_id"]}
    compared = 0
    for read_id in whole:
        if sound.by_id[read_id]["parent_id"] == read_id:
            assert library.records[read_id] == sound.records[read_id]
            assert library.by_id[read_id] == sound.by_id[read_id]
            compared += 1
    assert compared > 20


def test_reads_that_it_hits_are_other_reads_than_without_it(hit, sound):
    nuisance, library = hit
    in_signal_only = {"constant_signal", "corrupt_signal", "truncated_pod5", "repeated_pod5", "zero_calibration"}
    for row in library.truth:
        if row["nuisances"] and sound.by_id[row["read_id"]]["parent_id"] == row["read_id"]:
            is_same = library.records.get(row["read_id"]) == sound.records[row["read_id"]]
            assert is_same == (nuisance.name in in_signal_only)


def test_every_nuisance_says_what_it_is_and_names_an_outcome():
    for nuisance in NUISANCES.values():
        assert len(nuisance.meaning) > 5
        assert nuisance.outcome in {USED, *REASONS}
    exclusive = [nuisance for nuisance in NUISANCES.values() if nuisance.is_exclusive]
    assert all(nuisance.is_exclusive for nuisance in NUISANCES.values() if nuisance.outcome != USED)
    assert len(exclusive) > 15


def test_the_page_on_simulated_runs_lists_every_nuisance_with_its_outcome():
    text = Path(__file__).parents[2].joinpath("docs", "simulate.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `") and line.endswith((" yes |", " |  |"))]
    assert rows == [
        f"| `{one.name}` | {one.meaning} | `{one.outcome}` | {'yes' if one.is_exclusive else ''} |"
        for one in NUISANCES.values()
    ]


def test_all_at_once_are_counted_as_the_truth_says(tmp_path):
    exclusive = [name for name, one in NUISANCES.items() if one.is_exclusive]
    shared = [name for name, one in NUISANCES.items() if not one.is_exclusive]
    words = [*(f"{name}=0.035" for name in exclusive), *(f"{name}=0.5" for name in shared)]
    library = make(tmp_path / "l", *words, reads=600, runs=2, flow_cells=2, pod5_reads=60)
    found = {name for row in library.truth for name in row["nuisances"].split(",") if name}
    assert found == {*exclusive, *shared}
    assert max(len([name for name in row["nuisances"].split(",") if name in exclusive]) for row in library.truth) == 1
    assert counted(library) == library.outcomes
    # The chunks of each tRNA are the usable reads that the table of fractions counts.
    corpus = Corpus.open(library.folder.with_suffix(".corpus"))
    found = np.bincount(corpus.column("reference"), minlength=len(corpus.categories["reference"])).tolist()
    with (library.folder / "fractions.tsv").open(newline="") as file:
        usable = {row["reference"]: int(row["usable"]) for row in csv.DictReader(file, delimiter="\t")}
    assert dict(zip(corpus.categories["reference"], found, strict=True)) == usable


def test_a_calibration_of_nothing_is_refused_where_picoamperes_are_wanted(tmp_path):
    library = make(tmp_path / "l", "zero_calibration=0.4")
    expected = sum(row["nuisances"].startswith("zero") for row in library.truth if row["outcomes"].startswith(USED))
    assert expected > 10
    assert counted(library, {"normalisation": "picoamp"})["bad_calibration"] == expected


def test_reads_of_mapping_quality_0_are_lost_to_a_filter(tmp_path):
    library = make(tmp_path / "l", "mapq_zero=0.4", reads=300)
    with pysam.AlignmentFile(str(library.folder / "mappings.bam")) as file:
        primary = [record for record in file.fetch(until_eof=True) if not record.flag & (4 | 256 | 2048)]
    low = sum(record.mapping_quality == 0 for record in primary)
    assert counted(library, min_mapq=1)["low_mapq"] == low
    assert low > 100


def test_a_file_that_is_cut_short_is_named_and_its_reads_are_not_there(tmp_path):
    library = make(tmp_path / "l", "truncated_pod5=0.4")
    lost = [row for row in library.truth if "truncated_pod5" in row["nuisances"]]
    assert len(lost) > 15
    assert {row["in_pod5"] for row in lost} == {"0"}
    with pytest.raises(InputError, match=r"truncated\.pod5"):
        counted(library, strict=True)
    assert counted(library) == library.outcomes


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("no_move=0.1",), "Did you mean 'no_moves'"),
        (("xyzzy=0.1",), "There are: no_moves, "),
        (("no_moves",), "NAME=FRACTION"),
        (("no_moves=many",), "not a number"),
        (("no_moves=1.5",), "between 0 and 1"),
        (("no_moves=nan",), "between 0 and 1"),
        (("no_moves=0.6", "bad_moves=0.6"), "sum to 1.2"),
    ],
)
def test_what_cannot_be_meant_is_refused(words, message):
    with pytest.raises(ConfigError, match=message):
        parse_fractions(words)


def test_the_last_share_of_a_name_counts_and_0_is_none():
    assert parse_fractions(("no_moves=0.5", "no_moves=0.25", "modified_bases=0")) == {"no_moves": 0.25}
