"""Drop caps: the large first letter of a chapter, which stands beside two or more lines.

In: the ink of a column and its lines. Out: the letter's box, so that it is read by itself and not in slices.
"""

from __future__ import annotations

from collections.abc import Sequence

from mineru_diffusion.parsing.bands import Band, typical_height
from mineru_diffusion.parsing.ink import Box, Mask, extent, inked_columns, inked_rows, spans

MOST_LINES = 6
LEAST_HEIGHT = 1.6
"""Of the letter, in lines' heights."""
_LOOKALIKES = {"0": "O", "1": "I", "l": "I", "|": "I"}


def find_drop_cap(ink: Mask, bands: Sequence[Band]) -> Box | None:
    """The box (left, top, right, bottom) of a column's drop cap in pixels of its mask, if there is one.

    Beside it stand at least two lines, all clear of it, and below it at least one that begins at its left edge.

    Args:
        ink: booleans [H, W] of one column, rules and all: a stem of a large letter looks like one.
        bands: its lines, as `row_bands` found them with the letter among them.
    """
    size = typical_height(bands)
    boxes = (_beside(ink, bands[: lines + 1], size) for lines in range(min(MOST_LINES, len(bands) - 1), 1, -1))
    return next((box for box in boxes if box), None)


def _beside(ink: Mask, bands: Sequence[Band], size: float) -> Box | None:
    """A letter beside all of these lines but the last, which begins below it."""
    *lines, below = bands
    top = lines[0].top
    pieces = spans(inked_columns(ink[top : lines[-1].bottom]))
    if len(pieces) < 2:
        return None
    (left, right), (following, _) = pieces[:2]
    if not 0.3 * size <= right - left <= MOST_LINES * size or following - right < 2:
        return None
    start, end = max(spans(inked_rows(ink[top:, left:right])), key=lambda span: span[1] - span[0])
    # Its foot stands on the last line's baseline, its head somewhere above the first line's.
    if start > 0.5 * size or end - start < LEAST_HEIGHT * size or not lines[-1].top < top + end <= below.top + 1:
        return None
    besides = [extent(inked_columns(ink[line.top : line.bottom, right:])) for line in lines]
    clear = all(beside is not None and beside[0] < 2 * size for beside in besides)
    under = extent(inked_columns(ink[below.top : below.bottom]))
    # Lines that merely touch each other begin at one edge: here the ones beside the letter begin right of it.
    found = clear and under is not None and abs(under[0] - left) < 0.8 * size
    return (left, top + start, right, top + end) if found else None


def as_capital(text: str) -> str:
    """What was read of a drop cap: alone on its crop, a letter does not show its case, nor what it is not."""
    text = text.strip()
    return _LOOKALIKES.get(text, text.upper() if len(text) == 1 else text)
