"""The Typer app, and what its commands share. Whatever is heavy is imported inside the commands, so that `--help`
answers at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
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


class ExitCode(IntEnum):
    """What a command's exit code says. `FAILED`: nothing came of it; `INCOMPLETE`: some inputs failed or have pages
    that could not be read, the others are done; `PASSWORD`: the only trouble is a missing or wrong password.
    """

    OK = 0
    FAILED = 1
    USAGE = 2
    INCOMPLETE = 3
    PASSWORD = 4
    CHECKPOINT = 5
    INTERRUPTED = 130


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
    from mineru_diffusion.errors import CheckpointError, MinerUDiffusionError, UsageError

    try:
        yield
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except MinerUDiffusionError as error:
        typer.echo(f"error: {error}", err=True)
        code = ExitCode.FAILED
        if isinstance(error, UsageError):
            code = ExitCode.USAGE
        elif isinstance(error, CheckpointError):
            code = ExitCode.CHECKPOINT
        raise typer.Exit(code) from error
