"""The text layer of PDFs made on the spot, upright and turned."""

from __future__ import annotations

from pathlib import Path

import pypdfium2 as pdfium
import pytest

from mineru_diffusion.document.types import BBox
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


@pytest.mark.parametrize("rotation", [0, 90])
def test_words_with_their_places(plain: Path, tmp_path: Path, rotation: int) -> None:
    pdf = pdfium.PdfDocument(plain)
    pdf[0].set_rotation(rotation)
    pdf.save(tmp_path / "turned.pdf")
    with TextLayer(tmp_path / "turned.pdf") as layer:
        words = layer.words(0)
    assert sorted(word.text for word in words) == sorted(
        ["northwest", "corner", "southeast", "corner", "A", "word", "is", "bro-", "ken", "here"]
    )
    left, top, right, bottom = CORNERS[rotation]
    (northwest,) = [word for word in words if word.text == "northwest"]
    assert left <= northwest.middle[0] <= right
    assert top <= northwest.middle[1] <= bottom


def test_word_recall_counts_every_occurrence() -> None:
    assert word_recall([("the Cat, cat", "cat the the")]) == pytest.approx(2 / 3)
    assert word_recall([("a b", "b"), ("", "c")]) == pytest.approx(1 / 2)
    assert word_recall([("a", "")]) is None


def test_a_file_that_is_no_pdf(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_text("words")
    with pytest.raises(SourceError, match=r"a\.pdf"):
        TextLayer(tmp_path / "a.pdf")
