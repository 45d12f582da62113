"""Images to patch rows, exactly as the Qwen2-VL image processor gives them, without torch and independent of the
transformers version (whose own processor wants torchvision in 5.x).

In: RGB images. Out: float32 rows [S, channels * frames * patch^2] and the grid (frames, rows, columns) of each image.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mineru_diffusion.errors import CheckpointError

MAX_ASPECT = 200
"""Images longer than this many times their width are refused, as by the published processor."""


def smart_resize(height: int, width: int, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """Nearest (height, width) that are multiples of `factor` with an area in [min_pixels, max_pixels].

    Rounding is half to even. (Qwen2-VL, arXiv 2409.12191, section 2.1.)

    Raises:
        ValueError: the image is more than 200 times as long as wide.
    """
    if min(height, width) < 1:
        raise ValueError(f"image of {width}x{height} px: it is empty")
    aspect = max(height, width) / min(height, width)
    if aspect > MAX_ASPECT:
        raise ValueError(
            f"image of {width}x{height} px: the longer side must be at most {MAX_ASPECT} times the shorter"
        )
    new_height, new_width = round(height / factor) * factor, round(width / factor) * factor
    if new_height * new_width > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        new_height = max(factor, math.floor(height / shrink / factor) * factor)
        new_width = max(factor, math.floor(width / shrink / factor) * factor)
    elif new_height * new_width < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        new_height = math.ceil(height * grow / factor) * factor
        new_width = math.ceil(width * grow / factor) * factor
    return new_height, new_width


@dataclass(frozen=True)
class ImageProcessor:
    """The fields of `preprocessor_config.json` that change pixels.

    `min_pixels` and `max_pixels` bound the area after resizing; the published checkpoint's bounds allow 4 to 2048
    visual tokens.
    """

    patch_size: int = 14
    merge_size: int = 2
    temporal_patch_size: int = 2
    min_pixels: int = 4 * 28 * 28
    max_pixels: int = 2048 * 28 * 28
    image_mean: tuple[float, ...] = (0.48145466, 0.4578275, 0.40821073)
    image_std: tuple[float, ...] = (0.26862954, 0.26130258, 0.27577711)
    rescale_factor: float = 1 / 255

    @property
    def factor(self) -> int:
        """Side in pixels of the square that becomes one visual token."""
        return self.patch_size * self.merge_size

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> ImageProcessor:
        """From `preprocessor_config.json`; `min_pixels` and `max_pixels` win over `size`, as in transformers."""
        known = {key: fields[key] for key in cls.__dataclass_fields__ if fields.get(key) is not None}
        size = fields.get("size") or {}
        if "shortest_edge" in size and "min_pixels" not in known:
            known["min_pixels"] = size["shortest_edge"]
        if "longest_edge" in size and "max_pixels" not in known:
            known["max_pixels"] = size["longest_edge"]
        for key in ("image_mean", "image_std"):
            if key in known:
                known[key] = tuple(known[key])
        return cls(**known)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> ImageProcessor:
        """Read `preprocessor_config.json` of a checkpoint folder.

        Raises:
            CheckpointError: the file is missing or is not JSON.
        """
        path = Path(folder) / "preprocessor_config.json"
        try:
            return cls.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError as error:
            raise CheckpointError(f"{path} is missing; copy it from the published checkpoint") from error
        except json.JSONDecodeError as error:
            raise CheckpointError(f"{path} is not valid JSON ({error}); download it again") from error

    def to_dict(self) -> dict[str, Any]:
        """The contents of `preprocessor_config.json`, in the published fields."""
        return {
            **asdict(self),
            "image_mean": list(self.image_mean),
            "image_std": list(self.image_std),
            "do_convert_rgb": True,
            "do_normalize": True,
            "do_rescale": True,
            "do_resize": True,
            "resample": 3,
            "size": {"shortest_edge": self.min_pixels, "longest_edge": self.max_pixels},
            "image_processor_type": "Qwen2VLImageProcessor",
            "processor_class": "MinerUDiffusionProcessor",
        }

    def resize(self, image: Image.Image) -> Image.Image:
        """Bicubic resize to what the vision tower takes."""
        image = image.convert("RGB")
        height, width = smart_resize(image.height, image.width, self.factor, self.min_pixels, self.max_pixels)
        if (width, height) == image.size:
            return image
        return image.resize((width, height), Image.Resampling.BICUBIC)

    def grid(self, image: Image.Image) -> tuple[int, int, int]:
        """(frames, patch rows, patch columns) that `image` will have, without touching its pixels."""
        height, width = smart_resize(image.height, image.width, self.factor, self.min_pixels, self.max_pixels)
        return 1, height // self.patch_size, width // self.patch_size

    def tokens(self, image: Image.Image) -> int:
        """Number of visual tokens of `image`."""
        _, rows, columns = self.grid(image)
        return rows * columns // self.merge_size**2

    def patches(self, image: Image.Image) -> tuple[NDArray[np.float32], tuple[int, int, int]]:
        """Resize, normalise and cut one image into patch rows.

        Returns:
            Rows [S, channels * frames * patch^2], merge windows in reading order with their patches inside; a row is
            (channel, frame, y, x). And the grid.
        """
        pixels = np.asarray(self.resize(image), dtype=np.float32)
        return self.patch_rows(pixels), (1, pixels.shape[0] // self.patch_size, pixels.shape[1] // self.patch_size)

    def patch_rows(self, pixels_HWC: NDArray[np.float32]) -> NDArray[np.float32]:
        """`patches` for pixel values 0..255 that already have a size the vision tower takes."""
        return self._cut(self._normalise(pixels_HWC)[None])

    def patch_rows_grey(self, images_NHW: NDArray[np.uint8]) -> NDArray[np.float32]:
        """`patch_rows` of equally sized greyscale images, one after the other, by a table of the 256 grey levels."""
        levels = np.arange(256, dtype=np.float32)[:, None]
        return self._cut(self._normalise(np.repeat(levels, len(self.image_mean), axis=1))[images_NHW])

    def _normalise(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """(x / 255 - mean) / std, channels last."""
        mean, std = np.array(self.image_mean, np.float32), np.array(self.image_std, np.float32)
        return (pixels * np.float32(self.rescale_factor) - mean) / std

    def _cut(self, scaled: NDArray[np.float32]) -> NDArray[np.float32]:
        """[N, H, W, channels] -> patch rows of all images."""
        images, height, width, channels = scaled.shape
        p, m = self.patch_size, self.merge_size
        windows = scaled.reshape(images, height // (p * m), m, p, width // (p * m), m, p, channels)
        # -> image, window row, window column, patch row, patch column, channel, y, x
        rows = windows.transpose(0, 1, 4, 2, 5, 7, 3, 6)[..., None, :, :]
        # A still image is a video whose frames are copies.
        rows = np.broadcast_to(rows, (*rows.shape[:6], self.temporal_patch_size, p, p))
        return np.ascontiguousarray(rows, dtype=np.float32).reshape(-1, channels * self.temporal_patch_size * p * p)
