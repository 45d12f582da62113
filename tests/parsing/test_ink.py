"""Ink masks: writing found whatever its colour, paper never taken for writing."""

from __future__ import annotations

import numpy as np
import pytest
from parsing_fakes import add_noise, draw_lines
from PIL import Image, ImageDraw

from mineru_diffusion.parsing.ink import ink_mask, remove_rules, spans

TEXT = ["The quick brown fox", "jumps over the dog"]


@pytest.mark.parametrize("sigma", [0, 1, 3, 6, 10])
def test_blank_paper_has_no_ink(sigma: float) -> None:
    page = Image.new("RGB", (850, 1100), (250, 250, 246))
    assert not ink_mask(add_noise(page, sigma) if sigma else page).any()


def test_shading_is_not_ink() -> None:
    ramp = np.linspace(170, 255, 600).astype(np.uint8)
    assert not ink_mask(Image.fromarray(np.tile(ramp, (400, 1)))).any()


@pytest.mark.parametrize(
    ("ink", "paper"), [(0, 255), (255, 15), ((150, 150, 150), 255), ((120, 0, 0), (255, 240, 200)), (0, (90, 160, 220))]
)
def test_same_writing_in_any_colours(ink: int, paper: int) -> None:
    plain = ink_mask(draw_lines(TEXT))
    other = ink_mask(draw_lines(TEXT, ink=ink, paper=paper))
    assert np.count_nonzero(plain ^ other) < 0.25 * np.count_nonzero(plain)


def test_rules_go_and_letters_stay() -> None:
    image = draw_lines(TEXT)
    before = ink_mask(image)
    draw = ImageDraw.Draw(image)
    draw.line((10, 88, 880, 88), fill=0, width=2)
    draw.rectangle((3, 3, 890, 105), outline=0, width=2)
    ruled = ink_mask(image)
    cleaned = remove_rules(ruled, shortest=90)
    assert np.count_nonzero(ruled) > np.count_nonzero(before) + 2000
    assert np.count_nonzero(cleaned ^ before) < 0.02 * np.count_nonzero(before)


def test_filled_shapes_are_no_rules() -> None:
    mask = np.zeros((60, 300), dtype=bool)
    mask[10:50, 20:280] = True
    assert np.array_equal(remove_rules(mask, shortest=100), mask)


def test_a_tiny_image_does_not_break() -> None:
    for size in ((1, 1), (2, 5), (7, 1)):
        assert ink_mask(Image.new("L", size, 200)).shape == size[::-1]


def test_spans() -> None:
    assert spans(np.array([True, True, False, True, False])) == [(0, 2), (3, 4)]
    assert spans(np.zeros(4, dtype=bool)) == []
