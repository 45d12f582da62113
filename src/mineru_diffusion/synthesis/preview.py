"""Samples of all tasks on one picture, each over what a reader should write for it, for people to look at.

In: samples. Out: an RGB image. Pages have their boxes drawn in, numbered in reading order.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from mineru_diffusion.document.overlay import draw_overlay
from mineru_diffusion.document.types import Page, Region
from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.sample import Sample
from mineru_diffusion.synthesis.sheet import truth_font

_GAP, _CELL, _LETTERS = 10, 640, 13
_TALLEST, _MOST_LINES = 800, 9


def preview_sheet(samples: Sequence[Sample], columns: int = 3) -> Image.Image:
    """Samples in columns, each next one where there is most room left.

    Raises:
        UsageError: no samples, or no columns.
    """
    if not samples or columns < 1:
        raise UsageError("a preview needs at least one sample and one column")
    font = truth_font().load(_LETTERS)
    cells = [_cell(sample, font) for sample in samples]
    heights = [_GAP] * columns
    places = []
    for cell in cells:
        column = heights.index(min(heights))
        places.append((_GAP + column * (_CELL + _GAP), heights[column]))
        heights[column] += cell.height + _GAP
    sheet = Image.new("RGB", (_GAP + columns * (_CELL + _GAP), max(heights)), "#b9c4d0")
    for cell, place in zip(cells, places, strict=True):
        sheet.paste(cell, place)
    return sheet


def _cell(sample: Sample, font: ImageFont.FreeTypeFont) -> Image.Image:
    picture = Image.fromarray(sample.image).convert("RGB")
    scale = min(1.0, _CELL / picture.width, _TALLEST / picture.height)
    picture = picture.resize((max(1, round(picture.width * scale)), max(1, round(picture.height * scale))))
    if sample.layout:
        regions = tuple(Region(b.kind, b.bbox, i, b.angle) for i, b in enumerate(sample.layout))
        picture = draw_overlay(picture, Page(0, picture.width, picture.height, regions))
    width = int(_CELL / font.getlength("n"))
    lines = [part for line in sample.target.splitlines() for part in textwrap.wrap(line, width) or [""]]
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES - 1], "…"]
    step = _LETTERS + 4
    cell = Image.new("RGB", (_CELL, picture.height + step * (len(lines) + 1) + 6), "#eef1f5")
    cell.paste(picture, (0, 0))
    under = ImageDraw.Draw(cell)
    title = f"{sample.task} · {sample.source.get('generator', '')} {sample.source.get('index', '')}"
    under.text((4, picture.height + 2), title, fill="#8a4b00", font=font)
    for i, line in enumerate(lines):
        under.text((4, picture.height + 2 + step * (i + 1)), line, fill="#0b3d91", font=font)
    return cell
