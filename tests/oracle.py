"""A recogniser that knows the answers: it reads every crop from the PDF's own text layer.

What goes wrong with it, the layout, the reading order or the structure did: nothing is misread. One object is both the
layout detector and the engine of a pipeline:

    oracle = Oracle(path)
    document = parse(path, engine=oracle, detector=oracle)
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c
from PIL import Image

from mineru_diffusion.document.crops import crop_region
from mineru_diffusion.document.paragraphs import join_lines
from mineru_diffusion.document.sources import open_source
from mineru_diffusion.document.types import BBox, Region
from mineru_diffusion.engine.types import CheckpointProfile, Request, Result
from mineru_diffusion.parsing.layout import RapidLayoutDetector
from mineru_diffusion.parsing.layout_types import LayoutDetector, PageLayout

_SCALE = 1_000_000


@dataclass(frozen=True)
class Word:
    """A word and its box in fractions of the displayed page."""

    text: str
    box: BBox


class Oracle:
    """Detector and engine in one, for one PDF.

    Args:
        path: the PDF.
        password: of an encrypted one.
        dpi: as for the parse: pages are told apart by their pictures.
        detector: finds the regions; by default the packaged one.
    """

    uses_engine = False

    def __init__(
        self, path: Path, *, password: str | None = None, dpi: float = 200, detector: LayoutDetector | None = None
    ) -> None:
        self._inner = detector or RapidLayoutDetector()
        self.name = self._inner.name
        self._profile = CheckpointProfile(tasks=("text", "table", "formula"))
        self._answers: dict[str, str] = {}
        self._queue: list[tuple[int, Request]] = []
        self._ids = count()
        self.words: list[list[Word]] = list(words_of(path, password))
        with open_source(path, password=password, dpi=dpi) as source:
            self._pages = {_digest(source.page(i).image): i for i in range(source.page_count)}

    def detect(self, images: Sequence[Image.Image]) -> list[PageLayout]:
        layouts = self._inner.detect(images)
        for image, layout in zip(images, layouts, strict=True):
            words = self.words[self._pages[_digest(image)]]
            for region in layout.regions:
                crop = crop_region(image, region.bbox, region.angle)
                self._answers[_digest(crop)] = answer(region, words)
        return layouts

    @property
    def profile(self) -> CheckpointProfile:
        return self._profile

    def submit(self, request: Request) -> int:
        self._queue.append((next(self._ids), request))
        return self._queue[-1][0]

    def stream(self) -> Iterator[tuple[int, Result]]:
        while self._queue:
            request_id, request = self._queue.pop(0)
            yield request_id, self._result(request)

    def generate(self, requests: Sequence[Request]) -> list[Result]:
        return [self._result(request) for request in requests]

    def _result(self, request: Request) -> Result:
        assert request.image is not None
        text = self._answers[_digest(request.image)]
        return Result(text, (0,) * len(text), (1.0,) * len(text), (1,) * len(text), nfe=1)

    def cancel(self, request_id: int) -> bool:
        before = len(self._queue)
        self._queue = [item for item in self._queue if item[0] != request_id]
        return len(self._queue) < before

    def close(self) -> None:
        self._queue.clear()


def _digest(image: Image.Image) -> str:
    return hashlib.sha256(repr(image.size).encode() + image.tobytes()).hexdigest()


def words_of(path: Path, password: str | None = None) -> Iterator[list[Word]]:
    """The words of each page with their boxes, in the file's order."""
    document = pdfium.PdfDocument(path, password=password)
    for index in range(len(document)):
        page = document[index]
        textpage = page.get_textpage()
        yield list(_words(page, textpage))
        textpage.close()
        page.close()
    document.close()


def _words(page: pdfium.PdfPage, textpage: pdfium.PdfTextPage) -> Iterator[Word]:
    text, box = "", (1.0, 1.0, 0.0, 0.0)
    for index in range(textpage.count_chars()):
        char = chr(pdfium_c.FPDFText_GetUnicode(textpage, index))
        broken = char in "\x02\ufffe"  # pdfium's mark for a hyphen at a line's end
        if broken:
            char = "-"
        if char.isspace() or not char.isprintable():
            here = None
        else:
            here = _displayed(page, textpage.get_charbox(index, loose=True))
        far = here is not None and text and (here[0] - box[2] > 0.02 or abs(here[1] - box[1]) > 0.02)
        if text and (here is None or far):
            yield Word(text, box)
            text, box = "", (1.0, 1.0, 0.0, 0.0)
        if here is not None:
            text += char
            box = (min(box[0], here[0]), min(box[1], here[1]), max(box[2], here[2]), max(box[3], here[3]))
        if broken and text:
            yield Word(text, box)
            text, box = "", (1.0, 1.0, 0.0, 0.0)
    if text:
        yield Word(text, box)


def _displayed(page: pdfium.PdfPage, box: tuple[float, float, float, float]) -> BBox:
    """A box of the PDF's own coordinates on the page as displayed, crop box and rotation applied."""
    corners = []
    for x, y in ((box[0], box[1]), (box[2], box[3])):
        column, row = ctypes.c_int(), ctypes.c_int()
        pdfium_c.FPDF_PageToDevice(page, 0, 0, _SCALE, _SCALE, 0, x, y, column, row)
        corners.append((column.value / _SCALE, row.value / _SCALE))
    (xa, ya), (xb, yb) = corners
    return min(xa, xb), min(ya, yb), max(xa, xb), max(ya, yb)


def answer(region: Region, words: Sequence[Word]) -> str:
    """What a perfect model would say for a region: its words, tables in OTSL."""
    inside = [word for word in words if _holds(region.bbox, word.box)]
    if region.kind == "table":
        return _otsl(inside)
    lines = [" ".join(word.text for word in line) for line in ([inside] if region.angle else _lines(inside))]
    return "\n".join(lines) if region.kind in ("list", "code", "algorithm") else join_lines(lines)


def _holds(bbox: BBox, box: BBox) -> bool:
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    return bbox[0] <= x <= bbox[2] and bbox[1] <= y <= bbox[3]


def _lines(words: Sequence[Word]) -> list[list[Word]]:
    """Words by line in the file's order, which begins a new line where a word stands below or far to the left."""
    lines: list[list[Word]] = []
    for word in words:
        middle = (word.box[1] + word.box[3]) / 2
        last = lines[-1][-1].box if lines else (0.0, 0.0, 0.0, 0.0)
        if lines and last[1] < middle < last[3] and word.box[0] > last[0]:
            lines[-1].append(word)
        else:
            lines.append([word])
    return lines


def _rows(words: Sequence[Word]) -> list[list[Word]]:
    """Words by row, whatever their order in the file."""
    rows: list[list[Word]] = []
    for word in sorted(words, key=lambda word: (word.box[1] + word.box[3]) / 2):
        middle = (word.box[1] + word.box[3]) / 2
        if rows and rows[-1][0].box[1] < middle < rows[-1][0].box[3]:
            rows[-1].append(word)
        else:
            rows.append([word])
    return [sorted(row, key=lambda word: word.box[0]) for row in rows]


def _otsl(words: Sequence[Word]) -> str:
    """Rows are lines of text; columns are parted where hardly any row has a word."""
    rows = _rows(words)
    cuts = _column_cuts(rows)
    out = []
    for row in rows:
        cells = [""] * (len(cuts) + 1)
        for word in row:
            middle = (word.box[0] + word.box[2]) / 2
            column = sum(cut < middle for cut in cuts)
            cells[column] = f"{cells[column]} {word.text}".strip()
        out.append("".join(f"<fcel>{cell}" if cell else "<ecel>" for cell in cells) + "<nl>")
    return "".join(out)


def _column_cuts(rows: Sequence[Sequence[Word]], bins: int = 1000) -> list[float]:
    covered = [0] * bins
    for row in rows:
        columns = set()
        for word in row:
            columns.update(range(max(0, int(word.box[0] * bins)), min(bins, int(word.box[2] * bins) + 1)))
        for column in columns:
            covered[column] += 1
    cuts, start = [], None
    first = next((i for i, n in enumerate(covered) if n), bins)
    last = next((i for i in reversed(range(bins)) if covered[i]), 0)
    for column in range(first, last + 1):
        if covered[column] <= max(1.0, 0.1 * len(rows)) * (len(rows) > 3):
            start = column if start is None else start
        elif start is not None:
            if column - start >= 0.008 * bins:
                cuts.append((start + column) / 2 / bins)
            start = None
    return cuts
