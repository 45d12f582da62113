"""How a line comes off its page: tilted, with parts of its neighbours and rules around it, cut at the ink or at the
line box, and scaled to the height that the model reads.

In: ink canvases (255 = ink). Out: ink of the final size. All positions are in canvas pixels unless said otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mineru_diffusion.synthesis.typeset import Ink

Canvas = NDArray[np.uint8]

_FILTERS = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.LANCZOS, Image.Resampling.BOX)


@dataclass(frozen=True)
class Crop:
    """A box on the canvas, and the final pixels per canvas pixel in each direction."""

    left: float
    top: float
    right: float
    bottom: float
    scale_x: float
    scale_y: float


def tilt(ink: Ink, rng: np.random.Generator, strength: float) -> tuple[Canvas, NDArray[np.float64]]:
    """Slant and turn the canvas by up to 0.8 degrees; a long line turns less, or it would not fit a line's height.

    Returns:
        The canvas, of the same size, and the edges of the characters on it [n, 2].
    """
    height, width = ink.canvas.shape
    most = min(0.014 * strength, 0.3 * ink.em / width)
    rise = rng.uniform(-most, most)
    slant = rng.uniform(-0.08, 0.08) * strength
    middle_x, middle_y = width / 2, ink.baseline - 0.25 * ink.em
    # Output (x, y) takes its ink from (x + slant (y - middle), y + rise (x - middle)).
    coefficients = (1, slant, -slant * middle_y, rise, 1, -rise * middle_x)
    image = Image.fromarray(ink.canvas).transform(
        (width, height), Image.Transform.AFFINE, coefficients, resample=Image.Resampling.BILINEAR
    )
    # On the text's own middle line, source y = middle, so the output x follows from two linear equations.
    return np.asarray(image), (ink.edges - middle_x * slant * rise) / (1 - slant * rise)


def choose_crop(
    canvas: Canvas,
    edges: NDArray[np.float64],
    ink: Ink,
    height: int,
    rng: np.random.Generator,
    *,
    whole_line: float,
    loose: float,
) -> Crop:
    """A box around the ink, or with probability `whole_line` around the face's line box, with margins: with probability
    `loose` perhaps wide ones."""
    rows = np.flatnonzero(canvas.max(axis=1) > 64)
    columns = np.flatnonzero(canvas.max(axis=0) > 64)
    top, bottom = (float(rows[0]), float(rows[-1] + 1)) if len(rows) else (ink.baseline - ink.em, float(ink.baseline))
    if rng.random() < whole_line:
        top = min(top, ink.baseline - ink.ascent)
        bottom = max(bottom, ink.baseline + ink.descent)
    # A lone dash or dot is cut out with some of the line's height, never blown up to fill it.
    least = ink.em * rng.uniform(0.42, 0.7)
    if bottom - top < least:
        top = min(top, max(bottom - least, ink.baseline - 0.7 * ink.em))
        bottom = max(bottom, top + least)
    tall = bottom - top
    above, below = _margins(rng, loose)
    top -= tall * above
    bottom += tall * below
    scale_y = height / (bottom - top)
    scale_x = scale_y * (rng.uniform(0.85, 1.15) if rng.random() < 0.5 else 1.0)
    left = min([float(edges[0, 0]), *columns[:1].tolist()]) - rng.uniform(1, 12) / scale_x
    right = max([float(edges[-1, 1]), *(columns[-1:] + 1).tolist()]) + rng.uniform(1, 12) / scale_x
    return Crop(left, top, right, bottom, scale_x, scale_y)


def _margins(rng: np.random.Generator, loose: float) -> tuple[float, float]:
    """Paper above and below, as parts of the crop's height: mostly little, sometimes much, rarely a bit too little."""
    roll = rng.random()
    if roll < 0.05:
        return rng.uniform(-0.03, 0.05), rng.uniform(-0.03, 0.05)
    most = 0.6 if roll > 1 - loose else 0.2
    return rng.uniform(0.03, most), rng.uniform(0.03, most)


def add_neighbours(canvas: Canvas, other: Canvas, pitch: int, rng: np.random.Generator) -> Canvas:
    """Lay another line `pitch` above, below, or both; some of it may reach into the crop."""
    result: Canvas = canvas.copy()
    width = min(other.shape[1], canvas.shape[1])
    height = min(other.shape[0], canvas.shape[0])
    above, below = result[: height - pitch, :width], result[pitch:height, :width]
    which = rng.random()
    if which < 0.67:
        np.maximum(above, other[pitch:height, :width], out=above)
    if which > 0.33:
        np.maximum(below, other[: height - pitch, :width], out=below)
    return result


def cut_out(canvas: Canvas, crop: Crop, height: int, rng: np.random.Generator) -> Canvas:
    """The crop, scaled to `height` rows with a filter drawn at random; it may hang over the canvas' border."""
    width = max(1, round((crop.right - crop.left) * crop.scale_x))
    left, top = int(np.floor(crop.left)), int(np.floor(crop.top))
    right, bottom = int(np.ceil(crop.right)) + 1, int(np.ceil(crop.bottom)) + 1
    above, before = max(0, -top), max(0, -left)
    below, after = max(0, bottom - canvas.shape[0]), max(0, right - canvas.shape[1])
    if above or before or below or after:
        canvas = np.pad(canvas, ((above, below), (before, after)))
    piece = canvas[top + above : bottom + above, left + before : right + before]
    box = (crop.left - left, crop.top - top, crop.right - left, crop.bottom - top)
    kind = _FILTERS[int(rng.integers(len(_FILTERS)))]
    if kind == Image.Resampling.BOX and crop.scale_y > 0.8:
        kind = Image.Resampling.BILINEAR
    return np.array(Image.fromarray(piece).resize((width, height), kind, box=box))


def add_rules(drawn: Canvas, crop: Crop, ink: Ink, rng: np.random.Generator) -> None:
    """Draw, in place, an underline, a strike rule, or sides of a box or table cell over ink of the final size."""
    height = drawn.shape[0]
    thick = int(rng.integers(1, 3))
    level = np.uint8(rng.integers(120, 256))
    baseline = (ink.baseline - crop.top) * crop.scale_y
    roll = rng.random()
    if roll < 0.45:
        row = int(min(height - thick, baseline + rng.uniform(1.5, 4)))
        views = [drawn[row : row + thick]]
    elif roll < 0.5:
        row = int(max(0, baseline - rng.uniform(0.2, 0.35) * ink.em * crop.scale_y))
        views = [drawn[row : row + 1]]
    else:
        sides = (drawn[:thick], drawn[-thick:], drawn[:, :1], drawn[:, -1:])
        views = [side for side, wanted in zip(sides, rng.random(4) < 0.5, strict=True) if wanted]
    for view in views:
        np.maximum(view, level, out=view)
