"""From drawn pixels to what a scanner, a camera or a screen gives: colours, tilt, and the damage of `damage`.

In: grey or RGB pixels from the typesetter. Out: grey [H, W] or RGB [H, W, 3] pixels of the same size, and the
tilt if any.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mineru_diffusion.synthesis import damage

Pixels = NDArray[np.uint8]
_GREY = np.array((0.299, 0.587, 0.114), dtype=np.float32)


@dataclass(frozen=True)
class Tilt:
    """A turn about the image's middle, `radians` clockwise; the image keeps its size [height, width]."""

    radians: float
    height: int
    width: int

    def turn(self, pixels: Pixels, fill: int) -> Pixels:
        """The turned image, with `fill` where it shows what was outside."""
        if not self.radians:
            return pixels
        cos, sin = np.cos(self.radians), np.sin(self.radians)
        x, y = self.width / 2, self.height / 2
        # Output (u, v) takes its value from the input turned back by the same angle.
        matrix = (cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y)
        image = Image.fromarray(pixels)
        colour = fill if pixels.ndim == 2 else (fill,) * 3
        return np.asarray(
            image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BICUBIC, fillcolor=colour)
        )

    def box(self, bbox: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
        """The upright box around a turned box, both in fractions of the image, clipped to it."""
        if not self.radians:
            return bbox
        corners = np.array([(bbox[i], bbox[j]) for i in (0, 2) for j in (1, 3)]) - 0.5
        corners *= (self.width, self.height)
        cos, sin = np.cos(self.radians), np.sin(self.radians)
        turned = corners @ np.array(((cos, sin), (-sin, cos))) / (self.width, self.height) + 0.5
        low, high = np.clip(turned.min(axis=0), 0, 1), np.clip(turned.max(axis=0), 0, 1)
        return float(low[0]), float(low[1]), float(high[0]), float(high[1])


def draw_tilt(shape: tuple[int, ...], rng: np.random.Generator, most_degrees: float) -> Tilt:
    """A tilt up to `most_degrees` to either side, small ones more often."""
    degrees = most_degrees * rng.uniform(-1, 1) * rng.random()
    return Tilt(float(np.deg2rad(degrees)), shape[0], shape[1])


def print_region(pixels: Pixels, rng: np.random.Generator, degrade: float) -> Pixels:
    """Black text on white, as seen: clean (sometimes in colour) or worn, about half of them each at `degrade` 1."""
    if rng.random() >= 0.55 * min(degrade, 1.0):
        if rng.random() < 0.15:
            return _colour(pixels, rng)
        return damage.print_clean(_ink(pixels), rng)
    if rng.random() < 0.5:
        pixels = draw_tilt(pixels.shape, rng, 0.8 * degrade).turn(pixels, 255)
    return damage.print_worn(_ink(pixels), rng, degrade)


def print_page(pixels: Pixels, rng: np.random.Generator, degrade: float) -> tuple[Pixels, Tilt]:
    """A page, clean in its own colours or worn and grey, and how it was turned."""
    upright = Tilt(0.0, pixels.shape[0], pixels.shape[1])
    if rng.random() >= 0.5 * min(degrade, 1.0):
        if rng.random() < 0.15:
            tint = 1 - rng.uniform(0, 0.15, 3).astype(np.float32)
            return (pixels * tint).astype(np.uint8), upright
        return (pixels if rng.random() < 0.7 else _to_grey(pixels)), upright
    tilt = draw_tilt(pixels.shape, rng, 1.0 * degrade) if rng.random() < 0.5 else upright
    return damage.print_worn(_ink(tilt.turn(pixels, 255)), rng, degrade), tilt


def _to_grey(pixels: Pixels) -> Pixels:
    if pixels.ndim == 2:
        return pixels
    return (pixels @ _GREY + 0.5).astype(np.uint8)


def _ink(pixels: Pixels) -> NDArray[np.float32]:
    ink: NDArray[np.float32] = 1 - _to_grey(pixels).astype(np.float32) * np.float32(1 / 255)
    return ink


def _colour(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    """Dark text on a light ground or the other way round, in colours that keep their distance in brightness."""
    dark, light = rng.uniform(0, 110, 3), rng.uniform(195, 255, 3)
    if rng.random() < 0.25:
        dark, light = light, dark
    ink = _ink(pixels)[..., None]
    return np.clip(light + (dark - light) * ink + 0.5, 0, 255).astype(np.uint8)
