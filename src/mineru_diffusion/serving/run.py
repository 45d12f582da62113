"""From an engine to a listening server, and to its orderly end."""

from __future__ import annotations

import asyncio
import logging
import math
import socket

import uvicorn

from mineru_diffusion.serving.app import create_app, new_state
from mineru_diffusion.serving.guard import log_as_json
from mineru_diffusion.serving.listening import BACKLOG, end_in_order, url_of
from mineru_diffusion.serving.settings import ServerSettings
from mineru_diffusion.serving.state import ServerState
from mineru_diffusion.serving.worker import ServedEngine

logger = logging.getLogger("mineru_diffusion.serving")

KEEP_ALIVE_SECONDS = 30
GIVING_UP_SECONDS = 10
"""Time for what was given up at the end to say so: passes that are running come to their end first."""


def serve(engine: ServedEngine, settings: ServerSettings, listening: socket.socket, *, level: str = "INFO") -> None:
    """Serve until told to stop (SIGTERM or Ctrl-C): running requests get `shutdown_timeout` seconds to finish, then
    they are told to come back (503).

    Args:
        engine: closed at the end.
        settings: limits and switches.
        listening: a socket from `listen`.
        level: of the log.

    Raises:
        UsageError: the data folder cannot be used.
    """
    state = new_state(engine, settings)
    log_as_json(level)
    config = uvicorn.Config(
        create_app(state),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_timeout + GIVING_UP_SECONDS),
        backlog=BACKLOG,
    )
    logger.info("listening", extra={"event": "listening", "url": url_of(listening)})
    end_in_order()
    OrderlyServer(config, state).run(sockets=[listening])


class OrderlyServer(uvicorn.Server):
    """Answers for itself at the end: what is not done in time is given up and told so (503), before uvicorn cuts it."""

    def __init__(self, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config)
        self._state = state

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        giving_up = asyncio.create_task(self._give_up())
        try:
            await super().shutdown(sockets)
        finally:
            giving_up.cancel()

    async def _give_up(self) -> None:
        await asyncio.sleep(self._state.settings.shutdown_timeout)
        await asyncio.to_thread(self._state.stop)
