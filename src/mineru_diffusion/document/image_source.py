"""Image files as pages: type by content, upright, RGB with 8 bits on white; every frame of a TIFF."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from PIL import Image, UnidentifiedImageError

from mineru_diffusion.document.colours import rgb_within, upright
from mineru_diffusion.document.file_kinds import IMAGE_FORMATS
from mineru_diffusion.document.source_types import (
    DEFAULT_MAX_IMAGE_PIXELS,
    DEFAULT_MAX_PIXELS,
    PageImage,
    SourceKind,
    check_index,
    fitting_scale,
)
from mineru_diffusion.errors import SourceError

_PIL_LIMIT_LOCK = threading.Lock()


class ImageSource:
    """An open image file; not to be shared between threads.

    Raises:
        SourceError: the file is no image that can be read, or has more pixels than `max_image_pixels`.
    """

    kind: SourceKind = "image"

    def __init__(
        self,
        path: Path,
        *,
        max_pixels: int = DEFAULT_MAX_PIXELS,
        max_image_pixels: int = DEFAULT_MAX_IMAGE_PIXELS,
        heif: bool = False,
    ) -> None:
        self.path = path
        self.notes: tuple[str, ...] = ()
        self._max_pixels = max_pixels
        self._max_image_pixels = max_image_pixels
        if heif:
            _register_heif(path)
        try:
            with _own_pixel_limit():
                self._file: Image.Image = Image.open(path, formats=[*IMAGE_FORMATS] if heif else _WITHOUT_HEIF)
            self._size = self._file.size
            self._check_size(None)
            with _own_pixel_limit():
                frames = int(getattr(self._file, "n_frames", 1))
        except UnidentifiedImageError as error:
            raise SourceError(
                path, "the image is damaged: its header cannot be read", "export it again, as PNG, TIFF or PDF"
            ) from error
        except SourceError:
            raise
        except Exception as error:  # damaged files make decoders raise anything
            raise SourceError(path, f"the image is damaged: {_say(error)}", "export it again") from error
        self.page_count: int = frames if self._file.format == "TIFF" else 1
        self._frame_notes: tuple[str, ...] = ()
        if frames > 1 and self.page_count == 1:
            self._frame_notes = (f"first of {frames} frames of a {self._file.format} file",)

    def page(self, index: int) -> PageImage:
        """Decode one frame."""
        check_index(index, self.page_count)
        try:
            if self.page_count > 1:
                with _own_pixel_limit():
                    self._file.seek(index)
            self._check_size(index)
            scale = fitting_scale(*self._size, self._max_pixels)
            if scale < 1 and self._file.format == "JPEG":
                # Lets it be decoded at a fraction of its size.
                self._file.draft(None, (max(1, int(self._size[0] * scale)), max(1, int(self._size[1] * scale))))
            image = rgb_within(self._file, self._max_pixels)
            # Asked only now, because Pillow turns TIFFs upright when it decodes them.
            width, height = self._size if self._file.format == "JPEG" else self._file.size
            image, turned = upright(image, self._file)
        except SourceError:
            raise
        except Exception as error:  # damaged files make decoders raise anything
            raise SourceError(
                self.path, f"the image is damaged: {_say(error)}", "export it again", page=index + 1
            ) from error
        if turned:
            width, height = height, width
        notes = self._frame_notes
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


_WITHOUT_HEIF = [name for name in IMAGE_FORMATS if name != "HEIF"]


def _register_heif(path: Path) -> None:
    try:
        importlib.import_module("pillow_heif").register_heif_opener()
    except ImportError as error:
        raise SourceError(
            path, "HEIC images need an optional dependency", "pip install 'mineru-diffusion[heic]'"
        ) from error


def _say(error: Exception) -> str:
    return str(error) or type(error).__name__


@contextmanager
def _own_pixel_limit() -> Iterator[None]:
    """Switch Pillow's process-wide pixel limit off while our own, which names its option, stands in for it."""
    with _PIL_LIMIT_LOCK:
        saved, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = saved
