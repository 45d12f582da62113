"""When a run ends before its last step: signals and time limits."""

from __future__ import annotations

import re
import signal
import threading
import time
from typing import Any

from mineru_diffusion.errors import UsageError

ECHO = 1.0
"""Seconds in which a second signal is taken for the first one's echo: `timeout`, for one, sends to a process and
then to its group."""

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)", re.IGNORECASE)


def seconds_of(text: str) -> float:
    """A duration in seconds: `90`, `90s`, `10m`, `2h`, `1h30m`.

    Raises:
        UsageError: it is none.
    """
    compact = text.strip()
    parts = _PART.findall(compact)
    if not parts or _PART.sub("", compact).strip():
        raise UsageError(f"{text!r} is no duration; write seconds, or 10m, 2h, 1h30m")
    return sum(float(number) * _SECONDS[unit.lower()] for number, unit in parts)


class StopRequest:
    """Notes the first SIGINT or SIGTERM, so that a run ends between two steps; a second one, at least `ECHO` seconds
    later, ends it at once. Background jobs ignore Ctrl-C, and batch systems send SIGTERM, hence both."""

    def __init__(self) -> None:
        self.requested = False
        self._since = 0.0
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            self._handlers = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def _note(self, *_: object) -> None:
        now = time.monotonic()
        if self.requested:
            if now - self._since >= ECHO:
                raise KeyboardInterrupt
            return
        self.requested, self._since = True, now

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
