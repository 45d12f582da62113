from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.document.layout_grammar import LayoutBox
from mineru_diffusion.document.nesting import overlap, resolve_nesting

ITEMS = [LayoutBox("text", (0.1, 0.1, 0.5, 0.2)), LayoutBox("text", (0.1, 0.22, 0.5, 0.4))]


def test_list_gives_way_to_its_items() -> None:
    made = resolve_nesting([LayoutBox("list", (0.1, 0.1, 0.5, 0.42)), *ITEMS])
    assert [(box.kind, box.bbox) for box in made] == [("list", item.bbox) for item in ITEMS]


def test_list_stays_when_an_item_between_the_boxed_ones_is_not_boxed() -> None:
    whole = LayoutBox("list", (0.1, 0.1, 0.5, 0.9))
    ends = [LayoutBox("text", (0.1, 0.1, 0.5, 0.3)), LayoutBox("text", (0.1, 0.7, 0.5, 0.9))]
    assert resolve_nesting([whole, *ends]) == [whole]


def test_references_in_a_list_stay_references() -> None:
    parts = [LayoutBox("ref_text", item.bbox) for item in ITEMS]
    assert resolve_nesting([LayoutBox("list", (0.1, 0.1, 0.5, 0.42)), *parts]) == parts


def test_a_box_found_twice_is_there_once() -> None:
    box = LayoutBox("text", (0.1, 0.1, 0.5, 0.2))
    assert resolve_nesting([box, LayoutBox("title", (0.1, 0.1, 0.5, 0.205)), ITEMS[1]]) == [box, ITEMS[1]]
    image = LayoutBox("image", (0.1, 0.1, 0.5, 0.2))
    assert resolve_nesting([box, image]) == [box, image]


def test_text_in_text_is_taken_in_whole() -> None:
    outer = LayoutBox("text", (0.1, 0.1, 0.5, 0.5))
    inner = LayoutBox("text", (0.2, 0.4, 0.52, 0.505))
    assert [box.bbox for box in resolve_nesting([inner, outer])] == [(0.1, 0.1, 0.52, 0.505)]


boxes = st.builds(
    lambda kind, x, y, w, h: LayoutBox(kind, (x, y, min(1.0, x + w), min(1.0, y + h))),
    st.sampled_from(("text", "title", "list", "table", "equation", "equation_block", "image", "list_item", "ref_text")),
    *[st.integers(0, 19).map(lambda v: v / 20)] * 2,
    *[st.integers(1, 20).map(lambda v: v / 20)] * 2,
)


@given(st.lists(boxes, max_size=8))
def test_whatever_was_boxed_stays_boxed(made: list[LayoutBox]) -> None:
    kept = resolve_nesting(made)
    for box in made:
        if box.kind in ("list", "equation_block"):
            continue  # these may give way to their parts
        centre = ((box.bbox[0] + box.bbox[2]) / 2, (box.bbox[1] + box.bbox[3]) / 2)
        assert any(k.bbox[0] <= centre[0] <= k.bbox[2] and k.bbox[1] <= centre[1] <= k.bbox[3] for k in kept)


def test_list_stays_when_only_a_little_of_it_is_boxed() -> None:
    whole = LayoutBox("list", (0.1, 0.1, 0.5, 0.9))
    assert resolve_nesting([whole, ITEMS[0]]) == [whole]


def test_text_in_a_table_belongs_to_the_table() -> None:
    table = LayoutBox("table", (0.0, 0.0, 0.6, 0.3))
    outside = LayoutBox("text", (0.0, 0.5, 0.6, 0.6))
    assert resolve_nesting([table, *ITEMS[:1], outside]) == [table, outside]


def test_equation_block() -> None:
    block = LayoutBox("equation_block", (0.0, 0.0, 1.0, 0.5))
    parts = [LayoutBox("equation", (0.1, 0.0, 0.9, 0.2)), LayoutBox("equation", (0.1, 0.3, 0.9, 0.5))]
    assert resolve_nesting([block, *parts]) == parts
    assert [box.kind for box in resolve_nesting([block])] == ["equation"]


def test_overlap() -> None:
    assert overlap((0, 0, 1, 1), (0.5, 0, 1, 1)) == 0.5
    assert overlap((0, 0, 0, 1), (0, 0, 1, 1)) == 0.0
    assert overlap((0, 0, 0.1, 0.1), (0.5, 0.5, 1, 1)) == 0.0
