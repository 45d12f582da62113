"""What happens to a line between the typesetter and the reader: paper, light, blur, noise, compression.

In: ink as float32 [H, W], 0 = paper, 1 = ink. Out: uint8 grey [H, W]. Geometry never changes here.
"""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

Ink = NDArray[np.float32]
Grey = NDArray[np.uint8]


def print_clean(ink: Ink, rng: np.random.Generator) -> Grey:
    """As from a digital PDF: dark ink on white or nearly white paper, sometimes coloured, rarely inverted."""
    paper, dark = 255.0, 0.0
    roll = rng.random()
    if roll < 0.25:
        dark = rng.uniform(0, 90)
    elif roll < 0.40:
        paper, dark = rng.uniform(205, 255), rng.uniform(0, 60)
    if rng.random() < 0.03:
        paper, dark = dark, paper
    return _to_grey(paper + (dark - paper) * ink)


def print_worn(ink: Ink, rng: np.random.Generator, strength: float) -> Grey:
    """As from a scan or a photograph; `strength` 1 is the usual range, 0 changes next to nothing."""
    height, width = ink.shape
    if rng.random() < 0.15 * strength:
        ink = _low_resolution(ink, rng)
    if rng.random() < 0.45:
        ink = _blur(ink, rng.uniform(0.2, 0.2 + 0.8 * strength))
    if rng.random() < 0.2:
        ink = _fade(ink, rng, strength)
    paper = 255 - rng.uniform(0, 75) * strength * rng.random()
    dark = rng.uniform(0, 110) * strength * rng.random()
    if rng.random() < 0.04:
        paper, dark = dark, paper
    grey = paper + (dark - paper) * ink
    if rng.random() < 0.3:
        grey *= _light(height, width, rng, strength)
    if rng.random() < 0.4:
        grey += rng.standard_normal((height, width), dtype=np.float32) * np.float32(rng.uniform(1, 16) * strength)
    if rng.random() < 0.15:
        count = int(rng.integers(1, 2 + int(0.03 * width * strength)))
        rows, columns = rng.integers(0, height, count), rng.integers(0, width, count)
        grey[rows, columns] = np.where(rng.random(count) < 0.7, dark, paper)
    result = _to_grey(grey)
    roll = rng.random()
    if roll < 0.3:
        return _jpeg(result, int(rng.uniform(95 - 65 * min(strength, 1.3), 95)))
    if roll < 0.42:
        return _two_levels((result - paper) / (dark - paper), ink, rng, inverted=dark > paper)
    return result


def reshape_strokes(canvas: Grey, rng: np.random.Generator, most: int) -> Grey:
    """Thicker or thinner strokes, as from a bad threshold. Never so thin that letters vanish."""
    pixels = int(rng.integers(1, most + 1))
    if rng.random() < 0.4:
        worn = _spread(canvas, -pixels)
        if worn.sum(dtype=np.int64) > 0.55 * canvas.sum(dtype=np.int64):
            return worn
    return _spread(canvas, pixels)


def _spread(canvas: Grey, pixels: int) -> Grey:
    """Spread ink by one pixel, right and down (1) or to all four sides (2); negative wears it off instead."""
    grown: Grey = canvas.copy()
    spread = np.minimum if pixels < 0 else np.maximum
    spread(grown[:, 1:], canvas[:, :-1], out=grown[:, 1:])
    spread(grown[1:], canvas[:-1], out=grown[1:])
    if abs(pixels) > 1:
        spread(grown[:, :-1], canvas[:, 1:], out=grown[:, :-1])
        spread(grown[:-1], canvas[1:], out=grown[:-1])
    return grown


def _two_levels(amount: NDArray[np.floating], ink: Ink, rng: np.random.Generator, *, inverted: bool) -> Grey:
    """Black and white by a threshold that is often bad, but never so bad that most of the ink is lost."""
    for threshold in (rng.uniform(0.28, 0.72), 0.4, 0.25):
        black = amount > threshold
        if black.sum() > 0.75 * ink.sum():
            break
    grey: Grey = (black == inverted).astype(np.uint8) * np.uint8(255)
    return grey


def _to_grey(values: NDArray[np.floating]) -> Grey:
    grey: Grey = np.clip(values + 0.5, 0, 255).astype(np.uint8)
    return grey


def _to_ink(image: Image.Image) -> Ink:
    ink: Ink = np.asarray(image, dtype=np.float32) * np.float32(1 / 255)
    return ink


def _blur(ink: Ink, radius: float) -> Ink:
    image = Image.fromarray(_to_grey(ink * 255)).filter(ImageFilter.GaussianBlur(radius))
    return _to_ink(image)


def _low_resolution(ink: Ink, rng: np.random.Generator) -> Ink:
    height, width = ink.shape
    factor = rng.uniform(0.5, 0.8)
    small = (max(1, round(width * factor)), max(1, round(height * factor)))
    image = Image.fromarray(_to_grey(ink * 255)).resize(small, Image.Resampling.BOX)
    kind = Image.Resampling.BILINEAR if rng.random() < 0.6 else Image.Resampling.BICUBIC
    return _to_ink(image.resize((width, height), kind))


def _smooth_field(height: int, width: int, rng: np.random.Generator) -> Ink:
    cells = rng.random((2, max(2, width // 60)), dtype=np.float32)
    return np.asarray(Image.fromarray(cells).resize((width, height), Image.Resampling.BICUBIC), dtype=np.float32)


def _light(height: int, width: int, rng: np.random.Generator, strength: float) -> Ink:
    light: Ink = 1 - np.float32(0.35 * strength * rng.random()) * _smooth_field(height, width, rng)
    return light


def _fade(ink: Ink, rng: np.random.Generator, strength: float) -> Ink:
    """Ink that did not take everywhere: weaker in patches, with grain."""
    height, width = ink.shape
    loss = np.float32(0.5 * strength * rng.random()) * _smooth_field(height, width, rng)
    grain = np.float32(0.5 * strength * rng.random()) * rng.random((height, width), dtype=np.float32)
    return np.asarray(ink * np.clip(1 - loss - grain, 0, 1), dtype=np.float32)


def _jpeg(grey: Grey, quality: int) -> Grey:
    buffer = io.BytesIO()
    Image.fromarray(grey).save(buffer, "JPEG", quality=max(quality, 20))
    return np.asarray(Image.open(buffer))
