"""The command line, thin: options in, library calls, reports and exit codes out.

Exit codes: 0 all went well, 1 an input failed, 2 the call was wrong, 130 interrupted. Whatever is heavy is imported
inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

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
def _errors_as_exit_codes() -> Iterator[None]:
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


@app.command("parse")
def parse_command(
    inputs: Annotated[list[str], typer.Argument(help="PDFs, images, folders or globs.", metavar="INPUT...")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder; one folder a document is made in it.")],
    pages: Annotated[
        str | None, typer.Option(help="Pages, 1-based and inclusive: 3, 2-5, 2-, or 1,3-4. Default: all.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help=MODEL_HELP)] = None,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "auto",
    dtype: Annotated[str, typer.Option(help=DTYPE_HELP)] = "auto",
    threshold: Annotated[
        float | None, typer.Option(help="Confidence above which a token is decided, 0 to 1. Default: checkpoint's.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="threshold, fixed, factor or entropy. Default: checkpoint's.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Tokens of one region at most.")] = None,
    formats: Annotated[
        str, typer.Option("--format", help="md,json,html; Markdown and JSON are always written.")
    ] = "md,json",
    dpi: Annotated[float, typer.Option(help="Resolution at which PDF pages are rendered.")] = 200,
    max_image_pixels: Annotated[
        int, typer.Option(help="Image files with more pixels than this are refused before they are decoded.")
    ] = 180_000_000,
    max_rows: Annotated[
        int | None,
        typer.Option(
            "--max-rows", "--batch-size", help="Blocks decoded in one forward pass at most. Default: by device."
        ),
    ] = None,
    password: Annotated[str | None, typer.Option(help="Password of encrypted PDFs.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Write the layout overlay PDF as well.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Parse again what an earlier run completed.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only errors.")] = False,
    progress: Annotated[bool, typer.Option("--progress/--no-progress", help="Show a progress bar.")] = True,
    stats: Annotated[bool, typer.Option("--stats", help="Print decoding numbers at the end.")] = False,
) -> None:
    """Turn documents into Markdown and JSON."""
    with _errors_as_exit_codes():
        from mineru_diffusion.cli_report import Report, progress_bars
        from mineru_diffusion.document.inputs import parse_page_range
        from mineru_diffusion.engine.types import Engine
        from mineru_diffusion.parsing.folder import check_formats, parse_to_folder
        from mineru_diffusion.parsing.options import ParseOptions, decoding_params

        decoding = decoding_params(policy=policy, threshold=threshold, max_tokens=max_tokens)
        options = ParseOptions(
            pages=pages, password=password, dpi=dpi, max_image_pixels=max_image_pixels, decoding=decoding
        )
        chosen = check_formats(formats)
        if max_rows is not None and max_rows < 1:
            from mineru_diffusion.errors import UsageError

            raise UsageError(f"--max-rows must be at least 1, not {max_rows}")
        if pages is not None:
            # A range that no document could have is the caller's mistake: say so before any work.
            parse_page_range(pages, 100_000)
        report = Report(quiet=quiet, stats=stats)
        paths = report.expand(inputs, out)

        def load() -> Engine:
            from mineru_diffusion.engine import load_engine

            return load_engine(model, device=device, dtype=dtype, max_rows=max_rows)

        name = str(model) if model is not None else "packaged"
        with progress_bars(shown=progress and not quiet) as bars:
            for item in parse_to_folder(
                paths,
                out,
                load,
                options,
                model=name,
                html="html" in chosen,
                overlay=debug,
                force=force,
                progress=bars,
            ):
                report.add(item)
        report.summary()
    raise typer.Exit(report.exit_code)


@app.command("train")
def train_command(
    config: Annotated[Path, typer.Argument(help="Training configuration (YAML).")],
    out: Annotated[Path, typer.Option("--out", help="Run folder: checkpoints, log.")] = Path("out/train"),
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Override a setting, e.g. --set optimizer.lr=1e-3.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run folder's last checkpoint is.")] = False,
    time_limit: Annotated[float | None, typer.Option(help="Stop after this many minutes.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only errors.")] = False,
) -> None:
    """Train a model by a configuration file."""
    with _errors_as_exit_codes():
        from mineru_diffusion.training.trainer import train

        train(config, out, resume=resume, overrides=overrides, time_limit_minutes=time_limit, quiet=quiet)


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
    with _errors_as_exit_codes():
        from mineru_diffusion.cli_report import parse_thresholds, score_table

        chosen: dict[str, Any] = {} if thresholds is None else {"thresholds": parse_thresholds(thresholds)}
        from mineru_diffusion.evaluation.lines import evaluate_lines

        scores = evaluate_lines(model, lines=lines, seed=seed, device=device, dtype=dtype, out=out, **chosen)
        typer.echo(score_table(scores))


@app.command("models")
def models_command() -> None:
    """Describe the checkpoint that comes with the package."""
    with _errors_as_exit_codes():
        from mineru_diffusion.assets import packaged_checkpoint
        from mineru_diffusion.cli_report import describe_checkpoint

        folder = packaged_checkpoint()
        for key, value in describe_checkpoint(folder).items():
            typer.echo(f"{key:<12} {value}")


def main(argv: list[str] | None = None) -> Any:
    """Entry point of the `mineru-diffusion` command."""
    return app(args=argv)


if __name__ == "__main__":
    main()
