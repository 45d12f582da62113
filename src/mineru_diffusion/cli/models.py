"""`mineru-diffusion models`."""

from __future__ import annotations

import typer

from mineru_diffusion.cli.app import app, errors_as_exit_codes


@app.command("models")
def models_command() -> None:
    """Describe the checkpoint that comes with the package."""
    with errors_as_exit_codes():
        from mineru_diffusion.assets import packaged_checkpoint
        from mineru_diffusion.cli.report import describe_checkpoint

        folder = packaged_checkpoint()
        for key, value in describe_checkpoint(folder).items():
            typer.echo(f"{key:<12} {value}")
