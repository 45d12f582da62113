"""PDF pages through pdfium: displayed orientation and crop box, one page in memory at a time."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
import threading
from pathlib import Path
from types import TracebackType

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c
from PIL import Image

from mineru_diffusion.document.paragraphs import join_lines
from mineru_diffusion.document.source_types import (
    DEFAULT_MAX_PIXELS,
    MAX_SIDE,
    PageImage,
    SourceKind,
    check_index,
    fitting_scale,
)
from mineru_diffusion.errors import PasswordRequired, SourceError

# pdfium keeps global state and must never be entered by two threads, not even for two documents.
_PDFIUM_LOCK = threading.RLock()

_POINTS_PER_INCH = 72.0

# pdfium puts a mark of its own where a hyphen and a line's end stood in a word.
_BROKEN_WORD = re.compile(r"(\S+)[\x02\ufffe](\S+)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\ufffe\uffff]")

# Readers look for the end mark in the last kilobyte.
_TAIL_BYTES = 1024
_START_OF_XREF = re.compile(rb"startxref\s+(\d{1,12})\s")
_XREF = re.compile(rb"\s*(?:xref|\d+\s+\d+\s+obj)")


class PdfSource:
    """An open PDF. Safe to share between threads, which then take turns.

    Raises:
        PasswordRequired: the file needs a password and none, or a wrong one, was given.
        SourceError: the file is no PDF, is damaged, or has no pages.
    """

    kind: SourceKind = "pdf"

    def __init__(
        self, path: Path, *, password: str | None = None, dpi: float = 200, max_pixels: int = DEFAULT_MAX_PIXELS
    ) -> None:
        self._document: pdfium.PdfDocument | None = None
        self.path = path
        self._dpi = dpi
        self._max_pixels = max_pixels
        with _PDFIUM_LOCK:
            self._document = _load_document(path, password)
            self.page_count: int = len(self._document)
            if self.page_count == 0:
                self.close()
                raise SourceError(path, "the PDF has no pages", "check that it was written completely")
            with contextlib.suppress(pdfium.PdfiumError):
                self._document.init_forms()  # filled-in form fields are drawn only with a form environment
        self.notes: tuple[str, ...] = damage(path)

    def page(self, index: int) -> PageImage:
        """Render one page, crop box and rotation applied, in RGB on white."""
        check_index(index, self.page_count)
        with _PDFIUM_LOCK:
            page = self._load(index)
            try:
                width_pt, height_pt = _visible_size(page)
                scale = self._dpi / _POINTS_PER_INCH
                notes: tuple[str, ...] = ()
                fit = fitting_scale(width_pt * scale, height_pt * scale, self._max_pixels)
                if fit < 1:
                    scale *= fit
                    # pdfium rounds both sides up.
                    while not _fits(width_pt * scale, height_pt * scale, self._max_pixels):
                        scale *= 0.995
                    dpi = scale * _POINTS_PER_INCH
                    notes = (f"page of {width_pt:.0f} x {height_pt:.0f} pt scaled down to {dpi:.3g} dpi",)
                bitmap = page.render(scale=scale)
                try:
                    shared = bitmap.to_pil()
                    image: Image.Image = shared.copy() if shared.mode == "RGB" else shared.convert("RGB")
                finally:
                    bitmap.close()
            except (pdfium.PdfiumError, MemoryError, ValueError, OverflowError, ctypes.ArgumentError) as error:
                raise SourceError(
                    self.path, f"the page cannot be rendered: {error}", "repair the PDF", page=index + 1
                ) from error
            finally:
                page.close()
        return PageImage(image, width_pt, height_pt, index, notes)

    def text_layer(self, index: int) -> str:
        """The PDF's own text inside the visible part of the page, in the file's order, broken words rejoined."""
        check_index(index, self.page_count)
        with _PDFIUM_LOCK:
            page = self._load(index)
            try:
                textpage = page.get_textpage()
                try:
                    text: str = textpage.get_text_bounded()
                finally:
                    textpage.close()
            except pdfium.PdfiumError as error:
                raise SourceError(
                    self.path, f"the text layer cannot be read: {error}", "repair the PDF", page=index + 1
                ) from error
            finally:
                page.close()
        text = _BROKEN_WORD.sub(lambda match: join_lines([f"{match[1]}-", match[2]]), text.replace("\r\n", "\n"))
        return _CONTROL.sub("", text)

    def close(self) -> None:
        """Close the file."""
        with _PDFIUM_LOCK:
            document, self._document = self._document, None
            if document is not None:
                document.close()

    def __enter__(self) -> PdfSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # The library's own finalizer would enter pdfium without the lock.
        if getattr(self, "_document", None) is not None:
            self.close()

    def _load(self, index: int) -> pdfium.PdfPage:
        if self._document is None:
            raise ValueError(f"{self.path} has been closed")
        try:
            return self._document[index]
        except pdfium.PdfiumError as error:
            raise SourceError(self.path, "the page is damaged", "repair the PDF", page=index + 1) from error


def _load_document(path: Path, password: str | None) -> pdfium.PdfDocument:
    # Not by pypdfium2's own constructor: it takes a document without pages for one that cannot be loaded, and then
    # tells the cause of an earlier failure; and it expands a "~" in front of a name.
    secret = None if password is None else password.encode("utf-8", "surrogateescape") + b"\0"
    # A password that a file does not need is ignored by pdfium.
    handle = pdfium_c.FPDF_LoadDocument(os.fsencode(path) + b"\0", secret)
    if handle:
        return pdfium.PdfDocument(handle)
    code = pdfium_c.FPDF_GetLastError()
    if code == pdfium_c.FPDF_ERR_PASSWORD:
        if password is None:
            raise PasswordRequired(path, "the PDF is encrypted", "give its password with --password")
        raise PasswordRequired(path, "the password is wrong", "give the user or owner password with --password")
    if code == pdfium_c.FPDF_ERR_SECURITY:
        raise SourceError(path, "the PDF is encrypted in a way that is not supported", "save it without encryption")
    raise SourceError(path, "the PDF is damaged or incomplete", "download or export it again")


def _visible_size(page: pdfium.PdfPage) -> tuple[float, float]:
    """Width and height in points; a crop box that lies wholly outside the media box is taken away first."""
    width, height = page.get_size()
    if not (width > 0 and height > 0):
        page.set_cropbox(*page.get_mediabox())
        width, height = page.get_size()
    return width, height


def _fits(width: float, height: float, max_pixels: int) -> bool:
    sides = math.ceil(width), math.ceil(height)
    # One pixel is the least that either side can have.
    return max(sides) <= min(MAX_SIDE, max(1, max_pixels)) and (sides[0] * sides[1] <= max_pixels or max(sides) == 1)


def damage(path: Path) -> tuple[str, ...]:
    """What the end of a PDF file tells about damage that pdfium works around without a word.

    A file that was cut off, or whose cross-reference table is not where it should be, is read by searching it for
    objects; what was lost stays lost, and the reader should know.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        tail = file.read()
        if b"%%EOF" not in tail:
            return ("the PDF has no end mark, so it may have been cut off; what could be recovered was read",)
        starts = _START_OF_XREF.findall(tail)
        if not starts:
            return ("the PDF has no cross-reference table; what could be recovered was read",)
        file.seek(0)
        shift = max(0, file.read(_TAIL_BYTES).find(b"%PDF-"))
        for offset in {int(starts[-1]), int(starts[-1]) + shift}:
            # The position 0 stands in files that are written for the web, whose table lies in front.
            file.seek(min(offset, size))
            if offset == 0 or _XREF.match(file.read(64)):
                return ()
    return ("the PDF's cross-reference table is damaged; what could be recovered was read",)
