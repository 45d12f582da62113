"""Work that ends when the client goes away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import anyio
import anyio.to_thread
from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send


async def or_disconnect(request: Request, work: Coroutine[Any, Any, None]) -> bool:
    """Run `work` to its end, or until the client closes the connection; then it is cancelled.

    Returns:
        Whether the work came to its end. The request's body must have been read before.
    """
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return False
        await working
        return True
    finally:
        for task in (working, gone):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class EventStream(StreamingResponse):
    """Server-sent events; what `stack` holds is given back when the stream ends, however it ends.

    Args:
        first: the first event, which was waited for already.
        events: the others.
        stack: closed at the end, also if nothing was ever sent.
    """

    def __init__(self, first: bytes, events: AsyncIterator[bytes], stack: AsyncExitStack) -> None:
        super().__init__(_after(first, events), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._stack:
            await or_disconnect(Request(scope, receive), self.stream_response(send))


class ThenDo(Response):
    """An answer after which `work` is done, however the sending ends: a background task is left out when it fails.

    Args:
        answer: to send.
        work: done in a thread, in this order.
    """

    def __init__(self, answer: Response, *work: Callable[[], object]) -> None:
        super().__init__(status_code=answer.status_code)
        self._answer = answer
        self._work = work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._answer(scope, receive, send)
        finally:
            with anyio.CancelScope(shield=True):
                for work in self._work:
                    await anyio.to_thread.run_sync(work)


async def _after(first: bytes, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for event in events:
        yield event
