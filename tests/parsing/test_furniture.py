from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.document.types import KINDS, Page, Region
from mineru_diffusion.parsing.furniture import lone_page_number, running_heads

BODY = [
    Region("text", (0.1, 0.1, 0.9, 0.3), 0, content="One."),
    Region("text", (0.1, 0.35, 0.9, 0.6), 1, content="Two."),
]


def number(content: str = "62", top: float = 0.65, **fields: Any) -> Region:
    return Region("text", (0.45, top, 0.5, top + 0.01), 2, content=content, **fields)


def kinds(*regions: Region) -> list[str]:
    return [region.kind for region in lone_page_number(regions)]


def test_a_number_alone_below_or_above_all_is_the_page_number() -> None:
    assert kinds(*BODY, number()) == ["text", "text", "page_number"]
    assert kinds(*BODY, number("- iv 2 -")) == ["text", "text", "text"]
    assert kinds(*BODY, number("Page 3 of 9", top=0.05)) == ["text", "text", "page_number"]
    assert kinds(*BODY, number(top=0.32)) == ["text", "text", "text"]  # between the two
    assert kinds(*BODY, number(top=0.605)) == ["text", "text", "text"]  # hard below the second
    assert kinds(*BODY, number("1984 was")) == ["text", "text", "text"]
    assert kinds(*BODY, number("mix")) == ["text", "text", "text"]


def test_a_page_with_little_else_keeps_its_number() -> None:
    assert kinds(number()) == ["text"]
    assert kinds(BODY[0], number()) == ["text", "text"]


def pages(*texts: str, top: float = 0.03, kind: str = "text") -> list[Page]:
    return [
        Page(i, 600, 800, (Region(kind, (0.1, top, 0.5, top + 0.02), 0, content=text), BODY[1]))
        for i, text in enumerate(texts)
    ]


def first_kinds(made: list[Page]) -> list[str]:
    return [page.regions[0].kind for page in running_heads(made)]


def test_what_comes_again_in_the_margin_is_a_header_or_footer() -> None:
    assert first_kinds(pages("Report 1", "Report  2", "REPORT 3")) == ["header"] * 3
    assert first_kinds(pages("Report", "Report", "Report", "Other", top=0.95)) == ["footer"] * 3 + ["text"]
    assert first_kinds(pages("Report", "Report")) == ["text"] * 2
    assert first_kinds(pages("Report", "Report", "Report", top=0.4)) == ["text"] * 3
    assert first_kinds(pages("Agenda", "Agenda", "Agenda", kind="title")) == ["title"] * 3
    assert first_kinds(pages("1", "2", "3")) == ["text"] * 3  # numbers are no running head


def test_only_the_same_place_counts() -> None:
    below = Region("text", (0.1, 0.95, 0.5, 0.97), 0, content="Report")
    assert first_kinds([*pages("Report", "Report"), Page(2, 600, 800, (below, BODY[1]))]) == ["text"] * 3


regions = st.builds(
    lambda kind, x, y, text: Region(kind, (x, y, min(1.0, x + 0.3), min(1.0, y + 0.05)), content=text),
    st.sampled_from(KINDS),
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from(("", "1", "Head 1", "Head 2", "x" * 300)),
)


@given(st.lists(st.lists(regions, max_size=5), max_size=5))
def test_only_kinds_change(made: list[list[Region]]) -> None:
    document = [Page(i, 1, 1, tuple(rs)) for i, rs in enumerate(made)]
    after = [lone_page_number(page.regions) for page in running_heads(document)]
    assert [[(r.bbox, r.content) for r in rs] for rs in after] == [[(r.bbox, r.content) for r in rs] for rs in made]
