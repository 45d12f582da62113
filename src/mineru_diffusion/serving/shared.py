"""The server's engine as one document sees it: the Engine protocol on top of the worker, for a thread of its own.

Crops of all documents and chat requests meet in the one real engine and share its passes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from queue import SimpleQueue

from mineru_diffusion.engine.types import CheckpointProfile, Request, Result
from mineru_diffusion.serving.worker import EngineWorker, Event, Failed, Finished


class Interrupted(Exception):
    """The document was given up; `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SharedEngine:
    """A view of the worker with requests of its own. One thread drives it; `interrupt` may come from any.

    Args:
        worker: of the server.
        priority: of all its requests; see `EngineWorker.submit`.
    """

    def __init__(self, worker: EngineWorker, *, priority: int = 0) -> None:
        self._worker = worker
        self._priority = priority
        self._events: SimpleQueue[tuple[int, Event] | None] = SimpleQueue()
        self._tags: dict[int, object] = {}
        self._early: deque[tuple[int, Result]] = deque()
        self._reason = ""
        self._lock = threading.Lock()

    @property
    def profile(self) -> CheckpointProfile:
        return self._worker.profile

    def interrupt(self, reason: str) -> None:
        """Make the thread that drives this engine raise `Interrupted` as soon as it asks for anything."""
        with self._lock:
            self._reason = self._reason or reason
        self._events.put(None)

    def check(self) -> None:
        """Raise `Interrupted` if that is due."""
        with self._lock:
            if self._reason:
                raise Interrupted(self._reason)

    def submit(self, request: Request) -> int:
        """Queue a request.

        Raises:
            Interrupted: the document was given up.
            EngineError: the server is stopping.
        """
        self.check()
        # The event carries its handle, which is known only after `submit`: hence the box.
        box: list[int] = []
        ready = threading.Event()

        def listener(event: Event) -> None:
            ready.wait()
            self._events.put((box[0], event))

        box.append(self._worker.submit(request, listener, priority=self._priority))
        ready.set()
        self._tags[box[0]] = request.tag
        return box[0]

    def stream(self) -> Iterator[tuple[int, Result]]:
        """Results as they come, until none is outstanding."""
        while self._early:
            yield self._early.popleft()
        while self._tags:
            yield self._next()

    def _next(self) -> tuple[int, Result]:
        while True:
            item = self._events.get()
            self.check()
            if item is None:
                continue
            handle, event = item
            if handle not in self._tags:
                continue  # cancelled meanwhile
            tag = self._tags.pop(handle)
            if isinstance(event, Finished):
                return handle, event.result
            if isinstance(event, Failed):
                return handle, Result("", finish_reason="error", error=str(event.error), tag=tag)

    def generate(self, requests: Sequence[Request]) -> list[Result]:
        """Run these requests; results in the same order, results of others stay for `stream`."""
        handles = [self.submit(request) for request in requests]
        mine: dict[int, Result] = {}
        while len(mine) < len(handles):
            handle, result = self._next()
            if handle in handles:
                mine[handle] = result
            else:
                self._early.append((handle, result))
        return [mine[handle] for handle in handles]

    def cancel(self, request_id: int) -> bool:
        """Give up a request; no result comes of it."""
        if self._tags.pop(request_id, self) is self:
            return False
        return self._worker.cancel(request_id)

    def close(self) -> None:
        """Give up whatever is outstanding. The real engine goes on."""
        for handle in list(self._tags):
            self.cancel(handle)
        self._early.clear()
