"""The simulator: its parts by hand-worked numbers, its files against the conventions of BAM and POD5."""

from __future__ import annotations

import csv
import itertools
import json
import logging
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import escapepod
import numpy as np
import pysam
import pytest

from leech.config import build
from leech.console import SilentProgress
from leech.data.levels import KmerTable, encode_bases
from leech.data.moves import Alignments, Cigars
from leech.data.simulate import basecall as basecall_module
from leech.data.simulate import molecules as molecules_module
from leech.data.simulate import write as write_module
from leech.data.simulate.basecall import basecall
from leech.data.simulate.block import BLOCK_MOLECULES
from leech.data.simulate.config import SimulateConfig
from leech.data.simulate.design import make_design
from leech.data.simulate.molecules import Molecules, oracle_logit
from leech.data.simulate.nuisances import cut_front
from leech.data.simulate.oracle import ScoreHistogram, auroc, oracle_auroc
from leech.data.simulate.write import simulate
from leech.errors import ConfigError, InputError, LeechError
from leech.provenance import Stamp

STAMP = Stamp.make(["test"], "2026-01-01T00:00:00+00:00")
ARM = "GGCTTCTTCTTGCTCTT"
NUISANCES = ("split", "missing", "secondary", "supplementary", "duplicate", "unmapped")
PLAIN = {f"{name}_fraction": 0.0 for name in NUISANCES}
"""No nuisance at all."""


def motif_indel(cigar, reference_start, start, end):
    """Return the state of one alignment over a reference interval."""
    alignment = Alignments.trace(Cigars.of([cigar]), np.array([reference_start]))
    return int(alignment.indels(np.array([start]), np.array([end]))[0])


class Library(NamedTuple):
    folder: Path
    truth: dict[str, dict[str, str]]
    records: list[pysam.AlignedSegment]
    references: dict[str, str]
    signals: dict[str, np.ndarray]
    calibrations: dict[str, tuple[float, float]]

    @property
    def primary(self) -> list[pysam.AlignedSegment]:
        """The mapped primary records, each read once."""
        by_name = {record.query_name: record for record in self.records if not record.flag & (4 | 256 | 1024 | 2048)}
        return list(by_name.values())


def run(folder, force=False, **settings):
    config = build(SimulateConfig, settings)
    return simulate(config, folder, force=force, stamp=STAMP, progress=SilentProgress())


def load(folder):
    with (folder / "truth.tsv").open(newline="") as file:
        truth = {row["read_id"]: row for row in csv.DictReader(file, delimiter="\t")}
    with pysam.AlignmentFile(str(folder / "mappings.bam")) as file:
        records = list(file.fetch(until_eof=True))
    with pysam.FastxFile(str(folder / "reference.fa")) as file:
        references = {record.name: record.sequence for record in file}
    signals, calibrations = {}, {}
    single = folder / "reads.pod5"
    for file in [single] if single.exists() else sorted((folder / "pod5").rglob("*.pod5")):
        reader = escapepod.Reader(str(file))
        reads = reader.reads()
        signals |= {read.read_id: reader.get_signal(read) for read in reads}
        calibrations |= {read.read_id: (read.calibration_offset, read.calibration_scale) for read in reads}
    return Library(folder, truth, records, references, signals, calibrations)


def used_signal(library, record):
    """Return raw[sp + ts : sp + ns] of the parent, in time order; None where the POD5 does not hold it."""
    parent = record.get_tag("pi") if record.has_tag("pi") else record.query_name
    offset = record.get_tag("sp") if record.has_tag("sp") else 0
    if parent not in library.signals:
        return None
    return library.signals[parent][offset + record.get_tag("ts") : offset + record.get_tag("ns")]


def starts_by_base(record):
    """Return the used sample, in time, at which each base of SEQ begins: base i has the (n-1-i)-th 1 of mv."""
    stride, *moves = record.get_tag("mv")
    return (np.flatnonzero(moves) * stride)[::-1]


@pytest.fixture(scope="module")
def pure(tmp_path_factory):
    """An uncharged and a charged library of one design, 2,000 reads each, with all default nuisances."""
    root = tmp_path_factory.mktemp("pure")
    for number, (name, fraction) in enumerate({"uncharged": 0.0, "charged": 1.0}.items()):
        run(root / name, reads=2000, charged_fraction=fraction, seed=number, sample=name)
    return {name: load(root / name) for name in ("uncharged", "charged")}


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    """Reads that all lie two to a POD5 read."""
    folder = tmp_path_factory.mktemp("split") / "library"
    run(folder, reads=60, **{**PLAIN, "split_fraction": 1.0})
    return load(folder)


# The parts, by hand


def molecule(dwell, sequence, first=0):
    """Return an uncharged molecule whose bases last ``dwell`` samples, 5'->3', without signal worth looking at."""
    return Molecules(
        references=np.zeros(1, dtype=np.int64),
        charged=np.zeros(1, dtype=bool),
        first=np.array([first]),
        base_offsets=np.array([0, len(dwell)]),
        codes=encode_bases(sequence),
        dwell=np.array(dwell),
        sample_offsets=np.array([0, sum(dwell)]),
        leader=np.zeros(1, dtype=np.int64),
        signal=np.zeros(sum(dwell), dtype=np.int16),
        speed=np.ones(1),
        signal_logit=np.zeros(1),
    )


def call(generator, one, junction, indel=False, aligned_end=10**6):
    """Return (sequence, CIGAR, position, blocks of the ones) of one molecule."""
    called = basecall(generator, one, np.array([junction]), np.array([indel]), np.array([aligned_end]))
    return called.sequences[0], called.cigars[0], int(called.positions[0]), called.moves[0]


def codes_of(cigar):
    """Return a CIGAR of letters as pysam has it."""
    return [("MIDNS".index(letter), length) for length, letter in cigar]


def set_rates(monkeypatch, substitution=0.0, insertion=0.0, deletion=0.0):
    for rate, value in (("_SUBSTITUTION", substitution), ("_INSERTION", insertion), ("_DELETION", deletion)):
        monkeypatch.setattr(basecall_module, rate, value)


def test_moves_run_in_time_so_the_last_base_has_the_first_move(monkeypatch):
    set_rates(monkeypatch)
    # 20 bases; the 3' one lasts 30 samples, the 5' one 7, the 18 between them 12 each: 253 samples, 253 // 6 = 42 blocks.
    # In time the 3' base begins at sample 0, block 0; the next at 30, block 5; then one every 2 blocks. The 5' base is
    # the 19th after the first: it begins at 30 + 18 * 12 = 246, block 41.
    sequence = "ACGTTGCAACGTTGCAACGT"
    called, cigar, position, moves = call(
        np.random.default_rng(0), molecule([7, *[12] * 18, 30], sequence, first=5), junction=8
    )
    assert called == sequence
    assert len(moves) == 42
    assert np.flatnonzero(moves).tolist() == [0, *range(5, 42, 2)]
    assert position == 5 + (cigar[0][0] if cigar[0][1] == "S" else 0)


def test_an_inserted_base_shares_the_blocks_of_the_base_before_it(monkeypatch):
    # Every base but the protected ones is followed by an insertion.
    set_rates(monkeypatch, insertion=1.0)
    # 20 bases of 12 samples, 2 blocks each. Kept: bases 0-2 and 17-19 (ends) and 4-10 (junction 8, its motif and a base
    # before). Bases 3 and 11-16 are followed by an insertion, which takes their first block in time, they the second.
    called, _, _, moves = call(np.random.default_rng(0), molecule([12] * 20, "A" * 20), junction=8)
    assert len(called) == 27
    starts = []
    for base in range(19, -1, -1):
        block = 2 * (19 - base)
        starts += [block, block + 1] if base == 3 or 11 <= base <= 16 else [block]
    assert np.flatnonzero(moves).tolist() == starts


def test_deleted_bases_leave_no_base_and_no_move_and_several_molecules_keep_apart(monkeypatch):
    set_rates(monkeypatch, deletion=1.0)
    # Of 20 bases 0-2, 17-19 and 4-10 are kept: 13. The others are deleted: base 3, and bases 11-16 in one run.
    one = molecule([12] * 20, "ACGTTGCAACGTTGCAACGT")
    both = Molecules(
        references=np.zeros(2, dtype=np.int64),
        charged=np.zeros(2, dtype=bool),
        first=np.array([0, 7]),
        base_offsets=np.array([0, 20, 40]),
        codes=np.tile(one.codes, 2),
        dwell=np.tile(one.dwell, 2),
        sample_offsets=np.array([0, 240, 480]),
        leader=np.zeros(2, dtype=np.int64),
        signal=np.zeros(480, dtype=np.int16),
        speed=np.ones(2),
        signal_logit=np.zeros(2),
    )
    called = basecall(np.random.default_rng(3), both, np.array([8, 8]), np.zeros(2, bool), np.array([20, 20]))
    for place, first in enumerate((0, 7)):
        assert called.sequences[place] == "ACG" + "TGCAACG" + "CGT"
        assert np.flatnonzero(called.moves[place]).tolist() == [
            2 * (19 - base) for base in range(19, -1, -1) if base != 3 and not 11 <= base <= 16
        ]
        letters = "".join(letter * length for length, letter in called.cigars[place])
        # Clips take the place of outermost matches, and of deletions next to them nothing is left.
        clips = len(letters) - len(letters.lstrip("S")), len(letters) - len(letters.rstrip("S"))
        whole = "MMMDMMMMMMMDDDDDDMMM"
        kept = [spot for spot, letter in enumerate(whole) if letter == "M"][clips[0] : 13 - clips[1]]
        assert letters.strip("S") == whole[kept[0] : kept[-1] + 1]
        assert called.positions[place] == first + kept[0]


@pytest.mark.parametrize("aligned_end", [33, 40, 57])
def test_an_alignment_ends_where_molecule_and_reference_part(aligned_end):
    generator = np.random.default_rng(1)
    for _ in range(50):
        sequence = "".join(generator.choice(list("ACGT"), 60))
        called, cigar, position, _ = call(
            generator, molecule(generator.integers(6, 60, 60), sequence), 30, aligned_end=aligned_end
        )
        end = position + sum(length for length, letter in cigar if letter in "MD")
        assert end <= aligned_end
        assert cigar[-1][1] == "S"
        assert [letter for _, letter in cigar if letter != "S"][-1] == "M"
        assert sum(length for length, letter in cigar if letter != "D") == len(called)


@pytest.mark.parametrize("indel", [True, False])
def test_the_junction_has_an_indel_exactly_when_one_is_asked_for(indel):
    generator = np.random.default_rng(1)
    length, junction = 60, 30
    outcomes = Counter()
    for _ in range(300):
        sequence = "".join(generator.choice(list("ACGT"), length))
        _, cigar, position, _ = call(generator, molecule(generator.integers(6, 60, length), sequence), junction, indel)
        outcomes[motif_indel(codes_of(cigar), position, junction - 3, junction + 3)] += 1
    assert outcomes == {int(indel): 300}


def test_the_oracle_follows_the_likelihoods_worked_out_by_hand(monkeypatch):
    monkeypatch.setattr(molecules_module, "_HETEROGENEITY_SD", 0.0)
    monkeypatch.setattr(molecules_module, "_LEVEL_JITTER_SD", 0.2)
    monkeypatch.setattr(molecules_module, "_NOISE_SD", 0.22)
    monkeypatch.setattr(molecules_module, "_DWELL_SHAPE", 1.6)
    monkeypatch.setattr(molecules_module, "MIN_DWELL", 6)

    def score(mean, dwell, level_shift, log_dwell_shift):
        """Return the score of the second of two reads; the first must not matter."""
        columns = ([0.9, mean], [50, dwell], [0.1, level_shift], [0.2, log_dwell_shift])
        means, dwells, level_shifts, log_dwell_shifts = (np.array(column)[:, None] for column in columns)
        expected, extra = np.zeros((2, 1)), np.array([7.0, 30.0])
        return float(oracle_logit(expected, means, dwells, extra, level_shifts, log_dwell_shifts)[1])

    # No effect, no evidence.
    assert score(0.7, 99, 0, 0) == pytest.approx(0.0)
    # 121 samples: variance 0.04 + 0.0484 / 121 = 0.0404; the mean lies 0.3 from one state and 0 from the other:
    # 0.09 / (2 * 0.0404) = 1.1139. Half-way between the two it says nothing; at the uncharged level it is -1.1139.
    assert score(0.3, 121, 0.3, 0) == pytest.approx(1.1139, abs=1e-4)
    assert score(0.15, 121, 0.3, 0) == pytest.approx(0.0, abs=1e-9)
    assert score(0.0, 121, 0.3, 0) == pytest.approx(-1.1139, abs=1e-4)
    # Gamma of shape 1.6, mean 30 or 60, value 60: -1.6 ln 2 + 1.6 * 60 * (1/30 - 1/60) = -1.1090 + 1.6 = 0.4910.
    assert score(0.0, 66, 0, np.log(2.0)) == pytest.approx(0.4910, abs=1e-4)


def test_an_auroc_of_binned_scores_counts_ties_as_half_and_is_that_of_the_scores():
    # Charged 1 2 against uncharged 1 0: (1,1) half, (1,0), (2,1), (2,0) one each: 3.5 of 4.
    histogram = ScoreHistogram()
    assert histogram.auroc() is None
    histogram.add(np.array([True, False]), np.array([1.0, 1.0]))
    histogram.add(np.array([True, False]), np.array([2.0, 0.0]))
    assert histogram.auroc() == pytest.approx(0.875)
    generator = np.random.default_rng(0)
    charged = generator.random(3000) < 0.3
    scores = generator.normal(2.0 * charged, 1.5)
    histogram = ScoreHistogram()
    histogram.add(charged, scores)
    assert histogram.auroc() == pytest.approx(auroc(charged, scores), abs=1e-4)


def test_auroc_counts_ties_as_half():
    # Charged 1 2 against uncharged 1 0: (1,1) half, (1,0), (2,1), (2,0) one each: 3.5 of 4.
    assert auroc(np.array([True, True, False, False]), np.array([1.0, 2.0, 1.0, 0.0])) == pytest.approx(0.875)


def test_references_have_adapters_one_variable_base_and_the_junction_before_the_arm():
    design = make_design(build(SimulateConfig, {"num_references": 45}))
    assert len(design.references) == 45
    assert {name.split("-")[1] for name in design.references} >= {"Ala", "Val", "Trp"}
    for name, sequence in design.references.items():
        assert sequence.startswith("CCTAAGAGCAAGAAGAAGCCTGGN")
        assert sequence.count("N") == 1
        junction = design.junctions[name]
        assert sequence[junction - 3 : junction] == "CCA"
        assert sequence[junction:].startswith(ARM)


def test_a_reference_does_not_depend_on_how_many_there_are():
    few, many = (make_design(build(SimulateConfig, {"num_references": number})) for number in (3, 30))
    assert list(few.references.items()) == list(many.references.items())[:3]


def test_amino_acids_bend_only_bases_near_the_junction_and_each_in_its_own_way():
    design = make_design(build(SimulateConfig, {}))
    shapes = {tuple(adduct.level) for adduct in design.adducts.values()}
    assert len(shapes) == 20
    assert all(len(shape) == 8 and np.any(np.array(shape) != 0) for shape in shapes)
    flat = make_design(build(SimulateConfig, {"effect": 0.0}))
    assert not any(adduct.level.any() or adduct.log_dwell.any() for adduct in flat.adducts.values())


# The files


def test_every_molecule_has_one_row_of_truth_and_one_primary_record(pure):
    for library in pure.values():
        names = [record.query_name for record in library.primary]
        assert len(library.truth) == 2000
        assert sorted(names) == sorted(library.truth)
        for record in library.primary:
            assert record.reference_name == library.truth[record.query_name]["reference"]


def test_default_libraries_hold_every_nuisance(pure):
    library = pure["charged"]
    flags = Counter(record.flag for record in library.records)
    assert {4, 256, 2048} <= set(flags)
    assert any(record.has_tag("pi") for record in library.primary)
    assert sum(flags.values()) - flags[4] - flags[256] - flags[2048] > 2000, "no record occurs twice"
    assert any(row["in_pod5"] == "0" for row in library.truth.values())
    assert all(record.query_sequence is None for record in library.records if record.flag == 256)
    assert all("H" in record.cigarstring for record in library.records if record.flag == 2048)


def test_moves_fit_sequence_and_used_interval_on_every_primary_record(pure):
    for library in pure.values():
        for record in library.primary:
            stride, *moves = record.get_tag("mv")
            assert record.get_tag("mv").typecode == "b"
            assert stride == 6
            assert sum(moves) == record.query_length
            assert moves[0] == 1
            assert 0 <= record.get_tag("ns") - record.get_tag("ts") - stride * len(moves) < stride


def test_ns_is_an_end_within_the_raw_signal(pure):
    library = pure["charged"]
    with_tail = 0
    for record in library.primary:
        if record.has_tag("pi") or record.query_name not in library.signals:
            continue
        assert 1000 <= record.get_tag("ts") < record.get_tag("ns") <= len(library.signals[record.query_name])
        with_tail += record.get_tag("ns") < len(library.signals[record.query_name])
    assert with_tail > 100


def test_sequence_and_cigar_agree_with_the_reference_but_for_substitutions(pure):
    for library in pure.values():
        matches = mismatches = 0
        for record in library.primary:
            sequence = library.references[record.reference_name]
            assert record.infer_query_length() == record.query_length
            assert record.reference_end <= len(sequence)
            assert record.cigartuples[0][0] in (0, 4)
            assert record.cigartuples[-1][0] in (0, 4)
            for query, place in record.get_aligned_pairs(matches_only=True):
                if sequence[place] != "N":
                    is_match = record.query_sequence[query] == sequence[place]
                    matches += is_match
                    mismatches += not is_match
        # Substitutions are drawn at 3 %; over 200,000 bases the standard deviation is 0.04 %.
        assert mismatches / (matches + mismatches) == pytest.approx(0.03, abs=0.002)


def test_junction_indels_are_as_frequent_as_set_and_true_to_the_alignments(pure):
    for name, rate in (("charged", 0.52), ("uncharged", 0.024)):
        library = pure[name]
        found = {}
        for record in library.primary:
            start = library.references[record.reference_name].index("CCA" + ARM)
            found[record.query_name] = motif_indel(record.cigartuples, record.reference_start, start, start + 6)
        assert all(found[read] == int(row["junction_indel"]) for read, row in library.truth.items())
        tolerance = 4 * np.sqrt(rate * (1 - rate) / 2000)
        assert np.mean(list(found.values())) == pytest.approx(rate, abs=tolerance)


def medians_in_sequence(library, record):
    """Return the median current of each base of SEQ, 5'->3', by hand from mv, ts, ns and the raw signal."""
    used = used_signal(library, record)
    starts = np.append(starts_by_base(record)[::-1], len(used))
    return np.array([np.median(used[start:end]) for start, end in itertools.pairwise(starts)])[::-1]


def level_correlations(library, records):
    """Return the median over reads of the correlation with the table's levels, in the right frame and in time order."""
    table = KmerTable.load(library.folder / "kmer_levels.tsv")
    right, wrong = [], []
    for record in records:
        levels = table.expected(encode_bases(record.query_sequence), 0)
        known = np.isfinite(levels)
        medians = medians_in_sequence(library, record)
        right.append(np.corrcoef(levels[known], medians[known])[0, 1])
        wrong.append(np.corrcoef(levels[known], medians[::-1][known])[0, 1])
    return np.median(right), np.median(wrong)


def test_medians_follow_the_levels_in_the_rna_frame_and_only_there(pure):
    library = pure["uncharged"]
    reads = [record for record in library.primary if used_signal(library, record) is not None][:60]
    right, wrong = level_correlations(library, reads)
    assert right > 0.8
    assert abs(wrong) < 0.16


def test_the_true_focus_lies_where_the_moves_put_it(pure):
    for library in pure.values():
        checked = 0
        for record in library.primary:
            row = library.truth[record.query_name]
            if row["junction_indel"] == "1":
                continue
            focus = library.references[record.reference_name].index("CCA" + ARM) + 2
            base = {place: query for query, place in record.get_aligned_pairs(matches_only=True)}[focus]
            starts = starts_by_base(record)
            origin = record.get_tag("ts") + (record.get_tag("sp") if record.has_tag("sp") else 0)
            # A move falls on the block in which its base begins, so at most 5 samples early. In time the base ends where
            # its 5' neighbour begins.
            assert 0 <= int(row["focus_start_sample"]) - (origin + starts[base]) < 6
            assert 0 <= int(row["focus_end_sample"]) - (origin + starts[base - 1]) < 6
            checked += 1
        assert checked > 800


def test_charged_reads_bend_at_the_focus_and_nowhere_else(pure):
    """The class must be readable at the junction, and not 35 bases away from it."""

    def medians(library, reference, offset):
        values = []
        for record in library.primary:
            row = library.truth[record.query_name]
            if record.reference_name != reference or row["junction_indel"] == "1":
                continue
            used = used_signal(library, record)
            if used is None:
                continue
            place = library.references[reference].index("CCA" + ARM) + 2 + offset
            base = {place: query for query, place in record.get_aligned_pairs(matches_only=True)}.get(place)
            if base is not None:
                current = medians_in_sequence(library, record)
                values.append((current[base] - np.median(used)) / (1.4826 * np.median(np.abs(used - np.median(used)))))
        return np.array(values)

    design = make_design(build(SimulateConfig, {}))
    # The reference and base whose current the design bends most.
    name, adduct = max(design.adducts.items(), key=lambda item: np.abs(item[1].level).max())
    strongest = int(np.abs(adduct.level).argmax())
    # Adduct offsets count from the first adapter base, -4 to 3; the focus is the base before it.
    near = strongest - 4 + 1
    shifts = {}
    for offset in (near, near - 35):
        charged, uncharged = (medians(pure[state], name, offset) for state in ("charged", "uncharged"))
        error = np.sqrt(charged.var() / len(charged) + uncharged.var() / len(uncharged))
        shifts[offset] = (charged.mean() - uncharged.mean()) / error
    assert np.sign(shifts[near]) == np.sign(adduct.level[strongest])
    assert abs(shifts[near]) > 4
    assert abs(shifts[near - 35]) < 4


def test_children_of_a_split_read_lie_in_their_parents_signal(split):
    assert all(record.has_tag("pi") and record.has_tag("sp") for record in split.primary)
    by_parent = {}
    for record in split.primary:
        by_parent.setdefault(record.get_tag("pi"), []).append(record)
    assert len(by_parent) == 30
    for parent, children in by_parent.items():
        first, second = sorted(children, key=lambda record: record.get_tag("sp"))
        assert first.get_tag("sp") == 0
        # The second half begins behind the whole of the first, and its own ts and ns count from there.
        assert second.get_tag("sp") >= first.get_tag("ns")
        assert second.get_tag("sp") + second.get_tag("ns") <= len(split.signals[parent])
        assert parent not in split.truth
        assert {split.truth[child.query_name]["parent_id"] for child in children} == {parent}
    assert set(split.signals) == set(by_parent)


def test_signal_of_a_split_read_belongs_to_its_own_half(split):
    seconds = [record for record in split.primary if record.get_tag("sp") > 0]
    right, wrong = level_correlations(split, seconds)
    assert right > 0.8
    assert abs(wrong) < 0.16


def test_current_has_the_scale_of_real_reads(pure):
    library = pure["uncharged"]
    centres, spreads = [], []
    for record in library.primary[:200]:
        used = used_signal(library, record)
        if used is None or record.has_tag("pi"):
            continue
        offset, scale = library.calibrations[record.query_name]
        current = (used + offset) * scale
        centres.append(np.median(current))
        spreads.append(1.4826 * np.median(np.abs(current - np.median(current))))
    # Real RNA004 tRNA reads: medians of 70 to 85 pA, spreads of 10 to 25 pA.
    assert 75 < np.median(centres) < 87
    assert 12 < np.median(spreads) < 25


def test_dwell_and_speed_are_those_of_trna(pure):
    library = pure["uncharged"]
    dwell = {
        record.query_name: (record.get_tag("ns") - record.get_tag("ts")) / record.query_length
        for record in library.primary
    }
    assert np.mean(list(dwell.values())) == pytest.approx(37, abs=2)
    speed = np.array([float(library.truth[name]["speed"]) for name in dwell])
    assert np.log(speed).std() == pytest.approx(0.2, abs=0.02)
    assert np.corrcoef(1 / speed, list(dwell.values()))[0, 1] > 0.8


def test_missing_reads_are_missing_and_the_others_are_not(pure):
    library = pure["charged"]
    assert {row["in_pod5"] for row in library.truth.values()} == {"0", "1"}
    for row in library.truth.values():
        assert (row["parent_id"] in library.signals) == (row["in_pod5"] == "1")


def test_run_information_and_modified_bases_are_consistent(pure):
    library = pure["charged"]
    info = escapepod.Reader(str(library.folder / "reads.pod5")).run_infos[0]
    assert (info.sample_rate, info.flow_cell_id, info.sample_id) == (4000, "SIM00001", "charged")
    tagged = [record for record in library.primary if record.has_tag("MM")]
    assert 0 < len(tagged) < len(library.primary)
    for record in tagged:
        assert record.get_tag("MN") == record.query_length
        assert len(record.modified_bases) == 1
        assert sum(map(len, record.modified_bases.values())) == len(record.get_tag("ML"))


def test_the_bam_is_sorted_indexed_and_names_its_program(pure):
    path = str(pure["charged"].folder / "mappings.bam")
    with pysam.AlignmentFile(path) as file:
        header = file.header.to_dict()
        assert file.check_index()
        by_reference = sum(file.count(name) for name in file.references)
        mapped = [(record.reference_id, record.reference_start) for record in file.fetch()]
    assert header["HD"]["SO"] == "coordinate"
    assert header["PG"]
    assert "partial" not in json.dumps(header)
    assert by_reference == len(mapped)
    assert mapped == sorted(mapped)


# The oracle


def test_the_oracle_is_good_and_not_perfect(pure):
    truths = [library.folder / "truth.tsv" for library in pure.values()]
    # Wanted 0.97 to 0.985; at 2,000 reads a state the estimate's standard deviation is about 0.0025.
    assert 0.965 < oracle_auroc(truths) < 0.99


def test_the_oracles_ratio_is_calibrated(pure):
    rows = [row for library in pure.values() for row in library.truth.values()]
    charged = np.array([row["charged"] == "1" for row in rows])
    # As many reads of either state, so the ratio's logistic is the probability.
    probability = 1 / (1 + np.exp(-np.array([float(row["oracle_logit"]) for row in rows])))
    for low, high in ((0.0, 0.1), (0.1, 0.4), (0.4, 0.6), (0.6, 0.9), (0.9, 1.0)):
        inside = (probability >= low) & (probability <= high)
        error = np.sqrt((probability[inside] * (1 - probability[inside])).sum()) / inside.sum()
        assert charged[inside].mean() == pytest.approx(probability[inside].mean(), abs=5 * error), (low, high)


def test_libraries_of_one_state_have_no_auroc_of_their_own(pure):
    folder = pure["charged"].folder
    content = json.loads((folder / "oracle.json").read_text())
    assert content == {"auroc": None, "num_reads": 2000}
    with pytest.raises(InputError, match="both states"):
        oracle_auroc([folder / "truth.tsv"])


def test_without_effect_the_oracle_knows_nothing(tmp_path):
    library = run(tmp_path / "l", reads=200, effect=0.0, **PLAIN)
    scores = [float(row["oracle_logit"]) for row in load(tmp_path / "l").truth.values()]
    assert np.abs(scores).max() < 1e-9
    assert library.oracle_auroc == pytest.approx(0.5)


# Seeds and options


def contents(folder):
    library = load(folder)
    return {
        "truth": (folder / "truth.tsv").read_bytes(),
        "reference": (folder / "reference.fa").read_bytes(),
        "table": (folder / "kmer_levels.tsv").read_bytes(),
        "records": [record.to_string() for record in library.records],
        "signals": {name: signal.tobytes() for name, signal in library.signals.items()},
    }


def test_equal_settings_give_equal_libraries_and_another_seed_only_other_reads(tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        run(tmp_path / name, reads=40, seed=seed, split_fraction=0.2, secondary_fraction=0.2)
    first, again, other = (contents(tmp_path / name) for name in "abc")
    assert first == again
    assert {name for name in first if first[name] == other[name]} == {"reference", "table"}


def test_another_design_seed_gives_other_references_and_another_pore(tmp_path):
    for seed in (0, 1):
        run(tmp_path / str(seed), reads=2, design_seed=seed)
    first, second = (contents(tmp_path / str(seed)) for seed in (0, 1))
    assert first["reference"] != second["reference"]
    assert first["table"] != second["table"]


def test_the_written_table_given_back_makes_the_same_reads(tmp_path):
    run(tmp_path / "a", reads=20)
    run(tmp_path / "b", reads=20, kmer_table=tmp_path / "a" / "kmer_levels.tsv", kmer_centre=0)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_the_synthetic_table_is_a_5_mer_table_with_centred_levels(tmp_path):
    run(tmp_path / "a", reads=1)
    table = KmerTable.load(tmp_path / "a" / "kmer_levels.tsv")
    assert table.size == 5
    assert abs(float(np.median(table.levels))) < 1e-3
    assert 0.8 < float(table.levels.std()) < 1.2


def test_a_centre_outside_the_kmer_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(ConfigError, match="outside"):
        run(tmp_path / "a", reads=1, kmer_centre=5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("fraction", "share"), [(0.0, 0), (1.0, 1)])
def test_each_nuisance_is_in_all_reads_or_in_none(tmp_path, fraction, share):
    run(tmp_path / "l", reads=30, **{**dict.fromkeys(PLAIN, fraction), "missing_fraction": 0.0})
    library = load(tmp_path / "l")
    flags = Counter(record.flag & (4 | 256 | 2048) for record in library.records)
    assert [flags[flag] for flag in (4, 256, 2048)] == [30 * share] * 3
    assert flags[0] == 30 + 30 * share
    assert all(record.has_tag("pi") == bool(share) for record in library.primary)
    assert len(library.signals) == (15 if share else 30)
    result = run(tmp_path / "m", reads=30, **{**PLAIN, "missing_fraction": fraction})
    assert result.num_in_pod5 == 30 * (1 - share)


def test_a_pod5_of_no_reads_holds_one_that_no_record_names_so_that_it_can_be_opened(tmp_path):
    run(tmp_path / "l", reads=30, **{**PLAIN, "missing_fraction": 1.0})
    library = load(tmp_path / "l")
    (stray,) = library.signals
    assert stray not in {record.query_name for record in library.records}
    assert stray not in library.truth
    assert len(library.signals[stray]) == 4000


@pytest.mark.parametrize(("indel_charged", "indel_uncharged"), [(1.0, 1.0), (0.0, 0.0)])
def test_indel_shares_reach_their_own_state(tmp_path, indel_charged, indel_uncharged):
    run(tmp_path / "l", reads=100, indel_charged=indel_charged, indel_uncharged=indel_uncharged)
    for row in load(tmp_path / "l").truth.values():
        assert float(row["junction_indel"]) == (indel_charged if row["charged"] == "1" else indel_uncharged)


def test_counts_of_the_result_are_those_of_the_files(tmp_path):
    result = run(tmp_path / "l", reads=101, charged_fraction=0.3, num_references=4, flow_cell="FC7", sample="s")
    library = load(tmp_path / "l")
    assert (result.num_reads, result.num_records) == (101, len(library.records))
    assert result.num_charged == sum(row["charged"] == "1" for row in library.truth.values())
    assert result.num_in_pod5 == sum(row["in_pod5"] == "1" for row in library.truth.values())
    assert len(library.references) == 4
    assert json.loads(json.dumps(result.to_mapping()))["num_reads"] == 101
    assert result.outcomes == json.loads((tmp_path / "l" / "outcomes.json").read_text())
    assert sum(result.outcomes.values()) == result.num_records
    assert any("101" in row for table in result.tables() for row in table.rows)


def test_an_existing_library_is_kept_unless_forced(tmp_path):
    run(tmp_path / "l", reads=5)
    before = contents(tmp_path / "l")
    with pytest.raises(InputError, match="exists already") as caught:
        run(tmp_path / "l", reads=5, seed=1)
    assert "--force" in caught.value.hint
    assert contents(tmp_path / "l") == before
    run(tmp_path / "l", reads=5, seed=1, force=True)
    assert contents(tmp_path / "l") != before
    assert [path.name for path in tmp_path.iterdir()] == ["l"]


# Scale


def test_any_number_of_workers_makes_the_same_library(tmp_path):
    # 230 reads are two whole blocks and a part of one.
    assert 2 * BLOCK_MOLECULES < 230 < 3 * BLOCK_MOLECULES
    settings = {"reads": 230, "nuisance": ("scaling_tags=0.5", "no_ts=0.2"), "split_fraction": 0.3}
    results = [run(tmp_path / str(workers), workers=workers, **settings) for workers in (1, 2)]
    one, two = (result.to_mapping() | {"path": "", "pod5": ""} for result in results)
    assert one == two
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


@pytest.mark.parametrize("name", ["", "..", "../elsewhere", "a/b", "a\nb"])
def test_a_flow_cell_that_would_write_elsewhere_is_refused(name):
    with pytest.raises(ConfigError, match="cannot name a folder"):
        build(SimulateConfig, {"flow_cell": name})


def test_a_worker_that_dies_leaves_words_and_no_library(tmp_path, monkeypatch):
    # The workers are fresh processes, so they are told by what travels to them: what cannot be unpickled ends them.
    monkeypatch.setattr(write_module, "IndelModel", Deadly)
    with pytest.raises(LeechError, match="worker process died"):
        run(tmp_path / "l", reads=230, workers=2)
    assert list(tmp_path.iterdir()) == []


class Deadly:
    """Stands for the model of indels and ends every process that it is sent to."""

    rate_charged, rate_uncharged = 0.52, 0.024

    @classmethod
    def fit(cls, *_):
        return cls()

    def __reduce__(self):
        return os._exit, (1,)


def test_memory_does_not_grow_with_the_number_of_reads(tmp_path):
    """Peak resident memory of a process of its own, reading POD5 metadata and sorting the BAM included."""

    def peak(reads):
        code = (
            "import resource, sys; from leech.cli.main import main; "
            f"main(['-q', 'data', 'simulate', '--reads', '{reads}', '-o', sys.argv[1]]); "
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        words = [sys.executable, "-c", code, str(tmp_path / str(reads))]
        return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()[-1])

    # Beyond the first blocks all buffers are full; 2,000 molecules more are 23 MB of signal.
    assert peak(4000) < 1.1 * peak(2000)


def test_several_flow_cells_runs_and_files_lie_in_a_tree_and_the_truth_says_where(tmp_path):
    result = run(tmp_path / "l", reads=240, flow_cell="FC", flow_cells=2, runs=3, pod5_reads=25, split_fraction=0.3)
    # 40 molecules a run, at most 25 to a file: 2 files each.
    files = sorted(path.relative_to(result.pod5).as_posix() for path in result.pod5.rglob("*.pod5"))
    assert result.pod5 == tmp_path / "l" / "pod5"
    assert files == sorted(
        f"{cell}/run{number}/reads_000{file}.pod5" for cell in ("FC", "FC-2") for number in (1, 2, 3) for file in (1, 2)
    )
    library = load(tmp_path / "l")
    counts = Counter((row["flow_cell"], row["run"]) for row in library.truth.values())
    assert len(counts) == 6
    # The two halves of a split read lie where the second one does, so a molecule or two go over.
    assert all(30 <= number <= 50 for number in counts.values())
    where = {}
    acquisitions = set()
    for file in files:
        reader = escapepod.Reader(str(result.pod5 / file))
        (info,) = reader.run_infos
        cell, number, _ = file.split("/")
        assert info.flow_cell_id == cell
        acquisitions.add((cell, number, info.acquisition_id))
        where |= dict.fromkeys(reader.read_ids(), (cell, number))
    assert len({name for _, _, name in acquisitions}) == len(acquisitions) == 6
    for row in library.truth.values():
        if row["in_pod5"] == "1":
            assert where[row["parent_id"]] == (row["flow_cell"], row["run"])


def test_a_read_that_waits_for_its_other_half_beyond_the_end_of_a_file_is_not_lost(tmp_path):
    # Most reads cannot be a half, so halves wait long, and files of 7 molecules end meanwhile.
    settings = {"split_fraction": 1.0, "missing_fraction": 0.0, "nuisance": ("no_moves=0.9",), "flow_cell": "a b"}
    run(tmp_path / "l", reads=600, pod5_reads=7, **settings)
    library = load(tmp_path / "l")
    assert {row["parent_id"] for row in library.truth.values()} == set(library.signals)
    assert len(list((tmp_path / "l" / "pod5" / "a_b" / "run1").iterdir())) == 86


def test_a_bam_in_the_order_of_reads_is_not_sorted_and_has_the_same_records(tmp_path):
    for order in ("coordinate", "read"):
        run(tmp_path / order, reads=60, bam_order=order, pod5_reads=60)
    by_place, by_read = (load(tmp_path / order) for order in ("coordinate", "read"))
    assert Counter(map(str, by_place.records)) == Counter(map(str, by_read.records))
    assert not (tmp_path / "read" / "mappings.bam.bai").exists()
    assert pysam.AlignmentFile(str(tmp_path / "read" / "mappings.bam")).header.to_dict()["HD"]["SO"] == "unsorted"
    names = [record.query_name for record in by_read.records if record.query_name in by_read.signals]
    assert list(dict.fromkeys(names)) == [name for name in by_read.signals if name in names]
    assert names != [record.query_name for record in by_place.records if record.query_name in by_place.signals]


# Mixtures and planted shortcuts


def test_fractions_of_single_trnas_are_those_of_the_table_and_the_rest_have_the_common_one(tmp_path):
    table = tmp_path / "fractions.tsv"
    table.write_text("reference\tcharged_fraction\n# a control\ntRNA-Ala-GGC-1-1\t0\ntRNA-Arg-ACG-1-1\t1.0\n\n")
    run(tmp_path / "l", reads=600, num_references=3, charged_fraction=0.3, charged_fractions=table)
    with (tmp_path / "l" / "fractions.tsv").open(newline="") as file:
        rows = {row["reference"]: row for row in csv.DictReader(file, delimiter="\t")}
    counts = {name: Counter() for name in rows}
    for row in load(tmp_path / "l").truth.values():
        usable = row["outcomes"].split(",")[0] == "used"
        counts[row["reference"]].update(
            reads=1, reads_charged=int(row["charged"]), usable=usable, usable_charged=usable * int(row["charged"])
        )
    for name, row in rows.items():
        assert all(int(row[column]) == number for column, number in counts[name].items())
    ala, arg, asn = rows.values()
    assert [row["charged_fraction"] for row in rows.values()] == ["0.0", "1.0", "0.3"]
    assert int(ala["reads_charged"]) == 0
    assert int(arg["reads_charged"]) == int(arg["reads"]) > 100
    # About 200 reads at 0.3: standard deviation 0.032.
    assert int(asn["reads_charged"]) / int(asn["reads"]) == pytest.approx(0.3, abs=0.13)
    assert int(asn["usable"]) < int(asn["reads"]) or int(ala["usable"]) < int(ala["reads"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tRNA-Ala-GGC-1-2\t0.1\n", "Did you mean 'tRNA-Ala-GGC-1-1'"),
        ("xyzzy\t0.1\n", "--num-references"),
        ("tRNA-Ala-GGC-1-1\t1.1\n", "between 0 and 1"),
        ("tRNA-Ala-GGC-1-1\tnan\n", "between 0 and 1"),
        ("tRNA-Ala-GGC-1-1\t0.1\ntRNA-Ala-GGC-1-1\t0.2\n", "line 2"),
        ("tRNA-Ala-GGC-1-1 0.1\n", "not reference<TAB>fraction"),
        ("tRNA-Ala-GGC-1-1\thigh\n", "not reference<TAB>fraction"),
    ],
)
def test_a_table_of_fractions_that_says_nothing_sure_is_refused(tmp_path, text, message):
    table = tmp_path / "fractions.tsv"
    table.write_text(text)
    with pytest.raises(InputError) as caught:
        run(tmp_path / "l", reads=10, charged_fractions=table)
    assert message in str(caught.value)
    with pytest.raises(InputError, match="Cannot read"):
        run(tmp_path / "l", reads=10, charged_fractions=tmp_path / "none.tsv")


def test_states_of_different_adapters_differ_behind_the_arm_and_nowhere_else(tmp_path):
    other = ARM + "TTGGTTGGACGTACGTTGCAAAAAAAAAAAAA"
    run(tmp_path / "l", reads=200, adapter_charged=other, **PLAIN)
    library = load(tmp_path / "l")
    matches = Counter()
    for record in library.primary:
        charged = library.truth[record.query_name]["charged"] == "1"
        sequence = library.references[record.reference_name]
        junction = sequence.index("CCA" + ARM) + 3
        assert sequence[junction:].startswith(ARM + "CCAACC")
        if charged:
            # The adapters agree for the arm, and the first base behind it is a T for a C.
            assert record.reference_end <= junction + len(ARM)
        matches[charged, other[17:29] in record.query_sequence, "CCAACCTTGCC" in record.query_sequence] += 1
    # 12 bases are called without error in about 45 % of reads.
    assert matches[True, True, False] > 20
    assert matches[False, False, True] > 20
    assert matches[True, False, True] + matches[True, True, True] == 0
    assert matches[False, True, False] + matches[False, True, True] == 0


@pytest.mark.parametrize(
    ("adapter", "message"), [("GGCTT", "at least 17"), (ARM + "N", "at least 17"), ("A" * 20, "begin with")]
)
def test_an_adapter_that_no_read_could_have_is_refused(tmp_path, adapter, message):
    with pytest.raises(ConfigError, match=message):
        run(tmp_path / "l", reads=10, adapter_charged=adapter)


def test_the_references_adapter_is_an_option(tmp_path):
    run(tmp_path / "l", reads=20, adapter=ARM + "ACGT" * 5)
    library = load(tmp_path / "l")
    assert all(text.endswith("CCA" + ARM + "ACGT" * 5) for text in library.references.values())


def test_charged_reads_are_faster_where_that_shortcut_is_planted(tmp_path):
    run(tmp_path / "l", reads=600, speed_charged=1.5)
    speeds = {"0": [], "1": []}
    for row in load(tmp_path / "l").truth.values():
        speeds[row["charged"]].append(np.log(float(row["speed"])))
    # Log speed has a standard deviation of 0.2: of the difference of two means of 300, 0.016.
    assert np.mean(speeds["1"]) - np.mean(speeds["0"]) == pytest.approx(np.log(1.5), abs=0.07)


def test_indel_shares_that_the_signal_does_not_allow_are_said(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("leech"), "propagate", True)
    result = run(tmp_path / "a", reads=300, effect=0.0, indel_charged=0.5, indel_uncharged=0.1)
    # Without effect the states cannot be told apart: one share for both, and by far the nearest is that of one of them.
    assert "near 0.500 and 0.500" in caplog.text or "near 0.100 and 0.100" in caplog.text
    shares = result.indel_shares
    assert abs(shares["charged"] - shares["uncharged"]) < 0.2
    caplog.clear()
    run(tmp_path / "b", reads=50)
    assert caplog.text == ""
    assert run(tmp_path / "c", reads=50, charged_fraction=1.0).indel_shares["uncharged"] is None


def test_reads_that_lie_in_two_files_are_the_same_in_both(tmp_path):
    result = run(tmp_path / "l", reads=100, nuisance=("repeated_pod5=0.3",))
    reader = escapepod.Reader(str(result.pod5 / "repeated.pod5"))
    again = {read.read_id: reader.get_signal(read) for read in reader.reads()}
    run_reader = escapepod.Reader(str(result.pod5 / "SIM00001" / "run1" / "reads_0001.pod5"))
    first = {read.read_id: run_reader.get_signal(read) for read in run_reader.reads()}
    truth = load(tmp_path / "l").truth
    hit = {name for name, row in truth.items() if "repeated_pod5" in row["nuisances"] and row["in_pod5"] == "1"}
    assert set(again) == hit <= set(first)
    assert len(hit) > 15
    assert all(np.array_equal(again[name], first[name]) for name in hit)


@pytest.mark.parametrize(
    ("cigar", "number", "rest", "skipped"),
    [
        # Five of ten matches go, and five reference bases with them.
        ([(10, "M")], 5, [(5, "M")], 5),
        # 2 clipped, 2 matched; the deletion goes with them: 2 + 3 reference bases.
        ([(2, "S"), (2, "M"), (3, "D"), (4, "M")], 4, [(4, "M")], 5),
        # The cut falls into an insertion, whose second base stays as a clip.
        ([(2, "M"), (2, "I"), (3, "M")], 3, [(1, "S"), (3, "M")], 2),
        ([(3, "S"), (4, "M")], 2, [(1, "S"), (4, "M")], 0),
    ],
)
def test_bases_are_cut_from_the_front_of_an_alignment(cigar, number, rest, skipped):
    assert cut_front(cigar, number) == (rest, skipped)
