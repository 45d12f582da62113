"""A document while it is being read: its open source, the pages finished so far, and what to say about it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from mineru_diffusion.document.source_types import Source
from mineru_diffusion.document.types import Document, Page
from mineru_diffusion.errors import MinerUDiffusionError
from mineru_diffusion.parsing.furniture import running_heads
from mineru_diffusion.parsing.headings import Heading, heading_levels
from mineru_diffusion.parsing.progress import Counters


@dataclass(frozen=True)
class PageResult:
    """All that is known about a finished page, enough to make the document from later.

    Attributes:
        page: with its regions, or its error.
        heights: cap heights in points of titles, by `Region.order`.
        notes: what a careful reader should know about the page as a whole.
        counters: what reading it took.
    """

    page: Page
    heights: Mapping[int, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    counters: Counters = field(default_factory=Counters)

    @property
    def complete(self) -> bool:
        """Nothing of the page failed, so that there is nothing to try again."""
        return not self.page.error and not any(r.finish_reason == "error" for r in self.page.regions)


@dataclass
class Record:
    """State of one input.

    Attributes:
        path: the file.
        source: the open file.
        total: pages that the document will have.
        results: finished pages by index, those of an earlier run included.
        counters: what this run did, pages of an earlier run left out.
        error: why the document cannot be read at all.
    """

    path: Path
    source: Source | None = None
    total: int = 0
    results: dict[int, PageResult] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    error: MinerUDiffusionError | None = None
    started: float = field(default_factory=time.monotonic)

    @property
    def complete(self) -> bool:
        return self.error is not None or len(self.results) == self.total

    @property
    def seconds(self) -> float:
        """Since the document was opened."""
        return time.monotonic() - self.started

    def resume(self, known: Mapping[int, PageResult], indices: Iterable[int]) -> list[int]:
        """Take over pages that an earlier run read; returns those of `indices` that are left to read."""
        wanted = list(indices)
        self.total = len(wanted)
        self.results = {index: known[index] for index in wanted if index in known}
        return [index for index in wanted if index not in self.results]

    def add(self, result: PageResult) -> None:
        """A page is finished."""
        self.results[result.page.index] = result
        self.counters.add(result.counters)

    def document(self, meta: dict[str, Any]) -> Document:
        """The finished document, heading levels assigned over all its pages.

        Nothing in it depends on the order in which pages were finished, on how long they took, or on what was read
        beside them. Passes do, so they are not told here.
        """
        results = [self.results[index] for index in sorted(self.results)]
        counters = Counters()
        warnings = list(self.source.notes) if self.source is not None else []
        for result in results:
            counters.add(result.counters)
            said = (*result.notes, result.page.error) if result.page.error else result.notes
            warnings += [f"page {result.page.index + 1}: {note}" for note in said]
        counted = {name: value for name, value in asdict(counters).items() if name != "passes"}
        return Document(
            source=str(self.path),
            pages=tuple(running_heads(_with_levels(results))),
            meta={**meta, "page_count": self.total, "counters": counted},
            warnings=tuple(warnings),
        )

    def close(self) -> None:
        """Release the file."""
        if self.source is not None:
            self.source.close()


def _with_levels(results: list[PageResult]) -> list[Page]:
    first = results[0].page.index if results else 0
    titles = [(result, r) for result in results for r in result.page.regions if r.kind == "title"]
    headings = [Heading(r.content, t.heights.get(r.order, 0.0), t.page.index == first) for t, r in titles]
    levels = {(t.page.index, r.order): level for (t, r), level in zip(titles, heading_levels(headings), strict=True)}
    return [
        replace(
            page,
            regions=tuple(
                replace(r, level=levels[page.index, r.order]) if r.kind == "title" else r for r in page.regions
            ),
        )
        for page in (result.page for result in results)
    ]
