"""The layout drawn on the page: boxes coloured by kind, with reading order and label, as PNG or PDF."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from mineru_diffusion.document.crops import pixel_box
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

#: Longest side of an overlay in pixels, and the resolution its PDF page is given.
_LONGEST, _RESOLUTION = 1600, 144.0

# Pages that are in memory at once while a PDF is written.
_BATCH = 8


def draw_overlay(image: Image.Image, page: Page) -> Image.Image:
    """A page image with its regions drawn on it.

    Args:
        image: the page as it is displayed, any size and mode.
        page: its regions, or its error, which is written across the top.

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
        _draw_region(draw, canvas.size, region, font)
    if page.error:
        draw.text((size, size), page.error, fill=(200, 0, 0), font=font)
    return canvas


def _draw_region(
    draw: ImageDraw.ImageDraw,
    size: tuple[int, int],
    region: Region,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
) -> None:
    colour = _colour(region.kind)
    left, top, right, bottom = pixel_box(size, region.bbox)
    draw.rectangle((left, top, right - 1, bottom - 1), fill=(*colour, 28), outline=(*colour, 255), width=2)
    for line in region.lines:
        x0, y0, x1, y1 = pixel_box(size, line)
        draw.rectangle((x0, y0, x1 - 1, y1 - 1), outline=(*colour, 110))
    label = f"{region.order} {region.kind}" + (f" {region.angle}\u00b0" if region.angle else "")
    label += " !" if region.warnings else ""
    text_left, text_top, text_right, text_bottom = draw.textbbox((0, 0), label, font=font)
    width, height = text_right - text_left + 6, text_bottom - text_top + 6
    # Above the box if there is room, else inside it.
    y = top - height if top >= height else float(top)
    x = max(0.0, min(left, size[0] - width))
    draw.rectangle((x, y, x + width, y + height), fill=(*colour, 230))
    draw.text((x + 3 - text_left, y + 3 - text_top), label, fill=(255, 255, 255), font=font)


def _colour(kind: str) -> Colour:
    return _COLOURS.get(kind, _CAPTIONS if kind.endswith(("caption", "footnote")) else _OTHER)


def overlay_png(image: Image.Image, page: Page) -> bytes:
    """`draw_overlay` as the bytes of a PNG file."""
    buffer = io.BytesIO()
    draw_overlay(image, page).save(buffer, format="PNG")
    return buffer.getvalue()


def write_overlay_pdf(path: str | Path, pages: Iterable[tuple[Image.Image, Page]]) -> int:
    """Write one PDF page per overlay; `pages` may be lazy, only a few are held at a time.

    Returns:
        Number of pages written; with none, no file is made.
    """
    count = 0
    drawn = _drawn(pages)
    while batch := list(islice(drawn, _BATCH)):
        batch[0].save(
            path,
            format="PDF",
            save_all=True,
            append_images=batch[1:],
            append=count > 0,
            resolution=_RESOLUTION,
            title="Layout",
        )
        count += len(batch)
    return count


def _drawn(pages: Iterable[tuple[Image.Image, Page]]) -> Iterator[Image.Image]:
    for image, page in pages:
        yield draw_overlay(image, page)
