"""From an engine to a listening server, and to its orderly end."""

from __future__ import annotations

import logging
import signal
import socket
import threading

import uvicorn

from mineru_diffusion.errors import UsageError
from mineru_diffusion.serving.app import create_app
from mineru_diffusion.serving.guard import log_as_json
from mineru_diffusion.serving.settings import ServerSettings
from mineru_diffusion.serving.worker import ServedEngine

logger = logging.getLogger("mineru_diffusion.serving")

KEEP_ALIVE_SECONDS = 30
BACKLOG = 512


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
    with _listen(host, port) as listening:
        shown, bound = listening.getsockname()[:2]
        url = f"http://[{shown}]:{bound}" if ":" in shown else f"http://{shown}:{bound}"
        logger.info("listening", extra={"event": "listening", "url": url})
        if threading.current_thread() is threading.main_thread():
            # uvicorn raises the signal again when all is done; an orderly end is no failure, so nobody listens then.
            signal.signal(signal.SIGTERM, lambda *_: None)
        uvicorn.Server(config).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    """A bound socket: whether the address works is known before anything starts."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        raise UsageError(f"cannot listen at {host}:{port}: {error}; choose another --host or --port") from error
    return listening
