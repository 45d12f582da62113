"""What a layout detector takes and gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from PIL import Image

from mineru_diffusion.document.types import Region


@dataclass(frozen=True)
class PageLayout:
    """Regions of one page in reading order, without content, and warnings about the page as a whole."""

    regions: tuple[Region, ...] = ()
    warnings: tuple[str, ...] = ()


class LayoutDetector(Protocol):
    """Finds the regions of pages.

    Attributes:
        name: what `Region.source["layout"]` says.
        uses_engine: it asks the engine, so that it must be called from the engine's thread, with many pages at once.
    """

    name: str
    uses_engine: bool

    def detect(self, images: Sequence[Image.Image]) -> list[PageLayout]:
        """Layouts of RGB page images, in order; a blank page has no regions.

        Boxes are fractions of the image as given, also where its content is turned (`Region.angle`).
        """
        ...
