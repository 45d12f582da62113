"""`mineru-diffusion serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mineru_diffusion.cli.app import DEVICE_HELP, DTYPE_HELP, MODEL_HELP, app, errors_as_exit_codes


@app.command("serve")
def serve_command(
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes any free one.", min=0, max=65535)] = 8000,
    model: Annotated[Path | None, typer.Option(help=MODEL_HELP)] = None,
    served_model_name: Annotated[
        str | None, typer.Option(help="The id in /v1/models. Default: the checkpoint folder's name.")
    ] = None,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "auto",
    dtype: Annotated[str, typer.Option(help=DTYPE_HELP)] = "auto",
    max_rows: Annotated[
        int | None, typer.Option(help="Blocks decoded in one forward pass at most. Default: by device.", min=1)
    ] = None,
    cache_mib: Annotated[
        int | None, typer.Option(help="Memory of the key/value cache at most, in MiB. Default: by device.", min=1)
    ] = None,
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            help="Ask for this key (Authorization: Bearer KEY). May be repeated.", envvar="MINERU_DIFFUSION_API_KEY"
        ),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of jobs and their results. Default: one below the temporary folder.")
    ] = None,
    max_queue: Annotated[int, typer.Option(help="Chat requests queued or running at most.", min=1)] = 512,
    max_jobs: Annotated[int, typer.Option(help="Documents queued or being parsed at most.", min=1)] = 64,
    parse_workers: Annotated[int, typer.Option(help="Documents parsed at a time.", min=1)] = 2,
    max_pages: Annotated[int, typer.Option(help="Pages of one document at most.", min=1)] = 500,
    max_image_pixels: Annotated[int, typer.Option(help="Pixels of one image at most.", min=1)] = 50_000_000,
    max_body_mib: Annotated[int, typer.Option(help="JSON body at most, in MiB.", min=1)] = 32,
    max_upload_mib: Annotated[int, typer.Option(help="Uploaded body at most, in MiB.", min=1)] = 256,
    max_tokens: Annotated[int, typer.Option(help="Largest max_tokens that a request may ask for.", min=1)] = 16_384,
    request_timeout: Annotated[float, typer.Option(help="Seconds of one request at most.")] = 600,
    job_max_age: Annotated[float, typer.Option(help="Hours that finished jobs are kept.")] = 24,
    shutdown_timeout: Annotated[float, typer.Option(help="Seconds that running requests get at the end.")] = 30,
    allow_url_host: Annotated[
        list[str] | None,
        typer.Option(help="Fetch images from this host (host, host:port or *.domain). May be repeated. Default: none."),
    ] = None,
    allow_private_urls: Annotated[
        bool,
        typer.Option("--allow-private-urls", help="Let allowed hosts have private addresses."),
    ] = False,
    cors_origin: Annotated[
        list[str] | None, typer.Option(help="Let pages of this origin call. May be repeated. Default: none.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve the model over HTTP: OpenAI's chat completions, document parsing, MinerU's routes."""
    with errors_as_exit_codes():
        from mineru_diffusion.errors import MissingExtra, UsageError

        if log_level.lower() not in ("debug", "info", "warning", "error"):
            raise UsageError(f"unknown log level {log_level!r}; use debug, info, warning or error")
        try:
            from mineru_diffusion.serving.listening import listen
            from mineru_diffusion.serving.run import serve
            from mineru_diffusion.serving.settings import MIB, ServerSettings, default_data_dir
        except ModuleNotFoundError as error:
            raise MissingExtra("the server", "serve") from error
        settings = ServerSettings(
            model_name=served_model_name or (model.resolve().name if model is not None else "mineru-diffusion-tiny"),
            api_keys=tuple(api_key or ()),
            data_dir=data_dir or default_data_dir(),
            max_queue=max_queue,
            max_jobs=max_jobs,
            parse_workers=parse_workers,
            max_pages=max_pages,
            max_image_pixels=max_image_pixels,
            max_body_bytes=max_body_mib * MIB,
            max_upload_bytes=max_upload_mib * MIB,
            max_tokens=max_tokens,
            request_timeout=request_timeout,
            job_max_age=job_max_age * 3600,
            shutdown_timeout=shutdown_timeout,
            url_hosts=tuple(allow_url_host or ()),
            url_allow_private=allow_private_urls,
            cors_origins=tuple(cors_origin or ()),
        )
        from mineru_diffusion.engine import load_engine

        cache = None if cache_mib is None else cache_mib * MIB
        # The address first: a checkpoint can take a minute to load, for nothing if the port is taken.
        with listen(host, port) as listening:
            engine = load_engine(model, device=device, dtype=dtype, max_rows=max_rows, cache_bytes=cache)
            serve(engine, settings, listening, level=log_level.upper())
