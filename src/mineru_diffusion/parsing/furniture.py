"""Headers, footers and page numbers that a layout took for text. In: regions with their text. Out: better kinds.

A detector sees one page as a picture. What stands at the same place on page after page, and a number alone below or
above everything else, is known only once the text is there. Only kinds change: nothing is moved or left out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from mineru_diffusion.document.types import FURNITURE, Page, Region

PAGE_NUMBER = re.compile(
    r"[-–—\s]*(?:page\s*)?(?:\d{1,4}|[ivxlc]{1,7})(?:\s*(?:of|/)\s*\d{1,4})?[-–—\s.]*", re.IGNORECASE
)
MARGIN = 0.12
"""Running heads stand in this part of the page's height at the top or bottom."""
LEAST_PAGES = 3
"""Pages on which a text must come again to count as a running head."""

_ALONE = 0.015
_SAME_PLACE = 0.02
_LONGEST = 200


def lone_page_number(regions: Sequence[Region]) -> list[Region]:
    """The regions of a page; a text that is only a number, alone below or above all else, is a page number."""
    body = [region for region in regions if region.content.strip() or region.image_path or region.kind == "image"]
    out = list(regions)
    if len(body) < 3:
        return out
    for index, region in enumerate(out):
        if region.kind != "text" or not PAGE_NUMBER.fullmatch(region.content) or not re.search(r"\d", region.content):
            continue
        others = [other.bbox for other in body if other is not region and other.kind not in FURNITURE]
        below = all(other[3] + _ALONE <= region.bbox[1] for other in others)
        above = all(region.bbox[3] + _ALONE <= other[1] for other in others)
        if others and (below or above):
            out[index] = replace(region, kind="page_number")
    return out


def is_running_head(pieces: Sequence[str]) -> bool:
    """A line above the text that has a page number at one end, far from the rest: `400    TITLE    [Ch. 2.`."""
    said = [piece for piece in pieces if piece.strip()]
    ends = [said[0], said[-1]] if len(said) >= 2 else []
    return any(PAGE_NUMBER.fullmatch(end) and re.search(r"[\divxlc]", end) for end in ends)


def running_heads(pages: Sequence[Page]) -> list[Page]:
    """The pages; a text in the margin that comes again at its place on at least three pages is a header or footer.

    Numbers in it may differ: `Chapter 2 | 17` and `Chapter 2 | 18` are the same.
    """
    places: dict[str, list[tuple[int, Region]]] = defaultdict(list)
    for page in pages:
        for region in page.regions:
            if region.kind in ("text", "unknown") and _in_margin(region) and len(region.content) <= _LONGEST:
                places[_without_numbers(region.content)].append((page.index, region))
    found: set[tuple[int, int]] = set()
    for text, group in places.items():
        if not text.strip("# "):
            continue
        for index, region in group:
            same = {other for other, r in group if abs(r.bbox[1] - region.bbox[1]) <= _SAME_PLACE}
            if len(same) >= LEAST_PAGES:
                found.add((index, region.order))
    return [
        replace(
            page,
            regions=tuple(
                replace(r, kind="header" if r.bbox[1] < 0.5 else "footer") if (page.index, r.order) in found else r
                for r in page.regions
            ),
        )
        for page in pages
    ]


def _in_margin(region: Region) -> bool:
    return region.bbox[3] <= MARGIN or region.bbox[1] >= 1 - MARGIN


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "#", " ".join(text.split()).lower())
