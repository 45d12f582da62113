"""Pictures inside a region of text that the layout overlooked, such as the portrait in an information box.

In: the ink of a column and its text lines. Out: boxes of what stands between the lines and is no text.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mineru_diffusion.parsing.bands import Band, typical_height
from mineru_diffusion.parsing.ink import FAINTEST, Box, Mask, ink_bounds

LEAST_SIDE = 3.0
"""Of a picture, in heights of a text line."""
LEAST_INK = 0.08
"""Of a picture: rules and dirt between lines cover less."""


def overlooked_pictures(
    ink: Mask, grey: NDArray[np.uint8], paper: float, lines: Sequence[Band]
) -> list[tuple[Box, int]]:
    """Each picture's box in pixels of the column, and the number of the line that follows it.

    Args:
        ink: booleans [H, W] of one column, rules and all.
        grey: its pixels [H, W].
        paper: grey level of the region's paper. Beside a picture the local one is the picture's.
        lines: its text lines, top to bottom; without any, nothing tells a picture from text.
    """
    if not lines:
        return []
    size = typical_height(lines)
    borders = [0, *itertools.chain.from_iterable((line.top, line.bottom) for line in lines), ink.shape[0]]
    found = []
    for number, (top, bottom) in enumerate(zip(borders[::2], borders[1::2], strict=True)):
        if bottom - top <= LEAST_SIDE * size:
            continue
        solid = ink[top:bottom] & (np.abs(grey[top:bottom] - paper) >= FAINTEST)
        bounds = ink_bounds(solid)
        if bounds is None:
            continue
        left, first, right, end = bounds
        inside = solid[first:end, left:right]
        if min(inside.shape) >= LEAST_SIDE * size and np.count_nonzero(inside) >= LEAST_INK * inside.size:
            found.append(((left, top + first, right, top + end), number))
    return found
