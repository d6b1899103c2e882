"""Which files a run writes, and that they appear together when all are complete.

Hides: names, partial names, and which index belongs to which BAM. Belongs here: places of files; what is in them is the
writers' business. Invariants: names are taken before any work is done; the record of the run gets its name last, so that
where it stands the other files do too; no index of an earlier BAM stays beside a new one, and no table of a model of another
number of states beside the record of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from leech.data.config import ReadSources
from leech.errors import ConfigError, InputError
from leech.prediction.config import PredictConfig
from leech.prediction.names import CLASS_SUMMARY, CLASS_TABLES, RECORD, SUMMARIES, TABLES
from leech.provenance import atomic_file, refuse_input_as_output


@dataclass(frozen=True)
class OutputFiles:
    """The files of one run; the same class holds final names and partial ones.

    :ivar bam: None where no BAM is written; ``index`` likewise.
    :ivar calls: by name in ``TABLES``; empty where no tables are written.
    :ivar summaries: by level in ``SUMMARIES``; likewise.
    :ivar record: None where no tables are written.
    """

    bam: Path | None
    index: Path | None
    calls: dict[str, Path]
    summaries: dict[str, Path]
    record: Path | None

    @classmethod
    def plan(
        cls,
        sources: ReadSources,
        config: PredictConfig,
        output: Path,
        calls: Sequence[str] = TABLES,
        summaries: Mapping[str, str] = SUMMARIES,
    ) -> OutputFiles:
        """Return the files that a configuration asks for.

        :param calls: names of tables between sample and ``.tsv.gz``; ``summaries`` likewise, by level.
        :raises ConfigError: a BAM's name without .bam, the input itself, or no name for the tables.
        """
        form = config.format or ("bam" if config.tables is None else "both")
        bam = None if form == "tsv" else output
        if bam is not None:
            _check_bam(bam, sources.bam)
        if form == "bam":
            return cls(bam, _index_of(bam, config), {}, {}, None)
        folder = config.tables or (output.parent if form == "both" else output)
        sample = config.sample or (output.stem if form == "both" else sources.bam.stem)
        if form == "tsv" and config.sample is None and str(sources.bam) == "-":
            raise ConfigError(
                "Reads from standard input have no name for the tables to begin with.", hint="Add --sample."
            )
        if form == "tsv" and output.is_file():
            raise ConfigError(f"'{output}' is a file, and with --format tsv the output is the folder of the tables.")
        return cls(
            bam=bam,
            index=_index_of(bam, config),
            calls={name: folder / f"{sample}.{name}.tsv.gz" for name in calls},
            summaries={level: folder / f"{sample}.{name}.tsv.gz" for level, name in summaries.items()},
            record=folder / f"{sample}.{RECORD}",
        )

    @property
    def all(self) -> list[Path]:
        """Every file, those first whose names are taken last."""
        some = [self.record, *self.summaries.values(), *self.calls.values(), self.bam, self.index]
        return [path for path in some if path is not None]

    @property
    def tables(self) -> tuple[Path, ...]:
        """The tables."""
        return (*self.calls.values(), *self.summaries.values())

    def refuse_inputs(self, inputs: Sequence[Path | None]) -> None:
        """Refuse files that would take the place of something that is read, with --force too.

        :raises ConfigError: naming both.
        """
        for path in self.all:
            refuse_input_as_output(path, inputs)

    def reserve(self, stack: ExitStack, *, force: bool) -> OutputFiles:
        """Return partial files, which get their names when ``stack`` ends well.

        :raises InputError: a name that is taken, and no ``force``.
        """
        stale = self.stale_indexes()
        if stale and not force:
            raise InputError(
                f"'{stale[0]}' exists already, and it is the index of another BAM.",
                hint="Give another name, or --force to replace it.",
            )
        partials = {path: stack.enter_context(atomic_file(path, force=force)) for path in self.all}
        return OutputFiles(
            bam=self.bam and partials[self.bam],
            index=self.index and partials[self.index],
            calls={name: partials[path] for name, path in self.calls.items()},
            summaries={level: partials[path] for level, path in self.summaries.items()},
            record=self.record and partials[self.record],
        )

    def stale_tables(self) -> list[Path]:
        """Return tables of this sample by a model of another number of states, whose record this run's takes the place of."""
        if self.record is None:
            return []
        sample = self.record.name.removesuffix(f".{RECORD}")
        names = (*TABLES, *SUMMARIES.values(), *CLASS_TABLES, CLASS_SUMMARY)
        candidates = [self.record.with_name(f"{sample}.{name}.tsv.gz") for name in names]
        return [path for path in candidates if path.is_file() and path not in self.tables]

    def stale_indexes(self) -> Sequence[Path]:
        """Return indexes that stand where one of the BAM would, and are of an earlier one."""
        if self.bam is None:
            return []
        candidates = (
            self.bam.with_name(f"{self.bam.name}.bai"),
            self.bam.with_name(f"{self.bam.name}.csi"),
            self.bam.with_suffix(".bai"),
            self.bam.with_suffix(".csi"),
        )
        return [path for path in candidates if path.is_file() and path != self.index]


def _index_of(bam: Path | None, config: PredictConfig) -> Path | None:
    return bam.with_name(f"{bam.name}.bai") if bam is not None and config.index else None


def _check_bam(output: Path, bam: Path) -> None:
    if output.suffix != ".bam":
        raise ConfigError(
            f"Output '{output}' must end in .bam, the format that is written.",
            hint="For tables alone give --format tsv; --output is their folder then.",
        )
    if str(bam) != "-" and output.resolve() == bam.resolve():
        raise ConfigError(f"Output '{output}' is the input BAM itself.", hint="Give another name with -o.")
