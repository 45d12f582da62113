"""A server's socket and its end, for the API server and the demo alike."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading

from mineru_diffusion.errors import UsageError

BACKLOG = 512


def listen(host: str, port: int) -> socket.socket:
    """A bound socket: whether the address works is known before anything starts. Who connects waits until it does.

    Args:
        host: address to listen at; an IPv6 address or `0.0.0.0` also work.
        port: 0 takes any free one; `url_of` says which.

    Raises:
        UsageError: the address cannot be used.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        raise UsageError(f"cannot listen at {host}:{port}: {error}; choose another --host or --port") from error
    return listening


def url_of(listening: socket.socket) -> str:
    """The URL of a bound socket."""
    shown, bound = listening.getsockname()[:2]
    return f"http://[{shown}]:{bound}" if ":" in shown else f"http://{shown}:{bound}"


def end_in_order() -> None:
    """Let SIGTERM end uvicorn only, and not the process before it has cleaned up: uvicorn raises the signal again when
    it is done, and an orderly end is no failure. Answers that are cut off by it are no bugs, and leave no traceback."""
    logging.getLogger("uvicorn.error").addFilter(_not_cancelled)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: None)


def _not_cancelled(record: logging.LogRecord) -> bool:
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not issubclass(kind, asyncio.CancelledError)
