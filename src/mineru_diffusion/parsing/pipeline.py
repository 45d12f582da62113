"""Many documents through layout, crops and engine. In: paths. Out: documents, in order, as they are finished.

Pages are rendered ahead of time (and their layout found, where that needs no engine); the engine gets the crops of all
pages in flight together, whichever document they belong to. At most `window` pages are in flight and as many are
prepared, so memory does not grow with the number of pages. Whatever fails stays where it failed: a crop, a page, a
file. Which crops are in the engine together does not depend on how fast anything was, so two runs decode alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from PIL import Image

from mineru_diffusion.document.types import Document, Page, Region
from mineru_diffusion.engine.types import Engine, Result
from mineru_diffusion.errors import EngineError, MinerUDiffusionError, OutputError
from mineru_diffusion.parsing.assemble import finish_region
from mineru_diffusion.parsing.crops import RegionJob, plan_page
from mineru_diffusion.parsing.furniture import lone_page_number
from mineru_diffusion.parsing.layout_types import LayoutDetector
from mineru_diffusion.parsing.options import ParseOptions
from mineru_diffusion.parsing.prepare import Job, Preparer, Ready
from mineru_diffusion.parsing.progress import Counters, Progress, Silent
from mineru_diffusion.parsing.record import PageResult, Record
from mineru_diffusion.parsing.torn import mend

PageHook = Callable[[Path, Page, Image.Image], Page]
"""Called with every page that was read while its image is still there; what it returns takes the page's place."""

ANSWERS_PER_PAGE = 8
"""Answers of the engine after which one more page may be in flight, until the window is full."""
ENGINE_FAILURES = 3
"""Times that the engine may fail as a whole, without an answer in between, before the run ends."""


@dataclass(frozen=True)
class Outcome:
    """What became of one input: a document, or the error that kept it from being read.

    Attributes:
        counters: what this run did for it.
        seconds: since it was opened.
        interrupted: it was begun, and the run was stopped before it was finished; neither document nor error.
    """

    path: Path
    document: Document | None = None
    error: MinerUDiffusionError | None = None
    counters: Counters = field(default_factory=Counters)
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def failed(self) -> bool:
        """No document, or one with a page that could not be read."""
        return self.document is None or any(page.error for page in self.document.pages)


class Keeper(Protocol):
    """Keeps what is finished, so that a later run can go on from there. Called in the thread that runs the pipeline."""

    def opened(self, path: Path) -> None:
        """A document is open; documents come in order. Raises a `MinerUDiffusionError` to leave it out."""
        ...

    def finished(self, path: Path, result: PageResult) -> None:
        """A page is finished, or failed; pages of several documents come in any order."""
        ...


@dataclass
class _Flight:
    """A page whose crops are with the engine."""

    record: Record
    page: Page
    image: Image.Image
    jobs: list[RegionJob]
    waiting: int
    notes: tuple[str, ...]
    counters: Counters = field(default_factory=Counters)


class Pipeline:
    """Parses documents with one engine and one layout detector. One thread at a time drives it.

    Args:
        engine: reads the crops; it is not closed here.
        detector: finds the regions.
        options: see `ParseOptions`.
        progress: told how it goes.
        on_page: see `PageHook`.
        meta: facts that every document's `meta` should carry.
        keeper: keeps finished pages.
        stop: asked before every page; once true, no page is begun any more, and the run ends when those in flight
            have landed.
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
        keeper: Keeper | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._engine = engine
        self._detector = detector
        self._options = options or ParseOptions()
        self._progress = progress or Silent()
        self._on_page = on_page
        self._meta = meta or {}
        self._keeper = keeper
        self._stop = stop
        self._records: deque[Record] = deque()
        self._flights: list[_Flight] = []
        self._owners: dict[int, tuple[_Flight, RegionJob, int]] = {}
        self._submitted = 0
        self._received = 0
        self._credit = 0
        self._failures = 0

    def run(self, jobs: Iterable[Path | Job]) -> Iterator[Outcome]:
        """Parse the documents; outcomes come in the order of the paths. Stops cleanly when the iterator is closed.

        Args:
            jobs: the files, or jobs with pages that are known already.

        Raises:
            EngineError: the engine failed again and again.
            OutputError: `on_page` or the keeper can write nothing any more.
        """
        with Preparer((j if isinstance(j, Job) else Job(j) for j in jobs), self._detector, self._options) as preparer:
            try:
                while True:
                    self._fill(preparer)
                    yield from self._outcomes()
                    if self._owners:
                        yield from self._stream(preparer)
                    elif preparer.exhausted or self._stop():
                        break
                while self._records:
                    yield self._outcome(self._records.popleft())
            finally:
                self._abandon()

    def _stream(self, preparer: Preparer) -> Iterator[Outcome]:
        try:
            for request_id, result in self._engine.stream():
                self._failures = 0
                self._receive(request_id, result)
                if not self._detector.uses_engine:
                    self._fill(preparer)
                yield from self._outcomes()
        except EngineError as error:
            self._failures += 1
            if self._failures >= ENGINE_FAILURES:
                raise EngineError(
                    f"{error} (the engine failed {ENGINE_FAILURES} times in a row; run again to go on from here)"
                ) from error
            failed = Result(text="", finish_reason="error", error=str(error))
            for request_id in list(self._owners):
                self._engine.cancel(request_id)
                self._receive(request_id, failed)
            yield from self._outcomes()
        else:
            for request_id in list(self._owners):
                self._receive(request_id, Result(text="", finish_reason="error", error="the engine gave no answer"))

    def _fill(self, preparer: Preparer) -> None:
        """Bring pages into flight, waiting for them, as many as are due.

        The first page goes alone, so that the engine has something to do while others are rendered; a further one
        follows when a page has landed, and after every few answers, up to the window. When a page is taken must not
        depend on when it is ready: it decides which crops share a forward pass, and so how sums are rounded.
        """
        room = self._options.window - len(self._flights)
        if self._detector.uses_engine:
            # It is asked for many pages at once, and only when the engine is free.
            while room > 0 and not preparer.exhausted and not self._stop():
                for ready in preparer.take(room):
                    self._start(ready)
                room = self._options.window - len(self._flights)
            return
        self._credit = min(max(self._credit, 0 if self._owners else 1), room)
        while self._credit > 0 and not preparer.exhausted and not self._stop():
            before = len(self._flights)
            for ready in preparer.take(1):
                self._start(ready)
            self._credit -= len(self._flights) - before

    def _start(self, ready: Ready) -> None:
        record, step = ready.record, ready.page
        if step is None:
            self._open(record)
            return
        if record.error is not None:
            return
        if step.page.error or step.image is None:
            self._page_done(record, PageResult(step.page, notes=step.notes))
            return
        try:
            jobs, requests = plan_page(step.image, step.regions, self._engine.profile, self._options.decoding)
        except Exception as error:  # one page must not take the others with it
            self._page_done(record, PageResult(replace(step.page, error=_page_error(error)), notes=step.notes))
            return
        flight = _Flight(record, step.page, step.image, jobs, len(requests), step.notes)
        if not requests:
            self._finish(flight)
            return
        self._flights.append(flight)
        for job, slot, request in requests:
            self._owners[self._engine.submit(request)] = (flight, jobs[job], slot)
        self._submitted += len(requests)
        self._progress.crops(self._submitted, self._received)

    def _open(self, record: Record) -> None:
        self._records.append(record)
        if record.error is None and self._keeper is not None:
            try:
                self._keeper.opened(record.path)
            except MinerUDiffusionError as error:
                if isinstance(error, OutputError) and error.fatal:
                    raise
                record.error = error
        if record.error is None:
            self._progress.document_opened(record.path, record.total - len(record.results))

    def _receive(self, request_id: int, result: Result) -> None:
        owner = self._owners.pop(request_id, None)
        if owner is None:
            return  # somebody else's request on a shared engine
        flight, job, slot = owner
        job.results[slot] = result
        flight.waiting -= 1
        flight.counters.crops += 1
        flight.counters.failed_crops += result.finish_reason == "error"
        flight.counters.tokens += len(result.tokens)
        flight.counters.passes += result.nfe
        self._received += 1
        self._credit += self._received % ANSWERS_PER_PAGE == 0
        self._progress.crops(self._submitted, self._received)
        if not flight.waiting:
            self._flights.remove(flight)
            self._credit += 1
            self._finish(flight)

    def _finish(self, flight: _Flight) -> None:
        """All crops of a page are read: put it together and let its image go."""
        page, record = flight.page, flight.record
        heights: dict[int, float] = {}
        like_body: set[int] = set()
        try:
            regions: list[Region] = []
            for job in flight.jobs:
                if job.height:
                    heights[len(regions)] = job.height * page.height
                if job.like_body:
                    like_body.add(len(regions))
                regions += [replace(r, order=len(regions) + i) for i, r in enumerate(finish_region(job))]
            regions = lone_page_number(mend(regions, like_body, flight.image.width / flight.image.height))
            heights = {i: heights[r.order] for i, r in enumerate(regions) if r.order in heights}
            page = replace(page, regions=tuple(replace(r, order=i) for i, r in enumerate(regions)))
            if self._on_page is not None:
                page = self._on_page(record.path, page, flight.image)
        except Exception as error:  # one page must not take the others with it
            if isinstance(error, OutputError) and error.fatal:
                raise
            page = replace(page, regions=(), error=_page_error(error))
        self._page_done(record, PageResult(page, heights, flight.notes, flight.counters))

    def _page_done(self, record: Record, result: PageResult) -> None:
        counters, page = result.counters, result.page
        counters.pages += not page.error
        counters.failed_pages += bool(page.error)
        counters.fallbacks += sum(
            "kind" in r.source or r.source.get("layout", self._detector.name) != self._detector.name
            for r in page.regions
        )
        record.add(result)
        if record.complete:
            record.close()  # it may have to wait for a document before it
        if self._keeper is not None:
            self._keeper.finished(record.path, result)
        self._progress.page_finished(record.path, page)

    def _outcomes(self) -> Iterator[Outcome]:
        while self._records and self._records[0].complete:
            yield self._outcome(self._records.popleft())

    def _outcome(self, record: Record) -> Outcome:
        record.close()
        document = None
        if record.complete and record.error is None:
            document = record.document({**self._meta, "layout": self._detector.name})
        return Outcome(
            record.path, document, record.error, record.counters, record.seconds, interrupted=not record.complete
        )

    def _abandon(self) -> None:
        """Take back whatever the engine still has of ours; the caller went away or something broke."""
        for request_id in self._owners:
            self._engine.cancel(request_id)
        self._owners.clear()
        self._flights.clear()
        while self._records:
            self._records.popleft().close()


def _page_error(error: Exception) -> str:
    """What `Page.error` says; file and page are named around it."""
    if isinstance(error, MinerUDiffusionError):
        return str(error)
    return f"{type(error).__name__}: {error} (parse the page again, or report it with the file)"
