"""Line boxes: every line once, in order, whole, whatever the page did to it."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing_fakes import add_noise, draw_lines, font
from PIL import Image, ImageDraw

from mineru_diffusion.parsing.lines import LEAST_INK, close_crop, line_pieces, split_lines
from mineru_diffusion.parsing.pieces import join_pieces

TEXT = [
    "The quick brown fox jumps over",
    "the lazy dog and runs away quickly",
    "again. Pack my box with five dozen",
    "liquor jugs.",
]


def tops(image: Image.Image) -> list[int]:
    return [line.box[1] for line in split_lines(image).lines]


@pytest.mark.parametrize("pitch", [23, 25, 30, 40, 70])
def test_one_box_a_line_down_to_touching_lines(pitch: int) -> None:
    found = split_lines(draw_lines(TEXT, pitch=pitch)).lines
    assert len(found) == 4
    for i, line in enumerate(found):
        middle = 20 + i * pitch + 14
        assert line.box[1] < middle < line.box[3]
        assert line.box[0] == pytest.approx(19, abs=4)


@pytest.mark.parametrize("skew", [-2.0, -1.0, 0.5, 1.0, 2.5])
def test_skew_is_estimated_and_taken_out(skew: float) -> None:
    found = split_lines(draw_lines(TEXT, width=700, skew=skew))
    assert found.skew == pytest.approx(-skew, abs=0.3)
    assert len(found.lines) == 4
    assert all(line.ink_height < 28 for line in found.lines)


@pytest.mark.parametrize(
    "change",
    [{"noise": 12.0}, {"ink": 255, "paper": 20}, {"ink": (120, 0, 0), "paper": (255, 240, 200)}, {"ink": 150}],
    ids=["noise", "inverted", "coloured", "faint"],
)
def test_damage_and_colour_change_nothing(change: dict[str, object]) -> None:
    plain = tops(draw_lines(TEXT))
    changed = tops(draw_lines(TEXT, **change))  # type: ignore[arg-type]
    assert changed == pytest.approx(plain, abs=2)


@pytest.mark.parametrize("sigma", [0, 2, 6, 10])
def test_blank_regions_have_no_lines(sigma: float) -> None:
    page = Image.new("RGB", (850, 600), "white")
    assert split_lines(add_noise(page, sigma) if sigma else page).lines == ()


@pytest.mark.parametrize("text", ["HELLO WORLD", "a = b : c", "Äöü i j ÏÎ", "12", "one sun - or more", "fgjpqy"])
def test_a_single_line_is_one_line(text: str) -> None:
    assert len(split_lines(draw_lines([text])).lines) == 1


def test_underlines_and_frames_are_no_lines() -> None:
    image = draw_lines(TEXT)
    draw = ImageDraw.Draw(image)
    draw.line((20, 86, 420, 86), fill=0, width=2)
    draw.rectangle((4, 4, 895, 170), outline=0, width=2)
    assert len(split_lines(image).lines) == 4


def test_text_in_shaded_rows_is_found() -> None:
    image = draw_lines(["alpha 0.87", "beta 0.12", "gamma 0.55", "delta 0.31"], width=420, pitch=44)
    draw = ImageDraw.Draw(image)
    for i, shade in enumerate([(120, 40, 160), (255, 255, 255), (40, 140, 60), (30, 90, 170)]):
        draw.rectangle((10, 14 + 44 * i, 400, 50 + 44 * i), fill=shade)
        draw.text((20, 20 + 44 * i), "value 0.87 and more", fill=(0, 0, 0), font=font(24))
    found = split_lines(image).lines
    for i in range(4):
        assert any(line.box[1] < 36 + 44 * i < line.box[3] for line in found)


@pytest.mark.parametrize("digit", list("0123456789"))
def test_a_page_number_cut_close_is_one_line(digit: str) -> None:
    image = Image.new("RGB", (60, 60), "white")
    ImageDraw.Draw(image).text((20, 15), digit, fill=(0, 0, 0), font=font(28))
    mask = image.convert("L").point(lambda v: 255 * (v < 128))
    left, top, right, bottom = mask.getbbox() or (0, 0, 60, 60)
    (line,) = split_lines(image.crop((left - 6, top - 6, right + 6, bottom + 6))).lines
    assert line.ink_height == pytest.approx(bottom - top, abs=2)


def test_slivers_of_neighbouring_lines_are_dropped() -> None:
    image = draw_lines(TEXT)
    assert len(split_lines(image.crop((0, 48, 900, 128))).lines) == 2


def test_indents_short_lines_and_gaps_are_told() -> None:
    found = split_lines(draw_lines(TEXT, indents=[40, 0, 0, 0], width=520)).lines
    assert [line.indented for line in found] == [True, False, False, False]
    assert [line.short for line in found] == [False, False, False, True]
    image = Image.new("RGB", (520, 300), "white")
    image.paste(draw_lines(TEXT[:2], width=520), (0, 0))
    image.paste(draw_lines(TEXT[2:], width=520), (0, 130))
    assert [line.spaced for line in split_lines(image).lines] == [False, False, True, False]


def test_two_columns_are_read_one_after_the_other() -> None:
    left, right = draw_lines(TEXT * 2, width=460), draw_lines(TEXT * 2, width=460)
    image = Image.new("RGB", (920, left.height), "white")
    image.paste(left, (0, 0))
    image.paste(right, (470, 0))
    found = split_lines(image).lines
    assert [line.column for line in found] == [0] * 8 + [1] * 8
    assert all(line.box[2] < 470 for line in found[:8])


def test_a_table_of_contents_is_not_two_columns() -> None:
    image = draw_lines(["Introduction", "Methods and tools", "Results", "Discussion", "Index"], width=900)
    draw = ImageDraw.Draw(image)
    for i in range(5):
        draw.text((840, 20 + 34 * i), str(3 + 7 * i), fill=(0, 0, 0), font=font(24))
    found = split_lines(image).lines
    assert len(found) == 5
    assert all(len(line.pieces) == 2 for line in found)


def test_long_lines_are_cut_at_word_gaps_only() -> None:
    words = "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor " * 2
    image = draw_lines([words], size=20, width=1900)
    (line,) = split_lines(image, max_aspect=20).lines
    assert len(line.pieces) >= 3
    grey = np.asarray(image.convert("L"))
    for piece in line.pieces:
        assert (piece[2] - piece[0]) / (piece[3] - piece[1]) < 25
    for piece in line.pieces[:-1]:
        assert grey[piece[1] : piece[3], piece[2] - 1 : piece[2] + 1].min() > 200
    assert line.pieces[0][0] == line.box[0]
    assert line.pieces[-1][2] == line.box[2]


def test_pieces_of_one_long_word_are_joined_without_spaces() -> None:
    image = draw_lines(["Donaudampfschifffahrtsgesellschaftskapitaensmuetzenfabrik"], size=20, width=1300)
    (line,) = split_lines(image, max_aspect=8).lines
    assert len(line.pieces) >= 3
    assert len(line.glued) == len(line.pieces) - 1
    assert line.joined(["ab", "", "cd ", "e"][: len(line.pieces)]).startswith("abcd")
    pieces, glued = line_pieces(image.crop(line.box), 8)
    assert glued == frozenset(range(1, len(pieces)))


@given(st.integers(0, 60), st.integers(0, 60), st.sampled_from(["lorem ipsum", "AVE MARIA", "gap", "x", "a, b; c"]))
def test_paper_above_and_below_a_single_line_changes_nothing(above: int, below: int, text: str) -> None:
    image = draw_lines([text], size=40, width=600)
    (line,) = split_lines(image).lines
    close = image.crop(line.box)
    high = Image.new("RGB", (close.width, close.height + above + below), "white")
    high.paste(close, (0, above))
    again = close_crop(high)
    assert abs(again.height - close.height) <= max(4, (high.height * LEAST_INK - close.height) + 2)
    assert (np.asarray(again.convert("L")) < 128).sum() == (np.asarray(close.convert("L")) < 128).sum()
    (piece,), _ = line_pieces(high, 100)
    assert piece.size == again.size


def test_a_close_crop_of_blank_paper_or_of_a_dash_is_no_bar() -> None:
    blank = Image.new("RGB", (200, 50), "white")
    assert close_crop(blank).size == (200, 50)
    ImageDraw.Draw(blank).rectangle((80, 24, 110, 27), fill=(0, 0, 0))
    assert close_crop(blank).height == pytest.approx(LEAST_INK * 50, abs=2)


def test_pieces_at_word_gaps_are_joined_by_spaces() -> None:
    (line,) = split_lines(draw_lines(["lorem ipsum dolor sit amet " * 5], size=20, width=1900), max_aspect=8).lines
    assert not line.glued
    assert line.joined(["a", "", " b"]) == "a b"
    assert join_pieces(["a", "b", "c"], {2}) == "a bc"


def test_a_lone_dash_keeps_a_line_height() -> None:
    image = Image.new("RGB", (300, 120), "white")
    ImageDraw.Draw(image).rectangle((100, 58, 118, 62), fill=(0, 0, 0))
    (line,) = split_lines(image, usual_height=24).lines
    assert line.box[3] - line.box[1] >= 14


def test_a_picture_in_the_text_does_not_disturb_the_lines() -> None:
    image = Image.new("RGB", (900, 620), "white")
    image.paste(draw_lines(TEXT), (0, 0))
    image.paste(draw_lines(TEXT), (0, 440))
    without = [line.box for line in split_lines(image).lines]
    photo = np.random.default_rng(0).integers(0, 200, (25, 40, 3), dtype=np.uint8)
    image.paste(Image.fromarray(photo).resize((400, 240), Image.Resampling.BICUBIC), (100, 185))
    found = [line.box for line in split_lines(image).lines]
    assert len(without) == 8
    assert set(without) <= set(found)
    assert len(found) <= 9


def test_boxes_of_a_turned_region_point_into_the_original() -> None:
    image = draw_lines(TEXT, width=700, skew=1.5)
    found = split_lines(image)
    grey = np.asarray(image.convert("L"))
    for line in found.lines:
        left, top, right, bottom = found.in_region(line.box)
        assert grey[top:bottom, left:right].min() < 60
        assert 0 <= left < right <= image.width
        assert 0 <= top < bottom <= image.height


def test_large_regions_are_searched_at_a_smaller_scale() -> None:
    small = draw_lines(TEXT, width=700)
    large = small.resize((small.width * 5, small.height * 5), Image.Resampling.BICUBIC)
    a, b = split_lines(small).lines, split_lines(large).lines
    assert len(a) == len(b) == 4
    for x, y in zip(a, b, strict=True):
        assert y.box == pytest.approx([5 * v for v in x.box], abs=14)


def test_crops_are_dark_on_light() -> None:
    found = split_lines(draw_lines(TEXT, ink=255, paper=(0, 0, 90)))
    crop = np.asarray(found.crop(found.lines[0].box).convert("L"))
    assert np.median(crop) > 150


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_picture_gives_boxes_inside_it(data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    height, width = data.draw(st.integers(1, 120)), data.draw(st.integers(1, 400))
    pixels = rng.integers(0, 256, (height, width), dtype=np.uint8)
    if data.draw(st.booleans()):
        pixels[rng.random((height, width)) < 0.8] = 255
    for line in split_lines(Image.fromarray(pixels)).lines:
        for x0, y0, x1, y1 in (line.box, *line.pieces):
            assert 0 <= x0 < x1 <= width
            assert 0 <= y0 < y1 <= height


def test_it_is_fast_enough_to_be_no_bottleneck() -> None:
    image = draw_lines(["The quick brown fox jumps over the lazy dog and runs away quickly again"] * 22, width=1600)
    started = time.process_time()
    for _ in range(3):
        split_lines(image)
    # Ten times what it takes on a quiet machine: catches a change of complexity, not a busy neighbour.
    assert (time.process_time() - started) / 3 < 0.3


def test_two_lines_of_a_headline_that_touch_are_two() -> None:
    image = Image.new("RGB", (900, 130), "white")
    draw = ImageDraw.Draw(image)
    # Set so tight that descenders reach into the ascenders below them.
    draw.text((10, 5), "Corporate social responsibility and the tobacco", fill="black", font=font(44))
    draw.text((10, 46), "hope or hype?", fill="black", font=font(44))
    assert len(split_lines(image).lines) == 2
    for text in ("EFZTL ZEBRA LEFT", "A = B + C", "AVWX"):
        single = Image.new("RGB", (900, 80), "white")
        ImageDraw.Draw(single).text((10, 10), text, fill="black", font=font(44))
        assert len(split_lines(single).lines) == 1, text


@pytest.mark.parametrize("radius", [0, 14])
@pytest.mark.parametrize("margin", [0, 6])
def test_a_headline_in_a_dark_box_is_cut_at_its_letters(radius: int, margin: int) -> None:
    picture = Image.new("RGB", (400 + 2 * margin, 44 + 2 * margin), "white")
    draw = ImageDraw.Draw(picture)
    draw.rounded_rectangle((margin, margin, 399 + margin, 43 + margin), radius, fill=(35, 30, 60))
    draw.text((margin + 40, margin + 8), "INDUSTRY WATCH", fill="white", font=font(24))
    found = split_lines(picture)
    (line,) = found.lines
    assert line.ink_height < 28
    crop = np.asarray(found.crop(line.box).convert("L"))
    assert np.median(crop) > 180
    # The letters and nothing else: no border, no corner.
    assert line.box[0] == pytest.approx(margin + 38, abs=6)
    assert crop[:1].min() > 150
    assert crop[-1:].min() > 150
