"""``manifest.json``: what a corpus folder says about itself.

Hides: its JSON, its checks and how the digest is formed. Belongs here: the manifest's fields; the columns it lists are
written and read in ``corpus.py``. Invariants: written last, so a folder without one is incomplete; depends on recipe, rows
and settings alone, so equal corpora have equal manifests wherever and whenever they were made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from leech.config import build, to_mapping
from leech.data.recipe import Recipe
from leech.errors import InputError, LeechError
from leech.provenance import digest_of, read_description

FORMAT = "leech-corpus"
SCHEMA_VERSION = 1

_DAMAGED = "The manifest was edited or damaged; prepare the corpus again."


@dataclass(frozen=True)
class Source:
    """A corpus that a merged corpus refers to.

    :ivar path: relative to the merged folder.
    :ivar weight: of its chunks in the training loss.
    """

    path: str
    digest: str
    num_chunks: int
    weight: float = 1.0


@dataclass(frozen=True)
class Manifest:
    """The checked content of ``manifest.json``.

    :ivar kind: "chunks" holds all columns itself; "merged" holds a split per row and refers to its sources, whose rows
        follow one another in the order of ``sources``.
    :ivar columns: per column: dtype, shape and the sha256 of its values.
    :ivar counts: records by outcome, summed over all inputs.
    :ivar runs: sampling rate in Hz by run name.
    """

    format: Literal["leech-corpus"]
    schema_version: int
    kind: Literal["chunks", "merged"]
    num_chunks: int
    recipe: dict[str, Any]
    recipe_digest: str
    columns: dict[str, dict[str, Any]]
    categories: dict[str, list[str]]
    counts: dict[str, int]
    digest: str
    runs: dict[str, int]
    sources: list[Source]
    positive_label: str | None
    settings: dict[str, Any]


def write_manifest(
    folder: Path,
    *,
    kind: Literal["chunks", "merged"],
    num_chunks: int,
    recipe: Recipe,
    columns: dict[str, dict[str, Any]],
    categories: dict[str, list[str]],
    counts: dict[str, int],
    runs: dict[str, int],
    settings: dict[str, Any],
    sources: Sequence[Source] = (),
    positive_label: str | None = None,
) -> Manifest:
    """Write ``manifest.json`` last, so that a folder without one is known to be incomplete."""
    content: dict[str, Any] = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "kind": kind,
        "num_chunks": num_chunks,
        "recipe": to_mapping(recipe),
        "recipe_digest": recipe.digest(),
        "columns": columns,
        "categories": categories,
        "counts": counts,
        "runs": runs,
        "sources": [vars(source) for source in sources],
        "positive_label": positive_label,
        "settings": settings,
    }
    content["digest"] = manifest_digest(content)
    (folder / "manifest.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return build(Manifest, content, source="manifest")


def manifest_digest(content: Mapping[str, Any]) -> str:
    """Return the digest of a manifest's content, whatever digest it holds itself."""
    hashed = {name: value for name, value in content.items() if name != "digest"}
    # Where a source lies is no part of what it holds.
    hashed["sources"] = [[source["digest"], source["weight"]] for source in content["sources"]]
    return digest_of(hashed)


def read_manifest(folder: Path) -> Manifest:
    """Read and check ``manifest.json``.

    :raises InputError: no corpus there, an incomplete one, a manifest that is not of this format and version, or one that
        is not as it was written.
    """
    path = folder / "manifest.json"
    if not path.is_file():
        what = "has no manifest.json: it is not a complete corpus" if folder.is_dir() else "does not exist"
        raise InputError(f"Corpus '{folder}' {what}.", hint="Make one with 'leech data prepare' or 'leech data merge'.")
    remedy = "Prepare the corpus again with this version of leech."
    content = read_description(path, "corpus", form=FORMAT, schema_version=SCHEMA_VERSION, remedy=remedy)
    try:
        manifest = build(Manifest, content, source=str(path))
    except LeechError as error:
        raise InputError(error.message, hint=_DAMAGED) from error
    if manifest_digest(content) != manifest.digest:
        raise InputError(f"'{path}' is not as it was written: its content does not have its digest.", hint=_DAMAGED)
    return manifest
