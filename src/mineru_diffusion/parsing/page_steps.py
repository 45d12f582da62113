"""One page from file to picture with regions: what the preparing thread does, or a process of its own.

Whatever goes wrong is said in the result: nothing is raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from PIL import Image

from mineru_diffusion.document.source_types import Source
from mineru_diffusion.document.types import Page, Region
from mineru_diffusion.errors import SourceError
from mineru_diffusion.parsing.layout_types import LayoutDetector, PageLayout


@dataclass(frozen=True)
class PreparedPage:
    """A page before it is read.

    Attributes:
        page: without regions; with `error` set when it could not be rendered or laid out.
        image: as displayed; None with an error.
        regions: in reading order, without content.
        notes: what happened to the page on the way.
    """

    page: Page
    image: Image.Image | None = None
    regions: tuple[Region, ...] = ()
    notes: tuple[str, ...] = ()


def render(source: Source, index: int) -> PreparedPage:
    """The page's picture."""
    try:
        page = source.page(index)
    except SourceError as error:
        return PreparedPage(Page(index, 0, 0, error=error.reason))
    except Exception as error:  # the other pages may be fine
        return PreparedPage(Page(index, 0, 0, error=f"the page cannot be rendered: {_say(error)} (repair the file)"))
    return PreparedPage(Page(index, page.width_pt, page.height_pt), page.image, notes=page.notes)


def lay_out(steps: Sequence[PreparedPage], detector: LayoutDetector) -> list[PreparedPage]:
    """Find the regions of all these pages, with one call of the detector."""
    images = [step.image for step in steps if step.image is not None]
    if not images:
        return list(steps)
    layouts: list[PageLayout | Exception]
    try:
        layouts = list(detector.detect(images))
    except Exception as error:  # the other pages may be fine
        layouts = [error] * len(images)
    given = iter(layouts)
    return [step if step.image is None else _with_layout(step, next(given)) for step in steps]


def _with_layout(step: PreparedPage, layout: PageLayout | Exception) -> PreparedPage:
    if isinstance(layout, PageLayout):
        return replace(step, regions=layout.regions, notes=(*step.notes, *layout.warnings))
    problem = f"no layout could be found: {_say(layout)} (parse the page again, or report it with the file)"
    return replace(step, image=None, page=replace(step.page, error=problem))


def _say(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
