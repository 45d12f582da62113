"""Overlapping detections: no text twice, no text lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsing_fakes import draw_lines, font
from PIL import Image, ImageDraw

from mineru_diffusion.parsing.boxes import Found, fit_to_ink, overlap, resolve
from mineru_diffusion.parsing.ink import ink_mask
from mineru_diffusion.parsing.recovery import absorb, blobs, looks_like_text, recover


def kinds(found: list[Found]) -> list[str]:
    return sorted(f.kind for f in found)


def test_the_better_of_two_equal_boxes_stays() -> None:
    found = resolve([Found("text", (0, 0, 100, 50), 0.9), Found("title", (1, 1, 99, 49), 0.6)])
    assert kinds(found) == ["text"]


def test_a_table_owns_the_text_inside() -> None:
    found = resolve([Found("text", (20, 20, 60, 40), 0.95), Found("table", (0, 0, 300, 200), 0.8)])
    assert kinds(found) == ["table"]


def test_a_vague_box_around_many_good_ones_goes() -> None:
    parts = [Found("text", (0, y, 200, y + 80), 0.9) for y in (0, 100, 200)]
    assert resolve([*parts, Found("text", (0, 0, 210, 290), 0.5)]) == parts


def test_partial_overlaps_are_cut_back() -> None:
    found = resolve([Found("text", (0, 0, 200, 100), 0.9), Found("text", (0, 80, 200, 180), 0.8)])
    assert [f.box for f in found] == [(0, 0, 200, 100), (0, 100, 200, 180)]


boxes = st.tuples(*[st.integers(0, 200)] * 4).map(
    lambda b: (min(b[0], b[2]), min(b[1], b[3]), max(b[0], b[2]), max(b[1], b[3]))
)


@given(st.lists(st.tuples(st.sampled_from(["text", "title", "table", "image"]), boxes, st.floats(0, 1)), max_size=12))
def test_what_is_kept_never_overlaps(items: list[tuple[str, tuple[int, int, int, int], float]]) -> None:
    kept = resolve([Found(kind, box, score) for kind, box, score in items])
    for i, a in enumerate(kept):
        for b in kept[i + 1 :]:
            assert overlap(a.box, b.box) < 1e-6


def test_boxes_grow_over_cut_letters_and_shrink_to_ink() -> None:
    mask = np.zeros((100, 200), dtype=bool)
    mask[30:50, 40:160] = True
    assert fit_to_ink((60, 35, 150, 90), mask, reach=30) == (40, 30, 160, 50)
    assert fit_to_ink((0, 60, 200, 90), mask, reach=30) is None


def test_a_neighbour_without_end_is_not_run_into() -> None:
    mask = np.zeros((100, 200), dtype=bool)
    mask[30:50, 0:200] = True
    assert fit_to_ink((60, 20, 120, 60), mask, reach=30) == (60, 30, 120, 50)


def test_missed_text_is_found_and_pictures_are_told_from_it() -> None:
    page = draw_lines(["Hello World", "and goodbye"], width=800, size=18, pitch=24).resize((800, 88))
    mask = np.zeros((1000, 800), dtype=bool)
    mask[850 : 850 + page.height] = ink_mask(page)
    mask[100:400, 100:500] = np.random.default_rng(0).random((300, 400)) < 0.7
    found = recover(mask, [])
    assert kinds(found) == ["image", "text"]
    text = next(f for f in found if f.kind == "text")
    assert 850 <= text.box[1] < text.box[3] <= 938
    assert recover(mask, [f.box for f in found]) == []


@pytest.mark.parametrize("size", [16, 24, 34])
@pytest.mark.parametrize("text", ["Text on transparency.", "No. 17", "a well-known sailing association, 1987"])
def test_a_missed_line_is_a_line_however_small_its_page(text: str, size: int) -> None:
    for shape in ((90, 700), (200, 700), (1000, 700)):
        page = Image.new("L", shape[::-1], 255)
        ImageDraw.Draw(page).text((40, 20), text, fill=0, font=font(size))
        assert {f.kind for f in recover(ink_mask(page), [])} == {"text"}, shape


def test_a_missed_picture_on_a_small_page_stays_a_picture() -> None:
    for draw in (
        lambda d: d.rectangle((40, 20, 640, 120), fill=0),  # a banner
        lambda d: d.ellipse((40, 20, 160, 140), fill=0),
        lambda d: d.line([(40 + 6 * i, 20 + (i * 37) % 101) for i in range(100)], fill=0, width=3),  # a curve
    ):
        page = Image.new("L", (700, 160), 255)
        draw(ImageDraw.Draw(page))
        assert kinds(recover(np.asarray(page) < 128, [])) == ["image"]


def test_specks_and_broken_rules_are_no_text() -> None:
    mask = np.zeros((400, 600), dtype=bool)
    mask[50:53, 20:500] = True
    mask[100:102, 100:103] = True
    assert recover(mask, []) == []


def test_a_missed_paragraph_does_not_reach_over_the_title_it_touches() -> None:
    mask = np.zeros((200, 400), dtype=bool)
    mask[20:32, 100:290] = True
    for y in (48, 64, 80):
        mask[y : y + 10, 40:360] = True
    mask[32:48, 270:274] = True
    title = (100.0, 18.0, 240.0, 34.0)
    found = recover(mask, [title])
    assert all(overlap(f.box, title) < 0.05 for f in found)
    assert any(f.box[3] == 90 and f.box[2] - f.box[0] == 320 for f in found)


def test_words_at_the_ends_of_a_line_join_it() -> None:
    title = Found("title", (100, 50, 300, 70), 0.9)
    ends = [Found("text", (60, 52, 92, 69), 0, "ink"), Found("text", (310, 52, 360, 70), 0, "ink")]
    (joined,) = absorb([title], ends)
    assert joined.kind == "title"
    assert joined.box == (60, 50, 360, 70)
    other = Found("text", (305, 40, 400, 90), 0.9)
    assert absorb([title, other], [Found("text", (200, 300, 250, 320), 0, "ink")])[:2] == [title, other]


def test_blobs_hold_all_ink() -> None:
    rng = np.random.default_rng(3)
    mask = np.zeros((300, 400), dtype=bool)
    for y, x in rng.integers(0, 280, (20, 2)):
        mask[y : y + 12, x : x + 12] = True
    rest = mask.copy()
    for x0, y0, x1, y1 in blobs(mask):
        rest[y0:y1, x0:x1] = False
    assert not rest.any()


def test_paragraphs_look_like_text_and_drawings_do_not() -> None:
    paragraph = ink_mask(draw_lines(["The quick brown fox jumps over it"] * 4, width=500, size=16, pitch=22))
    assert looks_like_text(paragraph)
    assert not looks_like_text(np.random.default_rng(0).random((200, 300)) < 0.5)
    assert not looks_like_text(np.zeros((100, 100), dtype=bool))
