"""Layout metrics: values worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.document.types import BBox
from mineru_diffusion.evaluation.layout import (
    iou_matrix,
    layout_score,
    match_boxes,
    page_iou,
    reading_order_distance,
)
from mineru_diffusion.synthesis.sample import LayoutBox

LEFT: BBox = (0.0, 0.0, 0.5, 1.0)
RIGHT: BBox = (0.5, 0.0, 1.0, 1.0)
TOP: BBox = (0.0, 0.0, 1.0, 0.5)


def test_iou() -> None:
    # Left and top halves share a quarter and cover three quarters; a line covers nothing.
    overlaps = iou_matrix([LEFT, (0, 0, 1, 0)], [LEFT, RIGHT, TOP])
    assert overlaps.tolist() == [[1.0, 0.0, pytest.approx(1 / 3)], [0.0, 0.0, 0.0]]
    assert iou_matrix([], [LEFT]).shape == (0, 1)


def test_matching_prefers_more_pairs_to_better_ones() -> None:
    a, b = (0.0, 0.0, 1.0, 1.0), (0.0, 0.0, 1.0, 0.6)
    found = [LayoutBox("text", a), LayoutBox("text", (0.0, 0.0, 1.0, 0.55))]
    # The second fits `b` only; the first fits both, `a` better.
    assert match_boxes(found, [LayoutBox("text", b), LayoutBox("text", a)]) == [(0, 1), (1, 0)]
    # A greedy matcher would give the one found box to the better true one and stop, as does this one.
    assert match_boxes(found[:1], [LayoutBox("text", b), LayoutBox("text", a)]) == [(0, 1)]
    # Here the greedy choice (IoU 0.9 for the first true box) would cost a pair.
    true = [LayoutBox("text", (0.0, 0.0, 1.0, 0.9)), LayoutBox("text", (0.0, 0.0, 1.0, 0.5))]
    both = [LayoutBox("text", (0.0, 0.0, 1.0, 0.81)), LayoutBox("text", (0.0, 0.0, 1.0, 1.0))]
    assert match_boxes(both, true, iou=0.6) == [(0, 1), (1, 0)]


def test_kinds_must_agree_when_asked() -> None:
    found, true = [LayoutBox("title", LEFT)], [LayoutBox("text", LEFT)]
    assert match_boxes(found, true) == []
    assert match_boxes(found, true, same_kind=False) == [(0, 0)]


def test_reading_order() -> None:
    assert reading_order_distance([(0, 0), (1, 1), (2, 2)]) == 0
    # 2 0 1 for 0 1 2: take the 2 out and put it at the end, two edits of three.
    assert reading_order_distance([(0, 2), (1, 0), (2, 1)]) == pytest.approx(2 / 3)
    # Found boxes without a partner leave gaps, which do not count.
    assert reading_order_distance([(5, 9), (1, 3)]) == 0
    assert reading_order_distance([]) == 0


def test_page_iou() -> None:
    assert page_iou([LEFT], [LEFT]) == 1
    assert page_iou([LEFT], [RIGHT]) == 0
    assert page_iou([LEFT], [TOP]) == pytest.approx(1 / 3)
    # Cut into parts it covers the same; a box given twice covers its place twice.
    assert page_iou([(0.0, 0.0, 0.25, 1.0), (0.25, 0.0, 0.5, 1.0)], [LEFT]) == 1
    assert page_iou([LEFT, LEFT], [LEFT]) == pytest.approx(0.5)
    assert page_iou([], []) == 1
    assert page_iou([], [LEFT]) == 0


def test_scores_of_pages() -> None:
    perfect = [LayoutBox("text", LEFT), LayoutBox("text", RIGHT)]
    wrong_kind = [LayoutBox("title", LEFT)]
    # 2 + 0 pairs over (2 + 2 + 1 + 1) / 2 boxes; without kinds all three pair up.
    score = layout_score([(perfect, perfect), (wrong_kind, [LayoutBox("text", LEFT)])])
    assert score.f1 == pytest.approx(2 * 2 / 6)
    assert score.f1_any_kind == 1
    assert score.order == 0
    assert score.page_iou == 1
    # Nothing found on one of two pages.
    score = layout_score([(perfect, perfect), ([], [LayoutBox("text", LEFT)])])
    assert (score.f1, score.page_iou) == (pytest.approx(4 / 5), pytest.approx(0.5))
    # Both halves found, in the wrong order.
    assert layout_score([(perfect[::-1], perfect)]).order == 1
    with pytest.raises(ValueError, match="no page"):
        layout_score([])


_SIDES = st.tuples(st.integers(0, 8), st.integers(1, 8))
_BOXES = st.lists(
    st.tuples(_SIDES, _SIDES).map(lambda s: (s[0][0] / 16, s[1][0] / 16, sum(s[0]) / 16, sum(s[1]) / 16)), max_size=5
)


@given(_BOXES, _BOXES)
def test_coverage_equals_counting_pixels(found: list[BBox], true: list[BBox]) -> None:
    def covered(boxes: list[BBox]) -> list[int]:
        grid = [(x / 16, y / 16) for x in range(16) for y in range(16)]
        return [sum(x0 <= x < x1 and y0 <= y < y1 for x0, y0, x1, y1 in boxes) for x, y in grid]

    pairs = list(zip(covered(found), covered(true), strict=True))
    most = sum(max(pair) for pair in pairs)
    assert page_iou(found, true) == pytest.approx(sum(min(pair) for pair in pairs) / most if most else 1)
