from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.document.captions import attach_captions
from mineru_diffusion.document.content_list import content_list
from mineru_diffusion.document.export_options import ExportOptions
from mineru_diffusion.document.flow import PAGE_ERROR, Block, flow
from mineru_diffusion.document.html_tables import parse_html_table
from mineru_diffusion.document.markdown import document_to_markdown
from mineru_diffusion.document.table_merge import append_rows, repeats_caption, says_it_goes_on
from mineru_diffusion.document.tables import table_from_rows, table_to_html
from mineru_diffusion.document.types import KINDS, Document, Page, Region

LEFT, RIGHT, WIDE = (0.1, 0.1, 0.48, 0.9), (0.52, 0.1, 0.9, 0.9), (0.1, 0.1, 0.9, 0.9)


def region(kind: str, content: str = "", bbox: tuple[float, float, float, float] = WIDE, **fields: Any) -> Region:
    return Region(kind, bbox, content=content, **fields)


def pages(*made: list[Region]) -> Document:
    return Document("x.pdf", tuple(Page(index, 600, 800, tuple(regions)) for index, regions in enumerate(made)))


def table(*rows: str, header: bool = False) -> str:
    return table_to_html(table_from_rows([row.split("|") for row in rows], header_rows=int(header)))


def contents(blocks: list[Block]) -> list[str]:
    return [block.content for block in blocks]


def test_paragraph_over_columns_and_pages_knows_its_parts() -> None:
    document = pages(
        [
            region("text", "The first column ends with infor-", LEFT),
            region("text", "mation and the state-of-the-", RIGHT),
        ],
        [region("header", "H"), region("text", "art of it.\n\nAnother one.", LEFT)],
    )
    (block,) = flow(document)
    assert block.content == "The first column ends with information and the state-of-the-art of it.\n\nAnother one."
    assert [(part.page, part.region.bbox) for part in block.parts] == [(0, LEFT), (0, RIGHT), (1, LEFT)]
    assert contents(flow(document, furniture=True)) == [block.content, "H"]


def test_list_item_and_reference_go_on() -> None:
    first = region("list", "- one\n- the second item is longer than", LEFT)
    assert contents(flow(pages([first, region("text", "the column it stands in", RIGHT)]))) == [
        "- one\n- the second item is longer than the column it stands in"
    ]
    assert contents(flow(pages([first], [region("list", "the page\n- three", LEFT)]))) == [
        "- one\n- the second item is longer than the page\n- three"
    ]
    assert len(flow(pages([first, region("text", "The next paragraph", RIGHT)]))) == 2
    refs = region("ref_text", "[1] A.\n\n[2] B and C, A very long title of a", LEFT)
    assert contents(flow(pages([refs, region("ref_text", "paper.\n\n[3] D.", RIGHT)]))) == [
        "[1] A.\n\n[2] B and C, A very long title of a paper.\n\n[3] D."
    ]


def test_text_goes_on_past_notes_and_notes_past_text() -> None:
    document = pages(
        [
            region("text", "The left column goes on in the", (0.1, 0.1, 0.48, 0.7)),
            region("ref_text", "1) A note that is longer than", (0.1, 0.75, 0.48, 0.9)),
            region("text", "right one.", (0.52, 0.1, 0.9, 0.7)),
            region("ref_text", "its column.", (0.52, 0.75, 0.9, 0.9)),
        ]
    )
    assert contents(flow(document)) == [
        "The left column goes on in the right one.",
        "1) A note that is longer than its column.",
    ]


def test_headings_of_several_lines() -> None:
    first = region("title", "CORPORATE RESPONSIBILITY:", (0.5, 0.1, 0.8, 0.12), level=2)
    second = region("title", "THE CONTEXT", (0.5, 0.121, 0.7, 0.14), level=2)
    assert contents(flow(pages([first, second]))) == ["CORPORATE RESPONSIBILITY: THE CONTEXT"]
    third = region("title", "NEXT", (0.5, 0.141, 0.7, 0.16), level=2)
    assert contents(flow(pages([first, second, third])))[1:] == ["NEXT"]
    far = region("title", "THE CONTEXT", (0.5, 0.3, 0.7, 0.32), level=2)
    lower = region("title", "THE CONTEXT", (0.5, 0.121, 0.7, 0.14), level=3)
    for other in (far, lower):
        assert len(flow(pages([first, other]))) == 2
    assert len(flow(pages([first], [second]))) == 2


def test_lists_that_follow_each_other_are_one_if_they_count_on() -> None:
    assert contents(flow(pages([region("list", "1. a\n2. b"), region("list", "3. c")]))) == ["1. a\n2. b\n3. c"]
    assert len(flow(pages([region("list", "1. a\n2. b"), region("list", "1. c")]))) == 2
    assert len(flow(pages([region("list", "1. a"), region("title", "T"), region("list", "2. c")]))) == 3
    assert len(flow(pages([region("list", "a\nb"), region("list", "- c")]))) == 2
    assert len(flow(pages([region("list", "- a"), region("image"), region("list", "- c")]))) == 3


def test_table_on_two_pages_is_one_by_default_and_two_on_demand() -> None:
    first = region("table", table("h|k", "1|2"), (0.1, 0.5, 0.9, 0.95))
    second = region("table", table("h|k", "3|4"), (0.1, 0.1, 0.9, 0.3))
    document = pages(
        [region("text", "Before."), region("table_caption", "Table 2: Sums", (0.1, 0.46, 0.9, 0.48)), first,
         region("page_footnote", "note"), region("footer", "1")],
        [region("header", "H"), region("table_caption", "Table 2 (continued)", (0.1, 0.07, 0.9, 0.09)), second,
         region("table_footnote", "Source: us", (0.1, 0.31, 0.9, 0.33)), region("text", "After.")],
    )  # fmt: skip
    assert document_to_markdown(document) == (
        "Before.\n\nTable 2: Sums\n\n| h | k |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |\n\nSource: us\n\nAfter.\n"
    )
    apart = document_to_markdown(document, ExportOptions(join_tables=False))
    assert apart.count("| h | k |") == 2
    assert "Table 2 (continued)" in apart
    (item,) = [item for item in content_list(document) if item["type"] == "table"]
    assert (item["page_idx"], item["bbox"]) == (0, [100, 500, 900, 950])
    assert item["table_footnote"] == ["Source: us"]


@pytest.mark.parametrize(
    "second",
    [
        [region("table", table("h|k|l", "3|4|5"))],
        [region("table", table("h|k", "3|4"), (0.1, 0.1, 0.6, 0.3))],
        [region("table_caption", "Table 3: Other"), region("table", table("h|k", "3|4"))],
        [region("text", "A sentence."), region("table", table("h|k", "3|4"))],
        [region("table", "no table")],
    ],
)
def test_other_tables_stay_apart(second: list[Region]) -> None:
    first = region("table", table("h|k", "1|2"))
    assert sum(block.kind == "table" for block in flow(pages([first], second))) == 2


def test_a_table_may_go_on_over_many_pages_but_not_over_a_missing_one() -> None:
    parts = [[region("table", table("h|k", f"{i}|x"))] for i in range(4)]
    (block,) = flow(pages(*parts))
    joined = parse_html_table(block.content)
    assert joined is not None
    assert [row[0].text for row in joined.grid()] == ["h", "0", "1", "2", "3"]
    broken = Document("x", (Page(0, 1, 1, tuple(parts[0])), Page(1, 1, 1, error="bad"), Page(2, 1, 1, tuple(parts[1]))))
    assert [block.kind for block in flow(broken)] == ["table", PAGE_ERROR, "table"]


def test_rows_that_only_look_like_a_repeated_head_stay() -> None:
    zeros = table_from_rows([["0", "0"]] * 3)
    assert append_rows(zeros, zeros).n_rows == 6
    data = table_from_rows([["h", "k"], ["1", "2"]])
    assert append_rows(data, table_from_rows([["h", "k"]])).n_rows == 3
    assert append_rows(data, table_from_rows([["H", "k"], ["3", "4"]])).n_rows == 4
    tall = parse_html_table("<table><tr><td rowspan=2>h</td><td>k</td></tr><tr><td>x</td></tr></table>")
    assert tall is not None
    assert append_rows(data, tall).n_rows == 4


texts = st.text(alphabet="ab", max_size=2)
grids = st.integers(1, 3).flatmap(lambda n: st.lists(st.lists(texts, min_size=n, max_size=n), min_size=1, max_size=5))


@given(grids, grids)
def test_joined_tables_keep_every_text(first: list[list[str]], second: list[list[str]]) -> None:
    if len(first[0]) != len(second[0]):
        return
    joined = append_rows(table_from_rows(first), table_from_rows(second))
    rows = [[cell.text for cell in row] for row in joined.grid()]
    dropped = len(first) + len(second) - len(rows)
    assert rows == first + second[dropped:]
    assert second[:dropped] == first[:dropped]


def test_continued_captions() -> None:
    for text in (
        "Table 2 (continued)",
        "Table 2 – continued",
        "Tabelle 1 (Forts.)",
        "表1（续）",
        "Table 4: X (cont'd)",
    ):
        assert says_it_goes_on(text), text
    for text in ("Table 2: Hotel suite", "Table 2", "", "Continued fractions", "Table 1: Costs (continental)"):
        assert not says_it_goes_on(text), text
    assert repeats_caption("Table 2 (continued)", "Table 2: Sums")
    assert not repeats_caption("Table 2: Sums of March (continued)", "Table 2: Sums")


def test_captions_are_shared_out_together() -> None:
    def figure(top: float) -> Region:
        return Region("image", (0.1, top, 0.9, top + 0.2))

    def caption(top: float, kind: str = "image_caption") -> Region:
        return Region(kind, (0.1, top, 0.9, top + 0.02))

    below = [figure(0.1), caption(0.31), figure(0.34), caption(0.55)]
    assert {host: group.captions for host, group in attach_captions(below).items()} == {0: [1], 2: [3]}
    above = [caption(0.1), figure(0.13), caption(0.34), figure(0.37)]
    assert {host: group.captions for host, group in attach_captions(above).items()} == {1: [0], 3: [2]}
    two = [figure(0.1), caption(0.31), caption(0.335)]
    assert attach_captions(two)[0].captions == [1, 2]
    charts = [Region("chart", (0.1, 0.1, 0.9, 0.3)), caption(0.31, "chart_caption"), caption(0.34, "chart_footnote")]
    assert (attach_captions(charts)[0].captions, attach_captions(charts)[0].footnotes) == ([1], [2])
    assert attach_captions([figure(0.0), caption(0.9)]) == {}


def test_captions_stand_where_they_stood() -> None:
    host = region("image", bbox=(0.1, 0.3, 0.9, 0.5), image_path="a.png")
    above = region("image_caption", "above", (0.1, 0.27, 0.9, 0.29))
    below = region("image_caption", "below", (0.1, 0.51, 0.9, 0.53))
    for order in ([above, host, below], [host, above, below], [below, above, host]):
        assert document_to_markdown(pages(order)) == "above\n\n![](a.png)\n\nbelow\n"


boxes = st.tuples(*[st.integers(0, 20).map(lambda v: v / 20)] * 4)
words = st.lists(st.sampled_from(["a", "b1", "c.", "d-", "- e", "1. f", "G"]), max_size=8).map(" ".join)
any_regions = st.builds(
    lambda kind, bbox, content: Region(kind, bbox, content=content), st.sampled_from(KINDS), boxes, words
)


@given(st.lists(st.lists(any_regions, max_size=6), max_size=3), st.booleans())
def test_every_region_is_in_the_flow_exactly_once(made: list[list[Region]], join_tables: bool) -> None:
    document = pages(*made)
    seen = [
        id(part.region)
        for block in flow(document, furniture=True, join_tables=join_tables)
        for part in (*block.parts, *block.captions, *block.footnotes)
    ]
    assert sorted(seen) == sorted(id(region) for page in document.pages for region in page.regions)


@given(st.lists(st.lists(any_regions, max_size=6), max_size=3))
def test_no_letter_is_lost_on_the_way_to_markdown(made: list[list[Region]]) -> None:
    text = document_to_markdown(pages(*made), ExportOptions(furniture=True))
    for letter in "abcdefG":
        expected = sum(region.content.count(letter) for page in made for region in page)
        assert text.count(letter) == expected
