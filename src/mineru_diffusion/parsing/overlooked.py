"""Pictures inside a region of text that the layout overlooked, such as the portrait in an information box.

In: the ink of a column and its text lines. Out: boxes of what stands between the lines and is no text.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from mineru_diffusion.parsing.bands import Band, typical_height
from mineru_diffusion.parsing.ink import Box, Mask, inked_columns, inked_rows

LEAST_SIDE = 3.0
"""Of a picture, in heights of a text line."""
LEAST_INK = 0.08
"""Of a picture: rules and dirt between lines cover less."""


def overlooked_pictures(ink: Mask, lines: Sequence[Band]) -> list[tuple[Box, int]]:
    """Each picture's box in pixels of the column, and the number of the line that follows it.

    Args:
        ink: booleans [H, W] of one column, rules and all.
        lines: its text lines, top to bottom; without any, nothing tells a picture from text.
    """
    if not lines:
        return []
    size = typical_height(lines)
    borders = [0, *itertools.chain.from_iterable((line.top, line.bottom) for line in lines), ink.shape[0]]
    found = []
    for number, (top, bottom) in enumerate(zip(borders[::2], borders[1::2], strict=True)):
        rows = np.flatnonzero(inked_rows(ink[top:bottom])) if bottom - top > LEAST_SIDE * size else np.empty(0, int)
        if not rows.size:
            continue
        first, end = top + int(rows[0]), top + int(rows[-1]) + 1
        columns = np.flatnonzero(inked_columns(ink[first:end]))
        left, right = int(columns[0]), int(columns[-1]) + 1
        inside = ink[first:end, left:right]
        if min(inside.shape) >= LEAST_SIDE * size and np.count_nonzero(inside) >= LEAST_INK * inside.size:
            found.append(((left, first, right, end), number))
    return found
