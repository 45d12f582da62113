"""The demo as a server: the page, the downloads, and headers that keep the browser from asking anyone else."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

# Before Gradio is imported, which reads these once.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import gradio as gr
import uvicorn
from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.middleware.base import RequestResponseEndpoint

from mineru_diffusion.demo.app import build, css, head, theme
from mineru_diffusion.demo.downloads import KINDS, file_name, make_file
from mineru_diffusion.demo.errors import Refused, said
from mineru_diffusion.demo.handlers import Handlers
from mineru_diffusion.demo.readers import Readers
from mineru_diffusion.demo.sessions import Sessions
from mineru_diffusion.demo.settings import DemoSettings
from mineru_diffusion.serving.listening import end_in_order

POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' data: blob:; worker-src 'self' blob:; "
    "frame-src 'self'; object-src 'none'; base-uri 'self'"
)
"""Content security policy: nothing from any other host. Gradio's own templates need inline scripts and eval."""

SHUTDOWN_SECONDS = 5
"""Time for answers on their way when the demo is told to stop: a page holds a stream for as long as it is open."""

SWEEP_EVERY = 60.0
"""Seconds between two looks for documents whose time is over."""


def create_app(readers: Readers, settings: DemoSettings, folder: Path) -> FastAPI:
    """The demo as an ASGI application.

    Args:
        readers: closed by the caller.
        settings: limits.
        folder: for uploads and results; removed by the caller.
    """
    os.environ["GRADIO_TEMP_DIR"] = str(folder / "uploads")
    sessions = Sessions(folder / "sessions", settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(_sweep(sessions))
        yield
        sweeping.cancel()

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)

    @app.middleware("http")
    async def guard(request: Request, call_next: RequestResponseEndpoint) -> Response:
        response = await call_next(request)
        response.headers["Content-Security-Policy"] = POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response

    @app.get("/download/{token}/{kind}")
    async def download(token: str, kind: str) -> Response:
        try:
            session = sessions.get(token)
            content = await run_in_threadpool(make_file, session, kind, settings)
        except Refused as error:
            return Response(str(error), 404, media_type="text/plain")
        except Exception as error:
            return Response(said(error), 500, media_type="text/plain")
        named = f"attachment; filename*=UTF-8''{quote(file_name(session, kind))}"
        return Response(content, headers={"Content-Disposition": named}, media_type=KINDS[kind][2])

    blocks = build(Handlers(readers, sessions, settings), settings, readers.threshold)
    return gr.mount_gradio_app(
        app,
        blocks,
        path="/",
        footer_links=[],
        run_history=False,
        max_file_size=settings.max_upload_bytes,
        show_error=False,
        ssr_mode=False,
        enable_monitoring=False,
        theme=theme(),
        css=css(),
        head=head(),
    )


async def _sweep(sessions: Sessions) -> None:
    while True:
        await asyncio.sleep(SWEEP_EVERY)
        await run_in_threadpool(sessions.sweep)


def run_demo(readers: Readers, settings: DemoSettings, listening: socket.socket) -> None:
    """Serve until told to stop (SIGTERM or Ctrl-C); whatever visitors left is removed at the end.

    Args:
        readers: closed at the end.
        settings: limits.
        listening: the bound socket.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="mineru-demo-") as folder:
        try:
            app = create_app(readers, settings, Path(folder))
            end_in_order()
            config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=SHUTDOWN_SECONDS)
            uvicorn.Server(config).run(sockets=[listening])
        except KeyboardInterrupt:
            pass  # uvicorn raises it again when it is done
        finally:
            readers.close()
