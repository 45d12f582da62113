"""`mineru-diffusion train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mineru_diffusion.cli.app import app, errors_as_exit_codes


@app.command("train")
def train_command(
    config: Annotated[Path, typer.Argument(help="Training configuration (YAML).")],
    out: Annotated[Path, typer.Option("--out", help="Run folder: checkpoints, log.")] = Path("out/train"),
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Override a setting, e.g. --set optimizer.lr=1e-3.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run folder's last checkpoint is.")] = False,
    time_limit: Annotated[
        str | None, typer.Option(help="Stop cleanly after this time, with a checkpoint: 10m, 2h, or seconds.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only errors.")] = False,
) -> None:
    """Train a model by a configuration file."""
    with errors_as_exit_codes():
        from mineru_diffusion.training.limits import seconds_of

        minutes = None if time_limit is None else seconds_of(time_limit) / 60
        from mineru_diffusion.training.trainer import train

        train(config, out, resume=resume, overrides=overrides, time_limit_minutes=minutes, quiet=quiet)
