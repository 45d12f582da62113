"""What every source of pages offers, and the numbers that bound it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol

from PIL import Image

#: Pixels of a page image at most; larger pages are scaled down, with a note. An A2 page at 200 dpi fits.
DEFAULT_MAX_PIXELS = 40_000_000

#: Pixels of an image file at most; larger files are refused before anything is decoded.
DEFAULT_MAX_IMAGE_PIXELS = 180_000_000

#: Pixels of a page image's longer side at most: image libraries count in 16 bits here and there.
MAX_SIDE = 30_000

SourceKind = Literal["pdf", "image"]


@dataclass(frozen=True)
class PageImage:
    """One page as it is displayed.

    Attributes:
        image: RGB, upright.
        width_pt: width in PDF points; for image files, in the file's own pixels.
        height_pt: height, likewise.
        index: position in the source, from 0.
        notes: what was changed on the way in (scaled down, first frame only), in words.
    """

    image: Image.Image
    width_pt: float
    height_pt: float
    index: int
    notes: tuple[str, ...] = ()


class Source(Protocol):
    """An open document. Pages are made on request and not kept; use it as a context manager."""

    @property
    def path(self) -> Path:
        """The file that was opened."""
        ...

    @property
    def kind(self) -> SourceKind:
        """`pdf` or `image`, by content."""
        ...

    @property
    def page_count(self) -> int:
        """Number of pages or frames, at least one."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What is wrong with the file as a whole though it can be read, in words."""
        ...

    def page(self, index: int) -> PageImage:
        """Render page `index` (from 0). Raises SourceError if this page is damaged, IndexError if there is none."""
        ...

    def text_layer(self, index: int) -> str:
        """The text that the file itself holds for page `index`; `""` for images. For evaluation, not for parsing."""
        ...

    def close(self) -> None:
        """Release the file; may be called twice."""
        ...

    def __enter__(self) -> Source: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def fitting_scale(width: float, height: float, max_pixels: int) -> float:
    """The largest factor, 1 at most, that brings an image within `max_pixels` and both sides within `MAX_SIDE`."""
    # A side below one pixel is drawn as one.
    width, height = max(width, 1.0), max(height, 1.0)
    by_side = MAX_SIDE / max(width, height)
    by_area = (max_pixels / (width * height)) ** 0.5
    scale = min(1.0, by_side, by_area)
    # Where the shorter side cannot shrink any more, the longer one must do it alone.
    if min(width, height) * scale < 1.0:
        scale = min(scale, max_pixels / max(width, height))
    return scale


def check_index(index: int, page_count: int) -> None:
    """Raise IndexError unless there is a page `index` (from 0; negative indices are not meant)."""
    if not 0 <= index < page_count:
        raise IndexError(f"page index {index} is out of range, the document has {page_count} page(s)")
