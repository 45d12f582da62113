"""Build the example documents: `examples/report.pdf` from its Typst source, `examples/scan.png` from its first page.

Run from anywhere: `python scripts/make_examples.py`. Needs the `dev` extra.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pypdfium2 as pdfium
import typst
from PIL import Image, ImageFilter

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SCAN_DPI = 150


def scanned(page: Image.Image, *, seed: int = 7) -> Image.Image:
    """A page as a middling office scanner would give it: grey, a little turned, soft, uneven and grainy."""
    rng = np.random.default_rng(seed)
    grey = page.convert("L").rotate(0.4, Image.Resampling.BICUBIC, fillcolor=255)
    pixels_hw = np.asarray(grey.filter(ImageFilter.GaussianBlur(0.6)), dtype=np.float32)
    height, width = pixels_hw.shape
    shade_hw = 1 - 0.06 * np.linspace(0, 1, width)[None, :] * np.linspace(1, 0.4, height)[:, None]
    paper_hw = 24 + pixels_hw * (224 / 255) * shade_hw
    return Image.fromarray(np.clip(paper_hw + rng.normal(0, 2.5, pixels_hw.shape), 0, 255).astype(np.uint8))


def main() -> None:
    """Write both files and say how large they are."""
    pdf = EXAMPLES / "report.pdf"
    typst.compile(EXAMPLES / "report.typ", output=pdf, timestamp=0)
    document = pdfium.PdfDocument(pdf)
    page = document[0].render(scale=SCAN_DPI / 72).to_pil()
    scan = EXAMPLES / "scan.png"
    # 16 grey levels are plenty for a scan and make a much smaller file.
    levels = scanned(page).quantize(16, dither=Image.Dither.NONE)
    levels.save(scan, optimize=True, dpi=(SCAN_DPI, SCAN_DPI))
    for path in (pdf, scan):
        print(f"{path.relative_to(EXAMPLES.parent)}: {path.stat().st_size / 1024:.0f} KiB")
    print(f"{len(document)} pages")


if __name__ == "__main__":
    main()
