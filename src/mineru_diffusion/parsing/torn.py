"""Lines that a layout tore off the text they belong to. In: the regions of a page with their text. Out: better ones.

A detector cuts the last line off a paragraph and calls it a reference, or a line off a listing and calls it text. What
was said and where the lines stand tell: the line is where the next one of its text would be, and is as high.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from mineru_diffusion.document.flow import CONTINUED
from mineru_diffusion.document.types import BBox, Region, around
from mineru_diffusion.parsing.orientation import turn_back
from mineru_diffusion.parsing.text_blocks import are_statements, code_block

FEW_LINES = 2
"""References of no more lines may be torn off a paragraph."""

_NEXT = (0.75, 1.25)
"""From line to line of a paragraph, in its usual pitch."""
_NEXT_IN_LISTING = (0.75, 2.4)
"""The same in a listing, where one line may be empty."""
_FLUSH = 0.4
"""Edges that differ by less than this part of the pitch are one."""
_FULL = 0.9
"""A line that a paragraph goes on from fills at least this part of its width."""


def mend(regions: Sequence[Region], like_body: Collection[int], aspect: float) -> list[Region]:
    """The regions of a page, torn listings joined, and paragraphs that were taken for references as what they are.

    Args:
        regions: in reading order, with lines.
        like_body: `order` of those that are set like the page's body text.
        aspect: width of the page by its height.

    Returns:
        Regions in reading order, whose `order` still says which ones they were.
    """
    return _whole_paragraphs(_whole_listings(regions, aspect), like_body, aspect)


def _whole_listings(regions: Sequence[Region], aspect: float) -> list[Region]:
    """Text in the lines right above and below a listing that is all statements becomes part of it."""
    out = list(regions)
    for part in regions:
        if part.kind != "text" or not _is_placed(part) or not are_statements(part.line_texts):
            continue
        home = next((r for r in out if r.kind == "code" and _is_placed(r) and _is_of_listing(r, part, aspect)), None)
        if home is not None:
            out[out.index(home)] = _joined(home, part)
            out.remove(part)
    return out


def _is_of_listing(listing: Region, part: Region, aspect: float) -> bool:
    if part.finish_reason != listing.finish_reason or part.angle != listing.angle:
        return False
    lines, others = _upright(listing, aspect), _upright(part, aspect)
    pitch = _pitch(lines)
    left, right = min(box[0] for box in lines), max(box[2] for box in lines)
    if not left - _FLUSH * pitch < min(box[0] for box in others) < right:
        return False
    steps = (_middle(others[0]) - _middle(lines[-1]), _middle(lines[0]) - _middle(others[-1]))
    return any(_NEXT_IN_LISTING[0] * pitch <= step <= _NEXT_IN_LISTING[1] * pitch for step in steps)


def _joined(listing: Region, part: Region) -> Region:
    upper, lower = sorted((listing, part), key=lambda r: _middle(_upright(r, 1.0)[0]))
    merged = replace(
        listing,
        bbox=around((listing.bbox, part.bbox)),
        lines=upper.lines + lower.lines,
        line_texts=upper.line_texts + lower.line_texts,
        warnings=(*listing.warnings, *(w for w in part.warnings if w not in listing.warnings)),
        confidence=_confidence(listing, part),
    )
    full = [(box, t) for box, t in zip(_upright(merged, 1.0), merged.line_texts, strict=True) if t]
    return replace(merged, content=code_block([box for box, _ in full], [text for _, text in full]))


def _whole_paragraphs(regions: Sequence[Region], like_body: Collection[int], aspect: float) -> list[Region]:
    """Short references that are set like the body and have no mark are text.

    One that stands where the next line of a paragraph would follows it in reading order and goes on from it. The
    others are text where the page has a body of text, and no longer references of which they may be the rest.
    """
    out = list(regions)
    for part in regions:
        if part.kind != "ref_text" or part.order not in like_body or not part.content[:1].isalpha():
            continue
        if not 1 <= len(part.lines) <= FEW_LINES:
            continue
        text = replace(part, kind="text", source={**part.source, "detected": part.kind})
        home = next((r for r in out if r.kind == "text" and _goes_on(r, part, aspect)), None)
        if home is not None:
            out.remove(part)
            text = replace(text, source={**text.source, CONTINUED: "lines"})
            out.insert(out.index(home) + 1, text)
        elif any(_is_body(r, part) for r in out) and not any(_is_references(r) for r in out):
            out[out.index(part)] = text
    return out


def _is_body(region: Region, part: Region) -> bool:
    """Running text, and not only scraps along a margin, whose height tells nothing."""
    return region.kind == "text" and len(region.lines) > FEW_LINES and len(region.content) > len(part.content)


def _is_references(region: Region) -> bool:
    return region.kind == "ref_text" and len(region.lines) > FEW_LINES


def _goes_on(paragraph: Region, part: Region, aspect: float) -> bool:
    """The part begins where the paragraph's next line would, flush, and the paragraph's last line is full."""
    if len(paragraph.lines) < FEW_LINES or part.angle != paragraph.angle:
        return False
    lines, others = _upright(paragraph, aspect), _upright(part, aspect)
    pitch, last = _pitch(lines), lines[-1]
    # The first line may be set in, and the region may have other columns.
    near = [box for box in lines[-3:] if abs(box[0] - last[0]) < _FLUSH * pitch]
    right = max(box[2] for box in lines)
    step = _middle(others[0]) - _middle(last)
    return (
        len(near) >= FEW_LINES
        and abs(others[0][0] - last[0]) < _FLUSH * pitch
        and last[2] - last[0] >= _FULL * (right - last[0])
        and _NEXT[0] * pitch <= step <= _NEXT[1] * pitch
    )


def _is_placed(region: Region) -> bool:
    return bool(region.lines) and len(region.lines) == len(region.line_texts)


def _upright(region: Region, aspect: float) -> list[BBox]:
    """Boxes of the lines on the upright page; with the page's aspect, in parts of one length along both axes."""
    if region.angle in (90, 270):
        aspect = 1 / aspect
    boxes = [turn_back(box, -region.angle % 360) for box in region.lines]
    return [(x0 * aspect, y0, x1 * aspect, y1) for x0, y0, x1, y1 in boxes]


def _pitch(lines: Sequence[BBox]) -> float:
    """From line to line; 0 if they do not tell. A next column begins further up."""
    steps = [step for a, b in pairwise(lines) if (step := _middle(b) - _middle(a)) > 0]
    return median(steps) if steps else 0.0


def _middle(box: BBox) -> float:
    return (box[1] + box[3]) / 2


def _confidence(*regions: Region) -> float | None:
    """Mean over the regions, long ones counting more."""
    said = [(r.confidence, sum(map(len, r.line_texts))) for r in regions if r.confidence is not None]
    total = sum(length for _, length in said)
    return round(sum(value * length for value, length in said) / total, 4) if total else None
