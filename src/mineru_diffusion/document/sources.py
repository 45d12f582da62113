"""The door for documents: a path to an open source of page images. PDFs through pdfium, images through Pillow."""

from __future__ import annotations

from pathlib import Path

from mineru_diffusion.document.image_source import ImageSource
from mineru_diffusion.document.inputs import SUPPORTED_SUFFIXES, expand_inputs, parse_page_range
from mineru_diffusion.document.pdf_source import PdfSource
from mineru_diffusion.document.source_types import (
    DEFAULT_MAX_IMAGE_PIXELS,
    DEFAULT_MAX_PIXELS,
    PageImage,
    Source,
    SourceKind,
)
from mineru_diffusion.errors import SourceError, UsageError

__all__ = [
    "DEFAULT_MAX_IMAGE_PIXELS",
    "DEFAULT_MAX_PIXELS",
    "SUPPORTED_SUFFIXES",
    "PageImage",
    "Source",
    "SourceKind",
    "expand_inputs",
    "open_source",
    "parse_page_range",
]

# Readers accept a PDF header anywhere in the first kilobyte.
_PDF_HEADER_REACH = 1024


def open_source(
    path: str | Path,
    *,
    password: str | None = None,
    dpi: float = 200,
    max_pixels: int = DEFAULT_MAX_PIXELS,
    max_image_pixels: int = DEFAULT_MAX_IMAGE_PIXELS,
) -> Source:
    """Open a document; what it is, is told by its content, not by its name.

    Args:
        path: a PDF or an image file.
        password: user or owner password of an encrypted PDF.
        dpi: resolution at which PDF pages are rendered.
        max_pixels: pages with more pixels than this are scaled down, with a note.
        max_image_pixels: image files with more pixels than this are refused before they are decoded.

    Returns:
        A source; use it in a `with` statement.

    Raises:
        PasswordRequired: encrypted, and the password is missing or wrong.
        SourceError: missing, empty, damaged, too large or of no known type.
        UsageError: a limit or the resolution is not positive.
    """
    if not dpi > 0 or max_pixels < 1 or max_image_pixels < 1:
        raise UsageError(f"dpi and pixel limits must be positive, got {dpi}, {max_pixels}, {max_image_pixels}")
    path = Path(path)
    try:
        with path.open("rb") as file:
            head = file.read(_PDF_HEADER_REACH)
    except FileNotFoundError as error:
        raise SourceError(path, "no such file", "check the path") from error
    except OSError as error:
        raise SourceError(path, f"cannot be opened: {error.strerror or error}", "name a readable file") from error
    if not head:
        raise SourceError(path, "the file is empty", "download or export it again")
    if b"%PDF-" in head:
        return PdfSource(path, password=password, dpi=dpi, max_pixels=max_pixels)
    return ImageSource(path, max_pixels=max_pixels, max_image_pixels=max_image_pixels)
