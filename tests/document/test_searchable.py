from __future__ import annotations

import io
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pypdfium2 as pdfium
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFont

from mineru_diffusion.document.glyphless import glyphless_font
from mineru_diffusion.document.searchable import write_searchable_pdf
from mineru_diffusion.document.text_layer import placed_lines
from mineru_diffusion.document.types import BBox, Page, Region

WHITE = Image.new("RGB", (60, 80), "white")


def write(path: Path, *regions: Region, size: tuple[float, float] = (600, 800), title: str = "") -> Path:
    assert write_searchable_pdf(path, [(WHITE, Page(0, *size, regions))], title=title) == 1
    return path


def text_in(path: Path, bbox: BBox, size: tuple[float, float] = (600, 800)) -> str:
    """What pdfium finds inside a box given in page fractions."""
    x0, y0, x1, y1 = bbox
    document = pdfium.PdfDocument(path)
    page = document[0]
    textpage = page.get_textpage()
    found = textpage.get_text_bounded(x0 * size[0], size[1] * (1 - y1), x1 * size[0], size[1] * (1 - y0))
    for opened in (textpage, page, document):
        opened.close()
    return " ".join(found.split())


def test_text_is_found_where_it_stands(tmp_path: Path) -> None:
    regions = (
        Region("title", (0.1, 0.05, 0.9, 0.09), content="A Title"),
        Region("text", (0.1, 0.1, 0.48, 0.3), content="Left column, long enough to be set in several lines of text."),
        Region("text", (0.52, 0.1, 0.9, 0.3), content="Right column & <more> (of) \\it."),
        Region("text", (0.1, 0.4, 0.9, 0.43), content="\u65e5\u672c\u8a9e\u3068 \U0001d538 \u00e9\u00df \u03b1"),
        Region("header", (0.1, 0.01, 0.9, 0.03), content="Head"),
        Region("image", (0.1, 0.5, 0.9, 0.6)),
    )
    path = write(tmp_path / "a.pdf", *regions)
    for region in regions:
        assert text_in(path, region.bbox) == region.content


def test_lines_have_their_own_boxes(tmp_path: Path) -> None:
    lines = ((0.1, 0.1, 0.9, 0.12), (0.1, 0.14, 0.5, 0.16))
    region = Region("text", (0.1, 0.1, 0.9, 0.2), content="joined", lines=lines, line_texts=("first line", "second"))
    path = write(tmp_path / "a.pdf", region)
    assert [text_in(path, line) for line in lines] == ["first line", "second"]
    # Half way along the line stands the middle of its text.
    assert "first" in text_in(path, (0.09, 0.09, 0.55, 0.13))
    assert "line" not in text_in(path, (0.09, 0.09, 0.45, 0.13))


@pytest.mark.parametrize("angle", [90, 180, 270])
def test_turned_text(tmp_path: Path, angle: int) -> None:
    bbox = (0.3, 0.2, 0.7, 0.24) if angle == 180 else (0.3, 0.2, 0.33, 0.8)
    path = write(tmp_path / "a.pdf", Region("text", bbox, content="turned to the side", angle=angle))
    assert text_in(path, bbox) == "turned to the side"
    begins = {90: (0.3, 0.2, 0.33, 0.45), 180: (0.55, 0.2, 0.7, 0.24), 270: (0.3, 0.55, 0.33, 0.8)}[angle]
    assert text_in(path, begins).startswith("turned")


def test_writing_from_right_to_left(tmp_path: Path) -> None:
    text = "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd 123"
    path = write(tmp_path / "a.pdf", Region("text", (0.1, 0.1, 0.9, 0.13), content=text))
    assert text_in(path, (0.0, 0.0, 1.0, 1.0)) == text


def test_cells_of_a_table(tmp_path: Path) -> None:
    html = '<table><tr><td colspan="2">wide head</td></tr><tr><td>left</td><td>right</td></tr></table>'
    bbox = (0.2, 0.2, 0.8, 0.4)
    path = write(tmp_path / "a.pdf", Region("table", bbox, content=html))
    assert text_in(path, (0.2, 0.2, 0.8, 0.295)) == "wide head"
    assert text_in(path, (0.2, 0.305, 0.495, 0.4)) == "left"
    assert text_in(path, (0.505, 0.305, 0.8, 0.4)) == "right"


def test_page_sizes_title_and_sameness(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pdf", title="T\u00eftle (1)")
    again = write(tmp_path / "b.pdf", title="T\u00eftle (1)")
    assert path.read_bytes() == again.read_bytes()
    document = pdfium.PdfDocument(path)
    assert document[0].get_size() == (600, 800)
    assert document.get_metadata_dict()["Title"] == "T\u00eftle (1)"
    huge = pdfium.PdfDocument(write(tmp_path / "c.pdf", size=(30000, 15000)))
    assert huge[0].get_size() == (14400, 7200)
    assert write_searchable_pdf(tmp_path / "none.pdf", []) == 0
    assert not (tmp_path / "none.pdf").exists()


def test_picture_is_the_page(tmp_path: Path) -> None:
    image = Image.new("RGB", (200, 300), "white")
    image.paste((200, 30, 30), (0, 150, 200, 300))
    path = tmp_path / "a.pdf"
    write_searchable_pdf(path, [(image, Page(0, 200, 300, (Region("text", (0, 0, 1, 0.4), content="MMMM"),)))])
    shown = pdfium.PdfDocument(path)[0].render(scale=1).to_pil()
    assert min(shown.getpixel((100, 60))) > 250  # the text itself leaves no mark
    assert abs(shown.getpixel((100, 225))[0] - 200) < 8


def test_pages_do_not_pile_up_in_memory(tmp_path: Path) -> None:
    noise = Image.effect_noise((200, 300), 80).convert("RGB")

    def pages(count: int) -> Iterator[tuple[Image.Image, Page]]:
        for index in range(count):
            yield noise, Page(index, 500, 700, (Region("text", (0, 0, 1, 1), content=f"page {index} " * 50),))

    peaks = []
    for count in (3, 30):
        tracemalloc.start()
        assert write_searchable_pdf(tmp_path / "a.pdf", pages(count)) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]
    assert len(pdfium.PdfDocument(tmp_path / "a.pdf")) == 30


def test_font_is_a_font() -> None:
    font = ImageFont.truetype(io.BytesIO(glyphless_font()), 100)
    assert font.getlength("any") == 150
    assert len(glyphless_font()) < 500


fractions = st.floats(0, 1)
regions = st.builds(
    Region,
    st.sampled_from(("text", "table", "list", "equation", "chart")),
    st.tuples(*[fractions] * 4),
    content=st.text(max_size=40) | st.just("<table><caption>c</caption><tr><td>a b</td></tr></table>"),
    angle=st.sampled_from((0, 90, 180, 270, 45)),
    lines=st.just(()) | st.just(((0.0, 0.0, 0.5, 0.1),)),
    line_texts=st.just(()) | st.just(("a line",)),
)


@given(st.lists(regions, max_size=4))
def test_every_word_is_placed(made: list[Region]) -> None:
    page = Page(0, 600, 800, tuple(made))
    placed = " ".join(line.text for line in placed_lines(page)).split()
    for region in made:
        if len(region.line_texts) == len(region.lines) == 1:
            expected = ["a", "line"]
        elif "<table" in region.content:
            expected = ["c", "a", "b"] if region.kind in ("table", "chart") else region.content.split()
        else:
            expected = region.content.split()
        assert set("".join(expected)) <= set("".join(placed))


@settings(max_examples=30)
@given(st.lists(regions, max_size=3))
def test_any_page_makes_a_pdf_that_opens(tmp_path_factory: pytest.TempPathFactory, made: list[Region]) -> None:
    path = write(tmp_path_factory.mktemp("pdf") / "a.pdf", *made)
    assert len(pdfium.PdfDocument(path)) == 1
