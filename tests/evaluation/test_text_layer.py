"""The text layer of PDFs made on the spot, upright and turned."""

from __future__ import annotations

from pathlib import Path

import pypdfium2 as pdfium
import pytest

from mineru_diffusion.document.types import BBox, Document, Page, Region
from mineru_diffusion.errors import SourceError
from mineru_diffusion.evaluation.text_layer import TextLayer, word_recall

typst = pytest.importorskip("typst")

PAGE = """
#set page(width: 200pt, height: 400pt, margin: 0pt)
#set text(size: 10pt)
#place(dx: 10pt, dy: 10pt)[northwest corner]
#place(dx: 110pt, dy: 370pt)[southeast corner]
#place(dx: 10pt, dy: 200pt, block(width: 60pt)[A word is bro-\\ ken here])
"""
# Displayed place of the words in the north-west corner when the page is turned clockwise.
CORNERS: dict[int, BBox] = {
    0: (0.0, 0.0, 0.5, 0.1),
    90: (0.9, 0.0, 1.0, 0.5),
    180: (0.5, 0.9, 1.0, 1.0),
    270: (0.0, 0.5, 0.1, 1.0),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("layer")
    (folder / "page.typ").write_text(PAGE)
    typst.compile(str(folder / "page.typ"), output=str(folder / "page.pdf"))
    return folder / "page.pdf"


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_a_box_of_the_displayed_page(plain: Path, tmp_path: Path, rotation: int) -> None:
    pdf = pdfium.PdfDocument(plain)
    pdf[0].set_rotation(rotation)
    pdf.save(tmp_path / "turned.pdf")
    with TextLayer(tmp_path / "turned.pdf") as layer:
        assert layer.text_in(0, CORNERS[rotation]).split() == ["northwest", "corner"]
        assert "southeast corner" in layer.text_in(0)


def test_the_oracle_takes_the_place_of_what_was_read(plain: Path) -> None:
    regions = (
        Region("text", (0.0, 0.0, 0.5, 0.1), content="n0rthvvest", source={"layout": "x", "content": "model"}),
        Region("table", (0.0, 0.45, 0.5, 0.65), content="<table></table>"),
        Region("image", (0.5, 0.9, 1.0, 1.0), content="", image_path="a.png"),
    )
    with TextLayer(plain) as layer:
        page = layer.put_into(Document("page.pdf", (Page(0, 200, 400, regions),))).pages[0]
    assert [region.kind for region in page.regions] == ["text", "text", "image"]
    assert page.regions[0].content == "northwest corner"
    assert page.regions[0].source == {"layout": "x", "content": "text layer"}
    assert page.regions[1].content == "A word is broken here"
    assert page.regions[2] == regions[2]


def test_word_recall_counts_every_occurrence() -> None:
    assert word_recall([("the Cat, cat", "cat the the")]) == pytest.approx(2 / 3)
    assert word_recall([("a b", "b"), ("", "c")]) == pytest.approx(1 / 2)
    assert word_recall([("a", "")]) is None


def test_a_file_that_is_no_pdf(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_text("words")
    with pytest.raises(SourceError, match=r"a\.pdf"):
        TextLayer(tmp_path / "a.pdf")
