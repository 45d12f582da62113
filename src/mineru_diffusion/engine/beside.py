"""Work that goes on beside a forward pass: images of requests that wait are encoded while others are decoded. On CUDA
it is queued on a stream of its own, elsewhere a thread does it. What is worked on is settled before it starts, so
results do not depend on how long anything takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import torch
from torch import Tensor

Work = Callable[[], Iterable[Tensor]]
"""Gives the tensors that it made for the time after `finish`."""


class Beside(Protocol):
    """Runs one piece of work at a time."""

    def start(self, work: Work) -> None:
        """Begin; the last piece must be finished."""
        ...

    def finish(self) -> None:
        """After this, what was made can be used. Without work it does nothing."""
        ...

    def close(self) -> None:
        """Finish, and give up what is held."""
        ...


class BesideThread:
    """A thread does the work, and `finish` waits for it."""

    def __init__(self) -> None:
        self._worker: ThreadPoolExecutor | None = None
        self._running: Future[Iterable[Tensor]] | None = None

    def start(self, work: Work) -> None:
        if self._worker is None:
            self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="beside")
        try:
            self._running = self._worker.submit(work)
        except RuntimeError:  # no thread can be had
            work()

    def finish(self) -> None:
        if self._running is None:
            return
        try:
            self._running.result()
        finally:
            if self._running.done():  # not if the wait was interrupted
                self._running = None

    def close(self) -> None:
        try:
            self.finish()
        finally:
            if self._worker is not None:
                self._worker.shutdown()
                self._worker = None


class BesideStream:
    """A CUDA stream does the work; after `finish` the caller's stream waits for it, the caller does not.

    Args:
        device: a CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._made: list[Tensor] | None = None

    def start(self, work: Work) -> None:
        with torch.cuda.device(self._device):
            self._stream.wait_stream(torch.cuda.current_stream())
            self._made = []
            with torch.cuda.stream(self._stream):
                self._made = list(work())

    def finish(self) -> None:
        made, self._made = self._made, None
        if made is None:
            return
        current = torch.cuda.current_stream(self._device)
        current.wait_stream(self._stream)
        for tensor in made:
            # Their memory belongs to the other stream, which must not hand it out while this one reads it.
            tensor.record_stream(current)

    def close(self) -> None:
        self.finish()


def make_beside(device: torch.device, overlap: bool | None) -> Beside | None:
    """What runs beside passes on `device`, or nothing, which None means as well."""
    if not overlap:
        return None
    return BesideStream(device) if device.type == "cuda" else BesideThread()
