"""The README's picture, from a real run: a page with its regions on the left, what was read on the right, each region
tinted by its confidence.

    python scripts/make_readme_picture.py [DOCUMENT] [OUT]
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from mineru_diffusion import parse
from mineru_diffusion.document.overlay import draw_overlay
from mineru_diffusion.document.sources import open_source
from mineru_diffusion.document.types import Region

HEIGHT = 1100
COLUMN = 760
SIZE = 15


def tint(confidence: float | None) -> tuple[int, int, int]:
    """White at 1, amber at 0.5 and below."""
    doubt = min(1.0, 2.0 * (1.0 - (1.0 if confidence is None else confidence)))
    return 255, round(255 - 60 * doubt), round(255 - 150 * doubt)


def draw_reading(regions: tuple[Region, ...]) -> Image.Image:
    """The text of the regions in reading order."""
    column = Image.new("RGB", (COLUMN, HEIGHT), "white")
    pen = ImageDraw.Draw(column)
    y = 24
    for region in regions:
        title = region.kind == "title"
        font = ImageFont.load_default(SIZE + 5 if title else SIZE)
        # The bundled font has no bullet.
        text = (region.content or f"[{region.kind}]").replace("•", "-")
        lines = [part for line in text.splitlines() for part in textwrap.wrap(line, 78 if not title else 58)]
        step = round(font.size * 1.35)
        if y + step * len(lines) > HEIGHT - 24:
            break
        pen.rectangle((16, y - 4, COLUMN - 16, y + step * len(lines) + 2), fill=tint(region.confidence))
        for line in lines:
            pen.text((24, y), line, fill=(20, 20, 20), font=font)
            y += step
        y += 14
    return column


def main(document: Path, out: Path) -> None:
    with open_source(document, dpi=130) as source:
        image = source.page(0).image
    page = parse(document, pages="1").pages[0]
    drawn = draw_overlay(image, page)
    drawn = drawn.resize((round(drawn.width * HEIGHT / drawn.height), HEIGHT), Image.Resampling.LANCZOS)
    picture = Image.new("RGB", (drawn.width + COLUMN, HEIGHT), "white")
    picture.paste(drawn, (0, 0))
    picture.paste(draw_reading(page.regions), (drawn.width, 0))
    out.parent.mkdir(parents=True, exist_ok=True)
    picture.quantize(128).save(out, optimize=True)


if __name__ == "__main__":
    main(
        Path(sys.argv[1] if len(sys.argv) > 1 else "examples/report.pdf"),
        Path(sys.argv[2] if len(sys.argv) > 2 else "docs/images/report.png"),
    )
