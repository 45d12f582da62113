from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mineru_diffusion.document.crops import crop_region, fit_line, paper_colour, pixel_box, resize_by_need


def arrow() -> Image.Image:
    """A picture with four different quarters."""
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[:20, :30], pixels[:20, 30:] = (255, 0, 0), (0, 255, 0)
    pixels[20:, :30], pixels[20:, 30:] = (0, 0, 255), (255, 255, 255)
    return Image.fromarray(pixels)


@pytest.mark.parametrize(("angle", "transpose"), [(90, 1), (180, 2), (270, 3)])
def test_rotated_region_comes_out_upright(angle: int, transpose: int) -> None:
    upright = arrow()
    # np.rot90 turns counter-clockwise; the page shows the content turned clockwise.
    page = Image.fromarray(np.rot90(np.asarray(upright), -transpose).copy())
    assert np.array_equal(np.asarray(crop_region(page, (0, 0, 1, 1), angle)), np.asarray(upright))


def test_crop_rounds_outwards_and_stays_inside() -> None:
    assert pixel_box((100, 100), (0.101, 0.109, 0.201, 0.209)) == (10, 10, 21, 21)
    assert pixel_box((100, 100), (-1, -1, 2, 2)) == (0, 0, 100, 100)
    assert pixel_box((100, 100), (0.5, 0.5, 0.4, 0.4)) == (40, 40, 50, 50)
    assert pixel_box((100, 100), (0.1, 0.1, 0.2, 0.2), margin=15) == (0, 0, 35, 35)


@given(st.tuples(*[st.floats(-0.5, 1.5)] * 4), st.sampled_from([0, 90, 180, 270]))
def test_any_box_gives_a_usable_crop(bbox: tuple[float, float, float, float], angle: int) -> None:
    crop = crop_region(Image.new("L", (61, 47), 255), bbox, angle)
    assert crop.mode == "RGB"
    assert min(crop.size) >= 28


@given(st.integers(1, 400), st.integers(1, 400))
def test_resize_by_need_bounds(width: int, height: int) -> None:
    image = Image.new("RGB", (width, height))
    result = resize_by_need(image)
    assert min(result.size) >= 28
    assert max(result.size) <= 50 * min(result.size)
    if min(width, height) >= 28 and max(width, height) <= 50 * min(width, height):
        assert result is image


def test_long_crop_is_padded_on_white() -> None:
    result = resize_by_need(Image.new("RGB", (3000, 30), (0, 0, 0)))
    assert result.size == (3000, 60)
    assert result.getpixel((0, 0)) == (255, 255, 255)
    assert result.getpixel((0, 30)) == (0, 0, 0)


@given(st.integers(1, 300), st.integers(1, 90), st.sampled_from([16, 28, 32, 56]), st.sampled_from([1, 28, 32]))
def test_fit_line_size(width: int, height: int, target: int, multiple: int) -> None:
    line = fit_line(Image.new("RGB", (width, height), (200, 210, 220)), height=target, multiple=multiple)
    assert line.height == target
    assert line.width % multiple == 0
    content = max(1, round(width * target / height))
    assert content <= line.width < content + multiple
    assert line.getpixel((line.width - 1, 0)) == (200, 210, 220)


def test_fit_line_leaves_a_right_line_alone() -> None:
    line = Image.new("RGB", (56, 28))
    assert fit_line(line, height=28, multiple=28) is line


def test_fit_line_keeps_the_pixels_it_need_not_scale() -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (28, 40, 3), dtype=np.uint8))
    line = fit_line(noise, height=28, multiple=28)
    assert line.size == (56, 28)
    assert np.array_equal(np.asarray(line)[:, :40], np.asarray(noise))


def test_paper_colour_ignores_ink_at_the_edge() -> None:
    image = Image.new("RGB", (50, 20), (240, 230, 200))
    image.paste((0, 0, 0), (20, 0, 26, 20))
    assert paper_colour(image) == (240, 230, 200)


def test_fit_line_refuses_nonsense() -> None:
    with pytest.raises(ValueError, match="positive"):
        fit_line(Image.new("RGB", (5, 5)), height=0, multiple=28)
