"""`mineru-diffusion eval`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mineru_diffusion.cli.app import DEVICE_HELP, DTYPE_HELP, app, errors_as_exit_codes


@app.command("eval")
def eval_command(
    model: Annotated[Path | None, typer.Argument(help="Checkpoint folder; the packaged one if left out.")] = None,
    lines: Annotated[int, typer.Option(help="Text lines to read.", min=1)] = 500,
    thresholds: Annotated[
        str | None, typer.Option(help="Confidence thresholds, comma-separated. Default: a sweep from 0.5 to 1.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the lines.")] = 0,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "auto",
    dtype: Annotated[str, typer.Option(help=DTYPE_HELP)] = "auto",
    out: Annotated[Path | None, typer.Option(help="Write the numbers to this JSON file.")] = None,
) -> None:
    """Measure a checkpoint's accuracy and tokens per pass on fresh text lines."""
    with errors_as_exit_codes():
        from mineru_diffusion.cli.report import parse_thresholds, score_table

        chosen: dict[str, Any] = {} if thresholds is None else {"thresholds": parse_thresholds(thresholds)}
        from mineru_diffusion.evaluation.lines import evaluate_lines

        scores = evaluate_lines(model, lines=lines, seed=seed, device=device, dtype=dtype, out=out, **chosen)
        typer.echo(score_table(scores))
