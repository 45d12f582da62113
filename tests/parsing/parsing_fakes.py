"""Stand-ins for the engine and a layout detector, and pages drawn on the spot. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from mineru_diffusion.document.types import Region
from mineru_diffusion.engine.types import CheckpointProfile, Request, Result
from mineru_diffusion.errors import EngineError
from mineru_diffusion.parsing.layout_types import PageLayout

LINE_PROFILE = CheckpointProfile(tasks=("text",), text_unit="line", line_height=32)
REGION_PROFILE = CheckpointProfile()


class FakeEngine:
    """Answers every request by a function of it, in reverse order of submission, as a real engine may."""

    def __init__(
        self,
        answer: Callable[[Request], str | Result] = lambda request: "text",
        profile: CheckpointProfile = LINE_PROFILE,
        *,
        break_after: int | None = None,
    ) -> None:
        self._answer = answer
        self._profile = profile
        self._break_after = break_after
        self._queue: list[tuple[int, Request]] = []
        self._ids = count()
        self.requests: list[Request] = []
        self.most_queued = 0
        self.cancelled: list[int] = []
        self.closed = False

    @property
    def profile(self) -> CheckpointProfile:
        return self._profile

    def submit(self, request: Request) -> int:
        request_id = next(self._ids)
        self._queue.append((request_id, request))
        self.requests.append(request)
        self.most_queued = max(self.most_queued, len(self._queue))
        return request_id

    def stream(self) -> Iterator[tuple[int, Result]]:
        while self._queue:
            if self._break_after is not None:
                if self._break_after == 0:
                    self._queue.clear()
                    self._break_after = None
                    raise EngineError("the device is gone")
                self._break_after -= 1
            request_id, request = self._queue.pop()
            yield request_id, self._result(request)

    def generate(self, requests: Sequence[Request]) -> list[Result]:
        self.requests += requests
        return [self._result(request) for request in requests]

    def _result(self, request: Request) -> Result:
        answer = self._answer(request)
        if isinstance(answer, Result):
            return answer
        tokens = tuple(range(len(answer)))
        return Result(answer, tokens, (0.9,) * len(tokens), (1,) * len(tokens), nfe=2)

    def cancel(self, request_id: int) -> bool:
        self.cancelled.append(request_id)
        before = len(self._queue)
        self._queue = [item for item in self._queue if item[0] != request_id]
        return len(self._queue) < before

    def close(self) -> None:
        self.closed = True


class FixedDetector:
    """Gives every page the same regions."""

    name = "fixed"
    uses_engine = False

    def __init__(self, *regions: Region) -> None:
        self._regions = regions

    def detect(self, images: Sequence[Image.Image]) -> list[PageLayout]:
        return [PageLayout(self._regions) for _ in images]


def font(size: int) -> ImageFont.FreeTypeFont:
    """Pillow's own outline font: the same on every machine."""
    loaded = ImageFont.load_default(size)
    assert isinstance(loaded, ImageFont.FreeTypeFont)
    return loaded


def draw_lines(
    texts: Sequence[str],
    *,
    size: int = 24,
    pitch: int = 34,
    left: int = 20,
    top: int = 20,
    width: int = 900,
    indents: Sequence[int] = (),
    ink: int | tuple[int, int, int] = 0,
    paper: int | tuple[int, int, int] = 255,
    noise: float = 0.0,
    skew: float = 0.0,
) -> Image.Image:
    """Lines of text on paper."""
    colour = paper if isinstance(paper, tuple) else (paper,) * 3
    fill = ink if isinstance(ink, tuple) else (ink,) * 3
    image = Image.new("RGB", (width, 2 * top + pitch * len(texts)), colour)
    draw = ImageDraw.Draw(image)
    for i, text in enumerate(texts):
        draw.text((left + (indents[i] if indents else 0), top + i * pitch), text, fill=fill, font=font(size))
    if skew:
        image = image.rotate(skew, Image.Resampling.BICUBIC, expand=True, fillcolor=colour)
    return add_noise(image, noise) if noise else image


def add_noise(image: Image.Image, sigma: float, seed: int = 0) -> Image.Image:
    """Grain of a scanner."""
    pixels = np.asarray(image, dtype=np.float32)
    grain = np.random.default_rng(seed).normal(0, sigma, pixels.shape)
    return Image.fromarray(np.clip(pixels + grain, 0, 255).astype(np.uint8))


def save_pdf(path: Path, pages: Sequence[Image.Image], dpi: float = 100) -> Path:
    """Page images as a PDF."""
    pages[0].save(path, save_all=True, append_images=list(pages[1:]), resolution=dpi)
    return path
