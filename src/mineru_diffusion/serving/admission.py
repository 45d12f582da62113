"""Who may come in: a bounded number of requests and of pixels, and an honest guess when to come back."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from mineru_diffusion.serving.errors import busy

_SMOOTHING = 0.1
_LONGEST_WAIT = 60


class Admission:
    """Counts what is in; only used on the event loop, so nothing is locked.

    Args:
        limit: requests at a time.
        pixels: pixels of their images together.
    """

    def __init__(self, limit: int, pixels: int) -> None:
        self._limit = limit
        self._pixel_limit = pixels
        self._seconds = 1.0
        self.inside = 0
        self.pixels = 0

    @property
    def retry_after(self) -> int:
        """Seconds that requests took lately: by then, places will be free."""
        return max(1, min(_LONGEST_WAIT, math.ceil(self._seconds)))

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place for one request.

        Raises:
            ApiError: 429, all are taken.
        """
        if self.inside >= self._limit:
            raise busy(f"{self.inside} requests are queued already; try again later", self.retry_after)
        self.inside += 1
        started = time.monotonic()
        try:
            yield
        finally:
            self.inside -= 1
            self._seconds += _SMOOTHING * (time.monotonic() - started - self._seconds)

    @contextmanager
    def image(self, pixels: int) -> Iterator[None]:
        """Room for one decoded image; a single one always fits.

        Raises:
            ApiError: 429, the images that are in take all of it.
        """
        if self.pixels and self.pixels + pixels > self._pixel_limit:
            raise busy(
                "the images of queued requests fill the memory meant for them; try again later", self.retry_after
            )
        self.pixels += pixels
        try:
            yield
        finally:
            self.pixels -= pixels
