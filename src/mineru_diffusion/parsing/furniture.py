"""Headers, footers and page numbers that a layout took for text. In: regions with their text. Out: better kinds.

A detector sees one page as a picture. What stands at the same place on page after page, and a number alone below or
above everything else, is known only once the text is there. Only kinds change: nothing is moved or left out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
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
_HEADS = frozenset({"header", "footer"})


def lone_page_number(regions: Sequence[Region]) -> list[Region]:
    """The regions of a page; a text that is only a number, alone below or above all else, is a page number."""
    body = [region for region in regions if _shows(region)]
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

    Numbers in it may differ: `Chapter 2 | 17` and `Chapter 2 | 18` are the same. What is all that a page says is its
    text, wherever it stands and whatever the detector took it for, unless it runs along pages that say more.
    """
    places: dict[str, list[tuple[int, Region]]] = defaultdict(list)
    for page in pages:
        for region in page.regions:
            if (region.kind in _HEADS or _may_run(region)) and len(region.content) <= _LONGEST:
                places[_without_numbers(region.content)].append((page.index, region))
    found = {
        (index, region.order)
        for text, group in places.items()
        if text.strip("# ")
        for index, region in group
        if region.kind not in _HEADS and len(_pages_at(group, region)) >= LEAST_PAGES
    }
    full = {
        page.index for page in pages if any(_is_body(r) and (page.index, r.order) not in found for r in page.regions)
    }
    return [
        replace(
            page,
            regions=tuple(
                _as_it_is(
                    region,
                    found=(page.index, region.order) in found,
                    runs=page.index in full
                    or not full.isdisjoint(_pages_at(places.get(_without_numbers(region.content), ()), region)),
                )
                for region in page.regions
            ),
        )
        for page in pages
    ]


def _as_it_is(region: Region, *, found: bool, runs: bool) -> Region:
    """The region in its kind. `found`: it comes again; `runs`: beside other text, here or on another page."""
    if found and runs:
        return replace(region, kind="header" if region.bbox[1] < 0.5 else "footer")
    if not runs and region.kind in FURNITURE and region.kind != "page_number" and region.content.strip():
        return replace(region, kind="text", source={**region.source, "detected": region.kind})
    return region


def _pages_at(group: Iterable[tuple[int, Region]], region: Region) -> set[int]:
    """Indices of the pages that have a text of the group at the region's place."""
    return {index for index, other in group if abs(other.bbox[1] - region.bbox[1]) <= _SAME_PLACE}


def _is_body(region: Region) -> bool:
    return region.kind not in FURNITURE and _shows(region)


def _shows(region: Region) -> bool:
    return bool(region.content.strip() or region.image_path or region.kind == "image")


def _may_run(region: Region) -> bool:
    return region.kind in ("text", "unknown") and _in_margin(region)


def _in_margin(region: Region) -> bool:
    return region.bbox[3] <= MARGIN or region.bbox[1] >= 1 - MARGIN


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "#", " ".join(text.split()).lower())
