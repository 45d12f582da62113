"""Searchable PDFs: the pages as they look, with what was read lying invisibly over them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from PIL import Image

from mineru_diffusion.document.pdf_writer import PictureTextPdf
from mineru_diffusion.document.text_layer import placed_lines
from mineru_diffusion.document.types import Page


def write_searchable_pdf(path: str | Path, pages: Iterable[tuple[Image.Image, Page]], *, title: str = "") -> int:
    """Write one PDF page per page; `pages` may be lazy, one is held at a time.

    Args:
        path: the file to write.
        pages: each page's picture as it is displayed, and its regions.
        title: title of the PDF.

    Returns:
        Number of pages written; with none, no file is made.
    """
    remaining = iter(pages)
    first = next(remaining, None)
    if first is None:
        return 0
    count = 0
    with Path(path).open("wb") as file, PictureTextPdf(file, title) as pdf:
        for image, page in chain([first], remaining):
            pdf.add_page(image, (page.width or image.width, page.height or image.height), placed_lines(page))
            count += 1
    return count
