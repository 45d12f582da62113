"""The layout drawn on the page: boxes coloured by kind, with reading order and label, as PNG or as searchable PDF."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from mineru_diffusion.document.crops import pixel_box
from mineru_diffusion.document.review import reasons_to_review
from mineru_diffusion.document.searchable import write_searchable_pdf
from mineru_diffusion.document.types import Page, Region

Colour = tuple[int, int, int]

_COLOURS: dict[str, Colour] = {
    "text": (38, 103, 201),
    "ref_text": (38, 103, 201),
    "title": (200, 40, 50),
    "list": (20, 140, 140),
    "table": (190, 110, 0),
    "equation": (20, 140, 60),
    "image": (130, 60, 180),
    "chart": (130, 60, 180),
    "code": (90, 90, 20),
    "algorithm": (90, 90, 20),
}
_CAPTIONS: Colour = (200, 70, 150)
_OTHER: Colour = (110, 110, 110)
_REVIEW: Colour = (255, 214, 0)

#: Longest side of an overlay in pixels.
_LONGEST = 1600


def draw_overlay(image: Image.Image, page: Page, *, review: float | None = None) -> Image.Image:
    """A page image with its regions drawn on it.

    Args:
        image: the page as it is displayed, any size and mode.
        page: its regions, or its error, which is written across the top.
        review: regions whose confidence is below this, or that have a warning, are highlighted; None: none is.

    Returns:
        A new RGB image, the longest side at most 1600 pixels.
    """
    canvas = image.convert("RGB")
    canvas.thumbnail((_LONGEST, _LONGEST))
    if canvas is image:
        canvas = image.copy()
    size = max(11, canvas.height // 90)
    font = ImageFont.load_default(size)
    draw = ImageDraw.Draw(canvas, "RGBA")
    for region in page.regions:
        reasons = () if review is None else reasons_to_review(region, review)
        _draw_region(draw, canvas.size, region, font, reasons)
    if page.error:
        draw.text((size, size), page.error, fill=(200, 0, 0), font=font)
    return canvas


def _draw_region(
    draw: ImageDraw.ImageDraw,
    size: tuple[int, int],
    region: Region,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
    reasons: Sequence[str],
) -> None:
    colour = kind_colour(region.kind)
    left, top, right, bottom = pixel_box(size, region.bbox)
    fill = (*_REVIEW, 90) if reasons else (*colour, 28)
    draw.rectangle((left, top, right - 1, bottom - 1), fill=fill, outline=(*colour, 255), width=2)
    for line in region.lines:
        x0, y0, x1, y1 = pixel_box(size, line)
        draw.rectangle((x0, y0, x1 - 1, y1 - 1), outline=(*colour, 110))
    label = f"{region.order} {region.kind}" + (f" {region.angle}\u00b0" if region.angle else "")
    label += f" ! {reasons[0]}"[:60] if reasons else " !" if region.warnings else ""
    text_left, text_top, text_right, text_bottom = draw.textbbox((0, 0), label, font=font)
    width, height = text_right - text_left + 6, text_bottom - text_top + 6
    # Above the box if there is room, else inside it.
    y = top - height if top >= height else float(top)
    x = max(0.0, min(left, size[0] - width))
    draw.rectangle((x, y, x + width, y + height), fill=(*colour, 230))
    draw.text((x + 3 - text_left, y + 3 - text_top), label, fill=(255, 255, 255), font=font)


def kind_colour(kind: str) -> Colour:
    """The colour in which regions of a kind are drawn."""
    return _COLOURS.get(kind, _CAPTIONS if kind.endswith(("caption", "footnote")) else _OTHER)


def overlay_png(image: Image.Image, page: Page) -> bytes:
    """`draw_overlay` as the bytes of a PNG file."""
    buffer = io.BytesIO()
    draw_overlay(image, page).save(buffer, format="PNG")
    return buffer.getvalue()


def write_overlay_pdf(
    path: str | Path, pages: Iterable[tuple[Image.Image, Page]], *, review: float | None = None
) -> int:
    """Write one PDF page per overlay, its text selectable; `pages` may be lazy, one is held at a time.

    Args:
        path: the file to write.
        pages: each page's picture as it is displayed, and its regions.
        review: see `draw_overlay`.

    Returns:
        Number of pages written; with none, no file is made.
    """
    drawn = ((draw_overlay(image, page, review=review), page) for image, page in pages)
    return write_searchable_pdf(path, drawn, title="Layout")
