"""Many lines on one picture with the truth under each, for people to look at."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageDraw

from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.fonts import FontSpec, coverage, discover_fonts
from mineru_diffusion.synthesis.lines import LineSample

_GAP = 6
_TRUTH_SIZE = 13


def contact_sheet(samples: Sequence[LineSample], columns: int = 2, *, ticks: bool = False) -> Image.Image:
    """Samples in rows of `columns`; `ticks` marks the left edge of every character under its line.

    Raises:
        UsageError: no samples, or no columns.
    """
    if not samples or columns < 1:
        raise UsageError("a contact sheet needs at least one sample and one column")
    font = truth_font().load(_TRUTH_SIZE)
    cell_width = max(max(s.image.shape[1], round(font.getlength(s.text))) for s in samples) + 2 * _GAP
    cell_height = max(s.image.shape[0] for s in samples) + 2 * _TRUTH_SIZE + _GAP
    rows = -(-len(samples) // columns)
    sheet = Image.new("RGB", (columns * cell_width, rows * cell_height), "#dfe6ee")
    draw = ImageDraw.Draw(sheet)
    for number, sample in enumerate(samples):
        x, y = number % columns * cell_width + _GAP, number // columns * cell_height + _GAP
        sheet.paste(Image.fromarray(sample.image), (x, y))
        bottom = y + sample.image.shape[0]
        if ticks:
            for left, right in sample.char_x.tolist():
                draw.line((x + left, bottom - 4, x + left, bottom + 3), fill="red")
                draw.line((x + right, bottom, x + right, bottom + 2), fill="blue")
        draw.text((x, bottom + 3), sample.text, fill="#0b3d91", font=font)
    return sheet


def truth_font() -> FontSpec:
    """The face with the most characters, so that the truth itself is readable."""
    plain = [f for f in discover_fonts() if f.family in ("DejaVu Sans", "Noto Sans")]
    return max(plain or discover_fonts()[:20], key=lambda f: (len(coverage(f)), f.style in ("Book", "Regular")))
