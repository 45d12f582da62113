"""Overlapping boxes of a layout detector, resolved without losing text. Pixels in, pixels out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mineru_diffusion.parsing.ink import Mask, ink_bounds, inked_columns, inked_rows

PixelBox = tuple[float, float, float, float]

PICTURES = frozenset({"image", "chart", "table"})
"""Kinds that own whatever lies inside them."""


@dataclass(frozen=True)
class Found:
    """One detection: kind in our names, box in pixels, score 0..1, and who found it."""

    kind: str
    box: PixelBox
    score: float = 1.0
    source: str = ""

    @property
    def area(self) -> float:
        return area(self.box)


def area(box: PixelBox) -> float:
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])


def common(a: PixelBox, b: PixelBox) -> PixelBox:
    """The intersection; of no area if they do not meet."""
    return max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])


def overlap(a: PixelBox, b: PixelBox) -> float:
    """Shared area as a part of the smaller box."""
    small = min(area(a), area(b))
    x0, y0, x1, y1 = common(a, b)
    return (x1 - x0) * (y1 - y0) / small if small > 0 and x1 > x0 and y1 > y0 else 0.0


def resolve(found: Sequence[Found]) -> list[Found]:
    """Keep a set of boxes that overlap no more.

    From the most certain down: a box that lies mostly in a kept one is dropped; one that holds kept ones replaces
    them if they fill less than half of it (or it is a picture and they are its lettering), else it is dropped and the
    ink that nobody covers is found again later; one that overlaps partly is cut back.
    """
    kept: list[Found] = []
    for item in sorted(found, key=lambda f: -f.score):
        inside = [k for k in kept if overlap(k.box, item.box) > 0.7 and k.area <= item.area]
        around = [k for k in kept if overlap(k.box, item.box) > 0.7 and k.area > item.area]
        if around:
            continue
        if inside:
            filled = sum(area(common(k.box, item.box)) for k in inside) / max(item.area, 1.0)
            owner = item.kind in PICTURES
            if filled < (0.3 if owner else 0.5) and (owner or len(inside) == 1):
                kept = [k for k in kept if k not in inside]
            else:
                continue
        trimmed = _trim(item, kept)
        if trimmed is not None:
            kept.append(trimmed)
    return kept


def _trim(item: Found, kept: Sequence[Found]) -> Found | None:
    """Cut the box back, along the axis that costs least, until it meets no kept one; None if hardly any is left."""
    box = item.box
    for other in kept:
        x0, y0, x1, y1 = common(box, other.box)
        if x1 - x0 <= 0 or y1 - y0 <= 0:
            continue
        rests = [
            (box[0], box[1], box[2], y0),
            (box[0], y1, box[2], box[3]),
            (box[0], box[1], x0, box[3]),
            (x1, box[1], box[2], box[3]),
        ]
        box = max(rests, key=area)
        if area(box) < 0.15 * item.area or min(box[2] - box[0], box[3] - box[1]) < 6:
            return None
    return replace(item, box=box)


def fit_to_ink(box: PixelBox, mask: Mask, *, reach: int) -> PixelBox | None:
    """Grow a box where its edge cuts through ink, at most `reach` pixels a side, then shrink it to its ink.

    Args:
        box: pixels of the mask's image.
        mask: ink [H, W].
        reach: about the height of a text line.

    Returns:
        The new box, or None if it holds no ink.
    """
    height, width = mask.shape
    x0, y0 = max(0, int(box[0])), max(0, int(box[1]))
    x1, y1 = min(width, int(np.ceil(box[2]))), min(height, int(np.ceil(box[3])))
    if x1 - x0 < 2 or y1 - y0 < 2 or not mask[y0:y1, x0:x1].any():
        return None
    y0 -= _run(inked_rows(mask[max(0, y0 - reach) : y0 + 1, x0:x1])[::-1])
    y1 += _run(inked_rows(mask[y1 - 1 : min(height, y1 + reach), x0:x1]))
    x0 -= _run(inked_columns(mask[y0:y1, max(0, x0 - reach) : x0 + 1])[::-1])
    x1 += _run(inked_columns(mask[y0:y1, x1 - 1 : min(width, x1 + reach)]))
    y0, x0 = max(0, y0), max(0, x0)
    inner = mask[y0:y1, x0:x1]
    bounds = ink_bounds(inner)
    assert bounds is not None  # it holds the box, which has ink
    left, top, right, bottom = bounds
    return float(x0 + left), float(y0 + top), float(x0 + right), float(y0 + bottom)


def _run(flags: Mask) -> int:
    """How far ink goes on outside the box: `flags[0]` is the box's own edge line. 0 if it does not end in reach."""
    if flags.size < 2 or not flags[0]:
        return 0
    gaps = np.flatnonzero(~flags)
    # A line that never ends within reach is a neighbour's text run into, or a frame: better to stay.
    return int(gaps[0]) - 1 if gaps.size else 0
