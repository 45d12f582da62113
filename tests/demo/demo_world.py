"""A small world for the demo: a page with two regions, readers that know nothing but are fast, and a real server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from mineru_diffusion.demo.readers import Readers
from mineru_diffusion.demo.settings import DemoSettings
from mineru_diffusion.document.types import Region
from mineru_diffusion.engine.local import LocalEngine
from mineru_diffusion.parsing.layout_types import PageLayout
from tests.tiny import profile, random_checkpoint

MAX_TOKENS = 18
SIZE = (600, 300)


class TwoRegions:
    """A title above a paragraph, wherever it is asked."""

    name = "two-regions"
    uses_engine = False

    def detect(self, images: Sequence[Image.Image]) -> list[PageLayout]:
        title = Region("title", (0.05, 0.08, 0.6, 0.3), 0, source={"layout": self.name})
        text = Region("text", (0.05, 0.45, 0.95, 0.75), 1, source={"layout": self.name})
        return [PageLayout((title, text)) for _ in images]


def page_image(size: tuple[int, int] = SIZE) -> Image.Image:
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    draw.text((40, 35), "A Title", fill="black", font=ImageFont.load_default(40))
    draw.text((40, 160), "Some words on one line", fill="black", font=ImageFont.load_default(24))
    return image


def save_image(path: Path) -> Path:
    page_image().save(path)
    return path


def save_pdf(path: Path, *, pages: int = 2, password: str | None = None) -> Path:
    """A PDF with a text layer, its lines where the regions of `TwoRegions` are."""
    from reportlab.lib.pdfencrypt import StandardEncryption
    from reportlab.pdfgen.canvas import Canvas

    height = SIZE[1]
    canvas = Canvas(str(path), pagesize=SIZE, encrypt=None if password is None else StandardEncryption(password))
    for number in range(pages):
        canvas.setFont("Helvetica", 40)
        canvas.drawString(40, height - 70, f"Title {number + 1}")
        canvas.setFont("Helvetica", 24)
        canvas.drawString(40, height - 185, "Some words on one line")
        canvas.showPage()
    canvas.save()
    return path


def engine(objective: str = "diffusion") -> LocalEngine:
    known = replace(profile(), max_tokens=MAX_TOKENS, objective=objective)  # type: ignore[arg-type]
    return LocalEngine(replace(random_checkpoint(), profile=known), max_rows=8)


def readers(*, twin: bool = True) -> Readers:
    return Readers(engine(), engine("autoregressive") if twin else None, TwoRegions())


@contextmanager
def serving(settings: DemoSettings, folder: Path) -> Iterator[str]:
    """The demo on a real socket; gives its address."""
    import uvicorn

    from mineru_diffusion.demo.run import create_app

    both = readers()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = uvicorn.Config(create_app(both, settings, folder), host="127.0.0.1", port=port, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 120
    while not server.started:
        assert thread.is_alive(), "the demo did not start"
        assert time.monotonic() < deadline, "the demo took too long to start"
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)
        both.close()
