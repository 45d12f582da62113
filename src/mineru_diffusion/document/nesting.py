"""Boxes inside boxes: what a container already says must not be said twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from mineru_diffusion.document.layout_grammar import LayoutBox
from mineru_diffusion.document.types import BBox, Region

Box = TypeVar("Box", LayoutBox, Region)

#: A box counts as inside another when this share of its area is.
INSIDE = 0.8

#: What each container kind holds.
_PARTS = {
    "list": frozenset({"text", "list_item", "ref_text"}),
    "table": frozenset({"text", "title", "equation"}),
    "equation_block": frozenset({"equation"}),
}


def resolve_nesting(boxes: Sequence[Box]) -> list[Box]:
    """Keep each piece of content once, in the given order.

    A list or an equation block whose parts are boxes of their own gives way to them; text inside a table gives way
    to the table; an equation block without parts is an equation.
    """
    dropped: set[int] = set()
    for index, container in enumerate(boxes):
        kinds = _PARTS.get(container.kind)
        if kinds is None:
            continue
        parts = [
            other
            for other, box in enumerate(boxes)
            if other != index and box.kind in kinds and overlap(box.bbox, container.bbox) >= INSIDE
        ]
        if container.kind == "table":
            dropped.update(parts)
        elif parts and _cover(container.bbox, [boxes[part].bbox for part in parts]) >= 0.5:
            dropped.add(index)
        else:
            dropped.update(parts)
    kept = [box for index, box in enumerate(boxes) if index not in dropped]
    return [replace(box, kind="equation") if box.kind == "equation_block" else box for box in kept]


def overlap(inner: BBox, outer: BBox) -> float:
    """Share of `inner`'s area that lies in `outer`; 0 for a box without area."""
    width = min(inner[2], outer[2]) - max(inner[0], outer[0])
    height = min(inner[3], outer[3]) - max(inner[1], outer[1])
    area = (inner[2] - inner[0]) * (inner[3] - inner[1])
    return max(width, 0.0) * max(height, 0.0) / area if area > 0 else 0.0


def _cover(container: BBox, parts: Sequence[BBox]) -> float:
    """Share of a container's height that its parts take up, gaps between them included."""
    height = container[3] - container[1]
    return (max(part[3] for part in parts) - min(part[1] for part in parts)) / height if height > 0 else 1.0
