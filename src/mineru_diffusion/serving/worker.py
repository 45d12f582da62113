"""The engine's thread. Any thread may submit and cancel; only this one touches the engine, between two passes.

In: requests with a listener each. Out: events to the listeners: tokens of finished blocks, then one last event.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from mineru_diffusion.engine.types import Engine, Request, Result
from mineru_diffusion.errors import EngineError, MinerUDiffusionError

logger = logging.getLogger("mineru_diffusion.serving")

FAILURES_UNTIL_UNHEALTHY = 3
"""Passes that fail one after the other before `/health` says so."""


class ServedEngine(Engine, Protocol):
    """What the server needs of an engine besides the protocol; see `LocalEngine`."""

    on_pass: Callable[[], None] | None

    @property
    def max_rows(self) -> int: ...

    @property
    def cache_pages(self) -> tuple[int, int]: ...

    def partial(self, request_id: int) -> tuple[int, ...] | None: ...

    def decode(self, tokens: Sequence[int]) -> str: ...


@dataclass(frozen=True)
class Block:
    """A request has finished blocks: all of its text so far."""

    text: str


@dataclass(frozen=True)
class Finished:
    """A request is done.

    Attributes:
        result: what it gave.
        refused: it could never run; `result.error` says why.
    """

    result: Result
    refused: bool = False


@dataclass(frozen=True)
class Failed:
    """A request could not be submitted, or the engine broke while it ran."""

    error: MinerUDiffusionError


Event = Block | Finished | Failed
Listener = Callable[[Event], None]
"""Called in the engine's thread; must return at once and never raise."""


@dataclass
class _Entry:
    """A request that is queued or running."""

    request: Request
    listener: Listener
    blocks: bool
    engine_id: int | None = None
    refused: bool = False
    told: int = 0


@dataclass
class WorkerCounters:
    """What the worker did since it began."""

    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    failures_in_a_row: int = 0
    tokens: int = 0
    passes: int = 0


class EngineWorker:
    """Owns an engine and the thread that drives it.

    Args:
        engine: closed by `stop`.
        window: requests given to the engine at a time; the others wait here, so that priorities count.
    """

    def __init__(self, engine: ServedEngine, *, window: int | None = None) -> None:
        self._engine = engine
        self._window = window or 2 * engine.max_rows
        self._ids = count()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._entries: dict[int, _Entry] = {}
        self._waiting: list[tuple[int, int]] = []
        self._cancels: deque[int] = deque()
        self._handles: dict[int, int] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.profile = engine.profile
        self.counters = WorkerCounters()
        self.last_error = ""
        engine.on_pass = self._between_passes

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def stop(self, timeout: float = 10) -> None:
        """Cancel what is left, end the thread and close the engine."""
        with self._lock:
            self._stopping = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        if not self._thread.is_alive():
            self._engine.close()

    @property
    def healthy(self) -> bool:
        """The thread lives and the last passes did not all fail."""
        return self._thread.is_alive() and self.counters.failures_in_a_row < FAILURES_UNTIL_UNHEALTHY

    @property
    def running(self) -> bool:
        """Requests are taken."""
        return not self._stopping

    @property
    def cache_pages(self) -> tuple[int, int]:
        """Cache pages in use, and pages in all."""
        return self._engine.cache_pages

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens: looks them up in the tokenizer, which no pass changes, so that any thread may ask."""
        return self._engine.decode(tokens)

    def depth(self) -> tuple[int, int]:
        """Requests waiting here, and requests that the engine has."""
        with self._lock:
            return len(self._entries) - len(self._handles), len(self._handles)

    def submit(self, request: Request, listener: Listener, *, priority: int = 0, blocks: bool = False) -> int:
        """Queue a request; returns its handle. `listener` gets a last event in any case.

        Args:
            priority: lower goes first; equal ones in order of arrival.
            blocks: also tell of finished blocks on the way.

        Raises:
            EngineError: the server is stopping.
        """
        with self._lock:
            if self._stopping:
                raise EngineError("the server is shutting down")
            handle = next(self._ids)
            self._entries[handle] = _Entry(request, listener, blocks)
            heapq.heappush(self._waiting, (priority, handle))
        self._wake.set()
        return handle

    def cancel(self, handle: int) -> bool:
        """Give a request up; its pages are free after the current pass. False if it is unknown or done."""
        with self._lock:
            known = handle in self._entries
            if known:
                self._cancels.append(handle)
        self._wake.set()
        return known

    # From here on: the engine's thread.

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._stopping:
                break
            try:
                self._feed()
                for engine_id, result in self._engine.stream():
                    self._finish(engine_id, result)
                    self._feed()
                if self._handles:
                    raise EngineError("the engine gave no answer")
            except Exception as error:
                self._break(error)
        self._fail_all(EngineError("the server is shutting down"))

    def _between_passes(self) -> None:
        self.counters.passes += 1
        self.counters.failures_in_a_row = 0
        self._feed()
        for engine_id, handle in self._handles.items():
            entry = self._entries[handle]
            if entry.blocks:
                tokens = self._engine.partial(engine_id)
                if tokens is not None and len(tokens) > entry.told:
                    entry.told = len(tokens)
                    entry.listener(Block(self._engine.decode(tokens)))

    def _feed(self) -> None:
        """Cancel what was given up, then fill the engine's window."""
        if self._stopping:
            for engine_id in self._handles:
                self._engine.cancel(engine_id)
            return
        while self._cancels:
            self._cancel_now(self._cancels.popleft())
        while True:
            with self._lock:
                if not self._waiting or len(self._handles) >= self._window:
                    return
                _, handle = heapq.heappop(self._waiting)
                entry = self._entries.get(handle)
            if entry is not None:
                self._give(handle, entry)

    def _give(self, handle: int, entry: _Entry) -> None:
        try:
            engine_id = self._engine.submit(entry.request)
        except Exception as error:
            # Whatever is odd about one request must not cost the others theirs.
            self._drop(handle)
            self.counters.failed += 1
            entry.listener(Failed(_refusal(error)))
            return
        entry.engine_id = engine_id
        # Neither queued nor running right after submission: it can never run, and its result waits in the engine.
        entry.refused = self._engine.partial(engine_id) is None
        with self._lock:
            self._handles[engine_id] = handle

    def _cancel_now(self, handle: int) -> None:
        entry = self._entries.get(handle)
        if entry is None:
            return
        if entry.engine_id is not None:
            self._engine.cancel(entry.engine_id)  # its result comes out of `stream`
            return
        self._drop(handle)
        self.counters.cancelled += 1
        entry.listener(Finished(Result("", finish_reason="cancelled", tag=entry.request.tag)))

    def _finish(self, engine_id: int, result: Result) -> None:
        with self._lock:
            handle = self._handles.pop(engine_id)
            entry = self._entries.pop(handle)
        if result.finish_reason == "cancelled":
            self.counters.cancelled += 1
        elif result.finish_reason == "error":
            self.counters.failed += 1
        else:
            self.counters.finished += 1
        self.counters.tokens += len(result.tokens)
        entry.listener(Finished(result, entry.refused))

    def _drop(self, handle: int) -> None:
        with self._lock:
            self._entries.pop(handle, None)

    def _break(self, error: Exception) -> None:
        """The engine raised: whatever it had is lost, what waits here is not."""
        self.last_error = f"{type(error).__name__}: {error}"
        self.counters.failures_in_a_row += 1
        logger.error("the engine failed", exc_info=error, extra={"event": "engine_failure"})
        with self._lock:
            lost = [(engine_id, self._entries.pop(handle)) for engine_id, handle in self._handles.items()]
            self._handles.clear()
        reason = error if isinstance(error, MinerUDiffusionError) else EngineError(self.last_error)
        for engine_id, entry in lost:
            self._engine.cancel(engine_id)
            self.counters.failed += 1
            entry.listener(Failed(reason))
        self._drain()
        self._wake.set()

    def _drain(self) -> None:
        """Take the results of cancelled requests out of the engine, so that none is met again."""
        self._engine.on_pass = None
        try:
            for _ in self._engine.stream():
                pass
        except EngineError as error:
            logger.error("the engine failed again", exc_info=error, extra={"event": "engine_failure"})
        finally:
            self._engine.on_pass = self._between_passes

    def _fail_all(self, error: EngineError) -> None:
        with self._lock:
            entries = list(self._entries.values())
            self._entries.clear()
            self._handles.clear()
            self._waiting.clear()
        for entry in entries:
            entry.listener(Failed(error))


def _refusal(error: Exception) -> MinerUDiffusionError:
    """What a request that could not be submitted is told; what nobody foresaw is in the log."""
    if isinstance(error, MinerUDiffusionError):
        return error
    logger.error("a request could not be submitted", exc_info=error, extra={"event": "submit_failure"})
    return EngineError(f"the request could not be prepared: {type(error).__name__}")
