"""The Typer app, and what its commands share. Whatever is heavy is imported inside the commands, so that `--help`
answers at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

app = typer.Typer(
    name="mineru-diffusion",
    help="Document OCR by block-wise masked diffusion: PDFs and images to Markdown and structured JSON.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: loading Rich would take longer than everything else together.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

MODEL_HELP = "Checkpoint folder. Default: the checkpoint that comes with the package."
DEVICE_HELP = "auto, cpu, cuda, cuda:1 or mps."
DTYPE_HELP = "auto, float32, bfloat16 or float16."


def _print_version(wanted: bool) -> None:
    if wanted:
        from mineru_diffusion import __version__

        typer.echo(f"mineru-diffusion {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Document OCR by block-wise masked diffusion: PDFs and images to Markdown and structured JSON."""


@contextmanager
def errors_as_exit_codes() -> Iterator[None]:
    """Our own errors become one line and an exit code; anything else is a bug and keeps its traceback."""
    from mineru_diffusion.errors import MinerUDiffusionError, UsageError

    try:
        yield
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        raise typer.Exit(130) from None
    except MinerUDiffusionError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, UsageError) else 1) from error
