"""What a run has that the model never learnt from.

Hides: nothing. Belongs here: differences that do not stop a run, each said once; what cannot be called at all is an error where
it is found (a damaged k-mer table in the model folder, another signal frame). Invariant: what the model folder does not tell is
not warned of.
"""

from __future__ import annotations

from leech.console import logger
from leech.data.basecaller import BasecallModels
from leech.data.stream import ReadStream, RecordBatch
from leech.models.bundle import ModelBundle


class Agreement:
    """Compares a run with what the model was trained on, while the run goes by."""

    def __init__(self, bundle: ModelBundle, stream: ReadStream) -> None:
        training = bundle.training
        self._rates = set(training.get("sample_rates") or ())
        self._models = set(training.get("basecall_models") or ())
        self._found_models = BasecallModels(stream.header)
        self._said: set[str | int] = set()

    def see(self, batch: RecordBatch) -> None:
        """Look at a batch, and warn of what is new in it."""
        self._found_models.see(batch.records)
        for model in sorted(self._found_models.names - self._models - self._said if self._models else ()):
            self._said.add(model)
            logger.warning(
                "Reads were basecalled with '%s', and the model learnt from reads of %s: moves, and with them dwell and "
                "windows, may differ. Basecall both alike, or train on reads of this basecaller.",
                model,
                ", ".join(f"'{name}'" for name in sorted(self._models)),
            )
        for run, rate in batch.cut.sample_rates.items():
            if self._rates and rate not in self._rates and rate not in self._said:
                self._said.add(rate)
                logger.warning(
                    "Run '%s' was sampled at %d Hz, and the model learnt from runs at %s Hz: its windows hold another "
                    "length of time, and its dwell counts other samples. Do not trust these calls without a test.",
                    run,
                    rate,
                    " and ".join(map(str, sorted(self._rates))),
                )


def warn_about_new_references(called: set[str], bundle: ModelBundle) -> None:
    """Say which references the model never learnt from: how good its calls are there, no test split has shown."""
    known = bundle.training.get("references")
    new = sorted(called - set(known)) if known is not None else []
    if new:
        listed = ", ".join(new[:5]) + (f" and {len(new) - 5} more" if len(new) > 5 else "")
        logger.warning(
            "%d of %d references called were not in the model's training split: %s. Its test figures do not cover them.",
            len(new),
            len(called),
            listed,
        )
