"""One chat request's conversation with the engine's thread, as seen from the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from types import TracebackType

import anyio

from mineru_diffusion.engine.types import Result
from mineru_diffusion.errors import EngineError
from mineru_diffusion.serving.answers import Ending, cut_at_stop, ending
from mineru_diffusion.serving.errors import ApiError, bad_request, from_ours
from mineru_diffusion.serving.reading import Reading
from mineru_diffusion.serving.worker import Block, EngineWorker, Event, Failed, Listener

_TIMED_OUT = "time_limit"
_UNFINISHED = "\ufffd"
"""What the first bytes of a character that is not complete decode to."""


class Exchange:
    """Submits a reading's requests and gathers what comes back. Leaving the context cancels what still runs.

    Args:
        worker: of the server.
        reading: what to ask.
        stops: texts that end the answer.
        priority: lower goes first.
        blocks: the caller wants to see text before the end.
        timeout: seconds from now after which the answer is cut.
    """

    def __init__(
        self,
        worker: EngineWorker,
        reading: Reading,
        *,
        stops: tuple[str, ...] = (),
        priority: int = 0,
        blocks: bool = False,
        timeout: float = 600,
    ) -> None:
        self._worker = worker
        self._reading = reading
        self._stops = stops
        self._priority = priority
        self._blocks = reading.direct and (blocks or bool(stops))
        self._deadline = time.monotonic() + timeout
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        self._handles: dict[int, int] = {}
        self._results: dict[int, Result] = {}
        self._latest: Block | None = None
        self._cut = ""

    async def __aenter__(self) -> Exchange:
        try:
            for slot, request in enumerate(self._reading.requests):
                self._handles[slot] = self._worker.submit(
                    request, self._listener(slot), priority=self._priority, blocks=self._blocks
                )
        except EngineError as error:
            self._cancel()
            raise ApiError(503, str(error), code="shutting_down", retry_after=5) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cancel()

    def _listener(self, slot: int) -> Listener:
        def listener(event: Event) -> None:
            # A closed event loop means that nobody waits any more.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._put, slot, event)

        return listener

    def _put(self, slot: int, event: Event) -> None:
        """Of blocks only the latest is kept: it holds all the text, and a slow reader must not make them pile up."""
        if isinstance(event, Block):
            waiting, self._latest = self._latest is not None, event
            if waiting:
                return
        self._events.put_nowait((slot, event))

    def _cancel(self) -> None:
        for handle in self._handles.values():
            self._worker.cancel(handle)

    async def texts(self, first_pause: float, pause: float) -> AsyncIterator[str | None]:
        """The answer's text so far, each time that it grew, until all results are in; None after every `pause` seconds
        (at the beginning, `first_pause`) in which nothing came.

        Raises:
            ApiError: the engine refused or failed.
        """
        text = ""
        while self._handles:
            item = await self._next(first_pause)
            first_pause = pause
            if item is None:
                yield None
                continue
            slot, event = item
            if isinstance(event, Block):
                latest, self._latest = self._latest or event, None
                cut, stop = cut_at_stop(latest.text, self._stops)
                if stop is not None:
                    self._cancel()
                safe = cut if stop is not None else self._safe(cut)
                if len(safe) > len(text):
                    text = safe
                    yield text
                continue
            del self._handles[slot]
            self._results[slot] = self._result(event)

    async def _next(self, pause: float) -> tuple[int, Event] | None:
        left = self._deadline - time.monotonic()
        if left <= 0 and not self._cut:
            self._cut = _TIMED_OUT
            self._cancel()
        wait = pause if self._cut else min(pause, max(left, 0.01))
        # Before Python 3.12 `asyncio.wait_for` forgets a cancellation that comes together with an event, and a client
        # that went away is served to the end.
        with anyio.move_on_after(wait):
            return await self._events.get()
        return None

    def _safe(self, text: str) -> str:
        """What of a growing text will not change any more."""
        held = max((len(stop) for stop in self._stops), default=1) - 1
        return text[: len(text) - held].rstrip(_UNFINISHED)

    def _result(self, event: Event) -> Result:
        if isinstance(event, Failed):
            error = from_ours(event.error)
            if isinstance(event.error, EngineError) and not self._worker.running:
                error = ApiError(503, str(event.error), code="shutting_down", retry_after=5)
            raise error
        assert not isinstance(event, Block)
        if event.result.finish_reason == "error":
            if event.refused:
                raise bad_request(event.result.error, "messages", "request_refused")
            raise ApiError(500, event.result.error, code="engine_error")
        return event.result

    def finish(self) -> tuple[Result, str, Ending]:
        """The answer, its text and its ending; after `texts` is through.

        Raises:
            ApiError: the time was up before anything was read.
        """
        result = self._reading.answer([self._results[slot] for slot in sorted(self._results)], self._worker.decode)
        text, stop = cut_at_stop(result.text, self._stops)
        if stop is not None:
            return result, text, Ending("stop", stop)
        if result.finish_reason == "cancelled":
            if not self._worker.running:
                raise ApiError(503, "the server is shutting down", code="shutting_down", retry_after=5)
            if not text:
                raise ApiError(503, "no time was left for this request", code="request_timeout", retry_after=30)
            return result, text, Ending("length", self._cut or result.finish_reason)
        return result, text, ending(result)
