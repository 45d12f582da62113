"""`/health` and `/metrics`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from mineru_diffusion import __version__
from mineru_diffusion.serving.state import state_of

router = APIRouter()


@router.head("/health", include_in_schema=False)
@router.get("/health")
async def health(request: Request) -> JSONResponse:
    """200 if the engine works, else 503. Needs no key and tells no more than it must."""
    state = state_of(request)
    waiting, running = state.worker.depth()
    jobs = state.jobs.counts()
    well = state.worker.healthy and state.worker.running
    body: dict[str, Any] = {
        "status": "healthy" if well else "unhealthy",
        "version": __version__,
        "model": state.settings.model_name,
        "requests": {"waiting": waiting, "running": running},
        "queued_tasks": jobs["queued"],
        "processing_tasks": jobs["running"],
        "completed_tasks": jobs["done"],
        "failed_tasks": jobs["failed"],
    }
    if not well:
        body["error"] = "the server is shutting down" if not state.worker.running else "the engine fails"
    return JSONResponse(body, 200 if well else 503)


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Numbers for Prometheus."""
    return Response(state_of(request).metrics.text(), media_type=CONTENT_TYPE_LATEST)
