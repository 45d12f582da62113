from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.document.reading_order import order_regions
from mineru_diffusion.document.types import Region


def names(*boxes: tuple[str, float, float, float, float], kinds: dict[str, str] | None = None) -> list[str]:
    """Names in reading order of boxes given in reverse, so that input order cannot help."""
    regions = [
        Region((kinds or {}).get(name, "text"), (x0, y0, x1, y1), content=name)
        for name, x0, y0, x1, y1 in reversed(boxes)
    ]
    ordered = order_regions(regions)
    assert [region.order for region in ordered] == list(range(len(regions)))
    return [region.content for region in ordered]


def expect(*boxes: tuple[str, float, float, float, float], kinds: dict[str, str] | None = None) -> None:
    assert names(*boxes, kinds=kinds) == [box[0] for box in boxes]


def test_two_columns_with_a_full_width_figure() -> None:
    expect(
        ("left top", 0.1, 0.1, 0.48, 0.4),
        ("right top", 0.52, 0.1, 0.9, 0.4),
        ("figure", 0.1, 0.42, 0.9, 0.6),
        ("left bottom", 0.1, 0.62, 0.48, 0.9),
        ("right bottom", 0.52, 0.62, 0.9, 0.9),
    )


def test_columns_whose_paragraphs_end_at_the_same_height() -> None:
    expect(
        ("title", 0.2, 0.05, 0.8, 0.1),
        ("l1", 0.1, 0.12, 0.48, 0.3),
        ("l2", 0.1, 0.32, 0.48, 0.5),
        ("l3", 0.1, 0.52, 0.48, 0.7),
        ("r1", 0.52, 0.12, 0.9, 0.3),
        ("r2", 0.52, 0.32, 0.9, 0.5),
    )


def test_a_heading_below_columns_begins_what_follows() -> None:
    upper = [("left", 0.1, 0.05, 0.48, 0.3), ("right", 0.52, 0.05, 0.9, 0.3)]
    expect(*upper, ("rubric", 0.1, 0.34, 0.35, 0.36), ("title", 0.1, 0.38, 0.9, 0.42), kinds={"rubric": "title"})
    expect(*upper, ("rubric", 0.1, 0.36, 0.35, 0.38), ("title", 0.1, 0.38, 0.9, 0.42))
    # With its text below it in the same column, it belongs to the column.
    expect(
        ("left", 0.1, 0.05, 0.48, 0.3),
        ("heading", 0.1, 0.32, 0.35, 0.34),
        ("text", 0.1, 0.35, 0.48, 0.6),
        ("right", 0.52, 0.05, 0.9, 0.3),
        kinds={"heading": "title"},
    )
    # The end of the longer column does too.
    expect(("left", 0.1, 0.05, 0.48, 0.3), ("end", 0.1, 0.31, 0.48, 0.4), ("right", 0.52, 0.05, 0.9, 0.3))


def test_three_columns_under_two() -> None:
    expect(
        ("a", 0.05, 0.1, 0.48, 0.4),
        ("b", 0.52, 0.1, 0.95, 0.4),
        ("c", 0.05, 0.5, 0.33, 0.9),
        ("d", 0.36, 0.5, 0.64, 0.9),
        ("e", 0.67, 0.5, 0.95, 0.9),
    )


def test_letter_head_is_no_column() -> None:
    expect(("date", 0.7, 0.05, 0.9, 0.08), ("address", 0.1, 0.1, 0.4, 0.2), ("body", 0.1, 0.25, 0.9, 0.9))
    expect(("date", 0.75, 0.05, 0.9, 0.08), ("left", 0.1, 0.1, 0.48, 0.9), ("right", 0.52, 0.1, 0.9, 0.9))


def test_single_column_and_touching_boxes() -> None:
    expect(("a", 0.1, 0.1, 0.9, 0.202), ("b", 0.1, 0.2, 0.9, 0.303), ("c", 0.1, 0.3, 0.9, 0.4))


def test_figure_within_one_column() -> None:
    expect(
        ("l1", 0.1, 0.1, 0.48, 0.3),
        ("figure", 0.15, 0.32, 0.4, 0.5),
        ("l2", 0.1, 0.52, 0.48, 0.9),
        ("r1", 0.52, 0.1, 0.9, 0.45),
        ("r2", 0.52, 0.47, 0.9, 0.9),
    )


def test_furniture_comes_first_and_last() -> None:
    kinds = {"head": "header", "top number": "page_number", "note": "page_footnote", "foot": "footer"}
    expect(
        ("head", 0.1, 0.02, 0.4, 0.04),
        ("top number", 0.8, 0.02, 0.9, 0.04),
        ("body", 0.1, 0.1, 0.9, 0.8),
        ("note", 0.1, 0.85, 0.9, 0.9),
        ("foot", 0.4, 0.95, 0.6, 0.97),
        kinds=kinds,
    )
    # A footer stays last even where body text reaches below it.
    expect(("body", 0.1, 0.1, 0.4, 0.99), ("foot", 0.5, 0.9, 0.9, 0.95), kinds=kinds)


box = st.tuples(*[st.floats(0, 1)] * 4).map(
    lambda v: (min(v[0], v[2]), min(v[1], v[3]), max(v[0], v[2]), max(v[1], v[3]))
)


@given(st.lists(st.tuples(box, st.sampled_from(["text", "header", "footer", "page_number"])), max_size=12))
def test_no_region_is_lost_or_doubled(items: list[tuple[tuple[float, float, float, float], str]]) -> None:
    regions = [Region(kind, bbox, content=str(index)) for index, (bbox, kind) in enumerate(items)]
    ordered = order_regions(regions)
    assert sorted(region.content for region in ordered) == sorted(region.content for region in regions)
    assert order_regions(ordered) == order_regions(order_regions(ordered))
