"""Many documents through layout, crops and engine. In: paths. Out: documents, in order, as they are finished.

One thread renders pages ahead of time (and finds their layout, where that needs no engine); the engine gets the crops
of all pages in flight together, whichever document they belong to. At most `window` pages are in flight and as many
are prepared, so memory does not grow with the number of pages. Whatever fails stays where it failed: a crop, a page,
a file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from PIL import Image

from mineru_diffusion.document.types import Document, Page, Region
from mineru_diffusion.engine.types import Engine, Result
from mineru_diffusion.errors import EngineError, MinerUDiffusionError
from mineru_diffusion.parsing.assemble import finish_region
from mineru_diffusion.parsing.crops import RegionJob, plan_page
from mineru_diffusion.parsing.layout_types import LayoutDetector
from mineru_diffusion.parsing.options import ParseOptions
from mineru_diffusion.parsing.prepare import Preparer, Ready
from mineru_diffusion.parsing.progress import Counters, Progress, Silent
from mineru_diffusion.parsing.record import Record

PageHook = Callable[[Path, Page, Image.Image], Page]
"""Called with every page that was read while its image is still there; what it returns takes the page's place."""


@dataclass(frozen=True)
class Outcome:
    """What became of one input: a document, or the error that kept it from being read."""

    path: Path
    document: Document | None = None
    error: MinerUDiffusionError | None = None
    counters: Counters = field(default_factory=Counters)

    @property
    def failed(self) -> bool:
        """No document, or one with a page that could not be read."""
        return self.document is None or any(page.error for page in self.document.pages)


@dataclass
class _Flight:
    """A page whose crops are with the engine."""

    record: Record
    page: Page
    image: Image.Image
    jobs: list[RegionJob]
    waiting: int


class Pipeline:
    """Parses documents with one engine and one layout detector. One thread at a time drives it.

    Args:
        engine: reads the crops; it is not closed here.
        detector: finds the regions.
        options: see `ParseOptions`.
        progress: told how it goes.
        on_page: see `PageHook`.
        meta: facts that every document's `meta` should carry.
    """

    def __init__(
        self,
        engine: Engine,
        detector: LayoutDetector,
        options: ParseOptions | None = None,
        *,
        progress: Progress | None = None,
        on_page: PageHook | None = None,
        meta: dict[str, Any] | None = None,
    ) -> None:
        self._engine = engine
        self._detector = detector
        self._options = options or ParseOptions()
        self._progress = progress or Silent()
        self._on_page = on_page
        self._meta = meta or {}
        self._records: deque[Record] = deque()
        self._flights: list[_Flight] = []
        self._owners: dict[int, tuple[_Flight, RegionJob, int]] = {}
        self._submitted = 0
        self._received = 0

    def run(self, paths: Iterable[Path], pages: Mapping[Path, str] | None = None) -> Iterator[Outcome]:
        """Parse the documents; outcomes come in the order of the paths. Stops cleanly when the iterator is closed.

        Args:
            paths: the files.
            pages: page ranges of single documents, in place of the options'.
        """
        with Preparer(paths, self._detector, self._options, pages) as preparer:
            try:
                while True:
                    self._fill(preparer, wait=True)
                    yield from self._outcomes()
                    if not self._owners:
                        if preparer.exhausted:
                            return
                        continue
                    yield from self._stream(preparer)
            finally:
                self._abandon()

    def _stream(self, preparer: Preparer) -> Iterator[Outcome]:
        try:
            for request_id, result in self._engine.stream():
                self._receive(request_id, result)
                if not self._detector.uses_engine:
                    self._fill(preparer, wait=False)
                yield from self._outcomes()
        except EngineError as error:
            failed = Result(text="", finish_reason="error", error=str(error))
            for request_id in list(self._owners):
                self._engine.cancel(request_id)
                self._receive(request_id, failed)
            yield from self._outcomes()
        else:
            for request_id in list(self._owners):
                self._receive(request_id, Result(text="", finish_reason="error", error="the engine gave no answer"))

    def _fill(self, preparer: Preparer, *, wait: bool) -> None:
        """Bring pages into flight up to the window; without `wait`, only those that are ready."""
        while len(self._flights) < self._options.window:
            # With crops in the queue the engine has work to do; nothing is gained by waiting for a page.
            room = self._options.window - len(self._flights)
            batch = preparer.take(room if self._detector.uses_engine else 1, wait=wait and not self._owners)
            if not batch:
                return
            for ready in batch:
                self._start(ready)

    def _start(self, ready: Ready) -> None:
        record = ready.record
        if ready.page is None:
            self._records.append(record)
            if record.error is None:
                self._progress.document_opened(record.path, record.total)
            return
        if ready.page.error or ready.image is None:
            self._page_done(record, ready.page)
            return
        record.warn(ready.page.index, ready.notes)
        try:
            jobs, requests = plan_page(ready.image, ready.regions, self._engine.profile, self._options.decoding)
        except Exception as error:  # one page must not take the others with it
            self._page_done(record, replace(ready.page, error=f"{type(error).__name__}: {error}"))
            return
        flight = _Flight(record, ready.page, ready.image, jobs, len(requests))
        self._flights.append(flight)
        for job, slot, request in requests:
            self._owners[self._engine.submit(request)] = (flight, jobs[job], slot)
        self._submitted += len(requests)
        self._progress.crops(self._submitted, self._received)
        if not requests:
            self._land(flight)

    def _receive(self, request_id: int, result: Result) -> None:
        owner = self._owners.pop(request_id, None)
        if owner is None:
            return  # somebody else's request on a shared engine
        flight, job, slot = owner
        job.results[slot] = result
        flight.waiting -= 1
        counters = flight.record.counters
        counters.crops += 1
        counters.failed_crops += result.finish_reason == "error"
        counters.tokens += len(result.tokens)
        counters.passes += result.nfe
        self._received += 1
        self._progress.crops(self._submitted, self._received)
        if not flight.waiting:
            self._land(flight)

    def _land(self, flight: _Flight) -> None:
        """All crops of a page are read: put it together and let its image go."""
        self._flights.remove(flight)
        page, record = flight.page, flight.record
        try:
            regions: list[Region] = []
            for job in flight.jobs:
                if job.height:
                    record.heights[page.index, len(regions)] = job.height * page.height
                regions += [replace(r, order=len(regions) + i) for i, r in enumerate(finish_region(job))]
            page = replace(page, regions=tuple(regions))
            if self._on_page is not None:
                page = self._on_page(record.path, page, flight.image)
        except Exception as error:  # one page must not take the others with it
            page = replace(page, regions=(), error=f"{type(error).__name__}: {error}")
        self._page_done(record, page)

    def _page_done(self, record: Record, page: Page) -> None:
        record.add(page)
        second_choice = [
            r
            for r in page.regions
            if "kind" in r.source or r.source.get("layout", self._detector.name) != self._detector.name
        ]
        record.counters.fallbacks += len(second_choice)
        self._progress.page_finished(record.path, page)

    def _outcomes(self) -> Iterator[Outcome]:
        while self._records and self._records[0].complete:
            record = self._records.popleft()
            record.close()
            if record.error is not None:
                yield Outcome(record.path, error=record.error)
            else:
                meta = {**self._meta, "layout": self._detector.name}
                yield Outcome(record.path, record.document(meta), counters=record.counters)

    def _abandon(self) -> None:
        """Take back whatever the engine still has of ours; the caller went away or something broke."""
        for request_id in self._owners:
            self._engine.cancel(request_id)
        self._owners.clear()
        self._flights.clear()
        while self._records:
            self._records.popleft().close()
