"""What a PDF itself says about its text. In: a page and boxes as fractions of the displayed page. Out: text.

The truth for real documents; and, put in place of what was read, an oracle that shows what the layout alone loses.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import pypdfium2 as pdfium

from mineru_diffusion.document.types import BBox, Document, Region
from mineru_diffusion.engine.types import CheckpointProfile, Request, Result
from mineru_diffusion.errors import SourceError

MARGIN = 1.0
"""PDF points by which a box is enlarged: characters on its edge belong to it."""

_WORD = re.compile(r"\w+")


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
        # pdfium writes U+FFFE (in some versions U+0002) for a hyphen at a line's end.
        return re.sub(r"[\ufffe\x02]\n?|(?<=\w)-\n(?=\w)", "", text)

    def put_into(self, document: Document) -> Document:
        """The document with the text layer's text in the place of all that was read; pictures stay pictures."""
        pages = []
        for page in document.pages:
            regions = [self._with_text(page.index, region) for region in page.regions]
            pages.append(replace(page, regions=tuple(regions)))
        return replace(document, pages=tuple(pages))

    def _with_text(self, index: int, region: Region) -> Region:
        if region.kind in ("image", "chart"):
            return region
        text = self.text_in(index, region.bbox)
        if region.kind != "list":
            text = " ".join(text.split())
        source = {**region.source, "content": "text layer"}
        # A table's or formula's words are no HTML or LaTeX; as text they are at least all there.
        kind = "text" if region.kind in ("table", "equation") else region.kind
        return replace(region, kind=kind, content=text, source=source)


class SilentEngine:
    """Answers every request with nothing, at no cost: parsing with it gives the regions, to be filled by `put_into`."""

    profile = CheckpointProfile(tasks=("text", "table", "formula"))

    def __init__(self) -> None:
        self._queue: list[int] = []
        self._ids = count()

    def submit(self, request: Request) -> int:
        """Queue a request."""
        self._queue.append(next(self._ids))
        return self._queue[-1]

    def stream(self) -> Iterator[tuple[int, Result]]:
        """Empty answers in order of submission."""
        while self._queue:
            yield self._queue.pop(0), Result("")

    def generate(self, requests: Sequence[Request]) -> list[Result]:
        """An empty answer each."""
        return [Result("") for _ in requests]

    def cancel(self, request_id: int) -> bool:
        """Give up a request."""
        known = request_id in self._queue
        if known:
            self._queue.remove(request_id)
        return known

    def close(self) -> None:
        """Forget all requests."""
        self._queue.clear()


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
