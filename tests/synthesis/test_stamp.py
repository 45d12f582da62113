"""Glyphs that hang over any border of the canvas are cut there."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.synthesis.typeset import _stamp

sizes = st.integers(1, 6)
places = st.integers(-8, 10)


@given(sizes, sizes, sizes, sizes, places, places)
def test_stamping_equals_the_slow_way(height: int, width: int, rows: int, columns: int, top: int, left: int) -> None:
    canvas = np.zeros((height, width), dtype=np.uint8)
    picture = np.arange(1, rows * columns + 1, dtype=np.uint8).reshape(rows, columns)
    expected = canvas.copy()
    for y in range(rows):
        for x in range(columns):
            if 0 <= top + y < height and 0 <= left + x < width:
                expected[top + y, left + x] = picture[y, x]
    _stamp(canvas, picture, top, left)
    assert np.array_equal(canvas, expected)
