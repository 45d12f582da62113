"""Numbered pages, and a recogniser that reads their numbers off the pixels: fast, exact, and blind to everything else.

Run as a program, it is the command line with this recogniser in place of a model:

    python numbered_pages.py parse INPUT... -o OUT

`READER_SECONDS` is what it takes for a page, and to `READER_LOG` it adds a byte for every page that it reads.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from parsing_fakes import REGION_PROFILE, FakeEngine
from PIL import Image
from reportlab.pdfgen import canvas

from mineru_diffusion.document.types import Region
from mineru_diffusion.engine.types import Request, Result
from mineru_diffusion.parsing.layout_types import PageLayout

BITS = 24
WIDTH, HEIGHT = 288, 360
STRIP = (24, 300, 240, 24)
"""Left, bottom, width and height in points of the row of black and white squares that says a page's number."""
_BOX = (24 / WIDTH, (HEIGHT - 324) / HEIGHT, 264 / WIDTH, (HEIGHT - 300) / HEIGHT)
_PICTURE = (0.1, 0.5, 0.5, 0.8)


def number_pdf(numbers: Sequence[int]) -> bytes:
    """A PDF with a page for every number (below 2 ** BITS)."""
    file = io.BytesIO()
    drawing = canvas.Canvas(file, pagesize=(WIDTH, HEIGHT), invariant=True)
    left, bottom, width, height = STRIP
    for number in numbers:
        drawing.drawString(24, 340, f"number {number}")
        for bit in range(BITS):
            if number >> bit & 1:
                drawing.rect(left + bit * width / BITS, bottom, width / BITS, height, stroke=0, fill=1)
        drawing.circle(90, 120, 20 + number % 20)
        drawing.showPage()
    drawing.save()
    return file.getvalue()


class NumberLayout:
    """The strip is a text, and below it is a picture; can be sent to another process."""

    name = "numbered"
    uses_engine = False

    def detect(self, images: Sequence[Image.Image]) -> list[PageLayout]:
        regions = (
            Region("text", _BOX, 0, source={"layout": self.name}),
            Region("image", _PICTURE, 1, source={"layout": self.name}),
        )
        return [PageLayout(regions) for _ in images]


def read_number(image: Image.Image) -> int:
    """What the strip says."""
    pixels = np.asarray(image.convert("L"), dtype=np.float32)
    middle = pixels[pixels.shape[0] // 3 : -(pixels.shape[0] // 3)]
    cells = np.array_split(middle, BITS, axis=1)
    return sum(1 << bit for bit, cell in enumerate(cells) if cell.mean() < 128)


class NumberReader(FakeEngine):
    """Answers with the number."""

    def __init__(self, seconds: float = 0.0, log: Path | None = None) -> None:
        super().__init__(self._read, REGION_PROFILE)
        self._seconds = seconds
        self._log = log

    def stream(self) -> Iterator[tuple[int, Result]]:
        # Out of order, but nobody waits for ever, as with a real engine.
        answered = 0
        while self._queue:
            request_id, request = self._queue.pop(min(answered % 4, len(self._queue) - 1))
            answered += 1
            yield request_id, self._result(request)

    def _read(self, request: Request) -> Result:
        assert request.image is not None
        self.requests.clear()  # the images of a long run must not be kept
        if self._seconds:
            time.sleep(self._seconds)
        if self._log is not None:
            with self._log.open("ab") as file:
                file.write(b".")
        text = f"number {read_number(request.image)}"
        return Result(text, tuple(map(ord, text)), (0.9,) * len(text), (1,) * len(text), nfe=2)


def main(arguments: list[str]) -> None:
    import mineru_diffusion.engine
    from mineru_diffusion.cli import main as command
    from mineru_diffusion.parsing import folder

    log = os.environ.get("READER_LOG")
    engine = NumberReader(float(os.environ.get("READER_SECONDS", "0")), Path(log) if log else None)
    vars(mineru_diffusion.engine)["load_engine"] = lambda *a, **k: engine
    folder.choose_detector = lambda engine, params=None: NumberLayout()  # type: ignore[assignment]
    command(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
