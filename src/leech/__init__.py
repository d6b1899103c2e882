"""leech: read states off raw nanopore current at one known site of an RNA.

Importing this package imports nothing heavy: the public names are resolved on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leech.api import Calls as Calls
    from leech.api import Model as Model
    from leech.api import OpenCorpus as OpenCorpus
    from leech.api import load_model as load_model
    from leech.api import open_corpus as open_corpus

__version__ = "0.1.0"

_PUBLIC = ("Calls", "Model", "OpenCorpus", "load_model", "open_corpus")


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'leech' has no attribute '{name}'")
    from leech import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted([*_PUBLIC, "__version__"])
