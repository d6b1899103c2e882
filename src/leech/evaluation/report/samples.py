"""The parts of the report about samples: what was called in each, what was not, and the fraction of every tRNA.

Hides: which tables and figures these are. Belongs here: what is shown of the outputs of ``leech predict``, and the records of
corpora by outcome; reading is ``results.py``'s, drawing ``charts.py``'s. Invariants: a fraction is the share of called reads
as predict counted them, corrected ones stand beside it under their own names; references stand by amino acid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from leech.console import Table
from leech.data.drawing import bare_table, figure, numbers, tsv_link
from leech.data.reasons import REASONS, USED
from leech.evaluation.report.charts import Dot, HeatCell, Row, bar_key, dot_plots, heat_map, key, share_bars
from leech.evaluation.report.results import CORRECTED, MIN_DEPTH, UNASSIGNED, Fraction, ReferenceCalls, Sample
from leech.evaluation.report.section import Section, about_learnt, count, limits, number, paragraph, span, warning

MOST_REFERENCES = 400
"""References shown; of more, those with most calls. A page of tens of thousands opens on no telephone."""

_NAMED_REASONS = 4
"""Reasons with a colour of their own in the figure; the table has all."""

_GIVE_CALLS = "Give the folder of tables that 'leech predict --tables' wrote, with --calls."


def state_names(samples: Sequence[Sample]) -> tuple[str, str]:
    """Return what to call the negative and the positive state: the models' words where they agree."""
    found = {sample.labels for sample in samples if sample.labels is not None}
    return found.pop() if len(found) == 1 else ("negative", "positive")


_CALLED_BY = {
    "labels": "states",
    "model_digest": "model",
    "calibration_digest": "calibration",
    "threshold_cl": "threshold",
    "min_confidence": "least confidence",
    "abstain_junction_indel": "what is done with disrupted junctions",
}
"""By key of a record: what calls of two samples have to have in common, or their fractions are of different things."""


def warn_of_unlike(samples: Sequence[Sample]) -> Iterator[str]:
    """Say in what the samples were called differently, as far as their records tell."""
    differing = [
        words
        for key, words in _CALLED_BY.items()
        if len({repr(sample.record[key]) for sample in samples if key in sample.record}) > 1
    ]
    if differing:
        yield warning(
            f"The samples were not called alike: they differ in {', '.join(differing)}. Their fractions cannot be compared."
        )


def samples_table(samples: Sequence[Sample]) -> Table:
    """Return a row per sample."""
    negative, positive = state_names(samples)
    names = _corrections(sample.total for sample in samples)
    rows = []
    for sample in samples:
        total = sample.total
        fraction = total.fraction
        reads = None if total.no_call is None else total.called + total.no_call
        rows.append(
            (
                sample.name,
                number(None if fraction is None else fraction.value),
                *limits(None if fraction is None else fraction.interval),
                *_corrected_cells(total, names),
                count(total.positive),
                count(total.negative),
                count(total.no_call),
                number(total.no_call / reads if total.no_call is not None and reads else None),
                count(sample.ladder.get("seen")),
                count(sample.threshold_cl),
                sample.learnt.words,
            )
        )
    counts = (positive, negative, "no call", "no-call share", "records", "threshold cl", "model learnt from its reads")
    columns = ("sample", f"fraction {positive}", "low", "high", *_corrected_columns(names), *counts)
    return Table(title="Samples", columns=columns, rows=tuple(rows))


def _corrections(calls: Iterable[ReferenceCalls]) -> list[str]:
    """Return the names of the corrected fractions that any of these has."""
    return sorted({name for one in calls for name in one.corrected})


def _corrected_columns(names: Sequence[str]) -> list[str]:
    return [f"{name}{suffix}" for name in names for suffix in ("", "_low", "_high")]


def _corrected_cells(one: ReferenceCalls, names: Sequence[str]) -> Iterable[str]:
    for name in names:
        found = one.corrected.get(name)
        yield number(None if found is None else found.value)
        yield from limits(None if found is None else found.interval)


def samples_section(samples: Sequence[Sample]) -> Section:
    """Return a row per sample with its counts and fraction."""
    body = []
    if samples:
        table = samples_table(samples)
        body = [
            bare_table(table),
            f"<p>{tsv_link(table, 'samples.tsv')}</p>",
            paragraph(
                "The fraction is raw: that of called reads, with Wilson's 95 % interval. Reads without a call are not in it: "
                "where one state is called less often than the other, it is too low or too high. Records that are unmapped, "
                "secondary, supplementary or duplicates count as records only."
            ),
            *warn_of_unlike(samples),
            *about_learnt({sample.name: sample.learnt for sample in samples}, "fractions"),
            *_about_corrections(samples, [sample.total for sample in samples]),
        ]
    return Section("samples", "Samples", tuple(body), _GIVE_CALLS)


def attrition_section(ladders: Mapping[str, Mapping[str, int]]) -> Section:
    """Return what became of all records, by sample or corpus.

    :param ladders: by name, records by outcome, ``seen`` among them.
    """
    lacking = f"{_GIVE_CALLS} Or a corpus, with --corpus."
    if not ladders:
        return Section("attrition", "What became of the records", (), lacking)
    reasons = _reasons(ladders)
    shares = {
        name: {outcome: ladder.get(outcome, 0) / max(ladder.get("seen", 0), 1) for outcome in (USED, *reasons)}
        for name, ladder in ladders.items()
    }
    named = sorted(reasons, key=lambda reason: -max(of[reason] for of in shares.values()))[:_NAMED_REASONS]
    parts = [
        [of[USED], *(of[reason] for reason in named), sum(of[reason] for reason in reasons if reason not in named)]
        for of in shares.values()
    ]
    drawing = share_bars("Records by outcome", list(ladders), parts)
    table = attrition_table(ladders)
    body = (
        figure(
            drawing,
            "Share of all records of the alignment file; the table has every reason.",
            bar_key([USED, *named, "other reasons"]),
        ),
        numbers(table, "attrition.tsv"),
    )
    return Section("attrition", "What became of the records", body, lacking)


def _reasons(ladders: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return the reasons that occur, in the order in which records are examined, then those this version does not know."""
    occurring = {
        outcome for ladder in ladders.values() for outcome, records in ladder.items() if records and outcome != USED
    } - {"seen"}
    return [*(reason for reason in REASONS if reason in occurring), *sorted(occurring - REASONS.keys())]


def attrition_table(ladders: Mapping[str, Mapping[str, int]]) -> Table:
    """Return records by outcome and name, with shares, meaning and remedy."""
    rows = []
    for outcome in ("seen", *_reasons(ladders), USED):
        reason = REASONS.get(outcome)
        cells = []
        for ladder in ladders.values():
            records = ladder.get(outcome, 0)
            cells += [str(records), f"{100 * records / max(ladder.get('seen', 0), 1):.1f}%"]
        rows.append((outcome, *cells, reason.meaning if reason else "", reason.remedy if reason else ""))
    columns = ("outcome", *(cell for name in ladders for cell in (name, "share")), "meaning", "what to do")
    return Table(title="Records by outcome", columns=columns, rows=tuple(rows))


class _Charging:
    """Calls of all samples, by reference."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples = samples
        self.calls = {(one.reference, place): one for place, sample in enumerate(samples) for one in sample.references}
        total: dict[str, int] = {}
        self.amino_acids: dict[str, str] = {}
        for one in (one for sample in samples for one in sample.references):
            total[one.reference] = total.get(one.reference, 0) + one.called
            self.amino_acids.setdefault(one.reference, one.amino_acid)
        chosen = sorted(total, key=lambda name: (-total[name], name))[:MOST_REFERENCES]
        self.references = sorted(chosen, key=self._place)
        self.num_left_out = len(total) - len(chosen)

    def _place(self, reference: str) -> tuple[bool, str, str]:
        group = self.amino_acids[reference]
        return group == UNASSIGNED, group, reference

    def of(self, reference: str) -> Iterable[tuple[int, ReferenceCalls]]:
        """Return a reference's calls by place of the sample."""
        for place in range(len(self.samples)):
            if (reference, place) in self.calls:
                yield place, self.calls[reference, place]

    def rolled_up(self, group: str, place: int) -> ReferenceCalls:
        """Return all references of an amino acid in one sample, also those that are not shown."""
        members = [one for one in self.samples[place].references if self.amino_acids[one.reference] == group]
        positive, negative = sum(one.positive for one in members), sum(one.negative for one in members)
        enough, corrected = positive + negative >= MIN_DEPTH, self.samples[place].groups.get(group, {})
        return ReferenceCalls(f"all {group}", group, positive, negative, None, enough, corrected)


def charging_sections(samples: Sequence[Sample]) -> tuple[Section, Section]:
    """Return the fraction of every tRNA across samples, as dots with intervals and as a heat map."""
    titles = (("charging", "Fraction by tRNA"), ("heatmap", "Fraction by tRNA and sample"))
    if not samples:
        empty = [Section(anchor, title, (), _GIVE_CALLS) for anchor, title in titles]
        return empty[0], empty[1]
    charging = _Charging(samples)
    positive = state_names(samples)[1]
    (dots, dots_title), (heat, heat_title) = titles
    return (
        Section(dots, dots_title, tuple(_dots(charging, positive)), _GIVE_CALLS),
        Section(heat, heat_title, tuple(_heat(charging, positive)), _GIVE_CALLS),
    )


def _dots(charging: _Charging, positive: str) -> Iterable[str]:
    names = [sample.name for sample in charging.samples]
    rows = [
        Row(
            charging.amino_acids[reference],
            reference,
            [
                _dot(place, names[place], one, *one.best)
                for place, one in charging.of(reference)
                if one.best is not None
            ],
        )
        for reference in charging.references
    ]
    yield key(names, dots=True)
    for drawing in dot_plots("Fraction by tRNA and sample", rows, len(names), f"fraction {positive}"):
        yield figure(drawing, "")
    corrected = [name for name in CORRECTED if any(one.best and one.best[0] == name for one in charging.calls.values())]
    meaning = (
        f"Share of called reads that are {positive}, with Wilson's 95 % interval."
        if not corrected
        else f"Fraction {positive}, corrected ({' or '.join(corrected)}, whichever a tRNA has first) with its 95 % interval; "
        "the faint upright line is the raw fraction of called reads. A dot without one is raw itself."
    )
    yield paragraph(
        f"{meaning} Hollow dots on dashed lines rest on few reads (fewer than {MIN_DEPTH}, or what predict was told). "
        f"{_left_out(charging)}"
    )
    yield from _about_corrections(charging.samples, list(charging.calls.values()))
    yield numbers(charging_table(charging.samples, charging.references), "charging.tsv")


_CORRECTIONS = {
    "error_corrected": ("error_rates_from", "with wrong calls taken out, by the model's error rates"),
    "no_call_corrected": (
        "call_rates_from",
        "of all reads, with what one state is left uncalled more often taken out too",
    ),
}
"""By column: where a record says who knows its rates, and what it is."""


def _about_corrections(samples: Sequence[Sample], calls: Sequence[ReferenceCalls]) -> Iterable[str]:
    """Say which corrected fractions a table holds, what they are, and where their rates are from."""
    for name in _corrections(calls):
        key_of_source, meaning = _CORRECTIONS[name]
        known = (sample.record.get("corrections") for sample in samples)
        sources = {str(found.get(key_of_source)) for found in known if isinstance(found, Mapping)} - {"None"}
        rates = f" Rates: {'; '.join(sorted(sources))}." if sources else ""
        yield paragraph(f"The table has {name} too: the fraction {meaning}.{rates}")


def _dot(place: int, sample: str, one: ReferenceCalls, name: str, found: Fraction) -> Dot:
    raw = one.fraction
    faint = None if name == "raw" or raw is None else raw.value
    return Dot(place, found.value, *found.interval, one.enough, _words(sample, one, name, found), faint)


def _words(sample: str, one: ReferenceCalls, name: str, found: Fraction) -> str:
    counts = f"{one.positive} of {one.called} called reads"
    shown = f"{found.value:.3f} ({span(found.interval)})"
    return f"{sample}: {shown}, {counts}" if name == "raw" else f"{sample}: {name} {shown}; raw: {counts}"


def _left_out(charging: _Charging) -> str:
    if not charging.num_left_out:
        return ""
    return (
        f"Of {charging.num_left_out + MOST_REFERENCES} references the {MOST_REFERENCES} with most calls are shown; predict's "
        "tables have all."
    )


def charging_table(samples: Sequence[Sample], references: Sequence[str]) -> Table:
    """Return a row per reference and sample; figures corrected by predict only where some sample has them."""
    corrections = _corrections(one for sample in samples for one in sample.references)
    shown = {reference: place for place, reference in enumerate(references)}
    rows = []
    for sample in samples:
        for one in sample.references:
            if one.reference not in shown:
                continue
            fraction = one.fraction
            cells = [
                one.amino_acid,
                one.reference,
                sample.name,
                count(one.positive),
                count(one.negative),
                count(one.no_call),
                number(None if fraction is None else fraction.value),
                *limits(None if fraction is None else fraction.interval),
                "yes" if one.enough else "few reads",
            ]
            cells += _corrected_cells(one, corrections)
            rows.append((shown[one.reference], tuple(cells)))
    rows.sort(key=lambda row: row[0])
    columns = (
        *("amino_acid", "reference", "sample", "n_positive", "n_negative", "n_no_call"),
        *("fraction", "fraction_low", "fraction_high", "enough"),
        *_corrected_columns(corrections),
    )
    return Table(title="calls by tRNA and sample", columns=columns, rows=tuple(cells for _, cells in rows))


def _heat(charging: _Charging, positive: str) -> Iterable[str]:
    names = [sample.name for sample in charging.samples]
    rows: list[tuple[str, str, list[HeatCell | None]]] = []
    groups = [charging.amino_acids[reference] for reference in charging.references]
    for place, (reference, group) in enumerate(zip(charging.references, groups, strict=True)):
        found = dict(charging.of(reference))
        rows.append((group, reference, [_heat_cell(names[at], found.get(at)) for at in range(len(names))]))
        last = place + 1 == len(groups) or groups[place + 1] != group
        if last and group != UNASSIGNED and groups.count(group) > 1:
            rolled = [charging.rolled_up(group, at) for at in range(len(names))]
            rows.append((group, f"all {group}", [_heat_cell(names[at], one) for at, one in enumerate(rolled)]))
    yield heat_map(names, rows)
    is_corrected = any(cell is not None and cell.is_corrected for _, _, cells in rows for cell in cells)
    meaning = (
        f"Percent {positive}, corrected; cells in brackets are raw, of called reads, where there is no corrected one"
        if is_corrected
        else f"Percent of called reads that are {positive}"
    )
    yield paragraph(
        f"{meaning}; dark blue is 0, yellow 100. An asterisk marks few reads, a dash stands for no called read. "
        f"{_left_out(charging)}"
    )
    table = Table(
        title="percent by tRNA and sample",
        columns=("amino_acid", "reference", *names),
        rows=tuple(
            (group, name, *("" if cell is None else f"{100 * cell.share:.2f}" for cell in cells))
            for group, name, cells in rows
        ),
    )
    yield numbers(table, "heatmap.tsv")


def _heat_cell(sample: str, one: ReferenceCalls | None) -> HeatCell | None:
    if one is None or one.best is None:
        return None
    name, found = one.best
    return HeatCell(found.value, one.enough, _words(sample, one, name, found), name != "raw")
