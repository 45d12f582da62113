"""Boxes inside boxes: what a container already says must not be said twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from mineru_diffusion.document.layout_grammar import LayoutBox
from mineru_diffusion.document.types import BBox, Region, around

Box = TypeVar("Box", LayoutBox, Region)

#: A box counts as inside another when this share of its area is.
INSIDE = 0.8

#: Two boxes of one family that share this part of their union are one thing, found twice.
SAME = 0.8

#: What each container kind holds.
_PARTS = {
    "list": frozenset({"text", "list_item", "ref_text"}),
    "table": frozenset({"text", "title", "equation", "list", "ref_text"}),
    "equation_block": frozenset({"equation"}),
}
#: Kinds that are read as running text: one inside another would be read twice.
_RUNNING = frozenset({"text", "list", "list_item", "ref_text", "phonetic"})


def resolve_nesting(boxes: Sequence[Box]) -> list[Box]:
    """Keep each piece of content once, in the given order.

    A list or an equation block whose parts are all boxes of their own gives way to them, and texts of a list become
    its items; text inside a table or another text gives way to that, which grows to hold all of it; of two boxes for
    one thing the first stays; an equation block without parts is an equation.
    """
    kept: dict[int, Box] = {}
    for index, box in enumerate(boxes):
        if not any(_is_same(box, other) for other in kept.values()):
            kept[index] = box
    for index in list(kept):
        if index in kept:
            _resolve_container(kept, index)
    for index in sorted(kept, key=lambda i: -_area(kept[i].bbox)):
        if index in kept and kept[index].kind in _RUNNING:
            _take_in(kept, index, _inside(kept, index, _RUNNING))
    return [
        replace(box, kind="equation") if box.kind == "equation_block" else box
        for box in (replace(box, kind="list") if box.kind == "list_item" else box for _, box in sorted(kept.items()))
    ]


def _resolve_container(kept: dict[int, Box], index: int) -> None:
    """Decide between a container and the parts that lie in it."""
    container = kept[index]
    kinds = _PARTS.get(container.kind)
    parts = _inside(kept, index, kinds) if kinds else []
    if not parts:
        return
    if container.kind == "table" or _has_room(container.bbox, [kept[part].bbox for part in parts]):
        _take_in(kept, index, parts)
        return
    del kept[index]
    for part in parts:
        if container.kind == "list" and kept[part].kind in ("text", "list_item"):
            kept[part] = replace(kept[part], kind="list")


def _inside(kept: dict[int, Box], index: int, kinds: frozenset[str]) -> list[int]:
    outer = kept[index]
    return [
        other
        for other, box in kept.items()
        if other != index
        and box.kind in kinds
        and _area(box.bbox) <= _area(outer.bbox)
        and overlap(box.bbox, outer.bbox) >= INSIDE
    ]


def _take_in(kept: dict[int, Box], index: int, parts: Sequence[int]) -> None:
    """Drop the parts and let their container reach as far as they do, so that nothing of them is cut off."""
    bboxes = [kept[index].bbox, *(kept.pop(part).bbox for part in parts)]
    whole = around(bboxes)
    if whole != kept[index].bbox:
        kept[index] = replace(kept[index], bbox=whole)


def _is_same(a: Box, b: Box) -> bool:
    """Two boxes for one thing: nearly the same place, and kinds of which only one can be right."""
    if a.kind != b.kind and not {a.kind, b.kind} <= _RUNNING | {"title"}:
        return False
    common = overlap(a.bbox, b.bbox) * _area(a.bbox)
    union = _area(a.bbox) + _area(b.bbox) - common
    return union > 0 and common / union >= SAME


def _area(bbox: BBox) -> float:
    return max(bbox[2] - bbox[0], 0.0) * max(bbox[3] - bbox[1], 0.0)


def overlap(inner: BBox, outer: BBox) -> float:
    """Share of `inner`'s area that lies in `outer`; 0 for a box without area."""
    width = min(inner[2], outer[2]) - max(inner[0], outer[0])
    height = min(inner[3], outer[3]) - max(inner[1], outer[1])
    area = (inner[2] - inner[0]) * (inner[3] - inner[1])
    return max(width, 0.0) * max(height, 0.0) / area if area > 0 else 0.0


def _has_room(container: BBox, parts: Sequence[BBox]) -> bool:
    """True if there is room between the parts, or above or below them, for one more that nobody boxed."""
    reach, gap = container[1], 0.0
    for part in sorted(parts, key=lambda part: part[1]):
        gap = max(gap, part[1] - reach)
        reach = max(reach, part[3])
    gap = max(gap, container[3] - reach)
    return gap > 1.2 * min(part[3] - part[1] for part in parts)
