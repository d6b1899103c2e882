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
@output_options("BAM with every record of the input, and a cl tag on each called one.")
@config_options(ReadSources, PredictConfig)
@config_file_option
@json_option
@click.pass_obj
def predict(
    session: Session, /, model: Path, output: Path, force: bool, config_file: Path | None, as_json: bool, **given: Any
) -> None:
    """Call the state of every read of a run.

    Every record comes out again, in order and with its tags; called ones carry cl = round(255 * P(positive)). Reads that
    cannot be called are counted under their reason.
    """
    sources, config = collect([ReadSources, PredictConfig], given, config_file)

    from leech.prediction.predict import predict as run

    inputs = [model, *sources.pod5, sources.bam, sources.reference, sources.read_sites, config_file]
    progress, stamp = session.start([sources, config], inputs, output)
    result = run(model, sources, config, output, force=force, progress=progress, stamp=stamp)
    session.show(result, as_json=as_json)
    result.refuse_incomplete()
