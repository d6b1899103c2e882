"""Which basecaller model made the reads of an alignment file.

Hides: where basecallers write their model's name. Belongs here: finding it; who compares models says what a difference means.
Invariants: a name that is not there is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pysam

# dorado names read groups <run id>_<model>[_<barcode>], and describes them by basecall_model=<model>.
_IN_NAME = re.compile(r"(?:^|_)((?:dna|rna)[A-Za-z0-9.]*(?:_[A-Za-z0-9.]+)*@v\d+(?:\.\d+)*)")
_IN_DESCRIPTION = re.compile(r"basecall_model=(\S+)")


class BasecallModels:
    """Collects the models' names from the header's read groups and the records' RG tags."""

    def __init__(self, header: pysam.AlignmentHeader) -> None:
        self.names: set[str] = set()
        self._known_groups: set[str] = set()
        for group in header.to_dict().get("RG", []):
            described = _IN_DESCRIPTION.search(group.get("DS", ""))
            if described is not None:
                self.names.add(described[1])
                self._known_groups.add(group.get("ID", ""))

    def see(self, records: Iterable[pysam.AlignedSegment]) -> None:
        """Look at records' read groups."""
        for record in records:
            # Asking first costs a third of the error that a missing tag is.
            if not record.has_tag("RG"):
                continue
            group = record.get_tag("RG")
            if isinstance(group, str) and group not in self._known_groups:
                self._known_groups.add(group)
                named = _IN_NAME.search(group)
                if named is not None:
                    self.names.add(named[1])
