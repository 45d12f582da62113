"""`mineru-diffusion mine`."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from mineru_diffusion.cli.app import DEVICE_HELP, DTYPE_HELP, MODEL_HELP, app, errors_as_exit_codes
from mineru_diffusion.cli.counting import sample_progress


class By(str, Enum):
    """What makes the readings of a sample differ."""

    temperature = "temperature"
    thresholds = "thresholds"


@app.command("mine")
def mine_command(
    shards: Annotated[list[Path], typer.Argument(help="Parquet shards, or folders of them.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the kept samples and all scores.")],
    model: Annotated[Path | None, typer.Option(help=MODEL_HELP)] = None,
    draws: Annotated[int, typer.Option("-k", "--draws", help="Readings of each sample.", min=2)] = 4,
    keep: Annotated[float, typer.Option(help="Share of each task's samples to keep, the least consistent.")] = 0.3,
    by: Annotated[By, typer.Option(help="What makes the readings differ.")] = By.temperature,
    temperature: Annotated[float, typer.Option(help="Sampling temperature (by temperature).")] = 0.7,
    limit: Annotated[int | None, typer.Option(help="Look at this many samples at most.", min=1)] = None,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "auto",
    dtype: Annotated[str, typer.Option(help=DTYPE_HELP)] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only errors.")] = False,
) -> None:
    """Find the samples that a model is unsure of, by reading each several times."""
    with errors_as_exit_codes():
        from mineru_diffusion.engine.local import load_engine
        from mineru_diffusion.training.mining import count_samples, mine

        total = min(count_samples(shards), limit or sys.maxsize)
        with (
            load_engine(model, device=device, dtype=dtype) as engine,
            sample_progress(total, shown=not quiet) as progress,
        ):
            report = mine(
                shards,
                engine,
                out,
                factor=engine.image_factor,
                model="" if model is None else str(model),
                draws=draws,
                keep=keep,
                by=by.value,
                temperature=temperature,
                limit=limit,
                progress=progress,
            )
        if not quiet:
            typer.echo(f"kept {report.kept} of {report.scored} samples in {out}")
            for task, mean in report.consistency.items():
                typer.echo(
                    f"  {task}: consistency {mean:.3f}, of the kept ones {report.kept_consistency[task]:.3f}; "
                    f"all readings alike: {report.unanimous[task]:.0%}"
                )
            for task, number in report.left_out.items():
                typer.echo(f"  {task}: {number} left out, which this checkpoint cannot read")
