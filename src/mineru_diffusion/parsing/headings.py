"""Levels of headings, from their numbers or their size. In: titles with heights. Out: levels 1 to 6."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

SAME = 0.12
"""Heights that differ by less than this part are one size."""
LOWEST = 6
_NUMBERED = re.compile(
    r"^(?:§\s*)?(?:(?:section|abschnitt|appendix|anhang|annex)\s+)?"
    r"(?P<number>\d{1,2}(?:\.\d{1,2}){0,4}|[A-Z](?:\.\d{1,2}){1,4})[.:]?\s+(?=\S)",
    re.IGNORECASE,
)
_CHAPTER = re.compile(
    r"^(?:chapter|part|appendix|kapitel|teil|anhang|annex|chapitre|第)\s*(?:\d{1,2}|[IVX]{1,5}|[A-Z])\b", re.I
)
_ROMAN = re.compile(r"^(?:X{0,2}(?:IX|IV|V?I{1,3}|V)|X{1,2})\.\s+(?=\S)")
_LETTER = re.compile(r"^[A-Z][.)]\s+(?=\S)")


@dataclass(frozen=True)
class Heading:
    """A title: its text, its cap height in any one unit (0: unknown), and whether it is on the first page."""

    text: str
    height: float
    first_page: bool


def heading_levels(headings: Sequence[Heading]) -> list[int]:
    """A level for each heading, in order.

    Numbered headings (`2`, `2.1`, `Chapter 3`) go by the depth of their number, from level 2. Where at least two
    have Roman numbers (`IV.`), these are level 2 and single letters (`B.`) level 3, as journals do. The others go by
    size: the largest size of the document is level 1 if it is the only one of its size and on the first page, else
    level 2; each smaller size is one level lower.
    """
    roman = sum(bool(_ROMAN.match(h.text)) for h in headings) >= 2
    sizes = _sizes([h.height for h in headings if h.height > 0])
    ranks = [_rank(h.height, sizes) for h in headings]
    largest = [h for h, rank in zip(headings, ranks, strict=True) if rank == 0]
    first = 1 if len(largest) == 1 and largest[0].first_page and not _depth(largest[0].text, roman) else 2
    levels = []
    for heading, rank in zip(headings, ranks, strict=True):
        depth = _depth(heading.text, roman)
        levels.append(min(LOWEST, depth + 1 if depth else first + rank))
    return levels


def _sizes(heights: Sequence[float]) -> list[float]:
    """Distinct sizes, largest first; each is the largest height of its group."""
    sizes: list[float] = []
    for height in sorted(heights, reverse=True):
        if not sizes or height < sizes[-1] * (1 - SAME):
            sizes.append(height)
    return sizes


def _rank(height: float, sizes: Sequence[float]) -> int:
    if height <= 0:
        return max(1, len(sizes) - 1)
    return next((i for i, size in enumerate(sizes) if height >= size * (1 - SAME)), len(sizes))


def _depth(text: str, roman: bool) -> int:
    """How deep a heading's own number puts it, from 1; 0 if it has none."""
    if roman and _ROMAN.match(text):
        return 1
    if roman and _LETTER.match(text):
        return 2
    if match := _NUMBERED.match(text):
        return match["number"].count(".") + 1
    return 1 if _CHAPTER.match(text) else 0
