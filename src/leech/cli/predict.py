"""``leech predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from leech.cli.options import ManyValues, collect, config_file_option, config_options, json_option, output_options
from leech.cli.session import Session
from leech.data.config import ReadSources
from leech.prediction.config import PredictConfig


@click.command(cls=ManyValues)
@click.option(
    "--model", required=True, type=click.Path(path_type=Path), help="Model folder; its recipe cuts the chunks."
)
@click.option(
    "--samples",
    type=click.Path(path_type=Path),
    help="Sample sheet in place of --pod5 and --bam: a TSV with the columns sample, pod5 (several separated by ;) and bam, "
    "relative to the sheet's folder; --output is a folder then, and samples that are complete in it are not run again.",
)
@output_options("BAM with every record of the input, and a cl tag on each called one; a folder with --samples or tsv.")
@config_options(ReadSources, PredictConfig)
@config_file_option
@json_option
@click.pass_obj
def predict(
    session: Session,
    /,
    model: Path,
    samples: Path | None,
    output: Path,
    force: bool,
    config_file: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Call the state of every read of a run, or of the runs of several samples.

    Every record comes out again, in order and with its tags; called ones carry cl = round(255 * P(positive)), or, by a model
    of more than two states, the label as lc and the probabilities of all as lp. Reads that cannot be called are counted under
    their reason.
    """
    if samples is None:
        sources, config = collect([ReadSources, PredictConfig], given, config_file)

        from leech.prediction.predict import predict as run

        inputs = [model, *sources.pod5, sources.bam, sources.reference, sources.read_sites, config_file]
        # A folder that tables go to is not replaced.
        replaced = None if config.format == "tsv" else output
        progress, stamp = session.start([sources, config], inputs, replaced)
        result: Any = run(model, sources, config, output, force=force, progress=progress, stamp=stamp)
    else:
        if given["pod5"] or given["bam"]:
            raise click.UsageError(
                "--samples says where the POD5 and BAM of every sample are; leave out --pod5 and --bam."
            )

        from leech.prediction.samples import predict_samples
        from leech.prediction.sheet import read_sheet

        sheet = read_sheet(samples)
        own = {"pod5": sheet[0].pod5, "bam": sheet[0].bam}
        sources, config = collect([ReadSources, PredictConfig], {**given, **own}, config_file)
        inputs = [model, samples, sources.reference, sources.read_sites, config_file]
        progress, stamp = session.start([config], inputs)
        result = predict_samples(model, sheet, sources, config, output, force=force, progress=progress, stamp=stamp)
    session.show(result, as_json=as_json)
    result.refuse_incomplete()
