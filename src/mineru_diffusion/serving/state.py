"""What all routes share."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import anyio
from fastapi import Request

from mineru_diffusion.parsing.layout_types import LayoutDetector
from mineru_diffusion.serving.admission import Admission
from mineru_diffusion.serving.errors import bad_request
from mineru_diffusion.serving.fetch import UrlFetcher
from mineru_diffusion.serving.jobs import JobRunner
from mineru_diffusion.serving.metrics import Metrics
from mineru_diffusion.serving.settings import ServerSettings
from mineru_diffusion.serving.worker import EngineWorker

DECODING_THREADS = 4
"""Threads that decode images and look for layouts: bounds memory more than it costs time."""


@dataclass(frozen=True)
class ServerState:
    """The server's parts.

    Attributes:
        detector: the packaged layout detector, loaded once.
        threads: for work on images.
        started: when the server began, in seconds since 1970.
    """

    settings: ServerSettings
    worker: EngineWorker
    detector: LayoutDetector
    jobs: JobRunner
    fetcher: UrlFetcher
    admission: Admission
    metrics: Metrics
    threads: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(DECODING_THREADS))
    started: float = field(default_factory=time.time)

    def stop(self) -> None:
        """Give up what still runs, and say so to whoever waits for it; may be called twice."""
        self.jobs.stop()
        self.worker.stop()


def check_limit(tokens: int | None, state: ServerState) -> None:
    """Raise ApiError (400) if a request asks for more tokens than the server gives."""
    most = state.settings.max_tokens
    if tokens is not None and tokens > most:
        raise bad_request(f"max_tokens may be {most} at most, not {tokens}", "max_tokens", "limit_exceeded")


def state_of(request: Request) -> ServerState:
    """The state of the application that a request came to."""
    state = request.app.state.server
    assert isinstance(state, ServerState)
    return state
