from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mineru_diffusion.document.captions import attach_captions
from mineru_diffusion.document.content_list import content_list
from mineru_diffusion.document.document_json import (
    SCHEMA_VERSION,
    document_from_dict,
    document_to_dict,
    document_to_json,
    read_document,
)
from mineru_diffusion.document.export_options import ExportOptions
from mineru_diffusion.document.html import document_to_html
from mineru_diffusion.document.overlay import draw_overlay, overlay_png, write_overlay_pdf
from mineru_diffusion.document.sources import open_source
from mineru_diffusion.document.types import KINDS, Document, Page, Region
from mineru_diffusion.errors import SourceError

TABLE = "<table><tr><td>1</td></tr></table>"


def sample() -> Document:
    regions = (
        Region("header", (0.1, 0.01, 0.9, 0.03), 0, content="Head"),
        Region("title", (0.1, 0.05, 0.9, 0.1), 1, content="Title & <co>", level=2),
        Region("image", (0.1, 0.12, 0.9, 0.3), 2, image_path="images/a.png"),
        Region("image_caption", (0.1, 0.31, 0.9, 0.33), 3, content="Figure 1"),
        Region("table_caption", (0.1, 0.35, 0.9, 0.37), 4, content="Table 1"),
        Region("table", (0.1, 0.38, 0.9, 0.5), 5, content=TABLE, confidence=0.5, warnings=("odd",)),
        Region("equation", (0.1, 0.52, 0.9, 0.55), 6, content="x", finish_reason="stop", source={"layout": "model"}),
        Region("code", (0.1, 0.56, 0.9, 0.6), 7, content="print(1)"),
        Region("list", (0.1, 0.62, 0.9, 0.7), 8, content="- a\n- b", lines=((0.1, 0.62, 0.9, 0.65),)),
        Region("code_caption", (0.1, 0.95, 0.9, 0.97), 9, content="far away"),
        Region("ref_text", (0.0004, 0.7, 1.0, 0.8), 10, content="[1] A", angle=90),
    )
    pages = (Page(0, 600, 800, regions), Page(1, 600, 800, error="damaged"))
    return Document("dir/report.pdf", pages, {"model": "tiny", "n": 3}, ("careful",))


def test_content_list_has_the_fields_that_readers_expect() -> None:
    items = content_list(sample())
    assert [item["type"] for item in items] == [
        "header", "text", "image", "table", "equation", "code", "list", "text", "text",
    ]  # fmt: skip
    assert all(item["page_idx"] == 0 for item in items)
    assert items[1] == {
        "type": "text",
        "text": "Title & <co>",
        "text_level": 2,
        "bbox": [100, 50, 900, 100],
        "page_idx": 0,
    }
    assert items[2]["img_path"] == "images/a.png"
    assert items[2]["image_caption"] == ["Figure 1"]
    assert items[2]["image_footnote"] == []
    assert (items[3]["table_body"], items[3]["table_caption"]) == (TABLE, ["Table 1"])
    assert (items[4]["text"], items[4]["text_format"]) == ("$$\nx\n$$", "latex")
    assert (items[5]["sub_type"], items[5]["code_body"], items[5]["code_caption"]) == ("code", "print(1)", [])
    assert items[6]["list_items"] == ["a", "b"]
    assert items[7]["text"] == "far away"
    assert items[8]["bbox"] == [0, 700, 1000, 800]
    json.dumps(items)


def test_caption_goes_to_the_nearest_host() -> None:
    regions = [
        Region("table", (0.1, 0.1, 0.9, 0.3)),
        Region("table_caption", (0.1, 0.36, 0.9, 0.38)),
        Region("table", (0.1, 0.39, 0.9, 0.6)),
        Region("table_footnote", (0.1, 0.61, 0.9, 0.63)),
    ]
    attached = attach_captions(regions)
    assert list(attached) == [2]
    assert (attached[2].captions, attached[2].footnotes) == ([1], [3])


def test_json_there_and_back() -> None:
    document = sample()
    data = document_to_dict(document)
    assert data["schema_version"] == SCHEMA_VERSION
    assert document_from_dict(json.loads(json.dumps(data))) == document


box = st.tuples(*[st.floats(0, 1)] * 4)
regions = st.builds(
    Region,
    st.sampled_from(KINDS),
    box,
    content=st.text(max_size=8),
    confidence=st.none() | st.floats(0, 1),
    source=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    warnings=st.lists(st.text(max_size=4), max_size=2).map(tuple),
    lines=st.lists(box, max_size=2).map(tuple),
)


@given(st.lists(regions, max_size=3))
def test_json_loses_nothing(made: list[Region]) -> None:
    document = Document("x", (Page(0, 1.5, 2.5, tuple(made)),))
    assert document_from_dict(json.loads(document_to_json(document))) == document


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 99}, {"pages": 3}, {"pages": [{"index": 0}]}, {"source": None}, {"warnings": "x"},
        {"pages": [{"index": 0, "width": 1, "height": 1, "regions": [{"kind": "text", "bbox": [1, 2, 3]}]}]},
    ],
)  # fmt: skip
def test_wrong_json_is_refused_by_name(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({**document_to_dict(sample()), **change}), encoding="utf-8")
    with pytest.raises(SourceError, match=r"bad\.json"):
        read_document(path)
    with pytest.raises(SourceError):
        read_document(tmp_path / "absent.json")


class Tags(HTMLParser):
    """Checks that tags nest, and collects them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.stack: list[str] = []
        self.feed(html)
        assert not self.stack

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in ("meta", "img", "br"):
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag


def test_html_is_self_contained_and_escaped(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    Image.new("RGB", (3, 2)).save(tmp_path / "images/a.png")
    html = document_to_html(sample(), image_root=tmp_path)
    tags = Tags(html).seen
    assert tags.count("section") == 2
    assert "data:image/png;base64," in html
    assert "Title &amp; &lt;co&gt;" in html
    assert "<figcaption>Figure 1</figcaption>" in html
    assert "damaged" in html
    assert "Head" not in html
    assert "Head" in document_to_html(sample(), ExportOptions(furniture=True))
    assert "http" not in html.replace("http-equiv", "")


def test_html_lets_no_markup_through() -> None:
    evil = "<script>alert(1)</script><img src=x onerror=y>"
    for kind in KINDS:
        for content in (evil, f"<table><tr><td onclick=x>{evil}</td></tr></table>"):
            document = Document(evil, (Page(0, 1, 1, (Region(kind, (0, 0, 1, 1), content=content),), error=evil),))
            tags = Tags(document_to_html(document, ExportOptions(furniture=True))).seen
            assert "script" not in tags
            assert "img" not in tags


def test_html_pictures_stay_inside_their_root(tmp_path: Path) -> None:
    root = tmp_path / "out"
    root.mkdir()
    Image.new("RGB", (3, 2)).save(tmp_path / "secret.png")
    for path in ("../secret.png", str(tmp_path / "secret.png"), "absent.png"):
        region = Region("image", (0, 0, 1, 1), image_path=path)
        assert (
            "data:"
            not in document_to_html(Document("x", (Page(0, 1, 1, (region,)),)), image_root=root).split("<main>")[1]
        )


def test_overlay_marks_the_region_and_nothing_far_from_it() -> None:
    page_image = Image.new("L", (300, 400), 255)
    page = Page(0, 300, 400, (Region("text", (0.5, 0.5, 0.9, 0.9), warnings=("x",), lines=((0.5, 0.5, 0.9, 0.6),)),))
    drawn = draw_overlay(page_image, page)
    assert drawn.size == (300, 400)
    assert drawn.getpixel((10, 10)) == (255, 255, 255)
    assert drawn.getpixel((150, 300)) != (255, 255, 255)
    assert page_image.getextrema() == (255, 255)
    assert overlay_png(page_image, page).startswith(b"\x89PNG")


def test_overlay_survives_odd_pages() -> None:
    boxes = [(0.0, 0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 1.0), (-1.0, -1.0, 2.0, 2.0), (0.9, 0.1, 0.2, 0.0)]
    page = Page(0, 5, 5, tuple(Region("a" * 50, bbox) for bbox in boxes), error="bad")
    assert draw_overlay(Image.new("RGB", (1, 1)), page).size == (1, 1)
    assert max(draw_overlay(Image.new("RGB", (4000, 2000)), page).size) == 1600


def test_overlay_pdf(tmp_path: Path) -> None:
    path = tmp_path / "layout.pdf"
    page = sample().pages[0]
    sizes = [(60, 80), (80, 60)] * 10
    lazy = (
        (Image.new("RGB", size, "white"), replace(page, index=index, width=size[0], height=size[1]))
        for index, size in enumerate(sizes)
    )
    assert write_overlay_pdf(path, lazy) == 20
    with open_source(path, dpi=72) as source:
        assert source.page_count == 20
        assert [source.page(index).image.size for index in (0, 1, 19)] == [(60, 80), (80, 60), (80, 60)]
        assert "print(1)" in source.text_layer(0)
    assert write_overlay_pdf(tmp_path / "none.pdf", []) == 0
    assert not (tmp_path / "none.pdf").exists()


def test_formulas_in_the_content_list_stand_between_dollars() -> None:
    regions = (
        Region("title", (0.1, 0.1, 0.9, 0.2), 0, content="On \\(x^2\\)", level=1),
        Region("text", (0.1, 0.3, 0.9, 0.4), 1, content="It costs $5 or $6, and \\(a_1\\)."),
        Region("list", (0.1, 0.5, 0.9, 0.6), 2, content="- \\[b\\]"),
        Region("equation", (0.1, 0.7, 0.9, 0.8), 3, content="c^2"),
    )
    title, text, items, equation = content_list(Document("a.pdf", (Page(0, 600, 800, regions),)))
    assert (title["text"], text["text"]) == ("On $x^2$", "It costs $5 or $6, and $a_1$.")
    assert items["list_items"] == ["$b$"]
    assert equation["text"] == "$$\nc^2\n$$"
