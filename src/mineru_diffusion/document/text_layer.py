"""Where on a page which text stands: regions to lines of text with boxes, for PDFs that can be searched.

Where lines were read one by one, their boxes are known. Elsewhere the text is laid into the region's box as a
typesetter would: cells of a table on an even grid, other text in as many lines as fit.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from mineru_diffusion.document.html_tables import parse_html_table
from mineru_diffusion.document.types import BBox, Page, Region

# Of a line's pitch and of its height, in typical type: the width of a letter is half its size.
_PITCH = 1.25
_NARROW = frozenset("iIjlt.,:;'`|!()[]{}fr-\u00b7")
_WIDE = frozenset("mwMW@%\u2014\u2026")


@dataclass(frozen=True)
class PlacedLine:
    """One line of text: its box in page fractions and the clockwise rotation of its writing in degrees."""

    text: str
    bbox: BBox
    angle: int = 0


def placed_lines(page: Page) -> Iterator[PlacedLine]:
    """All text of a page, region by region in reading order, page furniture included."""
    for region in page.regions:
        yield from _region_lines(region, page.width / page.height if page.width and page.height else 1.0)


def _region_lines(region: Region, page_aspect: float) -> Iterator[PlacedLine]:
    if region.line_texts and len(region.line_texts) == len(region.lines):
        for text, bbox in zip(region.line_texts, region.lines, strict=True):
            if text.strip():
                yield PlacedLine(" ".join(text.split()), bbox, region.angle)
        return
    table = parse_html_table(region.content) if region.kind in ("table", "image", "chart") else None
    if table is None:
        yield from _wrapped(region.content, region.bbox, region.angle, page_aspect)
        return
    caption_rows = 1 if table.caption else 0
    if table.caption:
        yield from _wrapped(table.caption, _part(region, 0, 1, 0, 1, table.n_rows + 1, 1), region.angle, page_aspect)
    for cell in table.cells:
        row = cell.row + caption_rows
        box = _part(
            region,
            row,
            row + cell.row_span,
            cell.col,
            cell.col + cell.col_span,
            table.n_rows + caption_rows,
            table.n_cols,
        )
        yield from _wrapped(cell.text, box, region.angle, page_aspect)


def _part(region: Region, top: int, bottom: int, left: int, right: int, rows: int, cols: int) -> BBox:
    """A part of a region's box, counted in rows and columns of the upright content."""
    return _turn(region.bbox, (left / cols, top / rows, right / cols, bottom / rows), region.angle)


def _turn(bbox: BBox, inner: BBox, angle: int) -> BBox:
    """A box inside upright content (fractions of it) to the page, where `bbox` holds that content turned."""
    x0, y0, x1, y1 = inner
    if angle % 360 == 90:
        x0, y0, x1, y1 = 1 - y1, x0, 1 - y0, x1
    elif angle % 360 == 180:
        x0, y0, x1, y1 = 1 - x1, 1 - y1, 1 - x0, 1 - y0
    elif angle % 360 == 270:
        x0, y0, x1, y1 = y0, 1 - x1, y1, 1 - x0
    left, top, right, bottom = bbox
    wide, high = right - left, bottom - top
    return left + x0 * wide, top + y0 * high, left + x1 * wide, top + y1 * high


def _wrapped(text: str, bbox: BBox, angle: int, page_aspect: float) -> Iterator[PlacedLine]:
    """Text broken into as many lines as its box most likely has, each as wide as its letters make it."""
    paragraphs = [words for part in text.splitlines() if (words := part.split())]
    if not paragraphs:
        return
    # Sizes in units of the page's height, in the upright frame of the content.
    wide, high = max(bbox[2] - bbox[0], 1e-6) * page_aspect, max(bbox[3] - bbox[1], 1e-6)
    if angle % 180:
        wide, high = high, wide
    total = sum(advance(" ".join(words)) for words in paragraphs)
    size = math.sqrt(wide * high / (_PITCH * total)) if total else high
    count = max(1, round(high / (size * _PITCH)), len(paragraphs))
    lines = _break(paragraphs, count)
    longest = max(advance(line) for line in lines)
    for index, line in enumerate(lines):
        inner = (0.0, index / len(lines), advance(line) / longest if longest else 1.0, (index + 0.9) / len(lines))
        yield PlacedLine(line, _turn(bbox, inner, angle), angle)


def _break(paragraphs: list[list[str]], count: int) -> list[str]:
    """Words into about `count` lines of even length; a paragraph begins a new line, no word is broken or left out."""
    limit = sum(advance(" ".join(words)) for words in paragraphs) / count * 1.02
    lines: list[str] = []
    for words in paragraphs:
        line = ""
        for word in _breakable(words, limit):
            if line and advance(f"{line} {word}") > limit:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}".strip()
        lines.append(line)
    return lines


def _breakable(words: list[str], limit: float) -> Iterator[str]:
    """Words; those of scripts without spaces in pieces that fit a line."""
    for word in words:
        if advance(word) <= limit or not any(unicodedata.east_asian_width(char) in "WF" for char in word):
            yield word
            continue
        step = max(1, int(limit))
        yield from (word[start : start + step] for start in range(0, len(word), step))


def advance(text: str) -> float:
    """About how wide a text is, in units of its type size (proportional type, as most documents have)."""
    return sum(char_advance(char) for char in text)


def char_advance(char: str) -> float:
    """About how wide a character is, in units of the type size; 0 for combining marks."""
    if char in _NARROW or char == " ":
        return 0.28
    if char in _WIDE:
        return 0.85
    if unicodedata.combining(char):
        return 0.0
    if unicodedata.east_asian_width(char) in "WF":
        return 1.0
    return 0.66 if char.isupper() else 0.5
