"""Tables that a detector was unsure of, or whose heading it cut off."""

from __future__ import annotations

import numpy as np

from mineru_diffusion.parsing.boxes import Found
from mineru_diffusion.parsing.ink import Mask
from mineru_diffusion.parsing.table_boxes import extend_to_rules, looks_like_table, settle_tables


def page(columns: tuple[tuple[int, int], ...], *, rows: int = 6, top: int = 300) -> Mask:
    """Lines of text, 12 pixels high and 24 apart, in the columns (left, right)."""
    mask = np.zeros((1000, 800), dtype=bool)
    for row in range(rows):
        for left, right in columns:
            mask[top + 24 * row : top + 24 * row + 12, left:right:2] = True
    return mask


FIGURES = page(((100, 250), (350, 400), (500, 550), (650, 700)))
PROSE = page(((100, 700),))


def test_columns_of_white_make_a_table() -> None:
    assert looks_like_table(FIGURES)
    assert not looks_like_table(PROSE)
    assert not looks_like_table(page(((100, 380), (420, 700))))  # two columns of prose
    assert not looks_like_table(FIGURES[:330])  # two rows
    assert not looks_like_table(np.zeros((50, 50), dtype=bool))


def test_the_writing_decides_between_table_and_text() -> None:
    text, table = Found("ref_text", (90, 295, 710, 440), 0.7), Found("table", (340, 290, 710, 440), 0.5)
    settled = settle_tables([text, table], FIGURES)
    assert {item.kind for item in settled} == {"table"}
    assert settled[0].box == (90, 290, 710, 440)
    assert settle_tables([text, table], PROSE) == [text, table]
    # A long text that holds a small table stays what it is.
    longer = Found("text", (90, 100, 710, 900), 0.7)
    assert settle_tables([longer, table], FIGURES) == [longer, table]


def test_a_heading_below_the_upper_rule_belongs_to_the_table() -> None:
    mask = FIGURES.copy()
    mask[260:262, 100:700] = True
    mask[270:282, 360:480:2] = True
    table, heading = Found("table", (100, 300, 700, 440)), Found("equation", (360, 270, 480, 282))
    (grown,) = extend_to_rules([table, heading], mask)
    assert grown.box == (100, 260, 700, 440)
    # A caption is none of the table's rows, whatever is above it.
    caption = Found("table_caption", (100, 270, 480, 282))
    assert extend_to_rules([table, caption], mask) == [table, caption]


def test_a_rule_of_the_page_is_none_of_the_table() -> None:
    mask = FIGURES.copy()
    mask[260:262] = True
    table = Found("table", (100, 300, 700, 440))
    assert extend_to_rules([table], mask) == [table]
    assert extend_to_rules([table], FIGURES) == [table]
