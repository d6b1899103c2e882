"""``leech model``: train, calibrate, inspect, benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from leech.cli.options import collect, config_file_option, config_options, json_option, output_options
from leech.cli.session import Session
from leech.evaluation.config import CalibrateConfig
from leech.training.config import BenchmarkConfig, TrainConfig


@click.command()
@click.option("--data", required=True, type=click.Path(path_type=Path), help="Merged corpus with splits.")
@output_options("Folder of the model.")
@click.option("--resume", is_flag=True, help="Go on with an interrupted run; begin where there is none.")
@config_options(TrainConfig)
@config_file_option
@json_option
@click.pass_obj
def train(
    session: Session,
    /,
    data: Path,
    output: Path,
    force: bool,
    resume: bool,
    config_file: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Train a network that tells the labels of a corpus apart: two, of which one is positive, or more.

    Training stops early by the validation AUROC; of more than two labels it is that of each against the rest, averaged. Kept
    are the latest weights whose AUROC is within one standard error of the best, that of the difference on the same reads: the
    best of many evaluations on few reads is the luckiest. The folder alone is enough to predict. SIGTERM, SIGUSR1 and Ctrl-C
    save the run in OUTPUT.resume and end it, the first two with code 75; --resume goes on from there.
    """
    (config,) = collect([TrainConfig], given, config_file)

    from leech.training.train import train as run

    progress, stamp = session.start([config], [data, config_file], output)
    result = run(config, data, output, force=force, resume=resume, progress=progress, stamp=stamp)
    # Of several ranks under a launcher, the first alone has something to show.
    if result is not None:
        session.show(result, as_json=as_json)


@click.command()
@click.option("--model", required=True, type=click.Path(path_type=Path), help="Model folder.")
@click.option(
    "--data", required=True, type=click.Path(path_type=Path), help="Corpus with a calibration and a test split."
)
@output_options("Folder of the calibrated model; without it, --force replaces the model itself.", required=False)
@config_options(CalibrateConfig)
@json_option
@click.pass_obj
def calibrate(
    session: Session,
    /,
    model: Path,
    data: Path,
    output: Path | None,
    force: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Make a model's probabilities mean what they say, and choose where it calls a read positive.

    Fitted on the calibration split and judged on the test split: a calibration is kept only when calibration error and Brier
    score both get better there. Everything that uses the model then uses its calibrated probabilities and its operating
    point. The network stays as it is.
    """
    (config,) = collect([CalibrateConfig], given)

    from leech.evaluation.calibrate import calibrate as run

    progress, stamp = session.start([config], [model, data], output)
    session.show(run(model, data, config, output, force=force, progress=progress, stamp=stamp), as_json=as_json)


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@json_option
@click.pass_obj
def inspect(session: Session, /, model: Path, as_json: bool) -> None:
    """Show what a model is: network, labels, the recipe of its chunks, and how it was trained."""
    from leech.models.description import describe

    session.start()
    session.show(describe(model), as_json=as_json)


@click.command()
@click.option("--data", required=True, type=click.Path(path_type=Path), help="Merged corpus with splits.")
@config_options(BenchmarkConfig)
@config_file_option
@json_option
@click.pass_obj
def benchmark(session: Session, /, data: Path, config_file: Path | None, as_json: bool, **given: Any) -> None:
    """Time training steps on this machine, by number of GPUs and by what they spend their time on; keeps nothing."""
    (config,) = collect([BenchmarkConfig], given, config_file)

    from leech.training.benchmark import benchmark as run

    progress, _ = session.start([config], [data, config_file])
    session.show(run(config, data, progress=progress), as_json=as_json)
