"""The door, as plain ASGI middleware: who you are, how much you send, how long you take, and a line in the log."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Iterable

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mineru_diffusion.serving.errors import ApiError, busy
from mineru_diffusion.serving.settings import ServerSettings

logger = logging.getLogger("mineru_diffusion.serving")

OPEN_PATHS = frozenset({"/health"})
"""Paths that need no key, for whoever only wants to know whether the server lives."""
_REQUEST_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)
_LINGER_SECONDS = 5.0
_EARLY = frozenset({401, 408, 413})
Observe = Callable[[str, int, float], None]


class RequestLog:
    """Gives every request an id (the client's own, if it is a decent one), logs one JSON line at its end, and counts.

    Args:
        app: what comes behind.
        observe: told route, status and seconds.
    """

    def __init__(self, app: ASGIApp, observe: Observe) -> None:
        self._app = app
        self._observe = observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        started = time.monotonic()
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            seconds = time.monotonic() - started
            route = getattr(scope.get("route"), "path", "other")
            self._observe(route, status or 499, seconds)
            client = scope.get("client")
            fields = {
                "event": "request",
                "request_id": request_id,
                "method": scope["method"],
                "route": route,
                "path": scope["path"][:200],
                "status": status or 499,
                "ms": round(seconds * 1000, 1),
                "client": client[0] if client else None,
            }
            logger.info("request", extra=fields)


class Guard:
    """Checks keys and limits before and while a body is read, and drops clients that do not read their answer.

    Args:
        app: what comes behind.
        settings: keys and limits.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._settings = settings
        self._keys = [_digest(key) for key in settings.api_keys]
        self._inflight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        body = _Body(receive, self._limit(headers), self._settings.transfer_timeout, self._take)
        sender = _Sender(send, self._settings.transfer_timeout, body)
        try:
            self._check_key(scope["path"], headers)
            body.check_length(headers.get("content-length"))
            await self._app(scope, body, sender)
        except ApiError as error:
            if sender.started:
                raise
            await error.response()(scope, receive, sender)
        except SlowReader:
            logger.info("the client does not read its answer", extra={"event": "slow_reader"})
            raise
        finally:
            self._inflight -= body.received

    def _limit(self, headers: Headers) -> int:
        multipart = headers.get("content-type", "").lower().startswith("multipart/")
        return self._settings.max_upload_bytes if multipart else self._settings.max_body_bytes

    def _take(self, size: int) -> None:
        self._inflight += size
        if self._inflight > self._settings.max_inflight_bytes:
            raise busy("the requests that are being read fill the memory meant for them; try again later", 5)

    def _check_key(self, path: str, headers: Headers) -> None:
        if not self._keys or path in OPEN_PATHS:
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        digest = _digest(token.strip())
        # All are compared, in constant time each: how long it takes tells nothing.
        known = [hmac.compare_digest(digest, key) for key in self._keys]
        if scheme.lower() != "bearer" or not any(known):
            raise ApiError(401, "a valid API key is needed: Authorization: Bearer KEY", code="invalid_api_key")


class SlowReader(ConnectionError):
    """The client took too long to read a piece of its answer."""


class _Body:
    """`receive` with a limit on bytes and on the time until the body is there."""

    def __init__(self, receive: Receive, limit: int, timeout: float, take: Callable[[int], None]) -> None:
        self._receive = receive
        self._limit = limit
        self._deadline = time.monotonic() + timeout
        self._timeout = timeout
        self._take = take
        self._complete = False
        self.received = 0

    def check_length(self, given: str | None) -> None:
        if given is not None and given.isdecimal() and int(given) > self._limit:
            raise self._too_large()

    def _too_large(self) -> ApiError:
        return ApiError(413, f"the body may have {self._limit} bytes at most", code="body_too_large")

    async def __call__(self) -> Message:
        if self._complete:
            return await self._receive()  # only the end of the connection can come now, whenever it may
        # Time limits by anyio here and below: before Python 3.12 `asyncio.wait_for` forgets a cancellation that comes
        # together with what it waits for.
        message: Message | None = None
        with anyio.move_on_after(max(self._deadline - time.monotonic(), 0.001)):
            message = await self._receive()
        if message is None:
            raise ApiError(408, f"the body did not arrive in {self._timeout:g} s", code="body_timeout")
        if message["type"] != "http.request":
            self._complete = True
            return message
        size = len(message.get("body", b""))
        self.received += size
        self._take(size)
        if self.received > self._limit:
            raise self._too_large()
        self._complete = not message.get("more_body", False)
        return message

    async def linger(self) -> None:
        """Read on for a while and throw it away, so that a client that is still sending gets to see the answer."""
        end = time.monotonic() + _LINGER_SECONDS
        left = 2 * self._limit
        while left > 0 and not self._complete and time.monotonic() < end:
            message: Message | None = None
            with anyio.move_on_after(_LINGER_SECONDS):
                message = await self._receive()
            if message is None:
                return
            left -= len(message.get("body", b""))
            self._complete = not message.get("more_body", False)


class _Sender:
    """`send` with a limit on the time that the client may take to read. Answers that come before the body was read to
    its end close the connection."""

    def __init__(self, send: Send, timeout: float, body: _Body) -> None:
        self._send = send
        self._timeout = timeout
        self._body = body
        self.started = False

    async def __call__(self, message: Message) -> None:
        self.started = True
        if message["type"] == "http.response.start" and message["status"] in _EARLY:
            if message["status"] == 413:
                await self._body.linger()
            MutableHeaders(scope=message)["Connection"] = "close"
        with anyio.move_on_after(self._timeout) as limit:
            await self._send(message)
        if limit.cancelled_caught:
            raise SlowReader("the client does not read its answer")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", errors="surrogatepass")).digest()


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, message, and whatever fields the record carries."""

    _USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        fields = {k: v for k, v in vars(record).items() if k not in self._USUAL}
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields,
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def log_as_json(level: str = "INFO") -> None:
    """Send this server's and uvicorn's log lines to stderr as JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    names: Iterable[str] = ("mineru_diffusion.serving", "uvicorn", "uvicorn.error")
    for name in names:
        target = logging.getLogger(name)
        target.handlers = [handler] if name != "uvicorn.error" else []
        target.setLevel(level)
        target.propagate = name == "uvicorn.error"
