"""PDF pages through pdfium: displayed orientation and crop box, one page in memory at a time."""

from __future__ import annotations

import contextlib
import re
import threading
from pathlib import Path
from types import TracebackType

import pypdfium2 as pdfium
from PIL import Image

from mineru_diffusion.document.paragraphs import join_lines
from mineru_diffusion.document.source_types import DEFAULT_MAX_PIXELS, PageImage, SourceKind, check_index
from mineru_diffusion.errors import PasswordRequired, SourceError

# pdfium keeps global state and must never be entered by two threads, not even for two documents.
_PDFIUM_LOCK = threading.RLock()

_POINTS_PER_INCH = 72.0

# pdfium puts a mark of its own where a hyphen and a line's end stood in a word.
_BROKEN_WORD = re.compile(r"(\S+)[\x02\ufffe](\S+)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\ufffe\uffff]")


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
            try:
                # A password that a file does not need is ignored by pdfium.
                document = pdfium.PdfDocument(str(path), password=password)
            except pdfium.PdfiumError as error:
                raise _load_error(path, error, password) from error
            self._document = document
            self.page_count: int = len(document)
            if self.page_count == 0:
                self.close()
                raise SourceError(path, "the PDF has no pages", "check that it was written completely")
            with contextlib.suppress(pdfium.PdfiumError):
                document.init_forms()  # filled-in form fields are drawn only with a form environment

    def page(self, index: int) -> PageImage:
        """Render one page, crop box and rotation applied, in RGB on white."""
        check_index(index, self.page_count)
        with _PDFIUM_LOCK:
            page = self._load(index)
            try:
                width_pt, height_pt = page.get_size()
                scale = self._dpi / _POINTS_PER_INCH
                notes: tuple[str, ...] = ()
                # One unit thin at least, so that even a page without an area renders as something.
                pixels = max(width_pt, 1.0) * max(height_pt, 1.0) * scale**2
                if pixels > self._max_pixels:
                    scale *= (self._max_pixels / pixels) ** 0.5 * 0.999
                    dpi = scale * _POINTS_PER_INCH
                    notes = (f"page of {width_pt:.0f} x {height_pt:.0f} pt scaled down to {dpi:.0f} dpi",)
                bitmap = page.render(scale=scale)
                try:
                    shared = bitmap.to_pil()
                    image: Image.Image = shared.copy() if shared.mode == "RGB" else shared.convert("RGB")
                finally:
                    bitmap.close()
            except (pdfium.PdfiumError, MemoryError, ValueError) as error:
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
                raise SourceError(self.path, f"the text layer cannot be read: {error}", page=index + 1) from error
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


def _load_error(path: Path, error: pdfium.PdfiumError, password: str | None) -> SourceError:
    if "password" in str(error).lower():
        if password is None:
            return PasswordRequired(path, "the PDF is encrypted", "give its password with --password")
        return PasswordRequired(path, "the password is wrong", "give the user or owner password with --password")
    if "security" in str(error).lower():
        return SourceError(path, "the PDF is encrypted in a way that is not supported", "save it without encryption")
    return SourceError(path, "the PDF is damaged or incomplete", "download or export it again")
