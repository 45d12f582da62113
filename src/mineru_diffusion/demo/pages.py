"""From a file to a page that was read: open, read one page, keep what the browser and later comparisons need."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from mineru_diffusion.demo.errors import Refused
from mineru_diffusion.demo.readers import Readers
from mineru_diffusion.demo.sessions import PageReading, Session, with_truth
from mineru_diffusion.demo.settings import DemoSettings
from mineru_diffusion.document.sources import open_source
from mineru_diffusion.document.types import BBox, Page
from mineru_diffusion.document.writer import OutputWriter
from mineru_diffusion.engine.types import DecodingParams
from mineru_diffusion.errors import SourceError
from mineru_diffusion.evaluation.text_layer import TextLayer
from mineru_diffusion.parsing.folder import PictureSaver
from mineru_diffusion.parsing.options import ParseOptions
from mineru_diffusion.parsing.progress import Progress
from mineru_diffusion.serving.settings import MIB

PICTURE = 1400
"""Pixels of the longer side of a page's picture in the browser."""


def open_document(session: Session, settings: DemoSettings) -> None:
    """Look at the file: what it is, and how many pages it has.

    Raises:
        SourceError: it cannot be read, or is protected.
        Refused: it is too large.
    """
    if session.path.stat().st_size > settings.max_upload_bytes:
        raise Refused(f"{session.name} is larger than {settings.max_upload_bytes / MIB:.0f} MiB, which is the limit.")
    with open_source(
        session.path, password=session.password, dpi=settings.dpi, max_image_pixels=settings.max_image_pixels
    ) as source:
        session.page_count = min(source.page_count, settings.max_pages)
        session.notes = source.notes
        if source.page_count > settings.max_pages:
            more = f"only the first {settings.max_pages} of {source.page_count} pages can be chosen here"
            session.notes = (*session.notes, more)


def read_page(
    session: Session,
    index: int,
    readers: Readers,
    settings: DemoSettings,
    *,
    threshold: float | None = None,
    progress: Progress | None = None,
) -> PageReading:
    """Read page `index` (from 0) of a session's document, or return what was read before.

    Raises:
        SourceError: the page cannot be read.
        Refused: there is no such page.
    """
    if not 0 <= index < session.page_count:
        raise Refused(f"{session.name} has pages 1 to {session.page_count}.")
    if index in session.pages:
        return session.pages[index]
    images: list[Image.Image] = []
    with OutputWriter(session.folder / "out") as writer:
        save = PictureSaver(writer)

        def on_page(path: Path, page: Page, image: Image.Image) -> Page:
            images.append(image)
            return save(path, page, image)

        options = ParseOptions(
            pages=str(index + 1),
            password=session.password,
            dpi=settings.dpi,
            max_image_pixels=settings.max_image_pixels,
            decoding=DecodingParams(threshold=threshold),
        )
        document = readers.read_page(session.path, options, progress=progress, on_page=on_page)
    (page,) = document.pages
    if page.error or not images:
        raise SourceError(session.path, page.error or "the page cannot be read", page=index + 1)
    session.meta = {key: value for key, value in document.meta.items() if key != "counters"}
    plans = {plan.region.order: plan for plan in readers.plan(images[0], page)}
    reading = PageReading(page, _jpeg(images[0]), plans)
    reading = with_truth(reading, _truths(session, index, {o: plan.region.bbox for o, plan in plans.items()}))
    session.pages[index] = reading
    return reading


def _truths(session: Session, index: int, boxes: dict[int, BBox]) -> dict[int, str]:
    """What the text layer says inside the boxes; nothing for pictures and scans."""
    try:
        with TextLayer(session.path, session.password) as layer:
            return {order: layer.text_in(index, bbox) for order, bbox in boxes.items()}
    except SourceError:
        return {}


def _jpeg(image: Image.Image) -> bytes:
    small = image.convert("RGB").copy()
    small.thumbnail((PICTURE, PICTURE))
    buffer = io.BytesIO()
    small.save(buffer, format="JPEG", quality=80, optimize=True)
    return buffer.getvalue()


def page_images(session: Session, settings: DemoSettings, dpi: float) -> Iterator[tuple[Image.Image, Page]]:
    """The pages that were read with their images, rendered again, one at a time."""
    with open_source(
        session.path, password=session.password, dpi=dpi, max_image_pixels=settings.max_image_pixels
    ) as source:
        for index in sorted(session.pages):
            yield source.page(index).image, session.pages[index].page
