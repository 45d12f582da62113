"""A long line in pieces that a network for short lines can read, and the line's text from theirs.

In: a line's ink and box. Out: boxes, and which of them go on inside a word.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence

import numpy as np

from mineru_diffusion.parsing.ink import Box, Mask, inked_columns, spans

MARGIN = 0.12
"""Paper around the ink of a line, as a part of the ink's height."""


def join_pieces(texts: Sequence[str], glued: Collection[int] = ()) -> str:
    """A line's text from its pieces' texts; no space before those that go on inside a word."""
    line = ""
    for number, text in enumerate(texts):
        between = "" if number in glued or not line or not text.strip() else " "
        line += between + text.strip()
    return line


def cut_pieces(mask: Mask, box: Box, offset: int, max_aspect: float) -> tuple[tuple[Box, ...], frozenset[int]]:
    """Cut a line at gaps far wider than a word space, then what is still too long at the best word gaps.

    Returns:
        The pieces, and the numbers of those that begin where there is no gap.
    """
    left, top, right, bottom = box
    size = bottom - top
    gaps = [(a + offset, b + offset) for a, b in spans(~inked_columns(mask)) if b - a >= 0.16 * size]
    inner = [(a, b) for a, b in gaps if a > left + size // 4 and b < right - size // 4]
    wide = [(a, b) for a, b in inner if b - a > 3 * size]
    side = max(2, round(MARGIN * size))
    pieces: list[Box] = []
    glued: set[int] = set()
    start = left
    for a, b in [*wide, (right, right)]:
        end = min(right, a + side) if b > a else right
        cut = _cut_long((start, top, end, bottom), inner, max_aspect)
        glued |= {len(pieces) + i for i, (x, *_) in enumerate(cut) if i and not any(a <= x <= b for a, b in inner)}
        pieces += cut
        start = max(left, b - side)
    return tuple(pieces), frozenset(glued)


def _cut_long(box: Box, gaps: Sequence[tuple[int, int]], max_aspect: float) -> list[Box]:
    """The cheapest way to cut: every cut costs, a narrow gap costs more (it may lie between letters), a piece over the
    limit costs by its excess, and cutting where there is no gap at all costs most."""
    left, top, right, bottom = box
    size = bottom - top
    limit = max_aspect * size
    if right - left <= limit:
        return [box]
    inner = [(a, b) for a, b in gaps if left < a and b < right]
    # Word gaps are the wide half of all gaps between inked columns; the rest are gaps between letters.
    widths = sorted(b - a for a, b in inner)
    word = min(widths[-(len(widths) // 3 + 1)], 0.5 * size) if widths else 0.0
    places = [((a + b) / 2, 1.0 + 4.0 * max(0.0, 1.0 - (b - a) / word)) for a, b in inner]
    places += [(x, 8.0) for x in np.arange(left + 0.5 * limit, right, 0.5 * limit).tolist()]
    places = [(float(left), 0.0), *sorted(places), (float(right), 0.0)]
    best = [0.0] + [math.inf] * (len(places) - 1)
    back = [0] * len(places)
    for end, (x, price) in enumerate(places[1:], start=1):
        for start in range(end - 1, -1, -1):
            length = x - places[start][0]
            if length > 1.6 * limit:
                break
            cost = best[start] + price + 10.0 * max(0.0, length / limit - 1.0)
            if cost < best[end]:
                best[end], back[end] = cost, start
    cuts = []
    end = back[-1]
    while end:
        cuts.append(round(places[end][0]))
        end = back[end]
    edges = [left, *reversed(cuts), right]
    return [(a, top, b, bottom) for a, b in itertools.pairwise(edges)]
