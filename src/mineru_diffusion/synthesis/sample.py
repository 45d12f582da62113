"""The one row format of all synthetic data: an image, what a reader must write for it, and where things stand in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mineru_diffusion.engine.types import Task


@dataclass(frozen=True)
class LayoutBox:
    """One region of a page: kind in MinerU's names, box as fractions of the image, what stands in it, and the clockwise
    rotation of its content in degrees."""

    kind: str
    bbox: tuple[float, float, float, float]
    content: str = ""
    angle: int = 0


@dataclass(frozen=True)
class Sample:
    """Attributes:
    image: uint8, grey [H, W] or RGB [H, W, 3].
    task: what is asked of the reader.
    target: what it must write: text, OTSL, normalised LaTeX, or the layout grammar.
    layout: the regions in reading order (task `layout`), else empty.
    source: provenance, enough to make the sample again: generator, seed, index, fonts, style.
    """

    image: NDArray[np.uint8]
    task: Task
    target: str
    layout: tuple[LayoutBox, ...] = ()
    source: dict[str, Any] = field(default_factory=dict)


class SampleStream(Protocol):
    """Endless samples; sample i depends on the stream's arguments (seed and split among them) and i only."""

    def sample(self, index: int) -> Sample:
        """Sample number `index` (from 0)."""
        ...
