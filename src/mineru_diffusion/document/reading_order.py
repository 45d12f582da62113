"""Reading order by recursive cuts through white space: columns first, unless something spans them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mineru_diffusion.document.types import BBox, Region

# Boxes are shrunk by this share of the page on each side, because detectors let neighbours touch.
_SLACK = 0.004

# A gap between two parts of one column is smaller than this share of the page.
_WIDE_GAP = 0.045

_LAST = {"aside_text": 2, "page_footnote": 3, "footer": 4}


def order_regions(regions: Sequence[Region]) -> list[Region]:
    """Regions of one page in reading order, `order` counted from 0.

    Headers come first, then the body, then side notes, footnotes and footers; a page number goes with the header or
    the footer, whichever is nearer. In the body, columns are read one after the other; what spans several columns
    parts them into an upper and a lower half.
    """
    groups: dict[int, list[Region]] = {}
    for region in regions:
        groups.setdefault(_rank(region), []).append(region)
    ordered = [region for rank in sorted(groups) for region in _order(groups[rank])]
    return [replace(region, order=index) for index, region in enumerate(ordered)]


def _rank(region: Region) -> int:
    if region.kind == "header":
        return 0
    if region.kind == "page_number":
        return 0 if region.bbox[1] + region.bbox[3] < 1.0 else 4
    return _LAST.get(region.kind, 1)


def _order(regions: list[Region]) -> list[Region]:
    if len(regions) < 2:
        return regions
    bands = _split(regions, axis=1)
    groups = _merge_bands(bands)
    if len(groups) == 1:
        # Either columns side by side, or, if there are none, boxes that lie in or across each other.
        groups = _split(regions, axis=0)
    if len(groups) == 1:
        return sorted(regions, key=lambda region: (region.bbox[1], region.bbox[0]))
    return [region for group in groups for region in _order(group)]


def _merge_bands(bands: list[list[Region]]) -> list[list[Region]]:
    """Join neighbouring bands that share the same columns, so that these are read through."""
    groups = [bands[0]]
    for index, band in enumerate(bands[1:], start=1):
        together = groups[-1] + band
        columns = _split(together, axis=0)
        n_before, n_band = len(_split(groups[-1], axis=0)), len(_split(band, axis=0))
        fits = len(columns) == max(n_before, n_band) > 1 and _side_by_side(columns)
        if fits and n_before == 1:
            # A date on the right above two columns is no part of the second one; a paragraph is.
            fits = _fills_a_column(groups[-1], columns)
        if fits and n_band == 1:
            # What stands alone below columns may be the end of the longer one, or begin what comes next.
            fits = not _begins_anew(groups[-1], band, bands[index + 1 :])
        if fits:
            groups[-1] = together
        else:
            groups.append(band)
    return groups


def _begins_anew(above: list[Region], band: list[Region], rest: list[list[Region]]) -> bool:
    """True if a band in one column only, below columns, belongs to what follows it rather than to the column."""
    if min(region.bbox[1] for region in band) - max(region.bbox[3] for region in above) > _WIDE_GAP:
        return True
    if any(region.kind != "title" for region in band):
        return False
    # A heading needs text below it in its own column.
    return not rest or len(_split([*above, *band, *rest[0]], axis=0)) < len(_split(above, axis=0))


def _fills_a_column(regions: list[Region], columns: list[list[Region]]) -> bool:
    for column in columns:
        if regions[0] in column:
            return _extent(regions) >= 0.5 * _extent(column)
    return False


def _extent(regions: Sequence[Region]) -> float:
    return max(region.bbox[2] for region in regions) - min(region.bbox[0] for region in regions)


def _split(regions: Sequence[Region], axis: int) -> list[list[Region]]:
    """Groups of regions with white space between them along x (axis 0) or y (axis 1), in that axis's order."""
    spans = sorted(((*_span(region.bbox, axis), index) for index, region in enumerate(regions)))
    groups: list[list[Region]] = []
    reach = float("-inf")
    for start, end, index in spans:
        if start >= reach:
            groups.append([])
        groups[-1].append(regions[index])
        reach = max(reach, end)
    return groups


def _span(bbox: BBox, axis: int) -> tuple[float, float]:
    start, end = bbox[axis], bbox[axis + 2]
    slack = min(_SLACK, (end - start) / 4)
    return start + slack, end - slack


def _side_by_side(columns: list[list[Region]]) -> bool:
    """True if two columns have regions at the same height; otherwise they only look like columns."""
    for left, column in enumerate(columns):
        for other in columns[left + 1 :]:
            for a in column:
                for b in other:
                    (a0, a1), (b0, b1) = _span(a.bbox, 1), _span(b.bbox, 1)
                    if min(a1, b1) > max(a0, b0):
                        return True
    return False
