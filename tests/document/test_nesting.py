from __future__ import annotations

from mineru_diffusion.document.layout_grammar import LayoutBox
from mineru_diffusion.document.nesting import overlap, resolve_nesting

ITEMS = [LayoutBox("text", (0.1, 0.1, 0.5, 0.2)), LayoutBox("text", (0.1, 0.22, 0.5, 0.4))]


def test_list_gives_way_to_its_items() -> None:
    assert resolve_nesting([LayoutBox("list", (0.1, 0.1, 0.5, 0.42)), *ITEMS]) == ITEMS


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
