"""Images of any mode to RGB. In: a Pillow image. Out: 8-bit RGB on white, small enough, upright.

Large images are converted in bands, so that no second copy of them is made at full size.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from PIL import Image, ImageCms

from mineru_diffusion.document.source_types import fitting_scale

#: Pixels that are converted at a time.
BAND_PIXELS = 4_000_000

_ORIENTATION_TAG = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

#: Factor and offset by which a deep grey value becomes one of 0..255.
GreyScale = tuple[float, float]


def rgb_within(image: Image.Image, max_pixels: int) -> Image.Image:
    """The image in RGB, scaled down (by areas) where it is larger than `max_pixels` or longer than `MAX_SIDE`.

    Transparency is laid on white; deep grey is scaled, not clipped. The result shares nothing with `image`.
    """
    image.load()
    grey = _grey_scale(image) if image.mode.startswith(("I", "F")) else None
    scale = fitting_scale(*image.size, max_pixels)
    if scale == 1:
        return _to_rgb(image, grey)
    size = max(1, int(image.width * scale)), max(1, int(image.height * scale))
    out = Image.new("RGB", size)
    ratio = image.height / size[1]
    rows = max(1, int(BAND_PIXELS / image.width / ratio))
    for top in range(0, size[1], rows):
        bottom = min(top + rows, size[1])
        first, last = top * ratio, min(bottom * ratio, image.height)
        start, end = int(first), min(image.height, int(np.ceil(last)))
        band = _to_rgb(image.crop((0, start, image.width, end)), grey)
        box = (0, first - start, image.width, min(last - start, band.height))
        out.paste(band.resize((size[0], bottom - top), Image.Resampling.BOX, box=box), (0, top))
    return out


def upright(image: Image.Image, file: Image.Image) -> tuple[Image.Image, bool]:
    """The image turned as the metadata of `file` say, and whether that exchanged width and height.

    Metadata that cannot be read turn nothing.
    """
    try:
        orientation = file.getexif().get(_ORIENTATION_TAG)
    except Exception:  # damaged metadata make the parser raise anything, and the picture may be fine
        return image, False
    turn = _TURNS.get(orientation) if isinstance(orientation, int) else None
    return (image, False) if turn is None else (image.transpose(turn), orientation in (5, 6, 7, 8))


def _to_rgb(image: Image.Image, grey: GreyScale | None) -> Image.Image:
    if grey is not None:
        values = _finite(image)
        image = Image.fromarray(np.clip(np.rint(values * grey[0] + grey[1]), 0, 255).astype(np.uint8))
    if image.mode == "LAB":
        converted = ImageCms.profileToProfile(
            image, ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB"), outputMode="RGB"
        )
        assert converted is not None  # None is returned only for in-place conversion
        image = converted
    if image.mode == "La":
        image = image.convert("LA")  # the only way out of this mode
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, rgba).convert("RGB")
    return image.convert("RGB") if image.mode != "RGB" else image.copy()


def _grey_scale(image: Image.Image) -> GreyScale:
    if image.mode.startswith("I;16"):
        return 1 / 257, 0.0
    extremes = [(float(values.min()), float(values.max())) for values in _bands(image)]
    low, top = min(e[0] for e in extremes), max(e[1] for e in extremes)
    if image.mode == "I" and top <= 65535:
        return (1 / 257 if top > 255 else 1.0), 0.0
    if image.mode == "F" and top <= 1.0:
        return 255.0, 0.0
    if top > 255:
        factor = 255 / (top - low)
        return factor, -low * factor
    return 1.0, 0.0


def _bands(image: Image.Image) -> Iterator[np.ndarray]:
    rows = max(1, BAND_PIXELS // image.width)
    for top in range(0, image.height, rows):
        band = image.crop((0, top, image.width, min(top + rows, image.height)))
        yield _finite(band)


def _finite(image: Image.Image) -> np.ndarray:
    values: np.ndarray = np.nan_to_num(np.asarray(image, dtype=np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    return values
