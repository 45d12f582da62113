"""The oracle: what a page says, through layout, lines and assembly, with nothing misread."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pypdfium2 as pdfium
import pytest
from PIL import Image

from mineru_diffusion import parse
from mineru_diffusion.document.html_tables import parse_html_table
from mineru_diffusion.document.types import BBox, Document, Region
from mineru_diffusion.evaluation.oracle import LINES, REGIONS, Oracle, in_reading_order
from mineru_diffusion.evaluation.text_layer import Word
from mineru_diffusion.evaluation.text_tables import table_of_words
from mineru_diffusion.parsing.layout_types import PageLayout

typst = pytest.importorskip("typst")

PAGE = """
#set page(width: 300pt, height: 400pt, margin: 20pt)
#set text(size: 10pt)
#set par(justify: true)
The keeper of the lamp lived above the harbour, and every evening he went down to the water before it was dark enough.
#v(30pt)
#table(columns: (80pt, 60pt, 60pt), stroke: none, [Place],
  table.cell(colspan: 2, align: center)[Visitors of both years],
  [North], [12], [15], [South], [7], [], [Mill lane], [31], [30])
#pagebreak()
Another page says something else, in one line.
"""


class FixedLayout:
    """The upper part is a text, the lower one a table; the second page is a text."""

    name = "fixed"
    uses_engine = False

    def __init__(self) -> None:
        self.pages = 0

    def detect(self, images: Sequence[Image.Image]) -> list[PageLayout]:
        out = []
        for _ in images:
            self.pages += 1
            box: BBox = (0.02, 0.02, 0.98, 0.2)
            regions = (Region("text", box, 0), Region("table", (0.02, 0.2, 0.98, 0.9), 1))
            out.append(PageLayout(regions[: 3 - self.pages]))
        return out


@pytest.fixture(scope="module")
def pdf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("oracle") / "page.pdf"
    path.write_bytes(typst.compile(PAGE.encode(), format="pdf"))
    return path


def read(path: Path, **options: object) -> Document:
    with closing(Oracle(path, detector=FixedLayout(), **options)) as oracle:  # type: ignore[arg-type]
        return parse(path, engine=oracle, detector=oracle)


@pytest.mark.parametrize("profile", [LINES, REGIONS], ids=["lines", "regions"])
def test_every_word_arrives_once(pdf: Path, profile: object) -> None:
    first, second = read(pdf, profile=profile).pages
    assert first.regions[0].content == (
        "The keeper of the lamp lived above the harbour, and every evening he went down to the water before it was "
        "dark enough."
    )
    table = parse_html_table(first.regions[1].content)
    assert table is not None
    texts = [[cell.text for cell in row] for row in table.grid()]
    assert texts == [
        ["Place", "Visitors of both years", "Visitors of both years"],
        ["North", "12", "15"],
        ["South", "7", ""],
        ["Mill lane", "31", "30"],
    ]
    assert [region.content for region in second.regions] == ["Another page says something else, in one line."]


def test_a_page_may_be_left_out(pdf: Path) -> None:
    detector = FixedLayout()
    detector.pages = 1
    with closing(Oracle(pdf, detector=detector)) as oracle:
        document = parse(pdf, engine=oracle, detector=oracle, pages="2")
    assert document.pages[0].regions[0].content.startswith("Another page")


def test_a_picture_without_text_layer_says_nothing(pdf: Path, tmp_path: Path) -> None:
    image = pdfium.PdfDocument(pdf)[0].render(scale=2).to_pil().convert("RGB")
    image.save(tmp_path / "scan.pdf")
    image.save(tmp_path / "scan.png")
    for name in ("scan.pdf", "scan.png"):
        regions = read(tmp_path / name).pages[0].regions
        assert [region.content for region in regions] == ["", ""]
        assert all("nothing was read" in warning for region in regions for warning in region.warnings)


def word(text: str, left: float, top: float = 0.0, width: float = 0.02) -> Word:
    box = (left, top, left + width * len(text), top + 0.02)
    return Word(text, box, box)


def test_right_to_left_lines_keep_the_order_of_the_file() -> None:
    assert [w.text for w in in_reading_order([word("b", 0.5), word("a", 0.1)])] == ["a", "b"]
    assert [w.text for w in in_reading_order([word("שלום", 0.5), word("עולם", 0.1)])] == ["שלום", "עולם"]


def test_words_in_columns_become_cells() -> None:
    rows = [[("n", 0.0), ("12", 0.3), ("3", 0.6)], [("oak", 0.0), ("7", 0.3), ("4", 0.6)], [("ash", 0.0), ("9", 0.6)]]
    words = [word(text, left, 0.05 * i) for i, row in enumerate(rows) for text, left in row]
    assert table_of_words(words) == ("<fcel>n<fcel>12<fcel>3<nl><fcel>oak<fcel>7<fcel>4<nl><fcel>ash<ecel><fcel>9<nl>")
    assert table_of_words([]) == ""
