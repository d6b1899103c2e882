"""From POD5 and BAM to a corpus: ``leech data prepare``.

Hides: the order of the steps. Belongs here: joining a stream of chunks, a writer and the counts; how reads become chunks
lies in ``stream.py`` and ``chunks.py``. Invariants: the corpus does not depend on the number of workers, nor, sorted by
read id, on the order of the records; every record seen is counted once; nothing stands under the final name before it is
complete.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from leech.console import Progress, Table
from leech.data.accounts import ladder_table, refuse_incomplete
from leech.data.config import PrepareConfig, ReadSources
from leech.data.corpus import CorpusWriter
from leech.data.frame import FrameVerdict
from leech.data.levels import KmerTable
from leech.data.pod5 import BadFile
from leech.data.reasons import Counts
from leech.data.recipe import Recipe
from leech.data.stream import open_stream
from leech.errors import InputError
from leech.provenance import Stamp, atomic_folder


@dataclass(frozen=True)
class PrepareResult:
    """What ``prepare`` made.

    :ivar bad_files: POD5 files that could not be read; their reads are missing.
    :ivar num_files: of all POD5 files, the bad ones too.
    """

    path: Path
    num_chunks: int
    counts: Counts
    recipe: Recipe
    frame: FrameVerdict
    bad_files: Sequence[BadFile]
    num_files: int

    def to_mapping(self) -> dict[str, Any]:
        """Return plain types, ready for JSON."""
        return {
            "path": str(self.path),
            "num_chunks": self.num_chunks,
            "counts": self.counts.ladder(),
            "unreadable_pod5": {str(file.path): file.why for file in self.bad_files},
        }

    def refuse_incomplete(self) -> None:
        """Fail the run when POD5 files were left out; the corpus of the others stands.

        :raises InputError: with the files' names.
        """
        refuse_incomplete(self.bad_files, self.num_files)

    def tables(self) -> list[Table]:
        """Return the ladder of counts."""
        return [ladder_table(self.counts)]


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
    :raises InputError: unusable files, or no usable record at all.
    :raises MismatchError: the reads contradict the recipe's signal frame.
    """
    table = None if config.kmer_table is None else KmerTable.load(config.kmer_table)
    if table is not None:
        recipe = replace(recipe, kmer_table_sha256=table.sha256, kmer_size=table.size)
    elif recipe.kmer_centre is not None:
        raise InputError("A k-mer centre was given without a k-mer table.", hint="Add --kmer-table.")
    counts = Counts()
    runs: dict[str, int] = {}
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
                    task.advance(len(batch.records))
            stream.settle(counts, writer.num_chunks)
            settings = {"min_mapq": sources.min_mapq}
            if table is not None:
                table.save(folder)
            writer.finish(counts=counts.ladder(), runs=runs, settings=settings, by_read_id=config.sort == "read_id")
        # Votes come from the first records, so they depend on the records' order, and the manifest must not.
        (folder / "frame.json").write_text(json.dumps(stream.frame.to_mapping(), indent=2) + "\n", encoding="utf-8")
        stamp.write(folder)
    return PrepareResult(output, counts.used, counts, stream.recipe, stream.frame, stream.bad_files, stream.num_files)
