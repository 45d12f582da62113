"""`mineru-diffusion demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mineru_diffusion.cli.app import DEVICE_HELP, DTYPE_HELP, MODEL_HELP, app, errors_as_exit_codes


@app.command("demo")
def demo_command(
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes any free one.", min=0, max=65535)] = 7860,
    model: Annotated[Path | None, typer.Option(help=MODEL_HELP)] = None,
    twin: Annotated[
        Path | None,
        typer.Option(
            help="Autoregressive checkpoint to compare with. Default: the packaged one; without it, the same "
            "checkpoint at one token a step."
        ),
    ] = None,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "auto",
    dtype: Annotated[str, typer.Option(help=DTYPE_HELP)] = "auto",
    rounds: Annotated[int, typer.Option(help="Turns of each reader in a comparison; the best one counts.", min=1)] = 3,
    max_upload_mib: Annotated[int, typer.Option(help="Uploaded file at most, in MiB.", min=1)] = 32,
    max_image_pixels: Annotated[int, typer.Option(help="Pixels of an image file at most.", min=1)] = 50_000_000,
    max_pages: Annotated[int, typer.Option(help="Pages of a document that can be chosen.", min=1)] = 50,
    max_queue: Annotated[int, typer.Option(help="Visitors waiting for the engine at most.", min=1)] = 16,
    max_sessions: Annotated[int, typer.Option(help="Visitors whose documents are kept at a time.", min=1)] = 64,
    session_minutes: Annotated[float, typer.Option(help="Idle minutes after which a document is removed.")] = 60,
) -> None:
    """Show it in the browser: read a page, replay the denoising, race it against an autoregressive reader."""
    with errors_as_exit_codes():
        from mineru_diffusion.errors import MissingExtra

        try:
            from mineru_diffusion.demo.run import run_demo
        except ModuleNotFoundError as error:
            raise MissingExtra("the demo", "demo") from error
        from mineru_diffusion.assets import packaged_twin
        from mineru_diffusion.demo.readers import Readers
        from mineru_diffusion.demo.settings import DemoSettings, example_files
        from mineru_diffusion.engine import load_engine
        from mineru_diffusion.serving.listening import listen, url_of
        from mineru_diffusion.serving.settings import MIB

        settings = DemoSettings(
            max_upload_bytes=max_upload_mib * MIB,
            max_image_pixels=max_image_pixels,
            max_pages=max_pages,
            max_queue=max_queue,
            rounds=rounds,
            session_seconds=session_minutes * 60,
            max_sessions=max_sessions,
            examples=example_files(),
        )
        other = twin or (packaged_twin() if model is None else None)
        with listen(host, port) as listening:
            readers = Readers(
                load_engine(model, device=device, dtype=dtype),
                load_engine(other, device=device, dtype=dtype) if other is not None else None,
            )
            local = host in ("127.0.0.1", "0.0.0.0", "::", "::1")
            shown = f"http://localhost:{listening.getsockname()[1]}" if local else url_of(listening)
            typer.echo(f"the demo is at {shown}")
            run_demo(readers, settings, listening)
