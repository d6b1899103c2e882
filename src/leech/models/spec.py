"""Architectures: TOML to a checked description, and the description to a network.

Hides: the TOML's form, name checks, and the shapes that flow from layer to layer. Belongs here: building; what layers do is
in ``layers.py``. Invariants: a description says everything about a network but its weights, and a model folder stores it
whole; equal descriptions, recipes and seeds give equal first weights. torch is imported where names of layers are looked
up and networks are built, so that what a model folder says can be read without it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from leech.config import build, load_toml, nearest, to_mapping
from leech.data.recipe import CONTEXT_BASES, Recipe
from leech.errors import ConfigError, MismatchError

if TYPE_CHECKING:
    from leech.models.layers import Layer, Shape
    from leech.models.network import Network

INPUTS = ("signal", "signal_kmer", "base_onehot", "features")
"""What a branch can be fed with beside earlier branches."""

_OUTPUT = "output"
"""What the network's last layer is called beside its branches."""


@dataclass(frozen=True)
class BranchSpec:
    """One branch: where its values come from and which layers follow, each ``{"layer": name, **options}``."""

    name: str
    inputs: list[str]
    layers: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class ArchitectureSpec:
    """A network but for its weights.

    :ivar base_start: first base offset of the network's base axis, 0 being the focus.
    :ivar base_end: last one, inclusive.
    :ivar features: channel names, see ``leech.data.features.FEATURES``; in the order in which they are fed.
    """

    name: str
    description: str = ""
    base_start: int = -8
    base_end: int = 8
    features: list[str]
    branches: list[BranchSpec]

    @property
    def num_bases(self) -> int:
        """Length of the base axis."""
        return self.base_end - self.base_start + 1

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {**to_mapping(self), "branches": [vars(branch) for branch in self.branches]}


def built_in_names() -> list[str]:
    """Return the names of the architectures that come with leech."""
    folder = resources.files("leech.models") / "architectures"
    return sorted(Path(file.name).stem for file in folder.iterdir() if file.name.endswith(".toml"))


def load_architecture(name_or_path: str) -> ArchitectureSpec:
    """Read an architecture by built-in name or from a ``.toml`` file.

    :raises ConfigError: unknown name, unreadable file or a description that is not one.
    """
    if name_or_path.endswith(".toml"):
        return parse_spec(load_toml(Path(name_or_path)), source=name_or_path)
    names = built_in_names()
    if name_or_path not in names:
        close = nearest(name_or_path, names)
        known = f"Known: {', '.join(names)}; or give a .toml file."
        raise ConfigError(
            f"Unknown architecture '{name_or_path}'.", hint=f"Did you mean '{close}'? {known}" if close else known
        )
    file = resources.files("leech.models") / "architectures" / f"{name_or_path}.toml"
    with resources.as_file(file) as path:
        return parse_spec(load_toml(path), source=name_or_path)


def parse_spec(content: Mapping[str, Any], source: str) -> ArchitectureSpec:
    """Check a description read from TOML or JSON.

    :raises ConfigError: unknown keys, layers, features or inputs, with the nearest right name.
    """
    # Imported here: the channels bring the decoder of POD5 with them.
    from leech.data.features import FEATURES

    spec = parse_form(content, source)
    for name in spec.features:
        _require_known(name, list(FEATURES), f"Architecture '{source}': unknown feature channel '{name}'.")
    for branch in spec.branches:
        for position, layer in enumerate(branch.layers):
            _require_layer(layer, f"Architecture '{source}', branch '{branch.name}', layer {position}")
    return spec


def parse_form(content: Mapping[str, Any], source: str) -> ArchitectureSpec:
    """Check all of a description but the names of layers and features, which takes no torch.

    :raises ConfigError: unknown keys or inputs, with the nearest right name.
    """
    _require_branch_keys(content, source)
    spec = build(ArchitectureSpec, content, source=f"architecture '{source}'")
    known = list(INPUTS)
    for branch in spec.branches:
        where = f"Architecture '{source}', branch '{branch.name}'"
        if branch.name in (*known, _OUTPUT):
            raise ConfigError(f"{where}: the name is taken already.")
        if not branch.name.isidentifier():
            raise ConfigError(f"{where}: a name is made of letters, digits and underscores.")
        if not branch.layers or not branch.inputs:
            raise ConfigError(f"{where}: needs at least one input and one layer.")
        for name in branch.inputs:
            _require_known(name, known, f"{where}: unknown input '{name}'.")
        known.append(branch.name)
    if not spec.branches:
        raise ConfigError(f"Architecture '{source}' has no branches.")
    _require_all_read(spec, source)
    return spec


def _require_all_read(spec: ArchitectureSpec, source: str) -> None:
    """Refuse what would take part in nothing: its weights would never learn, and whoever wrote it meant something else."""
    read = {name for branch in spec.branches for name in branch.inputs}
    for branch in spec.branches[:-1]:
        if branch.name not in read:
            raise ConfigError(
                f"Architecture '{source}': no branch reads branch '{branch.name}', and only the last one ends in the output.",
                hint=f"Add '{branch.name}' to the inputs of a later branch, or leave it out.",
            )
    if spec.features and "features" not in read:
        raise ConfigError(
            f"Architecture '{source}' lists features, but no branch reads them.",
            hint="Add 'features' to the inputs of a branch, or write 'features = []'.",
        )


def _require_layer(description: Mapping[str, Any], where: str) -> type[Layer]:
    from leech.models.layers import LAYERS

    name = str(description.get("layer", ""))
    _require_known(name, list(LAYERS), f"{where}: unknown layer '{name}'.")
    return LAYERS[name]


def _require_branch_keys(content: Mapping[str, Any], source: str) -> None:
    # ``build`` looks for unknown keys at the top only; what else is wrong with a branch is for it to say.
    branches = content.get("branches")
    for branch in branches if isinstance(branches, list) else []:
        for key in branch if isinstance(branch, Mapping) else ():
            where = f"Architecture '{source}', branch '{branch.get('name', '')}'"
            _require_known(key, [field.name for field in fields(BranchSpec)], f"{where}: unknown key '{key}'.")


def _require_known(name: str, known: list[str], message: str) -> None:
    if name not in known:
        close = nearest(name, known)
        raise ConfigError(message, hint=f"Did you mean '{close}'?" if close else f"Known: {', '.join(known)}.")


def build_network(spec: ArchitectureSpec, recipe: Recipe, *, num_classes: int = 2, seed: int = 0) -> Network:
    """Build a network with first weights that depend on the seed alone.

    :param num_classes: two give one raw logit for the positive class, K > 2 give K.
    :raises ConfigError: a layer that cannot be built, named with branch, position and options; less than two classes;
        features of what the chunks do not hold.
    :raises MismatchError: a recipe whose windows do not hold the network's base axis.
    """
    import torch

    from leech.data.features import refuse_unmeasured
    from leech.models.layers import Shape
    from leech.models.network import KMER_CHANNELS, Branch, Network

    if num_classes < 2:
        raise ConfigError(
            f"Architecture '{spec.name}': cannot tell {num_classes} classes apart; at least 2 are needed."
        )
    refuse_unmeasured(spec.features, recipe)
    bases, feature_bases = _base_axis(spec, recipe)
    shapes = {
        "signal": Shape(1, "samples", recipe.num_samples, focus=min(recipe.samples_before, recipe.num_samples - 1)),
        "signal_kmer": Shape(KMER_CHANNELS, "samples", recipe.num_samples, focus=recipe.samples_before),
        "base_onehot": Shape(KMER_CHANNELS, "bases", spec.num_bases, focus=-spec.base_start),
        "features": Shape(max(len(spec.features), 1), "bases", spec.num_bases, focus=-spec.base_start),
    }
    branches: dict[str, Branch] = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for branch in spec.branches:
            where = f"Architecture '{spec.name}', branch '{branch.name}'"
            if hasattr(torch.nn.ModuleDict(), branch.name):
                raise ConfigError(f"{where}: torch has that name for something else; choose another.")
            if "features" in branch.inputs and not spec.features:
                raise ConfigError(f"{where}: uses 'features', but the architecture lists no features.")
            shape = _joined([shapes[name] for name in branch.inputs], where)
            layers: list[Layer] = []
            for position, description in enumerate(branch.layers):
                layers.append(_build_layer(description, shape, spec, recipe, f"{where}, layer {position}"))
                shape = layers[-1].output
            branches[branch.name] = Branch(branch.inputs, layers)
            shapes[branch.name] = shape
        if shape.axis != "none":
            raise ConfigError(f"{where}: the last branch must end in one vector.", hint="Add the layer 'summary'.")
        input_shapes = {
            "signal": (recipe.num_samples,),
            "base_bounds": (recipe.num_bases + 1,),
            "sequence": (recipe.num_bases + 2 * CONTEXT_BASES,),
            "features": (len(spec.features), recipe.num_feature_bases),
        }
        return Network(branches, bases, feature_bases, input_shapes, 1 if num_classes == 2 else num_classes)


def _base_axis(spec: ArchitectureSpec, recipe: Recipe) -> tuple[slice, slice]:
    if not spec.base_start <= 0 <= spec.base_end:
        raise ConfigError(
            f"Architecture '{spec.name}': base_start {spec.base_start} .. base_end {spec.base_end} miss 0."
        )
    if -recipe.bases_before > spec.base_start or recipe.bases_after < spec.base_end:
        raise MismatchError(
            f"Architecture '{spec.name}' looks at base offsets {spec.base_start} .. {spec.base_end}, but the chunks hold "
            f"bases {-recipe.bases_before} .. {recipe.bases_after} only.",
            hint="Prepare with wider --bases-before and --bases-after, or use a network that looks at fewer bases.",
        )
    if spec.features and (recipe.feature_start > spec.base_start or recipe.feature_end < spec.base_end):
        raise MismatchError(
            f"Architecture '{spec.name}' looks at base offsets {spec.base_start} .. {spec.base_end}, but the chunks hold "
            f"level features of {recipe.feature_start} .. {recipe.feature_end} only.",
            hint="Prepare with wider --feature-start and --feature-end, or use a network that looks at fewer bases.",
        )
    first = recipe.bases_before + spec.base_start
    first_feature = spec.base_start - recipe.feature_start
    return slice(first, first + spec.num_bases), slice(first_feature, first_feature + spec.num_bases)


def _joined(shapes: list[Shape], where: str) -> Shape:
    from leech.models.layers import Shape

    first = shapes[0]
    for shape in shapes[1:]:
        if (shape.axis, shape.length, shape.stride) != (first.axis, first.length, first.stride):
            raise ConfigError(
                f"{where}: its inputs do not lie on one axis: {first.length} {first.axis} with stride {first.stride} and "
                f"{shape.length} {shape.axis} with stride {shape.stride}.",
                hint="Bring signal branches to bases with 'pool_bases', or give them equal strides.",
            )
    return Shape(sum(shape.channels for shape in shapes), first.axis, first.length, first.stride, first.focus)


def _build_layer(
    description: Mapping[str, Any], shape: Shape, spec: ArchitectureSpec, recipe: Recipe, where: str
) -> Layer:
    options = {key: value for key, value in description.items() if key != "layer"}
    cls = _require_layer(description, where)
    where = f"{where} ('{description['layer']}' with {options})"
    # What the recipe and the base axis decide is filled in; the description says only what is the network's own.
    decided = {"num_bases": spec.num_bases, "focus": -spec.base_start, "num_samples": recipe.num_samples}
    parameters = [name for name in inspect.signature(cls.__init__).parameters if name not in ("self", "shape")]
    types = get_type_hints(cls.__init__)
    for name, value in options.items():
        _require_known(
            name, [known for known in parameters if known not in decided], f"{where}: unknown option '{name}'."
        )
        # "false" is true and 1.5 fails only when the network runs, so types are checked here, and strictly.
        if type(value) is not types[name] and not (types[name] is float and type(value) is int):
            raise ConfigError(f"{where}: option '{name}' must be of type {types[name].__name__}, got {value!r}.")
    filled = {name: value for name, value in decided.items() if name in parameters}
    try:
        return cls(shape, **options, **filled)
    except (TypeError, ValueError, RuntimeError) as error:
        # Torch adds a trace of its own C++ calls, line by line.
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ConfigError(f"{where} cannot be built: {reason}.") from error
