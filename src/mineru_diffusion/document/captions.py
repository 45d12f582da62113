"""Which caption and which footnote belongs to which picture, table or listing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mineru_diffusion.document.types import BBox, Region

_HOSTS = {
    "image_caption": frozenset({"image", "chart"}),
    "image_footnote": frozenset({"image", "chart"}),
    "table_caption": frozenset({"table"}),
    "table_footnote": frozenset({"table"}),
    "code_caption": frozenset({"code", "algorithm"}),
}

# Further away than this share of the page, a caption stands for itself.
_REACH = 0.25


@dataclass
class Attached:
    """Indices of the regions that caption one host, in reading order."""

    captions: list[int] = field(default_factory=list)
    footnotes: list[int] = field(default_factory=list)


def attach_captions(regions: Sequence[Region]) -> dict[int, Attached]:
    """For every host of a page (by index) its captions and footnotes: each goes to the nearest host of its family."""
    attached: dict[int, Attached] = {}
    for index, region in enumerate(regions):
        kinds = _HOSTS.get(region.kind)
        if kinds is None:
            continue
        distances = [
            (_gap(region.bbox, host.bbox), abs(index - other), other)
            for other, host in enumerate(regions)
            if host.kind in kinds
        ]
        if not distances or min(distances)[0] > _REACH:
            continue
        group = attached.setdefault(min(distances)[2], Attached())
        (group.captions if region.kind.endswith("caption") else group.footnotes).append(index)
    return attached


def _gap(a: BBox, b: BBox) -> float:
    """Distance between the nearest points of two boxes, in page fractions."""
    dx = max(a[0] - b[2], b[0] - a[2], 0.0)
    dy = max(a[1] - b[3], b[1] - a[3], 0.0)
    return float((dx * dx + dy * dy) ** 0.5)
