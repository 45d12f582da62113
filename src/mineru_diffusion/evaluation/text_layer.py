"""What a PDF itself says about its text. In: a page and boxes as fractions of the displayed page. Out: text and words.

The truth for real documents, and what the oracle (`evaluation.oracle`) reads.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from mineru_diffusion.document.types import BBox, around
from mineru_diffusion.errors import SourceError

MARGIN = 1.0
"""PDF points by which a box is enlarged: characters on its edge belong to it."""

_HYPHENS = "\ufffe\x02"
"""What pdfium writes for a hyphen at a line's end, by version."""
_WORD = re.compile(r"\w+")
_FAR = 0.02
"""Characters further apart than this part of the page are not of one word."""
_SCALE = 1_000_000
_NOTHING: BBox = (1.0, 1.0, 0.0, 0.0)


@dataclass(frozen=True)
class Word:
    """A word, its box in fractions of the displayed page, and the box of its last character, which stands on the line
    even where the first one is a drop capital."""

    text: str
    box: BBox
    last: BBox

    @property
    def middle(self) -> tuple[float, float]:
        """The middle of its box, at the height of its last character."""
        return (self.box[0] + self.box[2]) / 2, (self.last[1] + self.last[3]) / 2


class TextLayer:
    """The text layer of a PDF; use it as a context manager.

    Raises:
        SourceError: the file is no PDF that can be opened.
    """

    def __init__(self, path: Path, password: str | None = None) -> None:
        try:
            self._pdf = pdfium.PdfDocument(path, password=password)
        except (pdfium.PdfiumError, FileNotFoundError) as error:
            raise SourceError(path, f"no text layer to read: {error}", "pass an intact PDF and its password") from error

    def __enter__(self) -> TextLayer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._pdf)

    def close(self) -> None:
        """Release the file."""
        self._pdf.close()

    def text_in(self, index: int, bbox: BBox = (0.0, 0.0, 1.0, 1.0)) -> str:
        """Text inside a box of page `index` (from 0), in the file's order, words broken by a hyphen at a line's end
        joined."""
        page = self._pdf[index]
        try:
            left, bottom, right, top = _on_page(bbox, page.get_cropbox(), page.get_rotation())
            layer = page.get_textpage()
            try:
                text = layer.get_text_bounded(left - MARGIN, bottom - MARGIN, right + MARGIN, top + MARGIN)
            finally:
                layer.close()
        finally:
            page.close()
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        return re.sub(rf"[{_HYPHENS}]\n?|(?<=\w)-\n(?=\w)", "", text)

    def words(self, index: int) -> list[Word]:
        """The words of page `index` (from 0) in the file's order; a word broken over two lines is two, the first with
        its hyphen."""
        page = self._pdf[index]
        try:
            layer = page.get_textpage()
            try:
                return list(_words(page, layer))
            finally:
                layer.close()
        finally:
            page.close()


def _words(page: pdfium.PdfPage, layer: pdfium.PdfTextPage) -> Iterator[Word]:
    text, box, last = "", _NOTHING, _NOTHING
    for index in range(layer.count_chars()):
        char = chr(pdfium_c.FPDFText_GetUnicode(layer, index))
        broken = char in _HYPHENS
        char = "-" if broken else char
        here = None
        if char.isprintable() and not char.isspace():
            here = _displayed(page, layer.get_charbox(index, loose=True))
        if text and (here is None or _apart(here, last) > _FAR):
            yield Word(text, box, last)
            text, box = "", _NOTHING
        if here is not None:
            text, last = text + char, here
            box = around((box, here))
        if broken and text:
            yield Word(text, box, last)
            text, box = "", _NOTHING
    if text:
        yield Word(text, box, last)


def _apart(one: BBox, other: BBox) -> float:
    """The gap between two boxes, along the page's width or height, whichever is larger."""
    return max(one[0] - other[2], other[0] - one[2], one[1] - other[3], other[1] - one[3])


def _displayed(page: pdfium.PdfPage, box: tuple[float, float, float, float]) -> BBox:
    """A box in the PDF's own coordinates on the page as displayed, crop box and rotation applied."""
    corners = []
    for x, y in ((box[0], box[1]), (box[2], box[3])):
        column, row = ctypes.c_int(), ctypes.c_int()
        pdfium_c.FPDF_PageToDevice(page, 0, 0, _SCALE, _SCALE, 0, x, y, column, row)
        corners.append((column.value / _SCALE, row.value / _SCALE))
    (xa, ya), (xb, yb) = corners
    return min(xa, xb), min(ya, yb), max(xa, xb), max(ya, yb)


def _on_page(bbox: BBox, crop: tuple[float, float, float, float], rotation: int) -> tuple[float, float, float, float]:
    """A box of the displayed page in the PDF's own unrotated coordinates: left, bottom, right, top in points."""
    left, bottom, right, top = crop
    xs, ys = [], []
    for x, y in ((bbox[0], bbox[1]), (bbox[2], bbox[3])):
        # (u, v): fractions from the left and from the bottom before the page was turned clockwise.
        u, v = {0: (x, 1 - y), 90: (y, x), 180: (1 - x, y), 270: (1 - y, 1 - x)}[rotation % 360]
        xs.append(left + u * (right - left))
        ys.append(bottom + v * (top - bottom))
    return min(xs), min(ys), max(xs), max(ys)


def words_of(text: str) -> Counter[str]:
    """How often each word occurs, without case."""
    return Counter(_WORD.findall(text.lower()))


def word_recall(pairs: Iterable[tuple[str, str]]) -> float | None:
    """Share of the words of the truths that occur in the texts, wherever, over pairs (text, truth); every occurrence
    counts. None if there is no word."""
    found = total = 0
    for text, truth in pairs:
        wanted = words_of(truth)
        found += (wanted & words_of(text)).total()
        total += wanted.total()
    return found / total if total else None
