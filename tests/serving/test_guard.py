"""Time limits do not forget that the work under them was given up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mineru_diffusion.serving.guard import SlowReader, _Body, _Sender


def body_of(receive: Callable[[], Awaitable[Any]], timeout: float = 60) -> _Body:
    return _Body(receive, 1000, timeout, lambda size: None)  # type: ignore[arg-type]


def sender_of(send: Callable[[Any], Awaitable[None]], timeout: float = 60) -> _Sender:
    return _Sender(send, timeout, body_of(asyncio.Event().wait))  # type: ignore[arg-type]


@pytest.mark.parametrize("what", ["send", "receive"])
def test_a_cancellation_that_comes_together_with_the_end_counts(what: str) -> None:
    async def run() -> bool:
        done: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

        async def send(message: object) -> None:
            await done

        async def receive() -> dict[str, Any]:
            return await done

        async def work() -> None:
            await (sender_of(send)({"type": "x"}) if what == "send" else body_of(receive)())

        task = asyncio.create_task(work())
        await asyncio.sleep(0.01)
        done.set_result({"type": "http.request"})
        task.cancel()
        await asyncio.wait({task})
        return task.cancelled()

    assert asyncio.run(run())


def test_a_client_that_does_not_read_is_given_up() -> None:
    async def send(message: object) -> None:
        await asyncio.sleep(60)

    with pytest.raises(SlowReader):
        asyncio.run(sender_of(send, 0.05)({"type": "x"}))  # type: ignore[arg-type]
