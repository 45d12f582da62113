"""Ctrl-C once finishes what is in flight; twice stops at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SAID = b"\nfinishing the pages in flight; once more stops at once\n"


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Whether an interrupt or a request to terminate has come; a second one raises KeyboardInterrupt.

    In a thread other than the main one, signals stay as they are.
    """
    asked = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        # Not by a buffered stream: a handler may have come in the middle of a write to it.
        os.write(2, _SAID)

    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
