"""From POD5 and BAM to a corpus: ``leech data prepare``.

Hides: the order of the steps. Belongs here: joining a stream of chunks, a writer and the counts; how reads become chunks
lies in ``stream.py`` and ``chunks.py``. Invariants: the corpus does not depend on the number of workers, nor, sorted by
read id, on the order of the records; every record seen is counted once; nothing stands under the final name before it is
complete.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from leech.console import Progress, Table, logger
from leech.data.accounts import NO_LABEL, ladder_table, refinement_table, refuse_incomplete
from leech.data.basecaller import BasecallModels
from leech.data.config import PrepareConfig, ReadSources
from leech.data.context import ContextTally
from leech.data.corpus import CorpusWriter
from leech.data.frame import FrameVerdict
from leech.data.levels import KmerTable
from leech.data.pod5 import BadFile
from leech.data.reasons import Counts
from leech.data.recipe import MOST_SAMPLES, Recipe
from leech.data.recut import record_inputs
from leech.data.refine import MARGIN_BASES, MIN_BASES, RefinementTally
from leech.data.sites import BedSites, settle_labels, settle_sites
from leech.data.stream import open_stream
from leech.errors import ConfigError, InputError
from leech.provenance import Stamp, atomic_folder


@dataclass(frozen=True)
class PrepareResult:
    """What ``prepare`` made.

    :ivar bad_files: POD5 files that could not be read; their reads are missing.
    :ivar num_files: of all POD5 files, the bad ones too.
    :ivar junction: reads that could be cut by label and state of the motif in their alignment.
    """

    path: Path
    num_chunks: int
    counts: Counts
    recipe: Recipe
    frame: FrameVerdict
    bad_files: Sequence[BadFile]
    num_files: int
    junction: dict[str, dict[str, int]]
    refinement: RefinementTally | None

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        content = {
            "path": str(self.path),
            "num_chunks": self.num_chunks,
            "counts": self.counts.ladder(),
            "junction": self.junction,
            "unreadable_pod5": {str(file.path): file.why for file in self.bad_files},
        }
        return content if self.refinement is None else {**content, "refinement": self.refinement.to_mapping()}

    def refuse_incomplete(self) -> None:
        """Fail the run when POD5 files were left out; the corpus of the others stands.

        :raises InputError: with the files' names.
        """
        refuse_incomplete(self.bad_files, self.num_files)

    def tables(self) -> list[Table]:
        """Return the ladder of counts, the yield of a clean junction by label and what became of boundaries."""
        return [
            ladder_table(self.counts),
            junction_table(self.junction, self.recipe),
            *([] if self.refinement is None else [refinement_table({"": self.refinement.to_mapping()})]),
        ]


_FEW_REFINED = 0.5
"""Share of refined reads below which a run that asked for refinement is told so."""

JUNCTION_STATES = ("clean", "indel", "not_covered")
"""Names of the states of the motif in an alignment, by code of the column ``junction_indel``."""


_ENOUGH_WHOLE = 0.95
"""Share of the chunks that a window that is advised holds whole."""


def junction_table(junction: Mapping[str, Mapping[str, int]], recipe: Recipe) -> Table:
    """Return the states of the motif, or of what stands for it, in the alignment by label, and the share of clean ones."""
    rows = [
        (
            label or NO_LABEL,
            *(str(states[name]) for name in JUNCTION_STATES),
            f"{states['clean'] / sum(states.values()):.1%}",
        )
        for label, states in junction.items()
    ]
    columns = ("label", "clean", "with indel", "not covered", "clean share")
    return Table(
        title=f"{recipe.junction_words} in the alignment of reads that can be cut", columns=columns, rows=tuple(rows)
    )


def _by_label(junction: Mapping[tuple[str, int], int]) -> dict[str, dict[str, int]]:
    labels = sorted({label for label, _ in junction})
    return {
        label: {name: junction.get((label, code), 0) for code, name in enumerate(JUNCTION_STATES)} for label in labels
    }


def _check_levels(recipe: Recipe, table: KmerTable) -> None:
    """Refuse options that the k-mer table cannot serve.

    :raises ConfigError: naming the option.
    """
    if recipe.kmer_centre is not None and recipe.kmer_centre >= table.size:
        raise ConfigError(
            f"--kmer-centre {recipe.kmer_centre} lies outside the k-mers of the table, whose positions are 0 to "
            f"{table.size - 1}.",
            hint="Leave it out, and the data choose it.",
        )
    if recipe.refinement == "kmer" and recipe.num_bases + 2 * MARGIN_BASES < MIN_BASES:
        raise ConfigError(
            f"--refinement needs at least {MIN_BASES} bases around the focus, and with --bases-before {recipe.bases_before} "
            f"and --bases-after {recipe.bases_after} it has {recipe.num_bases + 2 * MARGIN_BASES}: no read could be refined.",
            hint=f"Keep at least {MIN_BASES - 2 * MARGIN_BASES} bases, or use --refinement none.",
        )


def warn_context_cut(context: ContextTally, recipe: Recipe, num_chunks: int) -> None:
    """Warn of chunks that lost samples of their context, and name a window that would hold nearly all of it."""
    if not context.num_cut:
        return
    before, after = context.window_for(_ENOUGH_WHOLE)
    # A side that is wide enough already stays as it is.
    before, after = max(before, recipe.samples_before), max(after, recipe.samples_after)
    advice = (
        f"--samples-before {before} --samples-after {after} would show at least {_ENOUGH_WHOLE:.0%} of them whole"
        if max(before, after) <= MOST_SAMPLES
        else f"even --samples-before {MOST_SAMPLES} --samples-after {MOST_SAMPLES}, the widest there is, would not show "
        f"{_ENOUGH_WHOLE:.0%} of them whole; ask for fewer bases"
    )
    if (before, after) == (recipe.samples_before, recipe.samples_after):
        advice = f"more than {_ENOUGH_WHOLE:.0%} are whole"
    logger.warning(
        "%d of %d chunks hold more samples in %d + 1 + %d bases than fit into the window's %d + %d, and were cut at "
        "its ends; %s.",
        context.num_cut,
        num_chunks,
        *(recipe.context_bases or ()),
        recipe.samples_before,
        recipe.samples_after,
        advice,
    )


def _tell_unlabelled(junction: Mapping[tuple[str, int], int]) -> None:
    unlabelled = sum(number for (label, _), number in junction.items() if not label)
    total = sum(junction.values())
    if unlabelled:
        whose = "The chunks have" if unlabelled == total else f"{unlabelled} of {total} reads have"
        logger.info("%s no label, so nothing can be trained on them; --label NAME gives all of a library one.", whose)


def _warn_unrefined(tally: RefinementTally) -> None:
    share = tally.refined_share
    if share is not None and share < _FEW_REFINED:
        logger.warning(
            "Boundaries of only %.1f%% of the reads were refined: %d had fewer than %d bases with signal and a known level "
            "around the focus, %d would have fitted the levels worse.",
            100 * share,
            tally.outcomes["unrefinable"],
            MIN_BASES,
            tally.outcomes["kept_moves"],
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
    :raises ConfigError: refinement is asked for without a k-mer table or within too few bases, or a k-mer has no such centre.
    :raises InputError: unusable files, or no usable record at all.
    :raises MismatchError: the reads contradict the recipe's signal frame, or refinement lowers their level correlation.
    """
    table = None if config.kmer_table is None else KmerTable.load(config.kmer_table)
    if table is not None:
        _check_levels(recipe, table)
        recipe = replace(recipe, kmer_table_sha256=table.sha256, kmer_size=table.size)
    elif recipe.kmer_centre is not None:
        raise InputError("A k-mer centre was given without a k-mer table.", hint="Add --kmer-table.")
    if table is not None and recipe.normalisation == "picoamp":
        logger.warning(
            "Signal is in pA (--normalisation picoamp), so residuals mean something only if the k-mer table is in pA too."
        )
    recipe, sites = settle_sites(recipe, config.sites, sources.read_sites)
    sites = settle_labels(sites, config.label, from_name=config.label_from_name)
    counts = Counts()
    runs: dict[str, int] = {}
    junction: Counter[tuple[str, int]] = Counter()
    context = ContextTally()
    refinement = RefinementTally() if recipe.refinement == "kmer" else None
    with atomic_folder(output, force=force) as folder:
        with (
            open_stream(sources, recipe, table, sites, label=config.label, sample=config.sample) as stream,
            CorpusWriter(folder, stream.recipe) as writer,
        ):
            basecallers = BasecallModels(stream.header)
            with progress.task("prepare", unit="reads") as task:
                for batch in stream.batches(config.batch_reads, config.workers):
                    writer.append(batch.cut.chunks)
                    counts.add_all(batch.outcomes)
                    basecallers.see(batch.records)
                    runs.update(batch.cut.sample_rates)
                    junction.update(batch.cut.junction)
                    context.merge(batch.cut.context)
                    if refinement is not None:
                        refinement.merge(batch.cut.refinement)
                    task.advance(len(batch.records))
            stream.settle(counts, writer.num_chunks)
            settings: dict[str, Any] = {"min_mapq": sources.min_mapq, "junction": _by_label(junction)}
            if basecallers.names:
                settings["basecall_models"] = sorted(basecallers.names)
            if refinement is not None:
                refinement.refuse_harm()
                settings["refinement"] = refinement.to_mapping()
            if recipe.context_bases is not None:
                settings["num_context_cut"] = context.num_cut
            if isinstance(sites, BedSites):
                sites.save(folder)
            elif sites is not None:
                settings["read_sites_sha256"] = sites.sha256
            if table is not None:
                table.save(folder)
            writer.finish(counts=counts.ladder(), runs=runs, settings=settings, by_read_id=config.sort == "read_id")
        # Votes come from the first records, so they depend on the records' order, and the manifest must not.
        (folder / "frame.json").write_text(json.dumps(stream.frame.to_mapping(), indent=2) + "\n", encoding="utf-8")
        record_inputs(folder, output, sources)
        stamp.write(folder)
    if refinement is not None:
        _warn_unrefined(refinement)
    warn_context_cut(context, recipe, counts.used)
    _tell_unlabelled(junction)
    return PrepareResult(
        path=output,
        num_chunks=counts.used,
        counts=counts,
        recipe=stream.recipe,
        frame=stream.frame,
        bad_files=stream.bad_files,
        num_files=stream.num_files,
        junction=_by_label(junction),
        refinement=refinement,
    )
