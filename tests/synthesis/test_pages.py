"""Pages: the boxes stand where the ink is, hold what typst put there, and come in reading order."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mineru_diffusion.document.layout_grammar import parse_layout, unparsed_layout
from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis import pages
from mineru_diffusion.synthesis.inline import plain_words
from mineru_diffusion.synthesis.page_blocks import BoxBlock, Geometry, Group, PageSource, Style, TextBlock
from mineru_diffusion.synthesis.page_typst import build
from mineru_diffusion.synthesis.pages import PageStream, RegionStream, cut_regions
from mineru_diffusion.synthesis.sample import LayoutBox, Sample
from mineru_diffusion.synthesis.scans import Tilt

pytest.importorskip("wordfreq")
pytest.importorskip("typst")

from tests.synthesis.typst_texts import FAMILIES, letters, open_pdf

COUNT = 10
GEOMETRY = Geometry(400, 300, 30, 30, 40, 40, columns=2, gutter=16)
STYLE = Style("Libertinus Serif", 9.0, justified=True)
PROSE = "Considerable internationalisation characterises administrations everywhere nowadays unquestionably " * 14
# Pieces whose text a PDF gives back letter by letter; it turns figures' and formulas' letters into others.
TEXTUAL = ("text", "title", "list", "ref_text", "page_footnote", "header", "footer", "page_number")


def stream(seed: int = 1, **options: float) -> PageStream:
    return PageStream(seed, families=FAMILIES, dpi=(90, 90), **options)


@pytest.fixture(scope="module")
def drawn() -> list[tuple[Sample, str]]:
    """Clean pages, each with the typst source that it was drawn from."""
    sources: list[str] = []
    draw = pages.draw_pages

    def spy(source: str, ppi: float) -> list[np.ndarray]:
        sources.append(source)
        return draw(source, ppi)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "draw_pages", spy)
        samples = [stream(degrade=0).sample(i) for i in range(COUNT)]
    return list(zip(samples, sources, strict=True))


def ink_of(image: np.ndarray) -> np.ndarray:
    grey = image if image.ndim == 2 else image.mean(axis=2)
    return np.abs(grey - np.median(grey)) > 50


def pixels(box: LayoutBox, shape: tuple[int, ...]) -> tuple[slice, slice]:
    height, width = shape[:2]
    x0, y0, x1, y1 = np.array(box.bbox) * (width, height, width, height)
    return slice(int(y0), int(np.ceil(y1))), slice(int(x0), int(np.ceil(x1)))


def test_boxes_hold_the_ink(drawn: list[tuple[Sample, str]]) -> None:
    shares = []
    for sample, _ in drawn:
        ink = ink_of(sample.image)
        outside = ink.copy()
        for box in sample.layout:
            place = pixels(box, ink.shape)
            assert ink[place].any(), (sample.source["index"], box)
            outside[place] = False
        shares.append(1 - outside.sum() / ink.sum())
    # What stands outside are rules: under a header, over a footer, before footnotes.
    assert np.mean(shares) > 0.98
    assert min(shares) > 0.9


def test_boxes_are_no_larger_than_their_ink(drawn: list[tuple[Sample, str]]) -> None:
    covered = []
    for sample, _ in drawn:
        ink = ink_of(sample.image)
        for box in sample.layout:
            rows, columns = (np.flatnonzero(ink[pixels(box, ink.shape)].any(axis=axis)) for axis in (1, 0))
            place = pixels(box, ink.shape)
            size = (place[0].stop - place[0].start) * (place[1].stop - place[1].start)
            covered.append(np.ptp(rows) * np.ptp(columns) / size)
    assert np.mean(covered) > 0.8


def text_in(page: Any, bbox: tuple[float, float, float, float]) -> str:
    width, height = page.get_size()
    x0, y0, x1, y1 = np.array(bbox) * (width, height, width, height) + (-1, 0.5, 1, -0.5)
    text: str = page.get_textpage().get_text_bounded(x0, height - y1, x1, height - y0)
    return text


def test_boxes_hold_their_own_text(drawn: list[tuple[Sample, str]]) -> None:
    checked = 0
    for sample, source in drawn:
        wanted = [(box.bbox, letters(box.content)) for box in sample.layout if box.kind in TEXTUAL]
        checked += len(wanted)
        # A source may run over several pages, of which the sample is one.
        found = [[letters(text_in(page, bbox)) for bbox, _ in wanted] for page in open_pdf(source)]
        assert [text for _, text in wanted] in found, sample.source["index"]
    assert checked > 40


def test_the_target_says_what_the_boxes_say(drawn: list[tuple[Sample, str]]) -> None:
    for sample, _ in drawn:
        parsed = parse_layout(sample.target)
        assert not unparsed_layout(sample.target)
        assert [(b.kind, b.angle) for b in parsed] == [(b.kind, b.angle) for b in sample.layout]
        for read, box in zip(parsed, sample.layout, strict=True):
            np.testing.assert_allclose(read.bbox, box.bbox, atol=0.0011)
            assert not read.warnings


def test_every_kind_of_content_comes() -> None:
    kinds = {box.kind for i in range(25) for box in stream(seed=3, degrade=0).sample(i).layout}
    assert {
        "text",
        "title",
        "list",
        "table",
        "equation",
        "image",
        "chart",
        "image_caption",
        "header",
        "footer",
    } <= kinds
    assert {"page_number", "table_caption"} <= kinds


def test_any_page_alone_and_by_another_process() -> None:
    copy = pickle.loads(pickle.dumps(stream(seed=6)))
    for i in (0, 3):
        once, again = stream(seed=6).sample(i), copy.sample(i)
        assert (once.target, once.layout, once.source) == (again.target, again.layout, again.source)
        np.testing.assert_array_equal(once.image, again.image)


def test_a_paragraph_across_columns_becomes_two_boxes() -> None:
    block = TextBlock("text", (tuple(plain_words(PROSE)),), STYLE)
    _, pieces = build(PageSource(GEOMETRY, (block,)))
    assert [piece.continued for piece in pieces] == [False, True]
    left, right = (piece.box for piece in pieces)
    (left_start, left_end), (right_start, right_end) = GEOMETRY.column(30), GEOMETRY.column(390)
    assert left_start - 1 <= left[0] < left[2] <= left_end + 1
    assert right_start - 1 <= right[0] < right[2] <= right_end + 1
    assert right[1] == pytest.approx(GEOMETRY.top, abs=1)
    assert " ".join(piece.content for piece in pieces) == PROSE.strip()


def test_no_word_is_torn_between_columns() -> None:
    """Long words in narrow columns: somewhere one would be hyphenated at a column's end."""
    torn = 0
    for shift in range(12):
        words = tuple(plain_words("x " * shift + PROSE))
        source, pieces = build(PageSource(GEOMETRY, (TextBlock("text", (words,), STYLE),)))
        torn += source.count("box({")
        page = open_pdf(source)[0].get_textpage()
        for piece in pieces:
            x0, y0, x1, y1 = piece.box
            found = page.get_text_bounded(x0 - 1, GEOMETRY.height - y1, x1 + 1, GEOMETRY.height - y0)
            assert letters(found) == letters(piece.content)
    assert torn > 0, "no word had to be kept whole, so that this test says little"


def test_order_is_header_floats_flow_floats_footer() -> None:
    def text(kind: str, words: str) -> TextBlock:
        return TextBlock(kind, (tuple(plain_words(words)),), replace(STYLE, justified=False), whole=True, spanning=True)

    flow = (
        Group((text("page_footnote", "note"),), place="bottom"),
        replace(text("text", "first words"), spanning=False),
        Group((text("title", "head"),), place="top", spanning=True),
        BoxBlock("image", "rect(width: 50pt, height: 20pt)", ""),
    )
    _, pieces = build(PageSource(GEOMETRY, flow, (text("header", "above"),), (text("page_number", "7"),)))
    assert [p.kind for p in pieces] == ["header", "title", "text", "image", "page_footnote", "page_number"]
    image = next(p for p in pieces if p.kind == "image")
    assert image.box[2] - image.box[0] == pytest.approx(50)
    assert image.box[3] - image.box[1] == pytest.approx(20)


def test_what_is_turned_says_so_and_is_cut_upright() -> None:
    turned = BoxBlock("aside_text", "text(size: 12pt)[some words going up]", "some words going up", angle=-90)
    source, (piece,) = build(PageSource(GEOMETRY, (turned,)))
    assert piece.angle == 270
    assert piece.box[3] - piece.box[1] > 3 * (piece.box[2] - piece.box[0])
    box = tuple(v / side for v, side in zip(piece.box, (400, 300, 400, 300), strict=True))
    page = Sample(pages.draw_pages(source, 144)[0], "layout", "", (LayoutBox(piece.kind, box, piece.content, 270),))
    (region,) = cut_regions(page, np.random.default_rng(0))
    upright = build(PageSource(GEOMETRY, (replace(turned, angle=0),)))[0]
    plain = pages.draw_pages(upright, 144)[0]
    assert region.image.shape[1] > 2 * region.image.shape[0]
    assert profile(region.image) == pytest.approx(profile(plain), abs=0.05)


def profile(image: np.ndarray) -> list[float]:
    """How the ink is shared between the four quarters of its width: another for text turned the other way."""
    ink = ink_of(image)
    columns = np.flatnonzero(ink.any(axis=0))
    ink = ink[:, columns[0] : columns[-1] + 1]
    return [part.sum() / ink.sum() for part in np.array_split(ink, 4, axis=1)]


def test_tilted_boxes_stay_around_tilted_ink() -> None:
    page = np.full((300, 200), 255, dtype=np.uint8)
    page[60:90, 20:150] = 0
    for degrees in (-3.0, 0.0, 2.0):
        tilt = Tilt(float(np.deg2rad(degrees)), 300, 200)
        rows, columns = (np.flatnonzero((tilt.turn(page, 255) < 128).any(axis=axis)) for axis in (1, 0))
        x0, y0, x1, y1 = np.array(tilt.box((0.1, 0.2, 0.75, 0.3))) * (200, 300, 200, 300)
        assert (x0, y0) == pytest.approx((columns[0], rows[0]), abs=1.5)
        assert (x1, y1) == pytest.approx((columns[-1] + 1, rows[-1] + 1), abs=1.5)


def test_worn_pages_keep_their_boxes_on_the_ink() -> None:
    worn = [s for i in range(12) if (s := stream(seed=8, degrade=1.0).sample(i)).source["tilt_degrees"]]
    assert worn, "no page was tilted, so that this test says nothing"
    for sample in worn:
        ink = np.asarray(Image.fromarray(ink_of(sample.image)).convert("L")) > 0
        inside = np.zeros_like(ink)
        for box in sample.layout:
            inside[pixels(box, ink.shape)] = True
        # Uneven light makes paper look like ink in places, but what is in boxes must be much denser.
        assert ink[inside].mean() > 2 * ink[~inside].mean()


def test_regions_are_cut_with_their_truth(drawn: list[tuple[Sample, str]]) -> None:
    rng = np.random.default_rng(0)
    for sample, _ in drawn[:4]:
        regions = cut_regions(sample, rng)
        expected = [box for box in sample.layout if box.content]
        assert [r.target for r in regions] == [box.content for box in expected]
        tasks = {"table": "table", "equation": "formula"}
        assert [r.task for r in regions] == [tasks.get(box.kind, "text") for box in expected]
        assert all(ink_of(r.image).any() for r in regions)
    with pytest.raises(UsageError, match="task 'text'"):
        cut_regions(Sample(np.zeros((9, 9), np.uint8), "text", "x"), rng)


def test_region_streams_can_begin_anywhere() -> None:
    def regions() -> RegionStream:
        return RegionStream(2, families=FAMILIES)

    running = regions()
    for i in (0, 1, 9):
        once, again = running.sample(i), regions().sample(i)
        assert (once.task, once.target, once.source) == (again.task, again.target, again.source)
        np.testing.assert_array_equal(once.image, again.image)
        assert once.source["index"] == i


def test_bad_arguments() -> None:
    with pytest.raises(UsageError, match="negative"):
        stream(seed=-1)
    with pytest.raises(UsageError, match="resolution"):
        PageStream(0, dpi=(200, 100), families=FAMILIES)
