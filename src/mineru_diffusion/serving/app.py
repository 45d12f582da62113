"""The application: routes, errors in one shape, the door around them, and what starts and stops with them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from mineru_diffusion import __version__
from mineru_diffusion.parsing.layout_rapid import RapidLayoutDetector
from mineru_diffusion.serving import chat, documents, health, mineru_api
from mineru_diffusion.serving.admission import Admission
from mineru_diffusion.serving.errors import ApiError
from mineru_diffusion.serving.fetch import UrlFetcher
from mineru_diffusion.serving.guard import Guard, RequestLog
from mineru_diffusion.serving.job_store import JobStore
from mineru_diffusion.serving.jobs import JobRunner
from mineru_diffusion.serving.metrics import Metrics
from mineru_diffusion.serving.settings import ServerSettings
from mineru_diffusion.serving.state import ServerState
from mineru_diffusion.serving.worker import EngineWorker, ServedEngine

logger = logging.getLogger("mineru_diffusion.serving")

CLEANUP_SECONDS = 60.0


def new_state(engine: ServedEngine, settings: ServerSettings | None = None) -> ServerState:
    """The server's parts, at rest.

    Args:
        engine: the one engine; nobody else may use it any more.
        settings: limits and switches.

    Raises:
        UsageError: the data folder cannot be used.
    """
    settings = settings or ServerSettings()
    worker = EngineWorker(engine)
    detector = RapidLayoutDetector()
    jobs = JobRunner(JobStore(settings.data_dir), worker, detector, settings)
    metrics = Metrics(worker, jobs.counts)
    return ServerState(
        settings=settings,
        worker=worker,
        detector=detector,
        jobs=jobs,
        fetcher=UrlFetcher(settings),
        admission=Admission(settings.max_queue, settings.max_queue_pixels),
        metrics=metrics,
    )


def create_app(state: ServerState) -> ASGIApp:
    """The server as an ASGI application. It starts the engine's thread and closes the engine at its end."""
    app, settings = routes(), state.settings
    app.router.lifespan_context = lambda _: _lifespan(state)
    app.state.server = state
    guarded: ASGIApp = Guard(app, settings)
    if settings.cors_origins:
        guarded = CORSMiddleware(
            guarded,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST", "DELETE"],
            # Browser clients send headers about themselves; without cookies there is nothing to protect here.
            allow_headers=["*"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    return RequestLog(guarded, state.metrics.request)


def routes() -> FastAPI:
    """Routes and error shapes, without an engine: enough for the API's description."""
    app = FastAPI(
        title="mineru-diffusion",
        version=__version__,
        description="Document OCR by block-wise masked diffusion: OpenAI's chat completions, and MinerU's routes.",
        # The pages would load their scripts from elsewhere; `/openapi.json` is all that tools need.
        docs_url=None,
        redoc_url=None,
    )
    for router in (chat.router, documents.router, mineru_api.router, health.router):
        app.include_router(router)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _bug)
    return app


@contextlib.asynccontextmanager
async def _lifespan(state: ServerState) -> AsyncIterator[None]:
    state.worker.start()
    state.jobs.start()
    cleaning = asyncio.create_task(_clean_up(state))
    logger.info("ready", extra={"event": "ready", "model": state.settings.model_name})
    try:
        yield
    finally:
        cleaning.cancel()
        await asyncio.to_thread(state.stop)
        logger.info("stopped", extra={"event": "stopped"})


async def _clean_up(state: ServerState) -> None:
    while True:
        await asyncio.to_thread(state.jobs.remove_old)
        await asyncio.sleep(CLEANUP_SECONDS)


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, ApiError):
        return error.response()
    assert isinstance(error, HTTPException)
    answer = ApiError(error.status_code, str(error.detail))
    return JSONResponse(answer.body(), error.status_code, error.headers)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    """400 with the first field at fault; what was sent is not repeated."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    said = str(first["msg"]).removeprefix("Value error, ")
    where = [str(part) for part in first["loc"] if part not in ("body", "query", "path")]
    if first["type"] == "json_invalid":
        where, said = [], f"no JSON: {first['ctx']['error']} at character {where[0]}"
    param = ".".join(where) or None
    message = f"{param or 'the body'}: {said}"
    return ApiError(400, message, param=param, code=str(first["type"])).response()


async def _bug(request: Request, error: Exception) -> JSONResponse:
    """500 without any inside; the traceback is in the log."""
    request_id = request.scope.get("state", {}).get("request_id", "")
    return ApiError(500, f"an internal error; the server's log has it under request id {request_id}").response()
