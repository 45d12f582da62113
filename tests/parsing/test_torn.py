"""Lines that a layout tore off: of listings, of paragraphs; and those that only look like it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import typst
from hypothesis import given
from hypothesis import strategies as st
from parsing_fakes import FixedDetector

from mineru_diffusion import parse
from mineru_diffusion.document.types import BBox, Document, Region
from mineru_diffusion.evaluation.oracle import Oracle
from mineru_diffusion.evaluation.text_layer import TextLayer
from mineru_diffusion.parsing.orientation import turn_back
from mineru_diffusion.parsing.torn import mend

PITCH = 0.02
LEAST_STEP = 0.008
"""From line to line of a page, in parts of its height."""
CODE = ("while (true) {", "  step(1);", "}")
PROSE = ("The keeper went down to the water and saw", "that the boat had gone, which he had not", "seen for years,")


def region(kind: str, texts: tuple[str, ...], *, row: float = 0.0, left: float = 0.1, right: float = 0.9) -> Region:
    """Lines at rows of the page."""
    lines = tuple((left, 0.3 + PITCH * (row + i), right, 0.315 + PITCH * (row + i)) for i in range(len(texts)))
    box = (left, lines[0][1], right, lines[-1][3])
    return Region(kind, box, content="\n".join(texts), finish_reason="stop", lines=lines, line_texts=texts)


def mended(*regions: Region, like_body: bool = True) -> list[Region]:
    numbered = [replace(r, order=i) for i, r in enumerate(regions)]
    return mend(numbered, range(len(numbered)) if like_body else (), 0.7)


def kinds(*regions: Region, like_body: bool = True) -> list[str]:
    return [r.kind for r in mended(*regions, like_body=like_body)]


@pytest.mark.parametrize("row", [3, 4, -1], ids=["below", "after an empty line", "above"])
@pytest.mark.parametrize("angle", [0, 90, 180, 270])
def test_a_statement_beside_a_listing_is_of_it(row: int, angle: int) -> None:
    def turned(made: Region) -> Region:
        lines = tuple(turn_back(box, angle) for box in made.lines)
        return replace(made, bbox=turn_back(made.bbox, angle), lines=lines, angle=angle)

    listing = replace(region("code", CODE, right=0.3), confidence=0.9)
    line = replace(region("text", ("done(2);",), row=row, right=0.22), confidence=0.5, warnings=("told",))
    (found,) = mended(turned(listing), turned(line))
    assert (found.kind, found.warnings) == ("code", ("told",))
    rows = found.content.split("\n")
    assert rows[0 if row < 0 else 3] == "done(2);"
    assert len(found.lines) == len(found.line_texts) == len(rows) == 4
    assert found.confidence is not None
    assert 0.5 < found.confidence < 0.9


@pytest.mark.parametrize(
    "other",
    [
        region("text", ("So it goes on for ever.",), row=3),
        region("text", ("as Smith has found (2004)",), row=3),
        region("text", ("done(2);", "and so it went"), row=3),
        region("text", ("done(2);",), row=6),
        region("text", ("done(2);",), row=3, left=0.05),
        region("text", ("done(2);",), row=3, left=0.5),
        region("image", ("done(2);",), row=3),
        replace(region("text", ("done(2);",), row=3), finish_reason="length"),
    ],
)
def test_other_text_beside_a_listing_stays(other: Region) -> None:
    listing = region("code", CODE, right=0.4)
    assert [(r.kind, r.content) for r in mended(listing, other)] == [
        (listing.kind, listing.content),
        (other.kind, other.content),
    ]


def test_the_last_line_of_a_paragraph_is_no_reference() -> None:
    paragraph, aside = region("text", PROSE), region("text", ("Elsewhere.",), row=0, left=0.92, right=0.99)
    line = region("ref_text", ("and never saw again.",), row=3, right=0.5)
    found = mended(paragraph, aside, line)
    assert [r.content for r in found] == [paragraph.content, line.content, aside.content]
    assert found[1].kind == "text"
    assert found[1].source == {"detected": "ref_text", "continued": "lines"}
    # Where the paragraph's last line is short, a new one begins.
    ended = replace(paragraph, lines=(*paragraph.lines[:2], (0.1, *paragraph.lines[2][1:2], 0.5, 0.355)))
    assert ["continued" in r.source for r in mended(ended, line)] == [False, False]
    assert ["continued" in r.source for r in mended(paragraph, replace(line, angle=90))] == [False, False]


def test_short_paragraphs_are_no_references() -> None:
    alone = region("ref_text", ("Stock of the year was not significant.",), row=10)
    assert kinds(region("text", PROSE), alone) == ["text", "text"]
    assert kinds(region("text", PROSE), alone, like_body=False)[1] == "ref_text"
    assert kinds(region("table", PROSE), alone)[1] == "ref_text"  # nothing shows what body text looks like
    assert kinds(region("text", ("Oct", "20", "51")), alone)[1] == "ref_text"
    longer = region("ref_text", ("1. One, A book.", "2. Two, A paper,", "and another."), row=20)
    assert kinds(region("text", PROSE), alone, longer) == ["text", "ref_text", "ref_text"]


@pytest.mark.parametrize("text", ["2 See the report.", "* Corresponding author.", "[3] A book.", "† Deceased.", ""])
def test_notes_with_a_mark_stay(text: str) -> None:
    assert kinds(region("text", PROSE), region("ref_text", (text,), row=3)) == ["text", "ref_text"]


@given(
    st.lists(
        st.builds(
            region,
            st.sampled_from(["text", "code", "ref_text", "title", "image"]),
            st.lists(st.sampled_from([*CODE, *PROSE, "1. x", ""]), min_size=1, max_size=4).map(tuple),
            row=st.integers(0, 12),
            left=st.sampled_from([0.1, 0.12, 0.5]),
        ),
        max_size=6,
    )
)
def test_nothing_is_lost_or_made_up(regions: list[Region]) -> None:
    found = mended(*regions)
    assert sorted(t for r in found for t in r.line_texts) == sorted(t for r in regions for t in r.line_texts)
    assert len({r.order for r in found}) == len(found)


PAGE = """
#set page(paper: "a5", margin: 2cm)
#set text(size: 10pt)
#set par(justify: true)
#lorem(56)

#v(8mm)
```
function twice(a) {
    return a + a;
}
print(twice(4));
```
#v(8mm)
= A heading
#text(size: 7pt)[With no more to say of it, and set in small type.]
"""


def torn_parse(path: Path) -> Document:
    """The page's paragraph and listing with their last lines torn off."""
    with TextLayer(path) as layer:
        words = sorted(layer.words(0), key=lambda word: word.middle[1])
    rows: list[list[BBox]] = []
    height = 0.0
    for word in words:
        if word.middle[1] - height > LEAST_STEP:
            rows.append([])
        height = word.middle[1]
        rows[-1].append(word.box)

    def around(part: list[BBox]) -> BBox:
        return tuple(f(b[i] for b in part) for i, f in enumerate((min, min, max, max)))  # type: ignore[return-value]

    boxes = [around(row) for row in rows]
    prose, code, rest = boxes[:-6], boxes[-6:-2], boxes[-2:]
    found = [
        Region("text", around(prose[:-1]), 0),
        Region("ref_text", prose[-1], 1),
        Region("text", around(code[:-1]), 2),
        Region("text", code[-1], 3),
        Region("title", rest[0], 4),
        Region("ref_text", rest[1], 5),
    ]
    with closing(Oracle(path, detector=FixedDetector(*found))) as oracle:
        return parse(path, engine=oracle, detector=oracle)


def test_a_page_torn_by_its_layout(tmp_path: Path) -> None:
    path = tmp_path / "page.pdf"
    path.write_bytes(typst.compile(PAGE.encode(), format="pdf"))
    document = torn_parse(path)
    regions = document.pages[0].regions
    assert [r.kind for r in regions] == ["text", "text", "code", "title", "ref_text"]
    assert [r.order for r in regions] == list(range(5))
    assert regions[3].level == 1  # its height has moved with it
    blocks = document.to_markdown().strip().split("\n\n")
    assert blocks[0].startswith("Lorem ipsum")
    assert blocks[1].startswith("```")
    assert "function twice(a) {\n    return a + a;\n}\nprint(twice(4));\n```" in blocks[1]
    assert blocks[2] == "# A heading"
