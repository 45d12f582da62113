"""Pages made ready ahead of time in a thread of its own. In: paths. Out: page images with regions, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from PIL import Image

from mineru_diffusion.document.inputs import parse_page_range
from mineru_diffusion.document.sources import open_source
from mineru_diffusion.document.types import Page, Region
from mineru_diffusion.errors import MinerUDiffusionError, SourceError
from mineru_diffusion.parsing.layout_types import LayoutDetector, PageLayout
from mineru_diffusion.parsing.options import ParseOptions
from mineru_diffusion.parsing.record import Record


@dataclass(frozen=True)
class Ready:
    """The next step of a run: a document that was opened (or not: `record.error`), or one of its pages.

    Attributes:
        page: None when a document begins; with `error` set when the page could not be rendered or laid out.
        image: the page as displayed.
        regions: in reading order, without content.
        notes: what happened to the page on the way.
    """

    record: Record
    page: Page | None = None
    image: Image.Image | None = None
    regions: tuple[Region, ...] = ()
    notes: tuple[str, ...] = ()


class Preparer:
    """Iterates over documents and pages, `options.window` steps ahead of whoever takes them.

    A detector that uses the engine is called in the taker's thread, for all pages taken at once; any other one in the
    preparing thread. `pages` gives single documents a page range of their own.
    """

    def __init__(
        self,
        paths: Iterable[Path],
        detector: LayoutDetector,
        options: ParseOptions,
        pages: Mapping[Path, str] | None = None,
    ) -> None:
        self._pages = pages or {}
        self._detector = detector
        self._options = options
        self._steps = self._produce(paths)
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
        for future in self._ahead:
            ready = future.result() if future.done() and not future.cancelled() and not future.exception() else None
            if ready is not None:
                ready.record.close()

    @property
    def exhausted(self) -> bool:
        """Nothing is left to take."""
        return self._ended

    def take(self, count: int, *, wait: bool) -> list[Ready]:
        """Up to `count` steps in order; none if the next is not ready and `wait` is False, or all are taken."""
        taken: list[Ready] = []
        while len(taken) < count and self._ahead:
            if not wait and not self._ahead[0].done():
                break
            ready = self._ahead.popleft().result()
            if ready is None:
                self._ended = True
                self._ahead.clear()
                break
            taken.append(ready)
            self._top_up()
        return self._lay_out(taken) if self._detector.uses_engine else taken

    def _top_up(self) -> None:
        while not self._ended and len(self._ahead) < self._options.window:
            self._ahead.append(self._pool.submit(next, self._steps, None))

    def _produce(self, paths: Iterable[Path]) -> Iterator[Ready]:
        for path in paths:
            record = Record(path)
            try:
                record.source = open_source(
                    path,
                    password=self._options.password,
                    dpi=self._options.dpi,
                    max_image_pixels=self._options.max_image_pixels,
                )
                indices = parse_page_range(self._pages.get(path, self._options.pages), record.source.page_count)
            except MinerUDiffusionError as error:
                record.error = error
                yield Ready(record)
                continue
            except Exception as error:  # a damaged file must not take the others with it
                record.error = SourceError(path, f"{type(error).__name__}: {error}", "is the file intact?")
                yield Ready(record)
                continue
            record.total = len(indices)
            yield Ready(record)
            for index in indices:
                ready = self._render(record, index)
                yield ready if self._detector.uses_engine else self._lay_out([ready])[0]

    def _render(self, record: Record, index: int) -> Ready:
        assert record.source is not None
        try:
            page = record.source.page(index)
        except Exception as error:  # the other pages may be fine
            return Ready(record, Page(index, 0, 0, error=str(error) or type(error).__name__))
        return Ready(record, Page(index, page.width_pt, page.height_pt), page.image, notes=page.notes)

    def _lay_out(self, steps: list[Ready]) -> list[Ready]:
        """Find the regions of all pages among the steps."""
        inked = [i for i, s in enumerate(steps) if s.image is not None]
        images = [image for s in steps if (image := s.image) is not None]
        if not images:
            return steps
        layouts: list[PageLayout | Exception]
        try:
            layouts = list(self._detector.detect(images))
        except Exception as error:  # the other pages may be fine
            layouts = [error] * len(images)
        steps = list(steps)
        for i, layout in zip(inked, layouts, strict=True):
            step = steps[i]
            if isinstance(layout, PageLayout):
                steps[i] = replace(step, regions=layout.regions, notes=(*step.notes, *layout.warnings))
            elif step.page is not None:
                problem = f"layout failed: {type(layout).__name__}: {layout}"
                steps[i] = replace(step, image=None, page=replace(step.page, error=problem))
        return steps
