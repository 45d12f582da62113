"""Which caption and which footnote belongs to which picture, table or listing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mineru_diffusion.document.types import BBox, Region

_PICTURES = frozenset({"image", "chart"})
_TABLES = frozenset({"table"})
_LISTINGS = frozenset({"code", "algorithm"})
_HOSTS = {
    "image_caption": _PICTURES,
    "image_footnote": _PICTURES,
    "chart_caption": _PICTURES,
    "chart_footnote": _PICTURES,
    "table_caption": _TABLES,
    "table_footnote": _TABLES,
    "code_caption": _LISTINGS,
    "code_footnote": _LISTINGS,
}

# Further away than this share of the page, a caption stands for itself.
_REACH = 0.25
# What it costs, in page fractions, to stand on the side where such a caption seldom stands, and to be a host's second.
_ODD_SIDE, _SECOND = 0.02, 0.1
# Assignments that are followed up at a time.
_BEAM = 64


@dataclass
class Attached:
    """Indices of the regions that caption one host, in reading order."""

    captions: list[int] = field(default_factory=list)
    footnotes: list[int] = field(default_factory=list)


def is_caption(kind: str) -> bool:
    """True for kinds that belong to a picture, table or listing."""
    return kind in _HOSTS


def attach_captions(regions: Sequence[Region]) -> dict[int, Attached]:
    """For every host of a page (by index) its captions and footnotes.

    Footnotes go to the nearest host of their family. Captions are shared out together, so that the sum of distances
    is least and each host gets one before any gets two: between two figures, a caption alone could belong to either.
    A caption without a host in reach is not in the result.
    """
    attached: dict[int, Attached] = {}
    footnotes = [i for i, region in enumerate(regions) if region.kind.endswith("footnote") and is_caption(region.kind)]
    for index in footnotes:
        if costs := _costs(regions, index):
            host = min(costs, key=lambda other: (costs[other], abs(index - other)))
            attached.setdefault(host, Attached()).footnotes.append(index)
    for kinds in (_PICTURES, _TABLES, _LISTINGS):
        captions = [i for i, r in enumerate(regions) if r.kind.endswith("caption") and _HOSTS.get(r.kind) == kinds]
        for index, host in _share_out(regions, captions):
            attached.setdefault(host, Attached()).captions.append(index)
    return attached


def _share_out(regions: Sequence[Region], captions: Sequence[int]) -> list[tuple[int, int]]:
    """(caption, host) pairs of least total cost, by beam search over the captions in reading order."""
    Beam = list[tuple[float, tuple[tuple[int, int], ...]]]
    beam: Beam = [(0.0, ())]
    for index in captions:
        costs = _costs(regions, index)
        if not costs:
            continue
        longer: Beam = []
        for total, pairs in beam:
            taken = {host for _, host in pairs}
            for host, cost in costs.items():
                longer.append((total + cost + (_SECOND if host in taken else 0.0), (*pairs, (index, host))))
        beam = sorted(longer)[:_BEAM]
    return list(beam[0][1])


def _costs(regions: Sequence[Region], index: int) -> dict[int, float]:
    """For the hosts that a caption or footnote could belong to: how little each fits."""
    region = regions[index]
    found = {}
    for other, host in enumerate(regions):
        if host.kind not in _HOSTS[region.kind]:
            continue
        gap = _gap(region.bbox, host.bbox)
        if gap > _REACH:
            continue
        above = region.bbox[1] + region.bbox[3] < host.bbox[1] + host.bbox[3]
        usual = above == (region.kind in ("table_caption", "code_caption"))
        found[other] = gap + (0.0 if usual else _ODD_SIDE)
    return found


def _gap(a: BBox, b: BBox) -> float:
    """Distance between the nearest points of two boxes, in page fractions."""
    dx = max(a[0] - b[2], b[0] - a[2], 0.0)
    dy = max(a[1] - b[3], b[1] - a[3], 0.0)
    return float((dx * dx + dy * dy) ** 0.5)
