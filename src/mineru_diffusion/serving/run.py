"""From an engine to a listening server, and to its orderly end."""

from __future__ import annotations

import logging

import uvicorn

from mineru_diffusion.serving.app import create_app
from mineru_diffusion.serving.guard import log_as_json
from mineru_diffusion.serving.listening import BACKLOG, end_in_order, listen, url_of
from mineru_diffusion.serving.settings import ServerSettings
from mineru_diffusion.serving.worker import ServedEngine

logger = logging.getLogger("mineru_diffusion.serving")

KEEP_ALIVE_SECONDS = 30


def serve(
    engine: ServedEngine, settings: ServerSettings, *, host: str = "127.0.0.1", port: int = 8000, level: str = "INFO"
) -> None:
    """Serve until told to stop (SIGTERM or Ctrl-C): running requests get `shutdown_timeout` seconds to finish.

    Args:
        engine: closed at the end.
        settings: limits and switches.
        host: address to listen at; an IPv6 address or `0.0.0.0` also work.
        port: 0 takes any free one; the log says which.
        level: of the log.

    Raises:
        UsageError: the address cannot be used, or the data folder.
    """
    app = create_app(engine, settings)
    log_as_json(level)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(settings.shutdown_timeout) or 1,
        backlog=BACKLOG,
        host=host,
        port=port,
    )
    with listen(host, port) as listening:
        logger.info("listening", extra={"event": "listening", "url": url_of(listening)})
        end_in_order()
        uvicorn.Server(config).run(sockets=[listening])
