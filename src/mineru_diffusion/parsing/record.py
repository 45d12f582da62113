"""A document while it is being read: its open source, the pages finished so far, and what to say about it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from mineru_diffusion.document.source_types import Source
from mineru_diffusion.document.types import Document, Page
from mineru_diffusion.errors import MinerUDiffusionError
from mineru_diffusion.parsing.headings import Heading, heading_levels
from mineru_diffusion.parsing.progress import Counters


@dataclass
class Record:
    """State of one input.

    Attributes:
        total: pages that will be read.
        pages: finished pages by index.
        heights: cap heights of titles in points, by (page index, order).
        error: why the document cannot be read at all.
    """

    path: Path
    source: Source | None = None
    total: int = 0
    pages: dict[int, Page] = field(default_factory=dict)
    heights: dict[tuple[int, int], float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    error: MinerUDiffusionError | None = None
    started: float = field(default_factory=time.monotonic)

    @property
    def complete(self) -> bool:
        return self.error is not None or len(self.pages) == self.total

    def warn(self, index: int, notes: Iterable[str]) -> None:
        """Keep notes about a page (`index` from 0)."""
        self.warnings += [f"page {index + 1}: {note}" for note in notes]

    def add(self, page: Page) -> None:
        """A page is finished."""
        self.pages[page.index] = page
        if page.error:
            self.counters.failed_pages += 1
            self.warn(page.index, [page.error])
        else:
            self.counters.pages += 1

    def document(self, meta: dict[str, Any]) -> Document:
        """The finished document, heading levels assigned over all its pages."""
        pages = [self.pages[index] for index in sorted(self.pages)]
        seconds = round(time.monotonic() - self.started, 3)
        return Document(
            source=str(self.path),
            pages=tuple(self._with_levels(pages)),
            meta={**meta, "page_count": self.total, "seconds": seconds, "counters": asdict(self.counters)},
            warnings=tuple(self.warnings),
        )

    def _with_levels(self, pages: list[Page]) -> list[Page]:
        first = pages[0].index if pages else 0
        titles = [(p.index, r) for p in pages for r in p.regions if r.kind == "title"]
        headings = [Heading(r.content, self.heights.get((i, r.order), 0.0), i == first) for i, r in titles]
        levels = {(i, r.order): level for (i, r), level in zip(titles, heading_levels(headings), strict=True)}
        return [
            replace(
                p,
                regions=tuple(
                    replace(r, level=levels[p.index, r.order]) if r.kind == "title" else r for r in p.regions
                ),
            )
            for p in pages
        ]

    def close(self) -> None:
        """Release the file."""
        if self.source is not None:
            self.source.close()
