"""From POD5 and BAM to a corpus: ``leech data prepare``.

Hides: the order of the steps. Belongs here: joining a stream of chunks, a writer and the counts; how reads become chunks
lies in ``stream.py`` and ``chunks.py``. Invariants: the corpus does not depend on the number of workers; every record seen
is counted once; nothing stands under the final name before it is complete.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from leech.console import Progress, Table, logger
from leech.data.config import PrepareConfig, ReadSources
from leech.data.corpus import CorpusWriter
from leech.data.frame import FrameVerdict
from leech.data.levels import KmerTable
from leech.data.reasons import NOT_A_LOSS, REASONS, Counts
from leech.data.recipe import Recipe
from leech.data.refine import RefinementTally
from leech.data.stream import open_stream
from leech.errors import InputError
from leech.provenance import Stamp, atomic_folder

_ALARMING_SHARE = 0.5
"""Share of candidate reads lost to one reason above which a warning says so."""


@dataclass(frozen=True)
class PrepareResult:
    """What ``prepare`` made."""

    path: Path
    num_chunks: int
    counts: Counts
    recipe: Recipe
    frame: FrameVerdict
    refinement: RefinementTally | None

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        content = {"path": str(self.path), "num_chunks": self.num_chunks, "counts": self.counts.ladder()}
        return content if self.refinement is None else {**content, "refinement": self.refinement.to_mapping()}

    def tables(self) -> list[Table]:
        """Return the ladder of counts, and what became of boundaries where they were refined."""
        return [ladder_table(self.counts), *refinement_tables(self.refinement)]


def ladder_table(counts: Counts) -> Table:
    """Return records by outcome, with their share and what each reason means."""
    seen = max(counts.seen, 1)
    rows = [
        (outcome, str(number), f"{number / seen:.1%}", REASONS[outcome].meaning if outcome in REASONS else "")
        for outcome, number in counts.ladder().items()
    ]
    return Table(title="Records", columns=("outcome", "records", "share", "meaning"), rows=tuple(rows))


def refinement_tables(tally: RefinementTally | None) -> list[Table]:
    """Return what became of the used reads' boundaries as a table; none without refinement."""
    if tally is None:
        return []
    rows = [(what, "" if value is None else f"{value:.3g}") for what, value in tally.to_mapping().items()]
    return [Table(title="Boundary refinement", columns=("what", "value"), rows=tuple(rows))]


def warn_about_losses(counts: Counts) -> None:
    """Warn when one reason took more than half of the records that could have been used."""
    candidates = counts.seen - sum(counts.by_outcome[reason] for reason in NOT_A_LOSS)
    for reason, number in counts.by_outcome.items():
        if reason in REASONS and reason not in NOT_A_LOSS and number > _ALARMING_SHARE * candidates:
            logger.warning(
                "%.1f %% of %d candidate records were skipped: %s (%s). %s",
                100 * number / candidates,
                candidates,
                reason,
                REASONS[reason].meaning,
                REASONS[reason].remedy,
            )


def refuse_empty(counts: Counts, bam: Path) -> None:
    """Raise when no record could be used.

    :raises InputError: with the most frequent reason and what to do about it.
    """
    if counts.used:
        return
    reason = counts.top_reason()
    if reason is None:
        raise InputError(f"BAM '{bam}' holds no records, so there is nothing to use.")
    raise InputError(
        f"None of the {counts.seen} records of '{bam}' could be used; most often ({counts.by_outcome[reason]}) because: "
        f"{reason}, {REASONS[reason].meaning}. All reasons: {json.dumps(counts.ladder())}.",
        hint=REASONS[reason].remedy,
    )


def prepare(
    sources: ReadSources,
    recipe: Recipe,
    config: PrepareConfig,
    output: Path,
    *,
    force: bool,
    progress: Progress,
    stamp: Stamp,
) -> PrepareResult:
    """Cut one chunk around the site from every usable read and write them as a corpus.

    :param sources: POD5, BAM and FASTA of one library.
    :param recipe: what is cut; the k-mer table's digest and centre are filled in here.
    :param output: folder of the corpus; appears when it is complete.
    :param force: replace an existing folder.
    :raises ConfigError: refinement is asked for without a k-mer table.
    :raises InputError: unusable files, or no usable record at all.
    :raises MismatchError: the reads contradict the recipe's signal frame, or refinement lowers their level correlation.
    """
    table = None if config.kmer_table is None else KmerTable.load(config.kmer_table)
    if table is not None:
        recipe = replace(recipe, kmer_table_sha256=table.sha256, kmer_size=table.size)
    elif recipe.kmer_centre is not None:
        raise InputError("A k-mer centre was given without a k-mer table.", hint="Add --kmer-table.")
    counts = Counts()
    runs: dict[str, int] = {}
    refinement = None if recipe.refinement == "none" else RefinementTally()
    with atomic_folder(output, force=force) as folder:
        with (
            open_stream(sources, recipe, table, label=config.label, sample=config.sample) as stream,
            CorpusWriter(folder, stream.recipe) as writer,
        ):
            with progress.task("prepare", unit="reads") as task:
                for batch in stream.batches(config.batch_reads, config.workers):
                    writer.append(batch.cut.chunks)
                    counts.add_all(batch.outcomes)
                    runs.update(batch.cut.sample_rates)
                    if refinement is not None:
                        refinement.merge(batch.cut.refinement)
                    task.advance(len(batch.records))
            refuse_empty(counts, sources.bam)
            settings = {"min_mapq": sources.min_mapq, "frame": stream.frame.to_mapping()}
            if refinement is not None:
                refinement.refuse_harm()
                settings["refinement"] = refinement.to_mapping()
            if table is not None:
                table.save(folder)
            writer.finish(counts=counts.ladder(), runs=runs, settings=settings)
        stamp.write(folder)
    warn_about_losses(counts)
    return PrepareResult(output, counts.used, counts, stream.recipe, stream.frame, refinement)
