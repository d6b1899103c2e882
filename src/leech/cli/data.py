"""``leech data``: simulate, prepare, merge, inspect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from leech.cli.options import ManyValues, collect, config_file_option, config_options, json_option, output_options
from leech.cli.session import Session
from leech.data.config import MergeConfig, PrepareConfig, ReadSources
from leech.data.recipe import Recipe
from leech.data.simulate.config import SimulateConfig


@click.command()
@output_options("Folder for POD5, BAM, FASTA, k-mer table and truth.")
@config_options(SimulateConfig)
@config_file_option
@json_option
@click.pass_obj
def simulate(
    session: Session, /, output: Path, force: bool, config_file: Path | None, as_json: bool, **given: Any
) -> None:
    """Simulate a tRNA sequencing run: POD5, BAM and FASTA, with the truth beside them.

    Two runs of the same --design-seed share molecules and pore; --seed makes the reads.
    """
    (config,) = collect([SimulateConfig], given, config_file)

    from leech.data.simulate.write import simulate as run

    progress, stamp = session.start([config], [config.kmer_table, config_file])
    session.show(run(config, output, force=force, stamp=stamp, progress=progress), as_json=as_json)


@click.command(cls=ManyValues)
@output_options("Folder of the corpus.")
@config_options(ReadSources, Recipe, PrepareConfig)
@config_file_option
@json_option
@click.pass_obj
def prepare(
    session: Session, /, output: Path, force: bool, config_file: Path | None, as_json: bool, **given: Any
) -> None:
    """Cut one chunk around the site from every usable read of a library.

    The site is a base at --motif-offset from a motif in the reference. Reads are not filtered by how they align at the
    site; every record that gives no chunk is counted under its reason.
    """
    sources, recipe, config = collect([ReadSources, Recipe, PrepareConfig], given, config_file)

    from leech.data.prepare import prepare as run

    inputs = [*sources.pod5, sources.bam, sources.reference, config.kmer_table, config_file]
    progress, stamp = session.start([sources, recipe, config], inputs)
    result = run(sources, recipe, config, output, force=force, progress=progress, stamp=stamp)
    session.show(result, as_json=as_json)
    result.refuse_incomplete()


@click.command()
@click.argument("corpora", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="CORPUS...")
@output_options("Folder of the merged corpus; it refers to the others and takes a byte per chunk.")
@config_options(MergeConfig)
@json_option
@click.pass_obj
def merge(
    session: Session, /, corpora: tuple[Path, ...], output: Path, force: bool, as_json: bool, **given: Any
) -> None:
    """Join corpora by reference and split them into train, validation and test.

    Splits are made by parent read, stratified by label, and depend on ids and seed alone. The corpora stay where they are;
    moving them together with the merged one is fine.
    """
    (config,) = collect([MergeConfig], given)

    from leech.data.compose import merge as run

    _, stamp = session.start([config], corpora)
    session.show(run(corpora, config, output, force=force, stamp=stamp), as_json=as_json)


@click.command()
@click.argument("corpus", type=click.Path(path_type=Path))
@json_option
@click.pass_obj
def inspect(session: Session, /, corpus: Path, as_json: bool) -> None:
    """Show what a corpus holds: chunks by label, reference and split, the recipe, and records by outcome."""
    from leech.data.inspect import inspect as run

    session.start()
    session.show(run(corpus), as_json=as_json)
