"""`mineru-diffusion parse`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mineru_diffusion.cli.app import DEVICE_HELP, DTYPE_HELP, MODEL_HELP, app, errors_as_exit_codes


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
    with errors_as_exit_codes():
        from mineru_diffusion.cli.report import Report, progress_bars
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
