"""Image files as pages: type by content, upright, RGB with 8 bits on white; every frame of a TIFF."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import numpy as np
from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError

from mineru_diffusion.document.source_types import (
    DEFAULT_MAX_IMAGE_PIXELS,
    DEFAULT_MAX_PIXELS,
    PageImage,
    SourceKind,
    check_index,
)
from mineru_diffusion.errors import SourceError

# Whatever a damaged file makes a decoder raise.
_DECODER_ERRORS = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    TypeError,
    IndexError,
    KeyError,
    OverflowError,
    MemoryError,
)

_PIL_LIMIT_LOCK = threading.Lock()


class ImageSource:
    """An open image file; not to be shared between threads.

    Raises:
        SourceError: the file is no image that Pillow can read, or has more pixels than `max_image_pixels`.
    """

    kind: SourceKind = "image"

    def __init__(
        self,
        path: Path,
        *,
        max_pixels: int = DEFAULT_MAX_PIXELS,
        max_image_pixels: int = DEFAULT_MAX_IMAGE_PIXELS,
    ) -> None:
        self.path = path
        self._max_pixels = max_pixels
        self._max_image_pixels = max_image_pixels
        self._notes: tuple[str, ...] = ()
        try:
            with _own_pixel_limit():
                self._file: Image.Image = Image.open(path)
                self._size = self._file.size
                self._check_size(None)
                frames = int(getattr(self._file, "n_frames", 1))
        except UnidentifiedImageError as error:
            raise SourceError(
                path, "neither a PDF nor a known image format", "convert it to PDF, PNG or TIFF"
            ) from error
        except _DECODER_ERRORS as error:
            raise SourceError(path, f"the image is damaged: {error}", "export it again") from error
        self.page_count: int = frames if self._file.format == "TIFF" else 1
        if frames > 1 and self.page_count == 1:
            self._notes = (f"first of {frames} frames of a {self._file.format} file",)

    def page(self, index: int) -> PageImage:
        """Decode one frame."""
        check_index(index, self.page_count)
        try:
            with _own_pixel_limit():
                self._file.seek(index)
            self._check_size(index)
            full_size = self._size if self._file.format == "JPEG" else None
            if self._file.width * self._file.height > self._max_pixels:
                # Lets a JPEG be decoded at a fraction of its size; other formats ignore it.
                self._file.draft(None, _fit(self._file.size, self._max_pixels))
            image = to_rgb(ImageOps.exif_transpose(self._file))
        except _DECODER_ERRORS as error:
            raise SourceError(self.path, f"the image is damaged: {error}", "export it again", page=index + 1) from error
        width, height = full_size or image.size
        if (width < height) != (image.width < image.height):  # EXIF turned it by a quarter
            width, height = height, width
        notes = self._notes
        if image.width * image.height > self._max_pixels:
            image = image.resize(_fit(image.size, self._max_pixels), Image.Resampling.BOX)
        if image.size != (width, height):
            notes = (*notes, f"image of {width} x {height} pixels scaled down to {image.width} x {image.height}")
        return PageImage(image, float(width), float(height), index, notes)

    def text_layer(self, index: int) -> str:
        """Images hold no text."""
        check_index(index, self.page_count)
        return ""

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> ImageSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_size(self, index: int | None) -> None:
        width, height = self._file.size
        if width * height > self._max_image_pixels:
            if index is None:
                self._file.close()
            raise SourceError(
                self.path,
                f"the image has {width} x {height} pixels, the limit is {self._max_image_pixels}",
                "scale it down, or raise the limit with --max-image-pixels",
                page=None if index is None else index + 1,
            )


def to_rgb(image: Image.Image) -> Image.Image:
    """Any Pillow mode to 8-bit RGB: transparency on white, deep grey scaled (not clipped), a copy of its own."""
    if image.mode.startswith(("I", "F")):
        image = _grey_to_8_bit(image)
    if image.mode == "LAB":
        image = _lab_to_rgb(image)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, rgba).convert("RGB")
    return image.convert("RGB") if image.mode != "RGB" else image.copy()


def _grey_to_8_bit(image: Image.Image) -> Image.Image:
    values: np.ndarray = np.nan_to_num(np.asarray(image, dtype=np.float32))
    top = float(values.max(initial=0.0))
    if image.mode.startswith("I;16"):
        values = values / 257
    elif image.mode == "I" and top <= 65535:
        values = values / (257 if top > 255 else 1)
    elif image.mode == "F" and top <= 1.0:
        values = values * 255
    elif top > 255:
        low = float(values.min(initial=0.0))
        values = (values - low) * (255 / (top - low))
    return Image.fromarray(np.clip(np.rint(values), 0, 255).astype(np.uint8))


def _lab_to_rgb(image: Image.Image) -> Image.Image:
    converted = ImageCms.profileToProfile(
        image, ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB"), outputMode="RGB"
    )
    assert converted is not None  # None is returned only for in-place conversion
    return converted


def _fit(size: tuple[int, int], max_pixels: int) -> tuple[int, int]:
    """The largest size of the same shape with at most `max_pixels` pixels."""
    factor = (max_pixels / (size[0] * size[1])) ** 0.5
    return max(1, int(size[0] * factor)), max(1, int(size[1] * factor))


@contextmanager
def _own_pixel_limit() -> Iterator[None]:
    """Switch Pillow's process-wide pixel limit off while our own, which names its option, stands in for it."""
    with _PIL_LIMIT_LOCK:
        saved, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = saved
