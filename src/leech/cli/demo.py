"""``leech demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from leech.cli.options import collect, config_options, json_option, output_options
from leech.cli.session import Session
from leech.demo import DemoConfig


@click.command()
@output_options("Folder for all that the demo makes.", default="leech-demo")
@config_options(DemoConfig)
@json_option
@click.pass_obj
def demo(session: Session, /, output: Path, force: bool, as_json: bool, **given: Any) -> None:
    """Simulate libraries, train on two, call a third, and compare with the truth.

    Takes about two minutes on two cores. Every step is one that the other commands offer.
    """
    (config,) = collect([DemoConfig], given)

    from leech.demo import run_demo

    progress, stamp = session.start([config])
    session.show(run_demo(config, output, force=force, progress=progress, stamp=stamp), as_json=as_json)
