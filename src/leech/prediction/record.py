"""The record of a run, ``<sample>.predict.json``: by what its reads were called.

Hides: the names in that file by which two runs are compared. Belongs here: reading a record, and saying in what it differs from
another run; writing one is ``predict.py``'s. Invariant: calls of two runs mean the same only where nothing here differs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from leech.config import to_mapping
from leech.data.config import ReadSources
from leech.errors import InputError, MismatchError
from leech.models.bundle import ModelBundle, ModelIdentity
from leech.prediction.calls import CallRules
from leech.provenance import final_path, read_description

FORMAT = "leech-predict"
SCHEMA_VERSION = 1

CLASSES_FORMAT = "leech-class-predict"
"""Of models of more than two states, whose records are compared with none; its schema version is 1, too."""

RUN_AGAIN = "Give --force to run the sample again, or another output folder with -o."
"""What to do about a record that a run cannot go on from."""

RULES = ("threshold_cl", "min_confidence", "abstain_junction_indel")


class Calling(NamedTuple):
    """By what the reads of a run are called.

    :ivar values: by name in the record.
    """

    values: Mapping[str, Any]

    @classmethod
    def of(cls, model: Path, bundle: ModelBundle, rules: CallRules) -> Calling:
        """Return that of a model folder and rules."""
        identity = ModelIdentity.of(model)
        return cls(
            {
                "model_digest": identity.model,
                "calibration_digest": identity.calibration,
                "labels": list(bundle.labels),
                "threshold_cl": rules.threshold_cl,
                "min_confidence": rules.min_confidence or None,
                "abstain_junction_indel": rules.needs_clean_junction,
            }
        )

    def differences(self, record: Mapping[str, Any]) -> Iterator[str]:
        """Yield in words what differs in the record of another run, there and here."""
        here = self.values
        if record.get("model_digest") != here["model_digest"]:
            yield told("model", short(record.get("model_digest")), short(here["model_digest"]))
            if record.get("labels") != here["labels"]:
                yield told("labels", " and ".join(map(str, record.get("labels") or ())), " and ".join(here["labels"]))
        elif record.get("calibration_digest") != here["calibration_digest"]:
            yield told("calibration", short(record.get("calibration_digest")), short(here["calibration_digest"]))
        for name in RULES:
            if record.get(name) != here[name]:
                yield told(name, record.get(name), here[name])


def read_record(path: Path, remedy: str, form: str = FORMAT) -> dict[str, Any]:
    """Read the record of a run.

    :param remedy: what to do about one of another version, or of a model of another kind.
    :param form: that of two states, or of more.
    :raises InputError: unreadable, or another form or version.
    :raises MismatchError: calls by a model of two states where more are asked for, or the other way round.
    """
    try:
        return read_description(path, "prediction", form=form, schema_version=SCHEMA_VERSION, remedy=remedy)
    except InputError:
        if _form_of(path) not in ({FORMAT, CLASSES_FORMAT} - {form}):
            raise
    there, here = ("more than two states", "two") if form == FORMAT else ("two states", "more than two")
    raise MismatchError(
        f"'{path}' is of calls by a model of {there}, and here a model of {here} is asked.", hint=remedy
    )


def _form_of(path: Path) -> object:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError):
        return None
    return content.get("format") if isinstance(content, dict) else None


def choices_of(sources: ReadSources) -> dict[str, Any]:
    """Return the options about which reads are taken, without the reads themselves."""
    named = replace(sources, reference=final_path(sources.reference))
    return {name: value for name, value in to_mapping(named).items() if name not in ("pod5", "bam")}


def short(digest: str | None) -> str:
    """Return enough of a digest to tell it from others."""
    return "none" if digest is None else digest[: len("sha256:") + 12]


def told(name: str, there: object, here: object) -> str:
    """Return in words what another run has and this one has."""
    return f"{name} ({_word(there)} there, {_word(here)} here)"


def _word(value: object) -> str:
    if value is None or isinstance(value, bool):
        return "yes" if value else "none" if value is None else "no"
    return str(value)
