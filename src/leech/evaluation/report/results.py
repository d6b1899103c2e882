"""What a report is made of: files that other commands wrote, read back as values.

Hides: the files' names, forms and versions, and what an older one lacks. Belongs here: reading the metrics of ``leech eval
test``, its scores read by read, the tables and records of ``leech predict``, and the history of a model; what is shown of
them is in ``samples.py``, ``models.py`` and ``signal.py``. Invariants: nothing is guessed: what a file does not say is None or
empty; counts are those of the file; samples and metrics come in the order in which they were given, several of one folder by
name.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leech.data.grouping import groups_in_name
from leech.data.packed import open_to_read
from leech.data.reasons import NOT_A_LOSS, USED
from leech.errors import InputError
from leech.evaluation.intervals import Interval, wilson
from leech.evaluation.report.form import refuse_class_calls, refuse_class_metrics, require_form
from leech.evaluation.scores import SCORES, score_rows
from leech.evaluation.tables import table_rows
from leech.models.learnt import Overlap, read_overlap
from leech.provenance import distinct_names

NUM_LEVELS = 256
"""Values of ``cl``."""

MIN_DEPTH = 50
"""Calls below which a fraction is marked as resting on few reads, where the tables do not say so themselves."""

UNASSIGNED = "unassigned"
"""Amino acid of references whose names tell none."""

CORRECTED = ("no_call_corrected", "error_corrected")
"""Names of corrected fractions, the one that takes more into account first."""

_METRICS_VERSIONS = (1, 2)

_TABLES = ("charging_summary", "charging.cpm")
"""Tables with counts by reference, the fuller one first."""


@dataclass(frozen=True)
class Fraction:
    """A share of reads with its 95 % interval."""

    value: float
    interval: Interval


@dataclass(frozen=True)
class ReferenceCalls:
    """Reads of one reference in one sample by what became of them.

    :ivar no_call: None where the files do not tell.
    :ivar enough: whether the fraction rests on enough calls.
    :ivar corrected: by name (``error_corrected``, ``no_call_corrected``), those that predict could work out.
    """

    reference: str
    amino_acid: str
    positive: int
    negative: int
    no_call: int | None
    enough: bool
    corrected: Mapping[str, Fraction]

    @property
    def called(self) -> int:
        """Number of reads with a call."""
        return self.positive + self.negative

    @property
    def fraction(self) -> Fraction | None:
        """Share of the called reads that is positive, with Wilson's interval; None without calls."""
        interval = wilson(self.positive, self.called)
        return None if interval is None else Fraction(self.positive / self.called, interval)

    @property
    def best(self) -> tuple[str, Fraction] | None:
        """The corrected fraction that takes most into account, with its name, else ``raw``; None without calls."""
        raw = self.fraction
        if raw is None:
            return None
        return next(((name, self.corrected[name]) for name in CORRECTED if name in self.corrected), ("raw", raw))


@dataclass(frozen=True)
class Sample:
    """What predict made of one sample.

    :ivar ladder: records by outcome, beginning with ``seen``; empty where no file tells.
    :ivar histogram: called reads by ``cl``, 256 counts; None where no file tells.
    :ivar labels: of the negative and the positive state; None where no file tells.
    :ivar record: the run's ``predict.json``; empty without one.
    :ivar learnt: whether the model learnt from the sample's reads.
    :ivar corrected: fractions of all references together by name, those that predict could work out.
    :ivar groups: corrected fractions by amino acid and name; empty where no file tells.
    """

    name: str
    folder: Path
    references: tuple[ReferenceCalls, ...]
    ladder: Mapping[str, int]
    histogram: tuple[int, ...] | None
    threshold_cl: int | None
    labels: tuple[str, str] | None
    record: Mapping[str, Any]
    learnt: Overlap
    corrected: Mapping[str, Fraction]
    groups: Mapping[str, Mapping[str, Fraction]]

    @property
    def total(self) -> ReferenceCalls:
        """All references together."""
        positive, negative = (sum(getattr(one, side) for one in self.references) for side in ("positive", "negative"))
        known = [one.no_call for one in self.references if one.no_call is not None]
        no_call = sum(known) if len(known) == len(self.references) else None
        return ReferenceCalls("all", "", positive, negative, no_call, positive + negative >= MIN_DEPTH, self.corrected)


@dataclass(frozen=True)
class Judged:
    """How a model did on reads of known state.

    :ivar content: the metrics file; of scores alone, what follows from them.
    :ivar counts: of ``negative`` and ``positive`` reads by ``cl``, 256 each; None where no file tells.
    :ivar learnt: whether the model learnt from these reads.
    """

    name: str
    path: Path
    content: Mapping[str, Any]
    counts: tuple[tuple[int, ...], tuple[int, ...]] | None
    learnt: Overlap = Overlap("unknown")

    @property
    def labels(self) -> tuple[str, str]:
        """Names of the negative and of the positive class."""
        return str(self.content.get("negative_label", "negative")), str(self.content.get("positive_label", "positive"))

    @property
    def threshold_cl(self) -> int | None:
        """Smallest ``cl`` that counts as positive."""
        found = _part(self.content, "operating_point").get("threshold_cl")
        return found if isinstance(found, int) else None


def estimate(value: Any) -> tuple[float | None, Interval | None]:
    """Return a metric and its interval, written as ``{"value", "interval"}`` or as a number alone."""
    if isinstance(value, Mapping):
        number, limits = value.get("value"), value.get("interval")
        interval = Interval(*limits) if isinstance(limits, (list, tuple)) and len(limits) == 2 else None
        return (float(number) if isinstance(number, (int, float)) else None), interval
    return (float(value) if isinstance(value, (int, float)) else None), None


def _part(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = content.get(key)
    return found if isinstance(found, Mapping) else {}


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON object.

    :raises InputError: unreadable, or something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"Cannot read {what} '{path}': {error}.") from error
    if not isinstance(content, dict):
        raise InputError(f"'{path}' is not {what}: it holds no JSON object.")
    return content


def read_metrics(paths: Sequence[Path]) -> list[Judged]:
    """Read files of ``leech eval test``.

    :raises InputError: unreadable, another kind of file, or of a version that this leech does not know.
    """
    judged = []
    for path, name in zip(paths, distinct_names(paths, ".json"), strict=True):
        content = read_json(path, "metrics")
        refuse_class_metrics(content, path)
        if content.get("format") != "leech-metrics":
            raise InputError(
                f"'{path}' holds no metrics (format {content.get('format')!r}, expected 'leech-metrics').",
                hint="Give a file that 'leech eval test' wrote.",
            )
        if content.get("schema_version") not in _METRICS_VERSIONS:
            raise InputError(
                f"Metrics '{path}' have schema version {content.get('schema_version')}; this leech reads "
                f"{' and '.join(map(str, _METRICS_VERSIONS))}.",
                hint="Run 'leech eval test' again.",
            )
        require_form(content, path)
        counts = _part(content, "score_counts")
        sides = tuple(_levels(counts.get(side), path) for side in ("negative", "positive")) if counts else None
        judged.append(Judged(name, path, content, sides, _overlap(content, path)))  # type: ignore[arg-type]
    return judged


def _overlap(content: Mapping[str, Any], path: Path) -> Overlap:
    found = read_overlap(content.get("learnt_from"))
    if found is None:
        raise InputError(
            f"'{path}' is damaged: learnt_from does not say whether the model learnt from these reads.",
            hint="Make it again; such files are not edited.",
        )
    return found


def _levels(numbers: Any, path: Path) -> tuple[int, ...]:
    if not isinstance(numbers, list) or len(numbers) != NUM_LEVELS:
        raise InputError(f"'{path}' does not hold {NUM_LEVELS} counts by cl where it should.")
    return tuple(_whole(number, path) for number in numbers)


def _whole(value: Any, path: Path) -> int:
    # Larger ones are no numbers of reads, and no doubles either.
    if not isinstance(value, int) or not 0 <= value < 2**53:
        raise InputError(
            f"'{path}' has {json.dumps(value):.40} where a number of reads should be.",
            hint="Make it again; such files are not edited.",
        )
    return value


def read_scores(paths: Sequence[Path]) -> list[Judged]:
    """Read tables of scores of ``leech eval test --scores``, and count their reads by ``cl``.

    :raises InputError: unreadable, a column missing, a ``cl`` that is none, reads of several models, or no read.
    """
    bare = [path.with_suffix("") if path.suffix == ".gz" else path for path in paths]
    judged = []
    for path, name in zip(paths, distinct_names(bare, ".tsv"), strict=True):
        sides = {False: [0] * NUM_LEVELS, True: [0] * NUM_LEVELS}
        labels: dict[bool, str] = {}
        for row in score_rows(path, ("label", "positive_label", "cl")):
            if not row["label"]:
                raise InputError(f"Scores '{path}' have a read without a label, which is neither right nor wrong.")
            positive = row["label"] == row["positive_label"]
            told = {positive: row["label"], True: row["positive_label"]}
            if any(labels.setdefault(side, label) != label for side, label in told.items()):
                raise InputError(
                    f"Scores '{path}' are of more than two states: {', '.join(sorted({*labels.values(), *told.values()}))}.",
                    hint="Give the table as 'leech eval test --scores' wrote it, of one model.",
                )
            sides[positive][_level(row["cl"], path)] += 1
        if not labels:
            raise InputError(f"Scores '{path}' hold no read.")
        content = {
            "positive_label": labels[True],
            "negative_label": labels.get(False, "negative"),
            "num_reads": sum(sides[True]) + sum(sides[False]),
            "num_positive": sum(sides[True]),
        }
        judged.append(Judged(name, path, content, (tuple(sides[False]), tuple(sides[True]))))
    return judged


def _level(text: str, path: Path) -> int:
    if not text.isdecimal() or int(text) >= NUM_LEVELS:
        raise InputError(f"'{path}' has {text!r} in column 'cl', where whole numbers from 0 to 255 are.")
    return int(text)


def read_samples(folders: Sequence[Path]) -> list[Sample]:
    """Read what ``leech predict`` wrote into folders of tables, one sample or many in each.

    :raises InputError: a folder that is none or holds no table of a sample, one sample in two folders, or a broken file.
    """
    samples: dict[str, Sample] = {}
    for folder in folders:
        found = _sample_names(folder)
        if not found:
            refuse_class_calls(folder)
            raise InputError(
                f"'{folder}' holds no table of calls by reference (<sample>.{_TABLES[0]}.tsv.gz).",
                hint="Give a folder that 'leech predict --tables' wrote.",
            )
        for name in found:
            if name in samples:
                raise InputError(
                    f"Sample '{name}' is in '{samples[name].folder}' and in '{folder}', and its reads would count twice.",
                    hint="Give each sample once, or give them different names with 'leech predict --sample'.",
                )
            samples[name] = _read_sample(folder, name)
    return list(samples.values())


def _sample_names(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise InputError(f"'{folder}' is no folder of tables.", hint="Give the folder, not a file in it.")
    names: set[str] = set()
    for table in _TABLES:
        suffix = f".{table}.tsv.gz"
        names.update(path.name.removesuffix(suffix) for path in folder.glob(f"*{suffix}"))
    return sorted(name for name in names if not _combines_samples(folder, name))


def _combines_samples(folder: Path, name: str) -> bool:
    """Say whether a table holds several samples; each of them has tables of its own beside it."""
    path = folder / f"{name}.{_TABLES[0]}.tsv.gz"
    if not path.is_file():
        return False
    try:
        with open_to_read(path) as file:
            return file.readline().startswith("sample\t")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"Cannot read table '{path}': {error}.") from error


def _read_sample(folder: Path, name: str) -> Sample:
    record_path, calls_path = folder / f"{name}.predict.json", folder / f"{name}.charging_calls.tsv.gz"
    record = read_json(record_path, "the record of a run") if record_path.is_file() else {}
    ladder = {key: _whole(number, record_path) for key, number in _part(record, "counts").items()}
    levels = record.get("cl_histogram")
    histogram = None if levels is None else _levels(levels, record_path)
    lost: Counter[str] = Counter()
    if not record and calls_path.is_file():
        ladder, histogram, lost = _count_calls(calls_path)
    summary, totals = (folder / f"{name}.{table}.tsv.gz" for table in _TABLES)
    references = (
        _from_summary(summary, _telling(record))
        if summary.is_file()
        else _from_totals(totals, lost if ladder else None)
    )
    groups = folder / f"{name}.{_TABLES[0]}.amino_acid.tsv.gz"
    require_form({"threshold_cl": record.get("threshold_cl")}, record_path)
    labels, threshold = record.get("labels"), record.get("threshold_cl")
    return Sample(
        name=name,
        folder=folder,
        references=tuple(references),
        ladder=ladder,
        histogram=histogram,
        threshold_cl=threshold if isinstance(threshold, int) else None,
        labels=(str(labels[0]), str(labels[1])) if isinstance(labels, list) and len(labels) == 2 else None,
        record=record,
        learnt=_overlap(record, record_path),
        corrected=_of_all(record, record_path),
        groups={
            row["amino_acid"]: _corrected(row, _telling(record), groups) for row in table_rows(groups, ("amino_acid",))
        }
        if groups.is_file()
        else {},
    )


def _from_summary(path: Path, corrections: Sequence[str]) -> Iterator[ReferenceCalls]:
    needed = ("reference", "n_positive", "n_negative", "n_no_call")
    for row in table_rows(path, needed):
        positive, negative, no_call = (_count(row[column], path) for column in needed[1:])
        yield ReferenceCalls(
            reference=row["reference"],
            amino_acid=row.get("amino_acid") or _amino_acid(row["reference"]),
            positive=positive,
            negative=negative,
            no_call=no_call,
            enough=row["enough"] == "1" if row.get("enough") else positive + negative >= MIN_DEPTH,
            corrected=_corrected(row, corrections, path),
        )


def _telling(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the corrected fractions that say something of their own: where both states are called alike, one repeats."""
    rates = _part(_part(record, "corrections"), "call_rates")
    repeats = bool(rates) and rates.get("positive") == rates.get("negative")
    return tuple(name for name in CORRECTED if not (repeats and name == "no_call_corrected"))


def _of_all(record: Mapping[str, Any], path: Path) -> dict[str, Fraction]:
    found = {}
    for name in _telling(record):
        written = _part(record, "total").get(name)
        if written is None:
            continue
        limits = written.get("interval") if isinstance(written, Mapping) else None
        cells = [written["value"], *limits] if isinstance(limits, list) and "value" in written else []
        if len(cells) != 3 or not all(isinstance(cell, (int, float)) and 0 <= cell <= 1 for cell in cells):
            raise InputError(
                f"'{path}' has {json.dumps(written):.40} where the corrected fraction of all reads should be.",
                hint="Make it again; such files are not edited.",
            )
        found[name] = Fraction(cells[0], Interval(cells[1], cells[2]))
    return found


def _corrected(row: Mapping[str, str], names: Sequence[str], path: Path) -> dict[str, Fraction]:
    found = {name: _fraction(row, name, path) for name in names}
    return {name: fraction for name, fraction in found.items() if fraction is not None}


def _fraction(row: Mapping[str, str], name: str, path: Path) -> Fraction | None:
    cells = [row.get(f"{name}{suffix}", "") for suffix in ("", "_low", "_high")]
    if not all(cells):
        return None
    try:
        value, low, high = map(float, cells)
    except ValueError as error:
        raise InputError(f"Table '{path}' has a cell in column '{name}' that is no number: {error}.") from error
    return Fraction(value, Interval(low, high))


def _from_totals(path: Path, lost: Counter[str] | None) -> Iterator[ReferenceCalls]:
    """Read counts from the table of earlier versions, which lists called references only.

    :param lost: reads without a call by reference; None where they are not known.
    """
    counts = {
        row["tRNA"]: (_count(row["counts_charged"], path), _count(row["counts_uncharged"], path))
        for row in table_rows(path, ("tRNA", "counts_charged", "counts_uncharged"))
    }
    for name in sorted({*counts, *(lost or ())}):
        positive, negative = counts.get(name, (0, 0))
        no_call = None if lost is None else lost[name]
        yield ReferenceCalls(name, _amino_acid(name), positive, negative, no_call, positive + negative >= MIN_DEPTH, {})


def _count(text: str, path: Path) -> int:
    if not text.isdecimal():
        raise InputError(f"Table '{path}' has {text!r} where a number of reads should be.")
    return int(text)


def _amino_acid(reference: str) -> str:
    return groups_in_name(reference)["amino_acid"] or UNASSIGNED


def _count_calls(path: Path) -> tuple[dict[str, int], tuple[int, ...], Counter[str]]:
    """Count a table of calls: records by outcome, called reads by ``cl``, and uncalled ones by reference."""
    outcomes: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    histogram = [0] * NUM_LEVELS
    for row in table_rows(path, ("reference", "cl", "reason")):
        reason = row["reason"]
        outcomes[reason or USED] += 1
        if not reason:
            histogram[_level(row["cl"], path)] += 1
        elif row["reference"] and reason not in NOT_A_LOSS:
            lost[row["reference"]] += 1
    used = outcomes.pop(USED, 0)
    return {"seen": outcomes.total() + used, **outcomes, USED: used}, tuple(histogram), lost


def calls_by_read(path: Path) -> dict[bytes, str]:
    """Return the label called of every read in a table of scores, by the 16 bytes of its id.

    :raises InputError: unreadable, a column missing, or an id that is none.
    """
    try:
        return {uuid.UUID(row["read_id"]).bytes: row["call"] for row in table_rows(path, ("read_id", "call"), SCORES)}
    except ValueError as error:
        raise InputError(f"Scores '{path}' have a read id that is no UUID: {error}.") from error


def read_history(path: Path) -> list[dict[str, Any]]:
    """Read a model's ``history.jsonl``; empty where there is none.

    :raises InputError: unreadable, or a line that is no JSON object.
    """
    if not path.is_file():
        return []
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"Cannot read the training history '{path}': {error}.") from error
    if not all(isinstance(row, dict) for row in rows):
        raise InputError(f"The training history '{path}' has a line that is no JSON object.")
    return rows
