"""An engine that answers by a function, a few characters a pass, and servers around it on real sockets."""

from __future__ import annotations

import base64
import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from PIL import Image

from mineru_diffusion.engine.types import CheckpointProfile, Request, Result
from mineru_diffusion.errors import EngineError, UsageError
from mineru_diffusion.serving.app import create_app, new_state
from mineru_diffusion.serving.run import OrderlyServer
from mineru_diffusion.serving.settings import ServerSettings

BLOCK = 4
PAGES = 64


class FakeEngine:
    """Decodes `answer(request)`, one block of `BLOCK` characters a pass; tokens are code points.

    Args:
        answer: text, or a whole result.
        pause: seconds of a pass. While `gate` is cleared, no pass begins.
    """

    def __init__(
        self,
        answer: Callable[[Request], str | Result] = lambda request: "some text",
        profile: CheckpointProfile | None = None,
        *,
        pause: float = 0.0,
        max_rows: int = 8,
    ) -> None:
        self.profile = profile or CheckpointProfile()
        self.max_rows = max_rows
        self.on_pass: Callable[[], None] | None = None
        self.pause = pause
        self.break_next = 0
        self.gate = threading.Event()
        self.gate.set()
        self.submitted: list[Request] = []
        self.closed = False
        self._answer = answer
        self._ids = count()
        self._running: dict[int, tuple[Request, Result, int]] = {}
        self._done: list[tuple[int, Result]] = []

    @property
    def cache_pages(self) -> tuple[int, int]:
        return len(self._running), PAGES

    def submit(self, request: Request) -> int:
        if request.params.policy == "fixed" and request.params.steps is None:
            raise UsageError("the fixed policy needs a number of steps")
        if request.prompt == "odd":
            raise TypeError("nobody foresaw this")
        request_id = next(self._ids)
        self.submitted.append(request)
        if request.prompt is not None and "<|image_pad|>" in request.prompt:
            self._done.append((request_id, Result("", finish_reason="error", error="no placeholders, please")))
            return request_id
        answer = self._answer(request)
        if isinstance(answer, str):
            answer = self._result(answer)
        self._running[request_id] = (request, answer, 0)
        return request_id

    def _result(self, text: str, finish: Any = "stop") -> Result:
        tokens = tuple(ord(c) for c in text)
        return Result(text, tokens, (0.9,) * len(tokens), (1,) * len(tokens), 3, finish, prompt_tokens=7)

    def stream(self) -> Iterator[tuple[int, Result]]:
        while self._running or self._done:
            while self._done:
                yield self._done.pop(0)
            if not self._running:
                continue
            self.gate.wait()
            time.sleep(self.pause)
            if self.break_next:
                self.break_next -= 1
                raise EngineError("the device is gone")
            for request_id, (request, result, blocks) in list(self._running.items()):
                limit = request.params.max_tokens or 10**9
                if blocks * BLOCK >= min(len(result.text), limit):
                    del self._running[request_id]
                    cut = len(result.text) > limit
                    self._done.append((request_id, self._result(result.text[:limit], "length") if cut else result))
                else:
                    self._running[request_id] = (request, result, blocks + 1)
            if self.on_pass is not None:
                self.on_pass()

    def partial(self, request_id: int) -> tuple[int, ...] | None:
        if request_id not in self._running:
            return None
        _, result, blocks = self._running[request_id]
        return tuple(ord(c) for c in result.text[: blocks * BLOCK])

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(chr, tokens))

    def generate(self, requests: Sequence[Request]) -> list[Result]:
        raise AssertionError("the worker uses `stream` only")

    def cancel(self, request_id: int) -> bool:
        if request_id not in self._running:
            return False
        _, result, blocks = self._running.pop(request_id)
        self._done.append((request_id, self._result(result.text[: blocks * BLOCK], "cancelled")))
        return True

    def close(self) -> None:
        self.closed = True


@contextmanager
def running(engine: FakeEngine, tmp: Path, **settings: Any) -> Iterator[httpx.Client]:
    """A server on a free port, in a thread of this process; gives a client with its address as base URL."""
    settings = {"model_name": "m", "data_dir": tmp / "data", "shutdown_timeout": 1.0, **settings}
    state = new_state(engine, ServerSettings(**settings))
    config = uvicorn.Config(
        create_app(state),
        port=0,
        log_config=None,
        timeout_graceful_shutdown=10,
        lifespan="on",
    )
    server = OrderlyServer(config, state)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        # A connection that is kept may be closed by the server in the very moment in which it is used again.
        limits = httpx.Limits(max_keepalive_connections=0)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300, limits=limits) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), "the server did not stop"


def png(width: int = 64, height: int = 32, colour: str = "white") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(buffer, format="PNG")
    return buffer.getvalue()


def data_uri(data: bytes | None = None, mime: str = "image/png") -> str:
    return f"data:{mime};base64," + base64.b64encode(png() if data is None else data).decode()


def chat(prompt: str = "\nText Recognition:", url: str | None = None, **more: Any) -> dict[str, Any]:
    """Body of a chat request as MinerU's client builds it."""
    image = {"type": "image_url", "image_url": {"url": data_uri() if url is None else url}}
    return {
        "model": "m",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": [image, {"type": "text", "text": prompt}]},
        ],
        **more,
    }


def inside(client: httpx.Client) -> int:
    """Engine requests that wait or run."""
    return sum(client.get("/health").json()["requests"].values())


@contextmanager
def sent(client: httpx.Client, path: str, body: dict[str, Any], key: str = "") -> Iterator[socket.socket]:
    """A connection on which a JSON request was sent; leaving closes it, whether an answer came or not."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    with socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=300) as connection:
        connection.sendall(head.encode() + content)
        yield connection


@contextmanager
def held(engine: FakeEngine, client: httpx.Client, *bodies: dict[str, Any]) -> Iterator[None]:
    """These chat requests are in, in this order, and the engine stands still."""
    engine.gate.clear()
    threads = []
    try:
        for i, body in enumerate(bodies):
            call = {"args": ("/v1/chat/completions",), "kwargs": {"json": body}}
            threads.append(threading.Thread(target=client.post, **call))
            threads[-1].start()
            until(lambda i=i: inside(client) == i + 1)  # type: ignore[misc]
        yield
    finally:
        engine.gate.set()
        for thread in threads:
            thread.join()


def until(condition: Callable[[], bool], seconds: float = 300) -> None:
    """Wait for something that happens in another thread or process."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
