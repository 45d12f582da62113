from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.document.layout_grammar import LayoutBox, format_layout, parse_layout, unparsed_layout
from mineru_diffusion.document.types import KINDS, Region

TITLE = "<|box_start|>100 200 300 400<|box_end|><|ref_start|>title<|ref_end|><|rotate_up|>"
TEXT = "<|box_start|>100 450 900 800<|box_end|><|ref_start|>text<|ref_end|><|rotate_left|><|txt_contd_tgt|>"

coordinate = st.integers(0, 999)


@st.composite
def boxes(draw: st.DrawFn) -> LayoutBox:
    x0, y0 = draw(coordinate), draw(coordinate)
    x1, y1 = draw(st.integers(x0 + 1, 1000)), draw(st.integers(y0 + 1, 1000))
    bbox = (x0 / 1000, y0 / 1000, x1 / 1000, y1 / 1000)
    return LayoutBox(draw(st.sampled_from(KINDS)), bbox, draw(st.sampled_from([0, 90, 180, 270])), draw(st.booleans()))


@given(st.lists(boxes(), max_size=6), st.sampled_from(["\n", "", "\r\n", " \x0b", "\u2028"]))
def test_round_trip(layout: list[LayoutBox], separator: str) -> None:
    text = separator.join(format_layout(layout).split("\n"))
    assert parse_layout(text) == layout
    assert unparsed_layout(text) == []


TOKENS = [
    "<|box_start|>",
    "<|box_end|>",
    "<|ref_start|>",
    "<|ref_end|>",
    "<|rotate_up|>",
    "1",
    "999",
    "2000",
    "-3",
    " ",
    "x",
]


@given(st.lists(st.sampled_from(TOKENS) | st.text(max_size=3), max_size=40).map("".join))
def test_any_text_is_survived(text: str) -> None:
    for box in parse_layout(text):
        x0, y0, x1, y1 = box.bbox
        assert 0 <= x0 < x1 <= 1
        assert 0 <= y0 < y1 <= 1
        assert box.kind
    assert all(rest.strip() for rest in unparsed_layout(text))


def test_two_boxes_on_one_line() -> None:
    title, text = parse_layout(TITLE + TEXT)
    assert (title.kind, title.bbox, title.angle, title.continued) == ("title", (0.1, 0.2, 0.3, 0.4), 0, False)
    assert (text.kind, text.bbox, text.angle, text.continued) == ("text", (0.1, 0.45, 0.9, 0.8), 270, True)


@pytest.mark.parametrize(
    ("coordinates", "bbox", "warned"),
    [
        ("300 400 100 200", (0.1, 0.2, 0.3, 0.4), True),
        ("100 200 1001 400", (0.1, 0.2, 1.0, 0.4), True),
        ("-1 2 3 4", (0.0, 0.002, 0.003, 0.004), True),
        ("1,2, 3 ,4", (0.001, 0.002, 0.003, 0.004), False),
        (" 1.5  2 3 4 ", (0.0015, 0.002, 0.003, 0.004), False),
        ("9" * 5000 + " 2 3 4", (0.003, 0.002, 1.0, 0.004), True),
    ],
)
def test_repairs(coordinates: str, bbox: tuple[float, ...], warned: bool) -> None:
    (box,) = parse_layout(f"<|box_start|>{coordinates}<|box_end|><|ref_start|>text<|ref_end|><|rotate_up|>")
    assert box.bbox == bbox
    assert bool(box.warnings) is warned


@pytest.mark.parametrize("coordinates", ["1 2 3", "1 2 3 4 5", "", "a b c d", "100 200 100 400", "1200 0 1300 50"])
def test_boxes_that_mean_nothing_are_reported(coordinates: str) -> None:
    text = f"<|box_start|>{coordinates}<|box_end|><|ref_start|>text<|ref_end|><|rotate_up|>"
    assert parse_layout(f"{TITLE}\n{text}") == parse_layout(TITLE)
    assert unparsed_layout(f"{TITLE}\n{text}") == [text]


def test_labels() -> None:
    def kind(label: str) -> str:
        return parse_layout(f"<|box_start|>1 2 3 4<|box_end|>{label}")[0].kind

    assert kind("<|ref_start|>Page-Number<|ref_end|>") == "page_number"
    assert kind("<|ref_start|>image caption<|ref_end|>") == "image_caption"
    assert kind("<|ref_start|>banana<|ref_end|>") == "banana"
    assert kind("<|ref_start|>text<|rotate_up|>") == "text"
    assert kind("<|ref_start|><|ref_end|>") == kind("") == "unknown"


def test_first_rotation_counts_and_stray_text_is_reported() -> None:
    text = "so: <|box_start|>1 2 3 4<|box_end|><|ref_start|>text<|ref_end|><|rotate_down|><|rotate_up|>hello"
    assert parse_layout(text)[0].angle == 180
    assert unparsed_layout(text) == ["so:", "hello"]


def test_regions_can_be_written_too_and_thin_ones_survive() -> None:
    text = format_layout([Region("text", (0.5, 0.9999, 0.6, 1.0), angle=90), Region("image", (0.25, 0.5, 0.25, 0.6))])
    first, second = parse_layout(text)
    assert (first.bbox, first.angle) == ((0.5, 0.999, 0.6, 1.0), 90)
    assert second.bbox == (0.25, 0.5, 0.251, 0.6)
