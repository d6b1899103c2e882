"""The model folder: ``model.safetensors`` and ``model.json``.

Hides: file names, JSON, checks on loading. Belongs here: everything that predicting needs, so that the folder alone is
enough; what training leaves beside it (history, configuration) is written there. Invariants: loading runs no code from the
folder and loads weights by name, strictly; a folder whose recipe means something else now is refused, and so is one whose
network, labels or weights are not those that were saved together.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from leech.config import build, to_mapping
from leech.data.recipe import Recipe
from leech.errors import ConfigError, InputError, LeechError, MismatchError
from leech.models.calibration import AnyCalibration, Calibration, ClassCalibration
from leech.models.learnt import Learnt
from leech.provenance import digest_of, read_description

if TYPE_CHECKING:
    from torch import nn

    from leech.models.network import Network
    from leech.models.spec import ArchitectureSpec

FORMAT = "leech-model"
SCHEMA_VERSION = 1
"""Of models of two states."""

CLASSES_VERSION = 2
"""Of models of more, without positive label and operating point; a leech that knows none of them refuses them by it."""

WEIGHTS = "model.safetensors"
DESCRIPTION = "model.json"
DEFAULT_THRESHOLD_CL = 200

_DAMAGED = "The folder was edited or damaged; use the original model."


@dataclass(frozen=True)
class Figure:
    """A measured share with its 95 % interval; None where the reads do not define it."""

    value: float | None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class CallCounts:
    """Calls of reads of known state."""

    tp: int
    fp: int
    tn: int
    fn: int

    def __post_init__(self) -> None:
        if min(self.tp, self.fp, self.tn, self.fn) < 0:
            raise ValueError(f"counts of calls {asdict(self)} must not be below 0")

    @property
    def num_positive(self) -> int:
        """Reads whose state is positive."""
        return self.tp + self.fn

    @property
    def num_negative(self) -> int:
        """Reads whose state is negative."""
        return self.tn + self.fp


@dataclass(frozen=True, kw_only=True)
class Achieved:
    """Calls at an operating point on one split of a corpus.

    :ivar tpr: share of positive reads called positive; ``fpr`` likewise of negative reads.
    :ivar precision: of positive calls, at the prevalence of these reads.
    :ivar references: the calls of each reference; None in folders from before they were counted.
    """

    num_reads: int
    num_positive: int
    tp: int
    fp: int
    tn: int
    fn: int
    tpr: Figure
    fpr: Figure
    precision: Figure
    balanced_accuracy: Figure
    mcc: Figure
    f1: Figure
    references: dict[str, CallCounts] | None = None

    @property
    def calls(self) -> CallCounts:
        """The calls of all reads."""
        return CallCounts(tp=self.tp, fp=self.fp, tn=self.tn, fn=self.fn)


@dataclass(frozen=True)
class OperatingPoint:
    """Where a score becomes a call: positive from this ``cl`` on.

    :ivar source: who chose it: ``default``, or the target that was to be met on the calibration split.
    :ivar target: that target, such as ``{"fpr": 0.02}``; None where there was none.
    :ivar achieved: figures at this threshold by split (``calibration``, where it was chosen, and ``test``); None where it was
        not measured.
    """

    threshold_cl: int = DEFAULT_THRESHOLD_CL
    source: str = "default"
    target: dict[str, float] | None = None
    achieved: dict[str, Achieved] | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.threshold_cl <= 255:
            raise ValueError(f"threshold_cl {self.threshold_cl} must lie between 1 and 255")
        if self.target is not None and (
            len(self.target) != 1 or not set(self.target) <= {"fpr", "precision", "recall"}
        ):
            raise ValueError(f"target {self.target} must name one of fpr, precision and recall")

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON; what there is none of is left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class ModelBundle:
    """What a model folder says, without the weights.

    :ivar labels: [negative, positive], or all classes of more than two in the order of the logits.
    :ivar training: how it was trained: epoch, step, validation metrics, corpus digest.
    :ivar stamp: provenance.
    :ivar operating_point: None for more than two states: the most probable one is called.
    :ivar calibration: makes probabilities of raw logits; None where the model is not calibrated.
    """

    spec: ArchitectureSpec
    recipe: Recipe
    labels: tuple[str, ...]
    training: Mapping[str, Any]
    stamp: Mapping[str, Any]
    operating_point: OperatingPoint | None = OperatingPoint()
    calibration: AnyCalibration | None = None

    def __post_init__(self) -> None:
        assert len(self.labels) >= 2
        assert (self.operating_point is None) == (len(self.labels) > 2)

    @property
    def has_two_states(self) -> bool:
        """Whether there are a negative and a positive label, instead of more than two of which none is."""
        return len(self.labels) == 2

    @property
    def threshold_cl(self) -> int:
        """Smallest ``cl`` that counts as positive, of a model of two states."""
        assert self.operating_point is not None, "more than two states have no threshold"
        return self.operating_point.threshold_cl

    @property
    def positive_label(self) -> str | None:
        """The label whose probability the network gives; None of more than two."""
        return self.labels[1] if self.has_two_states else None

    @property
    def two_labels(self) -> tuple[str, str]:
        """The negative and the positive label of a model of two states."""
        negative, positive = self.labels
        return negative, positive


def require_two_states(bundle: ModelBundle, folder: Path, what: str) -> None:
    """Refuse a model of more than two states where one of them must be positive.

    :param what: what was asked for, in words: "comparing".
    :raises ConfigError: naming the states.
    """
    if not bundle.has_two_states:
        raise ConfigError(
            f"Model '{folder}' tells {len(bundle.labels)} states apart ({', '.join(bundle.labels)}), and {what} is for models "
            "of two states, of which one is positive.",
            hint="Use a model of two states.",
        )


class LoadedModel(NamedTuple):
    """A model ready to be asked: its network is in evaluation mode, on the CPU.

    :ivar learnt: what it tells of the reads that it learnt from.
    """

    bundle: ModelBundle
    network: Network
    learnt: Learnt


@dataclass(frozen=True)
class _Common:
    """What every ``model.json`` holds."""

    format: Literal["leech-model"]
    schema_version: int
    architecture: dict[str, Any]
    recipe: dict[str, Any]
    recipe_digest: str
    training: dict[str, Any]
    digest: str
    stamp: dict[str, Any] = field(default_factory=dict, kw_only=True)


@dataclass(frozen=True)
class _Document(_Common):
    """The form of the ``model.json`` of two states."""

    labels: tuple[str, str]
    positive_label: str
    operating_point: OperatingPoint
    calibration: Calibration | None

    def __post_init__(self) -> None:
        if self.labels[0] == self.labels[1] or not all(self.labels):
            raise ValueError(f"labels {list(self.labels)} must be two different names")


@dataclass(frozen=True)
class _ClassesDocument(_Common):
    """The form of the ``model.json`` of more states."""

    labels: tuple[str, ...]
    positive_label: None
    operating_point: None
    calibration: ClassCalibration | None

    def __post_init__(self) -> None:
        if len(self.labels) < 3 or len(set(self.labels)) < len(self.labels) or not all(self.labels):
            raise ValueError(f"labels {list(self.labels)} must be three or more different names")
        if self.calibration is not None and len(self.calibration.scales) != len(self.labels):
            raise ValueError(f"a calibration of {len(self.calibration.scales)} classes is none of {len(self.labels)}")


def _digest(content: Mapping[str, Any], weights: bytes) -> str:
    """Return the digest of all that decides a raw logit and its meaning.

    Weights of another network of the same shape fit, and so does the same network with its features in another order, or
    with its labels exchanged: names and shapes alone would not tell. Calibration and operating point are not part of it, being
    choices that may be made again.
    """
    decisive = {name: content[name] for name in ("architecture", "recipe_digest", "labels")}
    return digest_of({**decisive, "weights": hashlib.sha256(weights).hexdigest()})


def save_bundle(bundle: ModelBundle, network: nn.Module, folder: Path) -> None:
    """Write both files into an existing folder; the caller makes it appear when it is complete."""
    from safetensors.torch import save

    # Sorted by name, and copied: views of one storage cannot be written.
    state = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in sorted(network.state_dict().items())}
    weights = save(state)
    (folder / WEIGHTS).write_bytes(weights)
    document: dict[str, Any] = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION if bundle.has_two_states else CLASSES_VERSION,
        "architecture": bundle.spec.to_mapping(),
        "recipe": to_mapping(bundle.recipe),
        "recipe_digest": bundle.recipe.digest(),
        "labels": list(bundle.labels),
        "positive_label": bundle.positive_label,
        **choices(bundle.calibration, bundle.operating_point),
        "training": dict(bundle.training),
    }
    document |= {"digest": _digest(document, weights), "stamp": dict(bundle.stamp)}
    (folder / DESCRIPTION).write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def choices(calibration: AnyCalibration | None, operating_point: OperatingPoint | None) -> dict[str, Any]:
    """Return what of ``model.json`` may be chosen again without training."""
    return {
        "operating_point": None if operating_point is None else operating_point.to_mapping(),
        "calibration": None if calibration is None else to_mapping(calibration),
    }


def copy_bundle(
    model: Path, folder: Path, *, calibration: AnyCalibration | None, operating_point: OperatingPoint | None
) -> ModelBundle:
    """Write a model again into an existing, empty folder, with everything beside it and with these choices.

    :returns: the bundle as it reads now.
    :raises InputError: as :func:`read_bundle`, or files that cannot be copied.
    """
    _, content = _read(model)
    try:
        shutil.copytree(model, folder, dirs_exist_ok=True)
    except shutil.Error as error:
        raise InputError(f"Cannot copy model '{model}': {error.args[0][0][2]}.") from error
    content |= choices(calibration, operating_point)
    (folder / DESCRIPTION).write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return read_bundle(folder)


def read_bundle(folder: Path) -> ModelBundle:
    """Read and check ``model.json``, without torch; whether its network can be built is for :func:`load_bundle` to find out.

    :raises InputError: no complete model there, or one of another format or version.
    :raises MismatchError: a recipe that this version of leech would carry out differently.
    """
    return _read(folder)[0]


def _read(folder: Path) -> tuple[ModelBundle, dict[str, Any]]:
    """Return what ``model.json`` says, and its content as it stands there."""
    path = folder / DESCRIPTION
    if not path.is_file() or not (folder / WEIGHTS).is_file():
        missing = DESCRIPTION if not path.is_file() else WEIGHTS
        what = f"has no {missing}: it is not a complete model" if folder.is_dir() else "does not exist"
        raise InputError(f"Model '{folder}' {what}.", hint="Make one with 'leech model train'.")
    remedy = "Train it again with this version of leech."
    content = read_description(
        path, "model", form=FORMAT, schema_version=(SCHEMA_VERSION, CLASSES_VERSION), remedy=remedy
    )
    from leech.models.spec import parse_form

    try:
        form: type[_Document | _ClassesDocument] = (
            _Document if content["schema_version"] == SCHEMA_VERSION else _ClassesDocument
        )
        document = build(form, content, source=str(path))
        recipe = Recipe.stored(document.recipe, str(path))
        spec = parse_form(document.architecture, source=str(path))
    except LeechError as error:
        raise InputError(error.message, hint=_DAMAGED) from error
    if recipe.digest() != document.recipe_digest:
        raise MismatchError(
            f"Model '{folder}' was trained on chunks cut by a recipe that this version of leech would carry out "
            f"differently (recorded {document.recipe_digest}, now {recipe.digest()}).",
            hint="Use the version of leech that trained it, or train again.",
        )
    if isinstance(document, _Document) and document.labels[1] != document.positive_label:
        raise InputError(f"'{path}': the positive label '{document.positive_label}' is not the second of the labels.")
    bundle = ModelBundle(
        spec=spec,
        recipe=recipe,
        labels=document.labels,
        training=document.training,
        stamp=document.stamp,
        operating_point=document.operating_point,
        calibration=document.calibration,
    )
    return bundle, content


class ModelIdentity(NamedTuple):
    """What decides the probability that a model gives to a read.

    :ivar model: digest of network, recipe, labels and weights.
    :ivar calibration: digest of what makes probabilities of its logits; None where it is not calibrated.
    """

    model: str
    calibration: str | None

    @classmethod
    def of(cls, folder: Path) -> ModelIdentity:
        """Return that of a model folder.

        :raises InputError: as :func:`read_bundle`.
        """
        bundle, content = _read(folder)
        calibration = bundle.calibration
        return cls(content["digest"], None if calibration is None else digest_of(to_mapping(calibration)))


def load_bundle(folder: Path) -> LoadedModel:
    """Read a model and its weights.

    :raises InputError: as :func:`read_bundle`, unreadable weights, or a network that cannot be built.
    :raises MismatchError: weights that are not those of the described network, named with expected and found, or a folder
        that was changed.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    from leech.models.spec import build_network

    bundle, content = _read(folder)
    path = folder / WEIGHTS
    try:
        weights = path.read_bytes()
        state = load(weights)
    except (OSError, SafetensorError) as error:
        raise InputError(f"Cannot read weights '{path}': {error}.", hint="Copy the model folder again.") from error
    try:
        network = build_network(bundle.spec, bundle.recipe, num_classes=len(bundle.labels))
    except ConfigError as error:
        raise InputError(f"'{folder / DESCRIPTION}': {error.message}", hint=_DAMAGED) from error
    expected = network.state_dict()
    wrong = [f"'{name}' is missing" for name in expected if name not in state]
    wrong += [f"'{name}' is not part of the network" for name in state if name not in expected]
    wrong += [
        f"'{name}': expected {tuple(tensor.shape)}, found {tuple(state[name].shape)}"
        for name, tensor in expected.items()
        if name in state and state[name].shape != tensor.shape
    ]
    if wrong:
        raise MismatchError(
            f"The weights in '{path}' are not those of the network in '{DESCRIPTION}': {'; '.join(wrong[:5])}.",
            hint="The folder mixes two models; use the original.",
        )
    if _digest(content, weights) != content["digest"]:
        raise MismatchError(
            f"Model '{folder}' was changed since it was trained: its network, labels and weights are not those that were "
            "saved together, so its calls would mean nothing.",
            hint=_DAMAGED,
        )
    network.load_state_dict(state, strict=True)
    return LoadedModel(bundle, network.eval(), Learnt.load(folder, bundle.training))
