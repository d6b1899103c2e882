"""``leech data``: simulate, prepare, merge, inspect, view, check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from leech.cli.options import ManyValues, collect, config_file_option, config_options, json_option, output_options
from leech.cli.session import Session
from leech.data.config import InspectConfig, MergeConfig, PrepareConfig, ReadSources, ViewConfig
from leech.data.recipe import Recipe
from leech.data.simulate.config import SimulateConfig
from leech.evaluation.config import CheckConfig


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

    Two runs of the same --design-seed share references and pore; --seed makes the reads. What is wrong with reads of real
    runs comes by --nuisance and by the fractions; the truth says what was done to each and what prepare should count.
    """
    (config,) = collect([SimulateConfig], given, config_file)

    from leech.data.simulate.write import simulate as run

    progress, stamp = session.start([config], [config.kmer_table, config.charged_fractions, config_file], output)
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

    The site is a base at --motif-offset from a motif in the reference or, with --anchor basecall, in the read; or a
    position in a BED (--sites) or in a table of reads (--read-sites). Reads are not filtered by how they align at the
    site; every record that gives no chunk is counted under its reason.
    """
    sources, recipe, config = collect([ReadSources, Recipe, PrepareConfig], given, config_file)

    from leech.data.prepare import prepare as run

    files = (config.kmer_table, config.sites, sources.read_sites, config_file)
    inputs = [*sources.pod5, sources.bam, sources.reference, *files]
    progress, stamp = session.start([sources, recipe, config], inputs, output)
    result = run(sources, recipe, config, output, force=force, progress=progress, stamp=stamp)
    session.show(result, as_json=as_json)
    result.refuse_incomplete()


@click.command(cls=ManyValues)
@click.argument("corpora", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="CORPUS...")
@output_options("Folder of the merged corpus; it refers to the others and takes a byte per chunk.")
@config_options(MergeConfig)
@json_option
@click.pass_obj
def merge(
    session: Session, /, corpora: tuple[Path, ...], output: Path, force: bool, as_json: bool, **given: Any
) -> None:
    """Join corpora by reference and split them into train, validation, test and, if asked for, calibration.

    Splits are made by parent read, stratified by label, and depend on ids and seed alone. A read, or a group that
    --split-by keeps whole, lies in one split only. The corpora stay where they are; moving them together with the merged
    one is fine.
    """
    (config,) = collect([MergeConfig], given)

    from leech.data.compose import merge as run

    _, stamp = session.start([config], corpora, output)
    session.show(run(corpora, config, output, force=force, stamp=stamp), as_json=as_json)


@click.command()
@click.argument("corpus", type=click.Path(path_type=Path))
@config_options(InspectConfig)
@click.option("--force", is_flag=True, help="Replace a page that exists.")
@json_option
@click.pass_obj
def inspect(session: Session, /, corpus: Path, force: bool, as_json: bool, **given: Any) -> None:
    """Show what a corpus holds: counts by label, reference, flow cell and split, the recipe, records by outcome.

    Some chunks are looked at one by one: window geometry, fit to the expected levels, means by label around the focus and
    examples. --json has all of it, --html draws it.
    """
    (config,) = collect([InspectConfig], given)

    from leech.data.inspect import inspect as run

    _, stamp = session.start([config], [corpus])
    session.show(run(corpus, config, force=force, stamp=stamp), as_json=as_json)


@click.command()
@click.argument("corpus", type=click.Path(path_type=Path))
@output_options("Drawing to write: .svg, .png, or .html with the numbers under it.")
@config_options(ViewConfig)
@json_option
@click.pass_obj
def view(session: Session, /, corpus: Path, output: Path, force: bool, as_json: bool, **given: Any) -> None:
    """Draw the normalised signal of one read around the site, with the boundaries of its bases."""
    (config,) = collect([ViewConfig], given)

    from leech.data.portrait import portray as run

    _, stamp = session.start([config], [corpus], output)
    session.show(run(corpus, config, output, force=force, stamp=stamp), as_json=as_json)


@click.command(cls=ManyValues)
@click.argument("corpus", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="JSON file of the result, beside check.json in the corpus."
)
@click.option("--force", is_flag=True, help="Replace an existing output once the new one is complete.")
@config_options(CheckConfig)
@json_option
@click.pass_obj
def check(session: Session, /, corpus: Path, output: Path | None, force: bool, as_json: bool, **given: Any) -> None:
    """Probe whether a corpus gives its label away by other means than the site.

    A quick model tries to read the label from each read's identity, from a control window away from the site, and from the
    site, with grouped cross-validation. All but the last should give an AUROC near 0.5.
    """
    (config,) = collect([CheckConfig], given)

    from leech.evaluation.shortcuts import check as run

    progress, stamp = session.start([config], [corpus, config.control])
    result = run(corpus, config, output, force=force, progress=progress, stamp=stamp)
    session.show(result, as_json=as_json)
    if result.failure is not None:
        raise result.failure
