"""Progress on a terminal: one bar each for files, pages and regions, however many files there are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mineru_diffusion.document.types import Page
from mineru_diffusion.parsing.progress import Progress, Silent


@contextmanager
def progress_bars(*, shown: bool, files: int) -> Iterator[Bars | None]:
    """Bars on stderr; None where they are not wanted or stderr is no terminal.

    Args:
        shown: they are wanted.
        files: how many files the run has.
    """
    from rich.console import Console

    console = Console(stderr=True)
    if not shown or not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with RichProgress(*columns, console=console, transient=True) as bars:
        shown_bars = Bars(bars, files)
        yield shown_bars
        # Bars are drawn some times a second; what was done since then should be seen as well.
        bars.refresh()


class Bars:
    """A `Progress` that is seen, and knows how many files are done."""

    def __init__(self, bars: Any, files: int) -> None:
        self._bars = bars
        self._files = bars.add_task("files", total=files, visible=files > 1)
        self._pages = bars.add_task("pages", total=0)
        self._regions = bars.add_task("regions", total=0)
        self._expected = 0

    def document_opened(self, path: Path, pages: int) -> None:
        self._expected += pages
        self._bars.update(self._pages, total=self._expected)

    def page_finished(self, path: Path, page: Page) -> None:
        self._bars.advance(self._pages)

    def crops(self, submitted: int, finished: int) -> None:
        self._bars.update(self._regions, total=submitted, completed=finished)

    def file_done(self) -> None:
        """A file is written, or has failed."""
        self._bars.advance(self._files)


def as_progress(bars: Bars | None) -> Progress:
    """What a run is given."""
    return Silent() if bars is None else bars
