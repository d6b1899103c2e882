"""What a model folder says about itself, for people and for programs: ``leech model inspect``.

Hides: which of it is worth a line. Belongs here: a model's description as tables and as plain types; reading the folder is
``bundle.py``'s. Invariants: JSON leaves nothing out; text rounds figures, shortens long lists and says where all of it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leech.config import to_mapping
from leech.console import Table
from leech.models.bundle import ModelBundle, OperatingPoint, choices, load_bundle

_LONGEST_LIST = 8
"""Names that a row holds; of more the first few are shown."""


@dataclass(frozen=True)
class ModelDescription:
    """What ``leech model inspect`` shows."""

    path: Path
    bundle: ModelBundle
    parameters: dict[str, int]

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        bundle = self.bundle
        return {
            "path": str(self.path),
            "architecture": bundle.spec.to_mapping(),
            "parameters": {**self.parameters, "total": sum(self.parameters.values())},
            "labels": list(bundle.labels),
            "positive_label": bundle.positive_label,
            **choices(bundle.calibration, bundle.operating_point),
            "recipe": to_mapping(bundle.recipe),
            "recipe_digest": bundle.recipe.digest(),
            "training": dict(bundle.training),
            "stamp": dict(bundle.stamp),
        }

    def tables(self) -> list[Table]:
        """Return overview, parameters by branch, recipe, training and its settings."""
        bundle = self.bundle
        overview = [
            ("path", str(self.path)),
            ("architecture", f"{bundle.spec.name}: {bundle.spec.description}"),
            ("labels", f"{bundle.labels[0]} (negative), {bundle.labels[1]} (positive)"),
            ("called positive", f"cl >= {bundle.threshold_cl} ({bundle.operating_point.source})"),
            *_achieved_rows(bundle.operating_point),
            ("calibration", "none" if bundle.calibration is None else bundle.calibration.describe()),
            ("parameters", str(sum(self.parameters.values()))),
            *((f"  {name}", str(number)) for name, number in self.parameters.items()),
        ]
        recipe = [(key, "" if value is None else str(value)) for key, value in to_mapping(bundle.recipe).items()]
        run = bundle.training.get("run") or {}
        settings = [(key, _words(value)) for key, value in run.get("settings", {}).items()]
        return [
            Table(title="Model", columns=("what", "value"), rows=overview),
            Table(title="Recipe of its chunks", columns=("option", "value"), rows=recipe),
            Table(title="Training", columns=("what", "value"), rows=tuple(_training_rows(bundle.training))),
            *(
                [Table(title="Settings of the training", columns=("option", "value"), rows=settings)]
                if settings
                else []
            ),
        ]


def _training_rows(training: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a row per fact, those of one thing indented below it; of the run only what no other row or table has."""
    for key, value in training.items():
        if key == "run":
            yield "architecture_digest", _words(value.get("architecture"))
            yield "source_digests", _words(value.get("sources"))
        elif isinstance(value, Mapping) and value:
            yield key, ""
            yield from ((f"  {name}", _words(one)) for name, one in value.items())
        else:
            yield key, _words(value)


def _words(value: Any) -> str:
    """Return a value as it reads best in one cell."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_words(one)}" for name, one in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) > _LONGEST_LIST:
            return f"{len(value)}: {', '.join(map(_words, value[:3]))}, ... (all with --json)"
        return ", ".join(map(_words, value))
    return str(value)


def _achieved_rows(point: OperatingPoint) -> list[tuple[str, str]]:
    """Return one row per split that the operating point was measured on."""
    rows = []
    for split, achieved in (point.achieved or {}).items():
        rates = {"TPR": achieved.tpr.value, "FPR": achieved.fpr.value}
        told = [f"{name} {value:.3f}" for name, value in rates.items() if value is not None]
        rows.append((f"  on the {split} split", ", ".join([*told, f"{achieved.num_reads} reads"])))
    return rows


def describe(folder: Path) -> ModelDescription:
    """Look into a model folder; the weights are loaded, so that a damaged model is found out.

    :raises InputError: no complete model there.
    :raises MismatchError: weights and description disagree.
    """
    from leech.data.corpus import stored_table

    bundle, network, _ = load_bundle(folder)
    # Looked at here too, so that a folder is not called whole whose k-mer table is missing.
    stored_table(folder, bundle.recipe)
    parts = {**dict(network.branches.named_children()), "output": network.output}
    numbers = {name: sum(parameter.numel() for parameter in part.parameters()) for name, part in parts.items()}
    return ModelDescription(folder, bundle, numbers)
