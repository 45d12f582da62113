"""The door for documents: a path to an open source of page images. PDFs through pdfium, images through Pillow."""

from __future__ import annotations

import re
from pathlib import Path

from mineru_diffusion.document.file_kinds import HEAD_BYTES, SUPPORTED_SUFFIXES, file_kind
from mineru_diffusion.document.image_source import ImageSource
from mineru_diffusion.document.inputs import expand_inputs, parse_page_range
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

_KNOWN_STRANGERS = {
    rb"PK\x03\x04": "an Office, EPUB or ZIP file",
    rb"\xd0\xcf\x11\xe0": "an old Office file",
    rb"AT&TFORM": "a DjVu file",
    rb"%!PS|\xc5\xd0\xd3\xc6": "a PostScript file",
    rb"\{\\rtf": "an RTF file",
    rb"\s*<(?:!doctype|html|\?xml|svg)": "an HTML, XML or SVG file",
    rb"\0\0\0\x0cJXL |\xff\x0a": "a JPEG XL image",
}


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
    kind = _kind(path)
    if kind == "PDF":
        return PdfSource(path, password=password, dpi=dpi, max_pixels=max_pixels)
    return ImageSource(path, max_pixels=max_pixels, max_image_pixels=max_image_pixels, heif=kind == "HEIF")


def _kind(path: Path) -> str:
    try:
        # A pipe or a device would be waited for without end.
        if path.exists() and not path.is_file():
            what = "a folder" if path.is_dir() else "not a regular file"
            raise SourceError(path, f"cannot be opened: it is {what}", "name a file")
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except FileNotFoundError as error:
        raise SourceError(path, "no such file", "check the path") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the name
        cause = getattr(error, "strerror", None) or error
        raise SourceError(path, f"cannot be opened: {cause}", "name a readable file") from error
    if not head:
        raise SourceError(path, "the file is empty", "download or export it again")
    kind = file_kind(head)
    if kind is not None:
        return kind
    if not head.strip(b"\0"):
        raise SourceError(path, "the file begins with nothing but zeros", "download it again")
    if path.suffix.lower() == ".pdf" and not any(re.match(p, head, re.IGNORECASE) for p in _KNOWN_STRANGERS):
        raise SourceError(path, "no PDF: its first kilobyte has no PDF header", "download or export it again")
    stranger = next((name for p, name in _KNOWN_STRANGERS.items() if re.match(p, head, re.IGNORECASE)), None)
    cause = f"{stranger}, neither a PDF nor a known image" if stranger else "neither a PDF nor a known image format"
    raise SourceError(path, cause, "convert it to PDF, PNG or TIFF")
