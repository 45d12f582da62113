"""`mineru-diffusion parse`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from mineru_diffusion.cli.app import DEVICE_HELP, DTYPE_HELP, MODEL_HELP, app, errors_as_exit_codes

FORMATS_HELP = (
    "md, json, html, layout, searchable-pdf, docling, doctags, comma-separated; Markdown and JSON are always written."
)
EXIT_CODES = (
    "Exit codes: 0 all is done; 1 nothing could be read; 2 the call is wrong; 3 some documents failed or have pages "
    "that could not be read; 4 a password is missing or wrong; 5 the checkpoint cannot be loaded; 130 interrupted. "
    "The same command again goes on where a run stopped and tries again only what failed."
)


@app.command("parse", epilog=EXIT_CODES)
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
        str | None,
        typer.Option(help="threshold, prefix, fixed, factor or entropy. Default: checkpoint's."),
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Tokens of one region at most.")] = None,
    formats: Annotated[str, typer.Option("--format", help=FORMATS_HELP)] = "md,json",
    math: Annotated[str, typer.Option(help="Formulas in Markdown: dollar ($x$) or latex (\\(x\\)).")] = "dollar",
    furniture: Annotated[
        bool, typer.Option("--furniture", help="Keep headers, footers and page numbers in Markdown and HTML.")
    ] = False,
    join_tables: Annotated[
        bool, typer.Option("--join-tables/--no-join-tables", help="Offer a table that goes on over pages as one.")
    ] = True,
    review: Annotated[
        float | None,
        typer.Option(help="List regions read with less confidence than this, 0 to 1, and mark them in the overlay."),
    ] = None,
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
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs",
            "-j",
            help="Processes that render pages and find their layout; more than 1 pays off "
            "where the engine waits for pages, as with a GPU.",
        ),
    ] = 1,
    password: Annotated[str | None, typer.Option(help="Password of encrypted PDFs.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Write the layout overlay PDF as well.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Parse again what an earlier run completed.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only errors.")] = False,
    progress: Annotated[bool, typer.Option("--progress/--no-progress", help="Show a progress bar.")] = True,
    report_file: Annotated[
        Path | None, typer.Option("--report", help="Write one JSON object a line there, for every file as it is done.")
    ] = None,
    stats: Annotated[bool, typer.Option("--stats", help="Print decoding numbers at the end.")] = False,
    quantize: Annotated[
        str | None, typer.Option(help="int8: the decoder's matrices in 8 bits, to save memory.")
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(help="Write a Chrome trace of the run there; for a page or two.", metavar="FILE")
    ] = None,
    engine_kind: Annotated[
        str, typer.Option("--engine", help="local, or remote: the OpenAI-compatible server at --url.")
    ] = "local",
    url: Annotated[str | None, typer.Option(help="The server of --engine remote: http://host:8000.")] = None,
    api_key: Annotated[
        str | None, typer.Option(help="Key of that server.", envvar="MINERU_DIFFUSION_API_KEY", show_envvar=False)
    ] = None,
) -> None:
    """Turn documents into Markdown and JSON."""
    with errors_as_exit_codes():
        from mineru_diffusion.cli.bars import as_progress, progress_bars
        from mineru_diffusion.cli.report import Report
        from mineru_diffusion.cli.signals import stop_signals
        from mineru_diffusion.document.export_options import ExportOptions
        from mineru_diffusion.document.exports import check_formats
        from mineru_diffusion.document.inputs import parse_page_range
        from mineru_diffusion.engine.types import Engine
        from mineru_diffusion.errors import UsageError
        from mineru_diffusion.parsing.folder import parse_to_folder
        from mineru_diffusion.parsing.options import ParseOptions, decoding_params

        decoding = decoding_params(policy=policy, threshold=threshold, max_tokens=max_tokens)
        options = ParseOptions(
            pages=pages, password=password, dpi=dpi, max_image_pixels=max_image_pixels, decoding=decoding, jobs=jobs
        )
        export = ExportOptions(math=math, furniture=furniture, join_tables=join_tables, review=review)  # type: ignore[arg-type]
        chosen = check_formats(formats) | ({"layout"} if debug else set())
        if max_rows is not None and max_rows < 1:
            raise UsageError(f"--max-rows must be at least 1, not {max_rows}")
        if pages is not None:
            # A range that no document could have is the caller's mistake: say so before any work.
            parse_page_range(pages, 100_000)
        report = Report(quiet=quiet, stats=stats, file=report_file)
        paths = report.expand(inputs, out)

        engines: list[Engine] = []

        if engine_kind not in ("local", "remote") or (engine_kind == "remote") != (url is not None):
            raise UsageError("--engine is local, or remote together with --url")

        def load() -> Engine:
            if url is not None:
                from mineru_diffusion.engine.remote import connect_engine

                return connect_engine(url, api_key=api_key, model=None if model is None else str(model))
            from mineru_diffusion.engine import load_engine

            engine = load_engine(model, device=device, dtype=dtype, max_rows=max_rows, quantize=quantize)
            engines.append(engine)
            return engine

        name = str(model) if model is not None else url or "packaged"
        with ExitStack() as recorded, stop_signals() as stopped:
            if profile is not None:
                from mineru_diffusion.engine.profiling import chrome_trace

                recorded.enter_context(chrome_trace(profile))
            with progress_bars(shown=progress and not quiet, files=len(paths)) as bars:
                for item in parse_to_folder(
                    paths,
                    out,
                    load,
                    options,
                    model=name,
                    formats=chosen,
                    export=export,
                    force=force,
                    progress=as_progress(bars),
                    stop=stopped,
                ):
                    report.add(item)
                    if bars is not None:
                        bars.file_done()
            interrupted = stopped()
            report.summary(interrupted=interrupted)
            for engine in engines if stats and not quiet else ():
                told = getattr(engine, "stats", None)  # only an engine of this process knows
                if told is not None:
                    typer.echo("\n".join(told().lines()), err=True)
    raise typer.Exit(report.exit_code(interrupted))
