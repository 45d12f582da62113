"""Structure alone, with nothing misread: pages of known content through the packaged layout and the oracle."""

from __future__ import annotations

import os
import re
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
import typst

from mineru_diffusion import parse
from mineru_diffusion.document.types import Document
from mineru_diffusion.evaluation.oracle import Oracle
from mineru_diffusion.evaluation.text_layer import TextLayer

REAL = Path(os.environ.get("MINERU_DIFFUSION_REAL", Path(__file__).parents[2] / ".." / "shared" / "real"))

PAGE = """
#set page(paper: "a4", margin: (x: 2cm, y: 2.5cm), numbering: none,
  header: [The Journal of Lamps], footer: align(center)[17])
#set text(size: 10pt, font: "New Computer Modern", hyphenate: true, lang: "en")
#set par(justify: true)
#let part(word, n) = [#range(n).map(i => [The #word part says that a lamp of number #str(i) was lit before the evening
came and that its keeper, who lived above the harbour, went down to the water.]).join([ ])]
#columns(2, gutter: 8mm)[#part("first", 9) #colbreak() #part("second", 9)]
#v(6mm)
#figure(rect(width: 100%, height: 5cm, fill: gradient.linear(red, blue)), caption: [A figure across both columns.])
#v(6mm)
#columns(2, gutter: 8mm)[#part("third", 8) #colbreak() #part("fourth", 8)]
"""


def oracle_parse(path: Path, **options: str) -> Document:
    with closing(Oracle(path, password=options.get("password"))) as oracle:
        return parse(path, engine=oracle, detector=oracle, **options)  # type: ignore[arg-type]


def test_columns_around_a_full_width_figure(tmp_path: Path) -> None:
    path = tmp_path / "page.pdf"
    path.write_bytes(typst.compile(PAGE.encode(), format="pdf"))
    document = oracle_parse(path)
    text = document.to_markdown()
    places = [text.index(f"The {word} part") for word in ("first", "second")]
    places += [text.index("A figure across both columns.")]
    places += [text.index(f"The {word} part") for word in ("third", "fourth")]
    assert places == sorted(places)
    assert "Journal of Lamps" not in text
    assert not re.search(r"^17$", text, re.MULTILINE)
    kinds = Counter(region.kind for region in document.pages[0].regions)
    assert kinds["header"] == 1
    assert kinds["page_number"] + kinds["footer"] == 1
    for word, count in (("first", 9), ("second", 9), ("third", 8), ("fourth", 8)):
        assert text.count(f"The {word} part says that a lamp") == count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("olmocr-multi_column_miss", {}),
        ("docling-2206.01062_pg3", {"password": "1234"}),
        ("olmocr-olmo2-pg4", {}),
        ("docling-2305.03393v1-pg9", {}),
        ("olmocr-math_2503_04086", {}),
    ],
)
def test_real_pages_lose_hardly_a_word(name: str, options: dict[str, str]) -> None:
    path = REAL / f"{name}.pdf"
    if not path.is_file():
        pytest.skip("the real documents are not here")
    document = oracle_parse(path, **options)
    said = " ".join(
        region.content for page in document.pages for region in page.regions if region.kind not in ("image", "chart")
    )
    pictures = [(p.index, r.bbox) for p in document.pages for r in p.regions if r.kind in ("image", "chart")]
    wanted: Counter[str] = Counter()
    with TextLayer(path, options.get("password")) as layer:
        words_by_page = [layer.words(index) for index in range(len(layer))]
    for index, words in enumerate(words_by_page):
        for word in words:
            x, y = word.middle
            if not any(i == index and b[0] <= x <= b[2] and b[1] <= y <= b[3] for i, b in pictures):
                wanted.update(re.findall(r"[^\W_]+", word.text))
    found = Counter(re.findall(r"[^\W_]+", said))
    lost = wanted - found
    # Words broken at a line's end are two in the text layer and one in the output.
    assert lost.total() < 0.06 * wanted.total(), lost
