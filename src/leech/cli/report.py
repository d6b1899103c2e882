"""``leech report``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from leech.cli.options import ManyValues, collect, config_file_option, config_options, json_option, output_options
from leech.cli.session import Session
from leech.evaluation.config import ReportConfig


@click.command(cls=ManyValues)
@output_options("Page to write, .html.")
@config_options(ReportConfig)
@config_file_option
@json_option
@click.pass_obj
def report(
    session: Session, /, output: Path, force: bool, config_file: Path | None, as_json: bool, **given: Any
) -> None:
    """Put results of 'leech eval test' and 'leech predict', of one sample or many, into one page.

    The page is one file without scripts or links to elsewhere: samples, records by outcome, fractions by tRNA, scores,
    ROC, reliability, signal around the site, training and where all of it comes from. The numbers of every figure stand
    under it, as a table and as TSV. What was not given is left out, with a line that says what would fill it.
    """
    (config,) = collect([ReportConfig], given, config_file)

    from leech.evaluation.report.write import report as run

    inputs = [*config.metrics, *config.scores, *config.calls, config.corpus, config.model, config_file]
    _, stamp = session.start([config], inputs, output)
    session.show(run(config, output, force=force, stamp=stamp), as_json=as_json)
