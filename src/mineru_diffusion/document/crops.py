"""Crops: from a page image and a region's box to the picture that one request transcribes.

In: PIL images in RGB and boxes as fractions of the page. Out: PIL images in RGB that the image processor accepts.
"""

from __future__ import annotations

import math

import numpy as np
from PIL import Image

from mineru_diffusion.document.types import BBox

WHITE = (255, 255, 255)


def crop_region(
    page_image: Image.Image,
    bbox: BBox,
    angle: int = 0,
    *,
    margin: int = 0,
    min_side: int = 28,
    max_ratio: float = 50,
) -> Image.Image:
    """Cut a region out of its page, turn it upright and make it large enough for the vision tower.

    Args:
        page_image: the whole page.
        bbox: fractions of the page; corners may be swapped, parts outside the page are cut off.
        angle: clockwise rotation of the content in degrees (0, 90, 180, 270); the crop is turned back by it.
        margin: pixels added on every side, as far as the page reaches.
        min_side: see `resize_by_need`; 0 leaves the crop's size alone.
        max_ratio: see `resize_by_need`.

    Returns:
        An RGB image of at least one pixel.
    """
    box = pixel_box(page_image.size, bbox, margin=margin)
    crop = page_image.crop(box)
    if crop.mode != "RGB":
        crop = crop.convert("RGB")
    turns = round(angle / 90) % 4
    if turns:
        # Image.rotate and the transposes turn counter-clockwise, which undoes a clockwise rotation.
        crop = crop.transpose(
            (Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_180, Image.Transpose.ROTATE_270)[turns - 1]
        )
    return resize_by_need(crop, min_side, max_ratio) if min_side else crop


def layout_image(page_image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """The whole page squashed to `size` (width, height), which is how a model sees it when it finds the layout."""
    image = page_image if page_image.mode == "RGB" else page_image.convert("RGB")
    return image if image.size == size else image.resize(size, Image.Resampling.BICUBIC)


def pixel_box(size: tuple[int, int], bbox: BBox, *, margin: int = 0) -> tuple[int, int, int, int]:
    """The pixel box (left, top, right, bottom) that covers `bbox` on an image of `size` (width, height).

    Rounded outwards, clipped to the image, never empty.
    """
    width, height = size
    left, right = _span(bbox[0], bbox[2], width, margin)
    top, bottom = _span(bbox[1], bbox[3], height, margin)
    return left, top, right, bottom


def _span(start: float, end: float, extent: int, margin: int) -> tuple[int, int]:
    low, high = sorted((start, end))
    first = min(max(math.floor(low * extent) - margin, 0), extent - 1)
    last = max(min(math.ceil(high * extent) + margin, extent), first + 1)
    return first, last


def resize_by_need(image: Image.Image, min_side: int = 28, max_ratio: float = 50) -> Image.Image:
    """Pad very long images on white until one edge is at most `max_ratio` times the other, then enlarge small ones.

    The shorter side of the result is at least `min_side` pixels; sizes are rounded up. An image that is already
    right is returned as it is.
    """
    width, height = image.size
    if max(width, height) > max_ratio * min(width, height):
        width = max(width, math.ceil(height / max_ratio))
        height = max(height, math.ceil(width / max_ratio))
        padded = Image.new(image.mode, (width, height), WHITE if image.mode == "RGB" else 255)
        padded.paste(image, ((width - image.width) // 2, (height - image.height) // 2))
        image = padded
    short = min(width, height)
    if short < min_side:
        # Whole numbers: in floating point 13 * (28 / 13) can end a hair above 28 and round up to 29.
        size = (-(-width * min_side // short), -(-height * min_side // short))
        image = image.resize(size, Image.Resampling.BICUBIC)
    return image


def fit_line(image: Image.Image, *, height: int, multiple: int) -> Image.Image:
    """Scale a line crop to exactly `height` pixels and pad it to the right with its own paper colour.

    Args:
        image: one text line.
        height: height of the result in pixels; the aspect ratio is kept.
        multiple: the width of the result is a multiple of this, at least one.

    Returns:
        An RGB image; the same object if nothing was to do.
    """
    if height < 1 or multiple < 1:
        raise ValueError(f"height and multiple must be positive, got {height} and {multiple}")
    if image.mode != "RGB":
        image = image.convert("RGB")
    if image.height != height:
        width = max(1, round(image.width * height / image.height))
        image = image.resize((width, height), Image.Resampling.LANCZOS)
    width = max(1, -(-image.width // multiple)) * multiple
    if width == image.width:
        return image
    padded = Image.new("RGB", (width, height), paper_colour(image))
    padded.paste(image, (0, 0))
    return padded


def paper_colour(image: Image.Image) -> tuple[int, int, int]:
    """The median colour of an image's outermost pixels, which on a crop of text is its paper."""
    pixels_hwc = np.asarray(image.convert("RGB"))
    border = np.concatenate([pixels_hwc[0], pixels_hwc[-1], pixels_hwc[:, 0], pixels_hwc[:, -1]])
    red, green, blue = np.median(border, axis=0)
    return int(red), int(green), int(blue)
