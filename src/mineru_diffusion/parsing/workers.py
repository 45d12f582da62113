"""Pages prepared in processes of their own: rendering and layout on several cores, and a file that crashes its reader
takes only one page with it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from pathlib import Path

from mineru_diffusion.document.source_types import Source
from mineru_diffusion.document.sources import open_source
from mineru_diffusion.document.types import Page
from mineru_diffusion.errors import SourceError
from mineru_diffusion.parsing.layout_types import LayoutDetector
from mineru_diffusion.parsing.options import ParseOptions
from mineru_diffusion.parsing.page_steps import PreparedPage, lay_out, render

CRASHED = "the page crashed the process that rendered it (repair the file)"


class PageWorkers:
    """Processes that prepare pages.

    Args:
        count: how many.
        options: how pages are rendered.
        detector: finds their regions; None to render only. It is copied to every process.
    """

    def __init__(self, count: int, options: ParseOptions, detector: LayoutDetector | None) -> None:
        self._count = count
        self._options = options
        self._detector = detector
        self._pool = self._new_pool(count)

    def submit(self, path: Path, index: int) -> Callable[[], PreparedPage]:
        """Begin with a page; the result waits for it. Pages of one document may be prepared at the same time."""
        try:
            future: Future[PreparedPage] = self._pool.submit(_prepare, path, index)
        except BrokenProcessPool:
            self._pool = self._new_pool(self._count)
            future = self._pool.submit(_prepare, path, index)
        return lambda: self._result(future, path, index)

    def close(self) -> None:
        """End the processes after the pages that they are at."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _result(self, future: Future[PreparedPage], path: Path, index: int) -> PreparedPage:
        try:
            return future.result()
        except BrokenProcessPool:
            pass
        # A crash breaks the pool for every page in it. Which one it was, shows when each has a process for itself.
        try:
            with self._new_pool(1) as alone:
                return alone.submit(_prepare, path, index).result()
        except BrokenProcessPool:
            return PreparedPage(Page(index, 0, 0, error=CRASHED))

    def _new_pool(self, count: int) -> ProcessPoolExecutor:
        # Not by fork: threads run, and torch may be loaded.
        return ProcessPoolExecutor(
            count,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(self._options, self._detector),
        )


_options = ParseOptions()
_detector: LayoutDetector | None = None
_open: tuple[Path, Source] | None = None


def _begin(options: ParseOptions, detector: LayoutDetector | None) -> None:
    global _options, _detector
    _options, _detector = options, detector
    # Ctrl-C goes to every process of a terminal; what becomes of the run is decided by the one that started it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _prepare(path: Path, index: int) -> PreparedPage:
    try:
        step = render(_source(path), index)
    except SourceError as error:
        step = PreparedPage(Page(index, 0, 0, error=error.reason))
    return step if _detector is None else lay_out([step], _detector)[0]


def _source(path: Path) -> Source:
    """The open document; the last one is kept, because the next page is mostly one of its own."""
    global _open
    if _open is None or _open[0] != path:
        if _open is not None:
            with contextlib.suppress(Exception):
                _open[1].close()
            _open = None
        _open = (path, open_options(path, _options))
    return _open[1]


def open_options(path: Path, options: ParseOptions) -> Source:
    """Open a document as the options say; raises what `open_source` raises."""
    return open_source(path, password=options.password, dpi=options.dpi, max_image_pixels=options.max_image_pixels)
