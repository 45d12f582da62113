"""A page that says next to nothing says it in the Markdown: wherever it stands, whatever the page's size, and whatever
the detector takes it for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsing_fakes import REGION_PROFILE, FakeEngine, font
from PIL import Image, ImageDraw

from mineru_diffusion.document.markdown import document_to_markdown
from mineru_diffusion.document.types import FURNITURE, KINDS, Document, Page, Region
from mineru_diffusion.engine.types import CheckpointProfile
from mineru_diffusion.parsing import parse
from mineru_diffusion.parsing.furniture import running_heads
from mineru_diffusion.parsing.layout_rapid import RapidLayoutDetector

PROFILE = CheckpointProfile(tasks=("text",), prompts=REGION_PROFILE.prompts)
HEADS = ("header", "footer", "aside_text", "page_footnote")


@pytest.fixture(scope="module")
def detector() -> RapidLayoutDetector:
    return RapidLayoutDetector()


@pytest.mark.parametrize("size", [(1240, 1754), (1754, 1240), (700, 200), (420, 90), (800, 800)], ids=str)
@pytest.mark.parametrize("place", [0.02, 0.08, 0.4, 0.75, 0.9])
def test_one_line_anywhere_on_any_page_is_in_the_markdown(
    tmp_path: Path, detector: RapidLayoutDetector, size: tuple[int, int], place: float
) -> None:
    image = Image.new("RGB", size, "white")
    height = max(16, min(32, size[1] // 9))
    top = min(place * size[1], size[1] - 2 * height)
    ImageDraw.Draw(image).text((0.06 * size[0], top), "Hello World, said they", fill=0, font=font(height))
    image.save(tmp_path / "a.png")
    document = parse(tmp_path / "a.png", engine=FakeEngine(lambda r: "Hello World", PROFILE), detector=detector)
    assert "Hello World" in document_to_markdown(document)


def page(index: int, *regions: tuple[str, float, str]) -> Page:
    made = (Region(k, (0.1, y, 0.5, y + 0.02), n, content=text) for n, (k, y, text) in enumerate(regions))
    return Page(index, 600, 800, tuple(made))


def kinds(*pages: Page) -> list[list[str]]:
    return [[region.kind for region in page.regions] for page in running_heads(pages)]


@pytest.mark.parametrize("kind", HEADS)
def test_what_a_page_says_alone_is_its_text(kind: str) -> None:
    (after,) = running_heads([page(0, (kind, 0.95, "Hello World"))])
    assert after.regions[0].kind == "text"
    assert after.regions[0].source["detected"] == kind
    assert kinds(page(0, ("header", 0.02, "Top"), ("footer", 0.95, "Bottom"), ("page_number", 0.97, "3"))) == [
        ["text", "text", "page_number"]
    ]
    assert kinds(page(0, (kind, 0.95, "Hello"), ("text", 0.3, "More."))) == [[kind, "text"]]
    assert kinds(page(0, (kind, 0.95, "Hello"), ("image", 0.3, ""))) == [[kind, "image"]]


def test_a_blank_page_of_a_report_has_its_running_head_only() -> None:
    full = page(0, ("header", 0.02, "Report 1"), ("text", 0.3, "Words."))
    assert kinds(full, page(1, ("header", 0.025, "Report 2"))) == [["header", "text"], ["header"]]
    assert kinds(full, page(1, ("header", 0.4, "Report 2"))) == [["header", "text"], ["text"]]
    assert kinds(full, page(1, ("header", 0.02, "Part Two"))) == [["header", "text"], ["text"]]


def test_a_line_that_comes_again_on_pages_without_anything_else_stays() -> None:
    assert kinds(*(page(i, ("text", 0.02, f"Slide {i} of three")) for i in range(3))) == [["text"]] * 3
    assert kinds(*(page(i, ("header", 0.02, f"Slide {i} of three")) for i in range(3))) == [["text"]] * 3


regions = st.tuples(st.sampled_from(KINDS), st.sampled_from((0.01, 0.02, 0.5, 0.95)), st.sampled_from(("", "a", "b 1")))


@given(st.lists(st.lists(regions, max_size=3), max_size=4))
def test_no_page_with_text_is_left_out_unless_its_text_runs_along_others(made: list[list[Any]]) -> None:
    pages = running_heads([page(i, *found) for i, found in enumerate(made)])

    def body(p: Page) -> bool:
        return any(r.kind not in FURNITURE and (r.content or r.kind == "image") for r in p.regions)

    for p in pages:
        if body(p):
            continue
        for r in p.regions:
            assert (
                not r.content
                or r.kind == "page_number"
                or any(body(other) and any(o.content[:1] == r.content[:1] for o in other.regions) for other in pages)
            )
    document = Document("x", tuple(pages))
    assert [len(p.regions) for p in document.pages] == [len(found) for found in made]
