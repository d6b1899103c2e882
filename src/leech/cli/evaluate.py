"""``leech eval``: test, compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from leech.cli.options import collect, config_options, json_option, output_options
from leech.cli.session import Session
from leech.evaluation.config import CompareConfig, EvalConfig


@click.command()
@click.option("--model", required=True, type=click.Path(path_type=Path), help="Model folder.")
@click.option("--data", required=True, type=click.Path(path_type=Path), help="Corpus cut by the model's recipe.")
@output_options("JSON file of the metrics.")
@config_options(EvalConfig)
@json_option
@click.pass_obj
def test(session: Session, /, model: Path, data: Path, output: Path, force: bool, as_json: bool, **given: Any) -> None:
    """Score a model on chunks whose label is known, and say how good it is, per reference too."""
    (config,) = collect([EvalConfig], given)

    from leech.evaluation.evaluate import evaluate as run

    progress, stamp = session.start([config], [model, data], output)
    session.show(run(model, data, config, output, force=force, progress=progress, stamp=stamp), as_json=as_json)


@click.command()
@click.argument("models", type=click.Path(path_type=Path), nargs=-1, required=True)
@output_options("JSON file of the comparison.")
@config_options(CompareConfig)
@json_option
@click.pass_obj
def compare(
    session: Session, /, models: tuple[Path, ...], output: Path, force: bool, as_json: bool, **given: Any
) -> None:
    """Compare models on the same reads: differences to the first, and the reads that are not called alike.

    Each of MODELS is a model folder, scored here on --data, or a table that 'leech eval test --scores' wrote.
    """
    (config,) = collect([CompareConfig], given)

    from leech.evaluation.compare import compare as run

    progress, stamp = session.start([config], [*models, *config.data], output)
    session.show(run(models, config, output, force=force, progress=progress, stamp=stamp), as_json=as_json)
