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

LEAST_GAP = 0.16
"""A gap between inked columns is a place to cut, and may be a space, from this part of the ink's height on."""

WIDEST = 0.6
"""Gaps wider than this part of the ink's height are as good as this wide."""

LEAST_CONTRAST = 1.3
"""Spaces are at least this many times as wide as the gaps between letters."""


def join_pieces(texts: Sequence[str], glued: Collection[int] = ()) -> str:
    """A line's text from its pieces' texts; no space before those that go on inside a word."""
    line = ""
    for number, text in enumerate(texts):
        between = "" if number in glued or not line or not text.strip() else " "
        line += between + text.strip()
    return line


def word_gap(widths: Sequence[int], size: int) -> float:
    """The least width of a gap that is a space, pixels: letters of one line may stand further apart than words of
    another, so the gaps are parted into narrow and wide ones (Otsu's criterion, on the roots of the widths; very wide
    ones count as `WIDEST`). Letter-spaced lines of one word have no wide ones; they are told by `LEAST_GAP` alone.

    Args:
        widths: of all gaps between inked columns of the line, pixels.
        size: height of its ink, pixels.
    """
    least = LEAST_GAP * size
    ordered = np.minimum(np.sort(np.asarray(widths, dtype=float)), WIDEST * size)
    borders = np.flatnonzero(np.diff(ordered)) + 1
    if not len(borders):
        return least
    roots = np.sqrt(ordered + 0.02 * size)
    sums, total = np.cumsum(roots)[borders - 1], roots.sum()
    count = len(ordered)
    apart = (total - sums) / (count - borders) - sums / borders
    border = borders[np.argmax(borders * (count - borders) * apart**2)]
    narrow, wide = ordered[:border].mean(), ordered[border:].mean()
    if wide <= LEAST_CONTRAST * narrow:
        return least
    return float(max(least, narrow + 0.45 * (wide - narrow)))


def cut_pieces(mask: Mask, box: Box, offset: int, max_aspect: float) -> tuple[tuple[Box, ...], frozenset[int]]:
    """Cut a line at gaps far wider than a word space, then what is still too long at the best word gaps.

    Returns:
        The pieces, and the numbers of those that begin inside a word.
    """
    left, top, right, bottom = box
    size = bottom - top
    every = [(a + offset, b + offset) for a, b in spans(~inked_columns(mask))]
    inner = [(a, b) for a, b in every if a > left and b < right]
    least = word_gap([b - a for a, b in inner], size)
    gaps = [(a, b) for a, b in inner if b - a >= LEAST_GAP * size and a > left + size // 4 and b < right - size // 4]
    words = [(a, b) for a, b in gaps if b - a >= least]
    wide = [(a, b) for a, b in words if b - a > 3 * size]
    side = max(2, round(MARGIN * size))
    pieces: list[Box] = []
    glued: set[int] = set()
    start = left
    for a, b in [*wide, (right, right)]:
        end = min(right, a + side) if b > a else right
        cut = _cut_long((start, top, end, bottom), gaps, least, max_aspect)
        glued |= {len(pieces) + i for i, (x, *_) in enumerate(cut) if i and not any(a <= x <= b for a, b in words)}
        pieces += cut
        start = max(left, b - side)
    return tuple(pieces), frozenset(glued)


def _cut_long(box: Box, gaps: Sequence[tuple[int, int]], word: float, max_aspect: float) -> list[Box]:
    """The cheapest way to cut: every cut costs, one at a gap narrower than `word` costs more (it lies between letters),
    a piece over the limit costs by its excess, and cutting where there is no gap at all costs most."""
    left, top, right, bottom = box
    size = bottom - top
    limit = max_aspect * size
    if right - left <= limit:
        return [box]
    inner = [(a, b) for a, b in gaps if left < a and b < right]
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
