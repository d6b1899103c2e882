"""What the probes of a corpus found, the one line that follows from it, and its record.

Hides: when a label counts as readable, and the form of ``check.json``. Belongs here: results and words; the probes are made
in ``shortcuts.py``. Invariants: every probe is in the record, one that could not be made with the reason; the record names
its corpus by digest and is no part of it, so a record that a corpus outlived is known as such; no path of the machine is in
the results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from leech.config import to_mapping
from leech.console import Table, logger
from leech.data.corpus import Corpus
from leech.errors import InputError, LeechError
from leech.evaluation.config import CheckConfig
from leech.evaluation.intervals import Estimate
from leech.provenance import final_path, read_description

FILE_NAME = "check.json"
FORMAT = "leech-check"
SCHEMA_VERSION = 1

TOGETHER = "identity together"

READABLE = 0.6
"""AUROC above which a label counts as readable, if the interval lies above 0.5 too."""

Kind = Literal["identity", "consequence", "control", "site"]


class Probe(NamedTuple):
    """What the label is read from, and how well that goes.

    :ivar name: a column, ``identity together``, ``control window`` or ``site``.
    :ivar kind: ``identity`` and ``control`` should be near 0.5; ``consequence`` may follow from the state itself.
    :ivar counts: whether it enters the verdict.
    :ivar estimate: AUROC; value None where it could not be had.
    :ivar num_reads: by label code.
    :ivar num_values: different values among the reads; None for a window.
    :ivar reason: why there is no value.
    """

    name: str
    kind: Kind
    counts: bool
    estimate: Estimate
    num_reads: tuple[int, ...]
    num_values: int | None = None
    reason: str | None = None

    @property
    def is_readable(self) -> bool:
        """Whether the label can be read from it beyond chance."""
        value, interval = self.estimate
        return value is not None and value > READABLE and interval is not None and interval.low > 0.5

    def words(self) -> str:
        """Return AUROC and interval."""
        value, interval = self.estimate
        if value is None:
            return f"not possible: {self.reason}"
        return f"AUROC {value:.2f}" + (f" [{interval.low:.2f}, {interval.high:.2f}]" if interval else "")

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        value, interval = self.estimate
        return {
            "name": self.name,
            "kind": self.kind,
            "counts": self.counts,
            "auroc": value,
            "interval": None if interval is None else list(interval),
            "num_reads": list(self.num_reads),
            "num_values": self.num_values,
            "reason": self.reason,
        }


class Verdict(NamedTuple):
    """What follows from the probes: ``shortcut``, ``incomplete`` (nothing found, control not probed) or ``clean``."""

    status: Literal["shortcut", "incomplete", "clean"]
    text: str


@dataclass(frozen=True)
class CheckResult:
    """A corpus's probes and what follows from them.

    :ivar lost: records whose control window could not be cut, by reason.
    """

    path: Path
    corpus_digest: str
    labels: tuple[str, ...]
    probes: tuple[Probe, ...]
    verdict: Verdict
    lost: dict[str, int]
    config: CheckConfig

    @property
    def failure(self) -> LeechError | None:
        """What ``fail_above`` makes of the result; None where it is not given or met."""
        limit = self.config.fail_above
        if limit is None:
            return None
        worst = [
            f"{probe.name}: {probe.words()}"
            for probe in self.probes
            if probe.counts and (probe.estimate.value is None or probe.estimate.value > limit)
        ]
        if not worst:
            return None
        return LeechError(
            f"Corpus '{self.path}' does not pass --fail-above {limit:g}: {'; '.join(worst)}.",
            hint="Balance the libraries, or --allow an identity that goes with the label by design.",
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "corpus_digest": self.corpus_digest,
            "verdict": self.verdict._asdict(),
            "labels": list(self.labels),
            "probes": [probe.to_mapping() for probe in self.probes],
            "control_lost": self.lost,
            "settings": {**to_mapping(self.config), "control": None if self.config.control is None else "given"},
        }

    def tables(self) -> list[Table]:
        """Return the verdict in one line, and the probes."""
        rows = []
        for probe in self.probes:
            value, interval = probe.estimate
            rows.append(
                (
                    probe.name,
                    "" if value is None else f"{value:.3f}",
                    "" if interval is None else f"{interval.low:.3f}",
                    "" if interval is None else f"{interval.high:.3f}",
                    "" if probe.num_values is None else str(probe.num_values),
                    *(str(number) for number in probe.num_reads),
                    _remark(probe),
                )
            )
        columns = ("label read from", "AUROC", "low", "high", "values", *self.labels, "remark")
        return [
            Table(title="", columns=("verdict",), rows=((self.verdict.text,),)),
            Table(title="Probes", columns=columns, rows=tuple(rows)),
        ]


def _remark(probe: Probe) -> str:
    if probe.reason is not None:
        return f"not possible: {probe.reason}"
    if probe.kind == "site":
        return "should be high"
    if probe.kind == "consequence":
        return "may follow from the state; not in the verdict"
    if not probe.counts:
        return "allowed; not in the verdict"
    return "should be near 0.5; IS NOT" if probe.is_readable else "should be near 0.5"


def judge(probes: Sequence[Probe]) -> Verdict:
    """Say in one line whether the label can be read from what it should not."""
    counted = [probe for probe in probes if probe.counts]
    guilty = [probe for probe in counted if probe.is_readable]
    alone = [probe for probe in guilty if probe.name != TOGETHER]
    if guilty:
        named = "; ".join(f"from {_phrase(probe)}: {probe.words()}" for probe in alone or guilty)
        control = [probe for probe in counted if probe.kind == "control" and probe not in guilty]
        rest = "".join(f"; {probe.name} {probe.words()}" for probe in control)
        return Verdict("shortcut", f"label readable {named}{rest}")
    known = [probe for probe in counted if probe.name == TOGETHER or probe.kind == "control"]
    shown = "; ".join(f"{probe.name} {probe.words()}" for probe in known)
    site = "".join(f"; site {probe.words()}" for probe in probes if probe.kind == "site")
    if any(probe.estimate.value is None for probe in counted):
        return Verdict("incomplete", f"no shortcut found, but not all was probed: {shown}{site}")
    highest = max((probe.estimate.interval.high for probe in counted if probe.estimate.interval), default=0.5)
    hidden = f" (too few reads to see one below AUROC {highest:.2f})" if highest > READABLE + 0.1 else ""
    return Verdict("clean", f"no shortcut found{hidden}: {shown}{site}")


def _phrase(probe: Probe) -> str:
    if probe.name == TOGETHER:
        return "identity together, though from no column alone"
    return f"the {probe.name}" if probe.kind == "control" else f"{probe.name} alone"


def warn_unchecked(corpus: Corpus) -> None:
    """Warn of a corpus that was never checked, or whose check found a shortcut or was not complete."""
    path = corpus.path / FILE_NAME
    content: Mapping[str, Any] = {}
    if path.is_file():
        remedy = "Run 'leech data check' again."
        try:
            content = read_description(path, "check", form=FORMAT, schema_version=SCHEMA_VERSION, remedy=remedy)
        except InputError as error:
            logger.warning("%s", error.message)
    if content.get("corpus_digest") != corpus.manifest.digest:
        logger.warning(
            "Corpus '%s' was never checked for shortcuts; 'leech data check %s' says whether its label can be read from "
            "what it should not.",
            final_path(corpus.path),
            final_path(corpus.path),
        )
    elif content["verdict"]["status"] != "clean":
        logger.warning("The check of corpus '%s' says: %s.", final_path(corpus.path), content["verdict"]["text"])
