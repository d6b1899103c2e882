"""One page with the results of eval and predict: ``leech report``.

Hides: which inputs there are, and the page around its parts. Belongs here: reading what was given, in which order the parts
stand, and where all of it comes from; the parts are ``samples.py``'s, ``models.py``'s and ``signal.py``'s. Figures are SVG in
the page, for the reasons given in ``data/drawing.py``: plotly is none of leech's requirements, its pages weigh megabytes before
the first figure and show nothing without scripts. Invariants: one file that needs no network and no script; the page depends
on its inputs, options and stamp alone; an input that was not given costs its parts, one that is broken is an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from leech.config import to_mapping
from leech.console import Table
from leech.data.corpus import Corpus
from leech.data.drawing import bare_table, document, tsv_link
from leech.data.recipe import with_later_fields
from leech.data.squiggle import View, view
from leech.errors import ConfigError, InputError
from leech.evaluation.config import ReportConfig
from leech.evaluation.report.charts import heat_style
from leech.evaluation.report.form import require_form
from leech.evaluation.report.models import (
    curves_section,
    groups_section,
    metrics_section,
    reliability_section,
    scores_section,
    training_section,
)
from leech.evaluation.report.multiqc import custom_content
from leech.evaluation.report.results import (
    Judged,
    Sample,
    calls_by_read,
    read_history,
    read_json,
    read_metrics,
    read_samples,
    read_scores,
)
from leech.evaluation.report.samples import (
    attrition_section,
    charging_sections,
    samples_section,
    state_names,
    warn_of_unlike,
)
from leech.evaluation.report.section import Section, warn_of_learnt
from leech.evaluation.report.signal import examples_section, signal_section, view_by_call
from leech.provenance import Stamp, atomic_file, distinct_names

_STYLE = """
.lacking { color: #555; font-style: italic } nav ul { columns: 14em auto; padding-left: 1.2em }
figure svg { max-width: 46em; display: block } .wide > svg { max-width: none }
.numbers { margin: -.8em 0 1.6em; font-size: .9em } .numbers .wide { max-height: 30em; overflow: auto }
#provenance td { min-width: 7em; vertical-align: top } #provenance td:first-child { overflow-wrap: normal }
.warning { border-left: .3em solid #d55e00; padding-left: .7em; font-weight: 600 }
@media print { nav, .numbers { display: none } section { break-inside: auto } }
"""


@dataclass(frozen=True)
class Report:
    """A page that was written.

    :ivar multiqc: files beside it.
    """

    path: Path
    multiqc: tuple[Path, ...]
    sections: tuple[Section, ...]

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "path": str(self.path),
            "multiqc": [str(path) for path in self.multiqc],
            "shown": [section.anchor for section in self.sections if section.body],
            "left_out": {section.anchor: section.lacking for section in self.sections if not section.body},
        }

    def tables(self) -> list[Table]:
        """Return which parts the page has."""
        rows = tuple(
            (section.title, "shown" if section.body else f"left out. {section.lacking}") for section in self.sections
        )
        return [Table(title=f"Page {self.path}", columns=("part", ""), rows=rows)]


@dataclass(frozen=True)
class _Inputs:
    """What was given, read back."""

    samples: list[Sample]
    metrics: list[Judged]
    scores: list[Judged]
    corpus: Corpus | None
    view: View | None
    view_by_call: View | None
    model: Mapping[str, Any]
    calibration: Mapping[str, Any]
    history: list[dict[str, Any]]

    @classmethod
    def read(cls, config: ReportConfig) -> _Inputs:
        corpus = None if config.corpus is None else Corpus.open(config.corpus)
        return cls(
            samples=read_samples(config.calls),
            metrics=read_metrics(config.metrics),
            scores=read_scores(config.scores),
            corpus=corpus,
            view=None if corpus is None else view(corpus, config.sample, config.examples, config.seed),
            view_by_call=None
            if corpus is None or not config.scores
            else view_by_call(corpus, calls_by_read(config.scores[0]), config.sample, config.seed),
            model={} if config.model is None else _read_model(config.model),
            calibration={} if config.model is None else _read_calibration(config.model),
            history=[] if config.model is None else read_history(config.model / "history.jsonl"),
        )

    @property
    def judged(self) -> list[Judged]:
        """Metrics and scores; scores that metrics hold already are not shown twice."""
        counted = {one.counts for one in self.metrics}
        return [*self.metrics, *(one for one in self.scores if one.counts not in counted)]

    def ladders(self) -> dict[str, Mapping[str, int]]:
        """Return records by outcome of every sample and of every corpus of a library."""
        found: dict[str, Mapping[str, int]] = {sample.name: sample.ladder for sample in self.samples if sample.ladder}
        if self.corpus is not None:
            parts = list(self.corpus.parts or [self.corpus])
            for part, name in zip(parts, distinct_names([part.path for part in parts]), strict=True):
                labels = ", ".join(part.labels)
                found[f"corpus {name}{f' ({labels})' if labels else ''}"] = part.manifest.counts
        return found


def _read_model(folder: Path) -> dict[str, Any]:
    path = folder / "model.json"
    if not path.is_file():
        raise InputError(
            f"'{folder}' is no model folder: it has no 'model.json'.", hint="Give what 'leech model train' wrote."
        )
    content = read_json(path, "a model")
    if content.get("format") != "leech-model":
        raise InputError(f"'{path}' is not a leech model (format {content.get('format')!r}, expected 'leech-model').")
    return content


def _read_calibration(folder: Path) -> dict[str, Any]:
    path = folder / "calibration.json"
    if not path.is_file():
        return {}
    content = read_json(path, "the record of a calibration")
    if content.get("format") == "leech-class-calibration":
        # Of more than two states, whose probabilities have no place among the figures.
        return {}
    require_form(content, path)
    return content


def report(config: ReportConfig, output: Path, *, force: bool, stamp: Stamp) -> Report:
    """Write the page, and custom content for MultiQC if it is asked for.

    :raises ConfigError: nothing to report, or an output that is no .html.
    :raises InputError: an input that is broken or of another kind, or an output that exists.
    """
    if output.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"Output '{output}' must end in .html, the format that is written.")
    if not any((config.metrics, config.scores, config.calls, config.corpus, config.model)):
        raise ConfigError(
            "There is nothing to report.",
            hint="Give at least one of --calls, --metrics, --scores, --corpus and --model.",
        )
    if config.multiqc and not config.calls:
        raise ConfigError("--multiqc shows samples, and there are none without --calls.")
    with ExitStack() as stack:
        # Names first, so that one that is taken is told before any work.
        partial = stack.enter_context(atomic_file(output, force=force))
        suffixes = custom_content([], "") if config.multiqc else {}
        beside = {suffix: output.with_name(output.stem + suffix) for suffix in suffixes}
        partials = {suffix: stack.enter_context(atomic_file(path, force=force)) for suffix, path in beside.items()}
        inputs = _Inputs.read(config)
        sections = tuple(_sections(inputs))
        partial.write_text(_page(config, inputs, sections, stamp), encoding="utf-8")
        if config.multiqc:
            for suffix, content in custom_content(inputs.samples, state_names(inputs.samples)[1]).items():
                text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
                partials[suffix].write_text(text + "\n", encoding="utf-8")
    return Report(output, tuple(beside.values()), sections)


def _sections(inputs: _Inputs) -> Iterator[Section]:
    samples = {sample.name: sample.learnt for sample in inputs.samples}
    judged = {one.name: one.learnt for one in inputs.judged}
    unlike = list(warn_of_unlike(inputs.samples))
    yield samples_section(inputs.samples)
    yield attrition_section(inputs.ladders())
    for section in charging_sections(inputs.samples):
        yield _headed(section, [*unlike, *warn_of_learnt(samples, "fractions")])
    yield metrics_section(inputs.metrics)
    yield _headed(groups_section(inputs.metrics), warn_of_learnt(judged, "figures"))
    yield _headed(
        scores_section(inputs.judged, inputs.samples), [*unlike, *warn_of_learnt({**samples, **judged}, "scores")]
    )
    yield _headed(curves_section(inputs.judged), warn_of_learnt(judged, "curves"))
    yield _headed(reliability_section(inputs.metrics, inputs.calibration), warn_of_learnt(judged, "figures"))
    yield signal_section(inputs.view, inputs.view_by_call)
    yield examples_section(inputs.view)
    yield training_section(inputs.history, inputs.model)


def _headed(section: Section, warnings: Iterable[str]) -> Section:
    """Put warnings in front of a part, where it is shown."""
    return section._replace(body=(*warnings, *section.body)) if section.body else section


def _page(config: ReportConfig, inputs: _Inputs, sections: Sequence[Section], stamp: Stamp) -> str:
    origin = Section("provenance", "Where this comes from", tuple(_provenance(inputs, stamp)), "")
    parts = [*sections, origin]
    links = "".join(f'<li><a href="#{part.anchor}">{escape(part.title)}</a></li>' for part in parts if part.body)
    body = [f"<h1>{escape(config.title)}</h1>", f"<nav><ul>{links}</ul></nav>", *(part.html() for part in parts)]
    footer = f"{' '.join(stamp.command)} · leech {stamp.versions.get('leech', '')} · {stamp.time_utc}"
    return document(config.title, body, footer, _STYLE + heat_style())


def _provenance(inputs: _Inputs, stamp: Stamp) -> Iterator[str]:
    table = Table(
        title="Files",
        columns=("what", "path", "digest", "made by", "when (UTC)", "versions", "settings"),
        rows=tuple(_origins(inputs, stamp)),
    )
    yield bare_table(table)
    yield f"<p>{tsv_link(table, 'provenance.tsv')}</p>"
    recipes = {
        "corpus": None if inputs.corpus is None else to_mapping(inputs.corpus.recipe),
        "model": inputs.model.get("recipe"),
    }
    known = {name: with_later_fields(recipe) for name, recipe in recipes.items() if isinstance(recipe, dict)}
    if known:
        fields = sorted({field for recipe in known.values() for field in recipe})
        rows = tuple((field, *(_plain(recipe.get(field)) for recipe in known.values())) for field in fields)
        yield (
            "<details><summary>Recipe: how chunks were cut</summary>"
            + bare_table(Table(title="Recipe", columns=("field", *known), rows=rows))
            + "</details>"
        )
    rows = tuple((one.path, str(one.num_bytes), one.sha256 or "") for one in stamp.inputs)
    if rows:
        inputs_table = Table(title="Inputs of this page", columns=("path", "bytes", "sha256"), rows=rows)
        yield f"<details><summary>Inputs of this page</summary>{bare_table(inputs_table)}</details>"


def _origins(inputs: _Inputs, stamp: Stamp) -> Iterator[tuple[str, ...]]:
    """Yield what every file is, where it lies, and who made it how and when, as far as it says so."""
    yield _origin("this page", "", "", stamp.to_mapping())
    for sample in inputs.samples:
        digest = _plain(sample.record.get("identity"))
        yield _origin(f"sample {sample.name}", str(sample.folder), digest, sample.record.get("provenance"))
    for one in inputs.metrics:
        digest = _plain(one.content.get("corpus_digest"))
        yield _origin(f"metrics {one.name}", str(one.path), digest, one.content.get("provenance"))
    for one in inputs.scores:
        yield _origin(f"scores {one.name}", str(one.path), "", None)
    if inputs.corpus is not None:
        for part in [inputs.corpus, *inputs.corpus.parts]:
            stored = part.path / "provenance.json"
            made = read_json(stored, "a stamp") if stored.is_file() else None
            yield _origin("corpus", str(part.path), part.manifest.digest, made)
    if inputs.model:
        yield _origin("model", "", _plain(inputs.model.get("digest")), inputs.model.get("stamp"))


def _origin(what: str, path: str, digest: str, stamp: Any) -> tuple[str, ...]:
    made: Mapping[str, Any] = stamp if isinstance(stamp, Mapping) else {}
    command, versions = made.get("command"), made.get("versions")
    return (
        what,
        path,
        digest,
        " ".join(map(str, command)) if isinstance(command, list) else _plain(command),
        _plain(made.get("time_utc")),
        ", ".join(f"{name} {version}" for name, version in versions.items()) if isinstance(versions, Mapping) else "",
        _plain(made.get("config_digest")),
    )


def _plain(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)
