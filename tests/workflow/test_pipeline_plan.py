"""What the rules decide in Python: the sample sheet, contradictions found before any work, memory."""

from __future__ import annotations

import re

import pytest
from rules_as_text import REPOSITORY, pipeline, settle

BLANK = dict.fromkeys(("bam", "label", "condition", "flow_cell"), "")

TRAINING = {"prepare": {"motif": "CCA", "motif_offset": 2}, "merge": {"positive_label": "charged"}}


def merging(**merge):
    return {**TRAINING, "merge": {"positive_label": "charged", **merge}}


def sheet(folder, text):
    path = folder / "samples.tsv"
    path.write_bytes(text.encode())
    return path


def row(sample, label="", **cells):
    return {**BLANK, "sample": sample, "pod5": "p", "bam": "b", "label": label, **cells}


STATES = [row("a", "charged"), row("b", "uncharged")]


def test_comments_empty_lines_line_ends_and_a_byte_order_mark_are_not_rows(tmp_path):
    text = "\ufeff# made by hand\r\nsample\tpod5\tbam\r\n\r\na\tdir one/\t a.bam \r\n  # b\tx\ty\r\nc\tp\t\r\n"
    rows = pipeline.read_samples(sheet(tmp_path, text))
    assert rows == [{"sample": "a", "pod5": "dir one/", "bam": "a.bam"}, {"sample": "c", "pod5": "p"}]


def test_a_row_with_a_missing_cell_is_named_by_its_line(tmp_path):
    with pytest.raises(pipeline.SheetError, match=r"Line 3 of .* has 2 cells and the header 3"):
        pipeline.read_samples(sheet(tmp_path, "# x\nsample\tpod5\tbam\na\tp\n"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"sample\tpod5\tlabel\tlabel\na\tp\tx\ty\n", "has the column label twice"),
        ("sample\tpod5\na\tp\n".encode("utf-16"), "is not UTF-8"),
        (b'sample\tpod5\na\t"p,1"\n', r'Line 2 of .* has "p,1" in quotes'),
    ],
)
def test_a_sheet_that_can_be_read_two_ways_or_not_at_all_is_refused(tmp_path, content, words):
    path = tmp_path / "samples.tsv"
    path.write_bytes(content)
    with pytest.raises(pipeline.SheetError, match=words):
        pipeline.read_samples(path)


def test_a_sheet_that_is_not_there_is_named(tmp_path):
    with pytest.raises(pipeline.SheetError, match=r"none\.tsv' cannot be read: No such file"):
        pipeline.read_samples(tmp_path / "none.tsv")


def test_characters_that_end_a_line_for_python_alone_are_part_of_a_cell(tmp_path):
    rows = pipeline.read_samples(sheet(tmp_path, "sample\tpod5\na\tx\u2028y\x0cz\x85\u00e9\n"))
    assert rows == [{"sample": "a", "pod5": "x\u2028y\x0cz\x85\u00e9"}]


def test_a_sheet_without_rows_is_refused(tmp_path):
    with pytest.raises(pipeline.SheetError, match="has no samples"):
        pipeline.read_samples(sheet(tmp_path, "sample\tpod5\n# all commented out\n"))


def test_a_condition_is_a_label():
    rows = [row("a", condition="charged"), row("b", "uncharged", condition="uncharged"), row("c")]
    samples = pipeline.settle_samples(rows, settle(**TRAINING))
    assert [sample["label"] for sample in samples.values()] == ["charged", "uncharged", ""]
    assert pipeline.training_samples(samples, settle(**TRAINING)) == ["a", "b"]


@pytest.mark.parametrize(
    ("rows", "given", "words"),
    [
        ([*STATES, row("a")], TRAINING, "'a' stands twice"),
        ([row("a", "charged", condition="un")], TRAINING, "has label 'charged' and condition 'un'"),
        ([row("a", "charged")], TRAINING, "has 1 \\(charged\\)"),
        ([*STATES, row("c", "x")], TRAINING, "has 3 \\(charged, uncharged, x\\)"),
        (
            STATES,
            {**TRAINING, "merge": {"positive_label": "Charged"}},
            "must be one of the labels charged and uncharged",
        ),
        ([*STATES, row("c", bam="")], TRAINING, "No BAM is given for c"),
        (STATES, {"merge": TRAINING["merge"]}, "Neither prepare.motif nor prepare.sites"),
        (STATES, {**TRAINING, "prepare": {**TRAINING["prepare"], "sites": "s.bed"}}, "Both prepare.motif and"),
        (STATES, {**TRAINING, "prepare": {"motif": "CCA"}}, "needs prepare.motif_offset"),
        ([*STATES, row("c", bam="x{one}.bam")], TRAINING, "bam of sample 'c' is 'x{one}.bam'; a path with braces"),
        (STATES, {**TRAINING, "train": {"options": "}.toml"}}, "train.options is"),
        (STATES, {**TRAINING, "results": "a{b}"}, "results is 'a{b}'; a path with braces"),
        (STATES, merging(split=[0.6, 0.2, 0.2, 0]), "fourth share"),
        (STATES, merging(split=[0.6, 0.2, 0.1, 0.2]), "sum to 1.1"),
        (STATES, merging(split=[0.9, 0, 0, 0.1]), "nothing for validation and test"),
        (STATES, merging(hold_out=["sample=a"]), "leaves only 'uncharged' to train on"),
        (STATES, merging(hold_out=["sample=a", "sample=b"]), "leaves no sample to train on"),
        (STATES, {**TRAINING, "merge": {"positive_label": "charged", "split": [0.7, 0.15, 0.15]}}, "fourth share"),
        (STATES, {**TRAINING, "calibrate": {"target_fpr": 0.1, "target_recall": 0.9}}, "target_fpr and target_recall"),
    ],
)
def test_what_cannot_be_done_is_said_before_any_work(rows, given, words):
    with pytest.raises(pipeline.SheetError, match=words):
        pipeline.settle_samples(rows, settle(**given))


def test_a_held_out_flow_cell_that_no_sample_has_is_found_where_the_sheet_knows_them_all():
    config = settle(
        **{**TRAINING, "merge": {"positive_label": "charged", "hold_out": ["flow_cell=F1,F9", "isotype=Ala"]}}
    )
    more = [row("d", "charged", flow_cell="F2")]
    known = [
        row("a", "charged", flow_cell="F1"),
        row("b", "uncharged", flow_cell="F2"),
        row("c", flow_cell="F9"),
        *more,
    ]
    with pytest.raises(pipeline.SheetError, match="names flow_cell F9, which no labelled sample"):
        pipeline.settle_samples(known, config)
    pipeline.settle_samples([row("a", "charged", flow_cell="F1"), row("b", "uncharged"), *more], config)


def test_a_test_split_that_is_held_out_needs_no_share():
    pipeline.settle_samples(
        [*STATES, row("c", "charged")], settle(**merging(split=[0.7, 0.2, 0, 0.1], hold_out=["sample=c"]))
    )


def test_with_a_model_nothing_is_trained_and_labels_are_not_needed():
    config = settle(model="m", predict={"labelled": False})
    samples = pipeline.settle_samples([row("a"), row("b", "charged")], config)
    places = pipeline.Places(config, samples)
    assert places.targets() == ["results/calls/a.bam", "results/calls/b.bam", "results/report.html"]
    assert places.corpora() == []
    assert places.model() == "m"


def test_labelled_libraries_are_called_unless_they_are_not_to_be():
    samples = pipeline.settle_samples([*STATES, row("c")], settle(**TRAINING))
    assert pipeline.called_samples(samples, settle(**TRAINING)) == ["a", "b", "c"]
    assert pipeline.called_samples(samples, settle(**TRAINING, predict={"labelled": False})) == ["c"]


def test_a_library_without_bam_is_aligned_and_a_filtered_one_read_from_what_the_filter_left():
    config = settle(**TRAINING, basecall={"model": "m", "aligner": "minimap2"}, filter={"enabled": True})
    places = pipeline.Places(config, pipeline.settle_samples([*STATES, row("c", bam="")], config))
    assert places.bam("c") == "results/alignments/minimap2/c.bam"
    assert places.bam("a") == "b"
    assert places.pod5("a") == "results/pod5/a.pod5"


def test_a_whole_number_written_with_a_point_reaches_the_command_without():
    config = pipeline.whole_numbers(settle(train_gpus=2.0, merge={"split": [1.0, 0.5], "balance": True}, model="2.0"))
    assert (config["train_gpus"], config["model"], config["merge"]["balance"]) == (2, "2.0", True)
    assert pipeline.train_options(config)[:2] == ["--gpus", "2"]
    assert [str(share) for share in config["merge"]["split"]] == ["1", "0.5"]


def test_gpus_are_asked_for_in_one_way():
    by_gpu, by_gres = settle(train_gpus=4), settle(train_gpus=4, gpu_request="gres")
    assert (pipeline.gpu_count(by_gpu, 4), pipeline.gpu_gres(by_gpu, 4)) == (4, "")
    assert (pipeline.gpu_count(by_gres, 4), pipeline.gpu_gres(by_gres, 4)) == (0, "gpu:4")
    assert (pipeline.gpu_count(by_gres, 0), pipeline.gpu_gres(by_gres, 0), pipeline.lsf_gpus(0)) == (0, "", "")
    assert pipeline.lsf_gpus(4) == "-gpu num=4"
    assert [pipeline.train_threads(settle(train_gpus=number)) for number in (0, 1, 4)] == [2, 2, 8]


def corpus_of(folder, megabytes):
    folder.mkdir(parents=True)
    with (folder / "signal.npy").open("wb") as file:
        file.truncate(megabytes * 1_000_000)
    return folder


def measured_memory():
    """Return (ranks, corpus in GB, PSS in MB) from the newest results."""
    newest = max((REPOSITORY / "benchmarks" / "results").glob("distributed-*.md"))
    table = newest.read_text().partition("| ranks | corpus, GB | PSS, MB |")[2]
    return [
        (int(a), float(b), int(c)) for a, b, c in re.findall(r"^\| (\d+) \| ([\d.]+) \| (\d+) \|", table, re.MULTILINE)
    ]


def test_the_memory_asked_for_covers_what_was_measured_and_is_not_twice_as_much_for_a_large_corpus(
    tmp_path, monkeypatch
):
    measured = measured_memory()
    assert {ranks for ranks, _, _ in measured} == {1, 2, 4}
    for ranks, gigabytes, pss in measured:
        monkeypatch.setattr(pipeline, "train_ranks", lambda _, ranks=ranks: ranks)
        corpus = corpus_of(tmp_path / f"{ranks} {gigabytes}", round(1000 * gigabytes))
        asked = pipeline.train_memory_mb(settle(), [corpus])
        assert asked >= pss
        assert gigabytes < 1 or asked <= 2 * pss


def test_a_corpus_is_in_memory_once_whatever_the_number_of_ranks(tmp_path):
    # 700 + ranks x 300 + GPUs x 3000, and 5 MB of corpus, which is not multiplied; what is not there counts for nothing.
    corpora = [corpus_of(tmp_path / "a", 2), corpus_of(tmp_path / "b", 3), tmp_path / "missing"]
    asked = [pipeline.train_memory_mb(settle(train_gpus=number), corpora) for number in (0, 1, 4)]
    assert asked == [1005, 4005, 13905]
