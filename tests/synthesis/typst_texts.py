"""What typst itself put on a page, read back from its PDF: an independent account of the truth."""

from __future__ import annotations

import re

import pypdfium2

from mineru_diffusion.synthesis.typst_engine import TypstFamily, compiler
from mineru_diffusion.synthesis.typst_fonts import EMBEDDED_MONO

# The families that typst brings, so that tests look for no fonts on the machine.
FAMILIES = (TypstFamily("Libertinus Serif"), EMBEDDED_MONO)


def open_pdf(source: str) -> pypdfium2.PdfDocument:
    return pypdfium2.PdfDocument(compiler().compile(source.encode(), format="pdf", pdf_tags=False))


def letters(text: str) -> str:
    """Letters and digits only: no spaces, hyphens and marks, which a PDF's text layer tells unreliably."""
    return re.sub(r"[\W_]", "", text.translate(str.maketrans("¹²³", "123")))
