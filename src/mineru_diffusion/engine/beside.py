"""Work that goes on beside forward passes: a thread that cuts images, and one that encodes those of requests that wait
while others are decoded, on CUDA on a stream of its own. What is worked on is settled before it starts, so results do
not depend on how long anything takes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

Given = TypeVar("Given")

Work = Callable[[], list[Tensor]]
"""Gives the tensors that it made for the time after `finish`."""


class LazyThread:
    """One thread, started when it is first needed.

    Args:
        name: begins the thread's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, function: Callable[..., Given], *arguments: object) -> Future[Given]:
        """Have something done after what was submitted before; at once, and here, if no thread can be had."""
        try:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=self._name)
            return self._pool.submit(function, *arguments)
        except RuntimeError:
            self._pool = None  # it keeps what it could not start, and would do it once it can
            done: Future[Given] = Future()
            try:
                done.set_result(function(*arguments))
            except Exception as error:
                done.set_exception(error)
            return done

    def close(self) -> None:
        """Drop what has not begun, and let the thread end."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)


class Beside:
    """Runs one piece of work at a time in a thread.

    Args:
        device: where the work's tensors are. On CUDA the work has a stream of its own, with memory that the allocator
            keeps for that stream: up to one vision group's more than without.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._thread = LazyThread("beside")
        self._running: Future[list[Tensor]] | None = None

    def start(self, work: Work) -> None:
        """Begin; the last piece must be finished."""
        if self._stream is not None:
            # The weights, and whatever else the caller's stream makes before.
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        self._running = self._thread.submit(self._run, work)

    def _run(self, work: Work) -> list[Tensor]:
        with contextlib.nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            return work()

    def finish(self) -> None:
        """After this, what was made can be used. On CUDA the caller's stream then waits for it, the caller only until
        all of it is queued. Without work it does nothing."""
        if self._running is None:
            return
        try:
            made = self._running.result()
            if self._stream is not None:
                current = torch.cuda.current_stream(self._device)
                current.wait_stream(self._stream)
                for tensor in made:
                    # Their memory belongs to the other stream, which must not hand it out while this one reads it.
                    tensor.record_stream(current)
        except Exception:
            self._running = None
            raise
        self._running = None  # not if the wait was interrupted: then all of this is to be done again

    def close(self) -> None:
        """Wait for the work, forget what it made, and let the thread end."""
        self._thread.close()
        self._running = None
