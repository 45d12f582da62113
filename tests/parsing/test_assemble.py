"""Line by line to regions: what the texts of the lines tell about the region."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mineru_diffusion.document.types import BBox, Region
from mineru_diffusion.engine.types import Result
from mineru_diffusion.parsing.assemble import finish_region
from mineru_diffusion.parsing.crops import RegionJob
from mineru_diffusion.parsing.ink import Box
from mineru_diffusion.parsing.lines import TextLine


def job(kind: str, lines: Sequence[str | Sequence[str]], *, top: float = 0.3, short: Sequence[int] = ()) -> RegionJob:
    """A region whose lines say this; a line of several strings was cut into pieces at wide gaps."""
    made: list[TextLine] = []
    boxes: list[BBox] = []
    piece_line, results = [], []
    for i, texts in enumerate(lines):
        pieces = [texts] if isinstance(texts, str) else list(texts)
        right = 200 if i in short else 500
        cuts: tuple[Box, ...] = tuple(
            (right * n // len(pieces), 24 * i, right * (n + 1) // len(pieces), 24 * i + 20) for n in range(len(pieces))
        )
        made.append(TextLine((0, 24 * i, right, 24 * i + 20), cuts, 18, 15, short=i in short))
        boxes.append((0.1, top + 0.02 * i, 0.9, top + 0.02 * i + 0.015))
        piece_line += [i] * len(pieces)
        results += [Result(text, (1,) * len(text), (0.9,) * len(text)) for text in pieces]
    bbox = (0.1, top, 0.9, boxes[-1][3])
    region = Region(kind, bbox, 0, source={"layout": "x"}, lines=tuple(boxes))
    return RegionJob(region, tuple(made), True, piece_line, list(results))


def said(made: RegionJob) -> list[tuple[str, str]]:
    return [(region.kind, region.content) for region in finish_region(made)]


def test_a_running_head_in_the_first_text_is_taken_off() -> None:
    lines = [("400", "BRITISH HUSBANDRY.", "[Ch. 2."), "any was very trifling. Since", "the use of bones."]
    assert said(job("text", lines, top=0.08)) == [
        ("header", "400 BRITISH HUSBANDRY. [Ch. 2."),
        ("text", "any was very trifling. Since the use of bones."),
    ]
    head, body = finish_region(job("text", lines, top=0.08))
    assert head.bbox[3] < body.bbox[1]
    assert len(head.lines) == 1
    # Further down it is a line of the text, and so is one without a page number at its end.
    assert [kind for kind, _ in said(job("text", lines, top=0.3))] == ["text"]
    assert [kind for kind, _ in said(job("text", [("Name", "Place"), *lines[1:]], top=0.08))] == ["text"]


def test_small_print_taken_for_references_keeps_its_sentences() -> None:
    lines = ["In November 2023 a board issued a", "new standard. We adopted it in our", "report of the year after."]
    ((region,),) = [finish_region(job("ref_text", lines))]
    assert region.kind == "text"
    assert region.source["detected"] == "ref_text"
    assert region.content == " ".join(lines)
    numbered = ["1. Reza Akhtar, On the unitary", "graph of a ring.", "2. Milan Basic, Maximal", "diameter."]
    assert said(job("ref_text", numbered)) == [
        ("ref_text", "1. Reza Akhtar, On the unitary graph of a ring.\n\n2. Milan Basic, Maximal diameter.")
    ]


def test_a_number_at_the_edge_is_no_reference() -> None:
    assert said(job("ref_text", ["Page 2 of 6"], top=0.93)) == [("page_number", "Page 2 of 6")]
    assert said(job("ref_text", ["Page 2 of 6"], top=0.5))[0][0] == "ref_text"
    assert said(job("ref_text", ["Figure 3: A map"], top=0.93))[0][0] == "image_caption"


def test_a_heading_in_the_text_is_a_paragraph_of_its_own() -> None:
    lines = [
        "Recently Issued Pronouncements",
        "In November the board issued a new",
        "standard that we adopted.",
        "And more.",
    ]
    assert said(job("text", lines, short=[0])) == [
        (
            "text",
            "Recently Issued Pronouncements\n\nIn November the board issued a new standard that we adopted. And more.",
        )
    ]
    lines[1] = "of the board, in November, a new"
    assert "\n\n" not in said(job("text", lines, short=[0]))[0][1]


def test_statements_are_code() -> None:
    lines = ["function add(a, b) {", "return a + b;", "}", "console.log(add(3, 5));"]
    assert said(job("text", lines)) == [("code", "\n".join(lines))]
    assert said(job("text", ["First; then", "second; and", "a third (of several);"]))[0][0] == "text"


def test_a_formula_in_large_type_is_no_heading() -> None:
    assert said(job("title", ["a 2 + 8 = 12"])) == [("text", "a 2 + 8 = 12")]
    assert said(job("title", ["Why E = mc2 holds"])) == [("title", "Why E = mc2 holds")]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Figure 3: A map", "image_caption"),
        ("Fig. 2a. A map", "image_caption"),
        ("Table A.1 | Figures", "table_caption"),
        ("Listing 1: Simple program", "code_caption"),
        ("Algorithm 2. Sorting", "code_caption"),
        ("Code listing 4.1: Sorting", "code_caption"),
        ("Listing 1 shows the program", "text"),
        ("Code is poetry: 1 of 2", "text"),
        ("Algorithms 1: none", "text"),
    ],
)
def test_captions_by_their_first_words(text: str, kind: str) -> None:
    assert said(job("text", [text])) == [(kind, text)]
