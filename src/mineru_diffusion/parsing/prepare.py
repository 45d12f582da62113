"""Pages made ready ahead of time, in a thread or in processes. In: jobs. Out: page images with regions, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType

from mineru_diffusion.document.inputs import parse_page_range
from mineru_diffusion.errors import MinerUDiffusionError, SourceError, UsageError
from mineru_diffusion.parsing.layout_types import LayoutDetector
from mineru_diffusion.parsing.options import ParseOptions
from mineru_diffusion.parsing.page_steps import PreparedPage, lay_out, render
from mineru_diffusion.parsing.record import PageResult, Record
from mineru_diffusion.parsing.workers import PageWorkers, open_options


@dataclass(frozen=True)
class Job:
    """A document to parse, and pages of it that an earlier run has read already."""

    path: Path
    known: Mapping[int, PageResult] = field(default_factory=dict)


@dataclass(frozen=True)
class Ready:
    """The next step of a run: a document that was opened (or not: `record.error`), or one of its pages.

    Attributes:
        page: None when a document begins.
    """

    record: Record
    page: PreparedPage | None = None


class Preparer:
    """Gives documents and pages in order, `options.window` steps ahead of whoever takes them.

    A detector that uses the engine is called in the taker's thread, for all pages taken at once; any other one where
    the page is rendered: in the preparing thread, or with `options.jobs` above 1 in as many processes.
    """

    def __init__(self, jobs: Iterable[Job], detector: LayoutDetector, options: ParseOptions) -> None:
        self._detector = detector
        self._options = options
        self._workers: PageWorkers | None = None
        if options.jobs > 1:
            self._workers = PageWorkers(options.jobs, options, None if detector.uses_engine else detector)
        self._steps = self._in_order(jobs)
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pages")
        self._ahead: deque[Future[Ready | None]] = deque()
        self._ended = False

    def __enter__(self) -> Preparer:
        self._top_up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._workers is not None:
            self._workers.close()
        for future in self._ahead:
            ready = future.result() if future.done() and not future.cancelled() and not future.exception() else None
            if ready is not None:
                ready.record.close()

    @property
    def exhausted(self) -> bool:
        """Nothing is left to take."""
        return self._ended

    def take(self, count: int) -> list[Ready]:
        """The next `count` steps in order, waited for; fewer only at the end."""
        taken: list[Ready] = []
        while len(taken) < count and self._ahead:
            ready = self._ahead.popleft().result()
            if ready is None:
                self._ended = True
                self._ahead.clear()
                break
            taken.append(ready)
            self._top_up()
        return self._lay_out(taken) if self._detector.uses_engine else taken

    def _lay_out(self, taken: list[Ready]) -> list[Ready]:
        pages = iter(lay_out([ready.page for ready in taken if ready.page is not None], self._detector))
        return [ready if ready.page is None else Ready(ready.record, next(pages)) for ready in taken]

    def _top_up(self) -> None:
        while not self._ended and len(self._ahead) < self._options.window:
            self._ahead.append(self._pool.submit(next, self._steps, None))

    def _in_order(self, jobs: Iterable[Job]) -> Iterator[Ready]:
        """Steps as they are due; those in processes are begun some steps before."""
        begun: deque[Callable[[], Ready]] = deque()
        lead = 0 if self._workers is None else self._options.jobs
        for step in self._begin(jobs):
            begun.append(step)
            if len(begun) > lead:
                yield begun.popleft()()
        while begun:
            yield begun.popleft()()

    def _begin(self, jobs: Iterable[Job]) -> Iterator[Callable[[], Ready]]:
        for job in jobs:
            record = Record(job.path)
            left: list[int] = []
            try:
                record.source = open_options(job.path, self._options)
                left = record.resume(job.known, parse_page_range(self._options.pages, record.source.page_count))
            except UsageError as error:  # of one document among many
                record.error = UsageError(f"{job.path}: {error}")
            except MinerUDiffusionError as error:
                record.error = error
            except Exception as error:  # a damaged file must not take the others with it
                record.error = SourceError(job.path, f"{type(error).__name__}: {error}", "is the file intact?")
            yield partial(Ready, record)
            for index in left:
                yield self._begin_page(record, index)

    def _begin_page(self, record: Record, index: int) -> Callable[[], Ready]:
        if self._workers is not None:
            prepared = self._workers.submit(record.path, index)
            return lambda: Ready(record, prepared())
        return lambda: Ready(record, self._prepare(record, index))

    def _prepare(self, record: Record, index: int) -> PreparedPage:
        assert record.source is not None
        step = render(record.source, index)
        return step if self._detector.uses_engine else lay_out([step], self._detector)[0]
