"""What stands between lines of text and is none is kept as a picture; nothing else is one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsing_fakes import LINE_PROFILE, draw_lines
from PIL import Image

from mineru_diffusion.document.types import Region
from mineru_diffusion.engine.types import DecodingParams, Result
from mineru_diffusion.parsing.assemble import finish_region
from mineru_diffusion.parsing.crops import plan_page
from mineru_diffusion.parsing.lines import split_lines

LINES = ["The name of the king", "and a few words", "on his reign and", "on what came", "of all of it"]
PITCH = 34


def portrait(height: int) -> Image.Image:
    rng = np.random.default_rng(3)
    coarse = rng.integers(0, 255, (height // 8, 25, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((200, height), Image.Resampling.NEAREST)


def box_with_portrait(before: int, height: int) -> Image.Image:
    """Lines of text, some of them above a picture."""
    plain = draw_lines(LINES, size=22, pitch=PITCH, width=420)
    border = 20 + before * PITCH
    image = Image.new("RGB", (plain.width, plain.height + height + 20), "white")
    image.paste(plain.crop((0, 0, plain.width, border)), (0, 0))
    image.paste(portrait(height), (60, border + 6))
    image.paste(plain.crop((0, border, plain.width, plain.height)), (0, border + height + 20))
    return image


@pytest.mark.parametrize("before", [0, 1, 3, 5])
@pytest.mark.parametrize("height", [120, 240])
def test_a_picture_between_lines_is_found(before: int, height: int) -> None:
    found = split_lines(box_with_portrait(before, height))
    assert len(found.lines) == len(LINES)
    ((box, number),) = found.pictures
    assert number == before
    assert box == pytest.approx((60, 20 + before * PITCH + 6, 260, 20 + before * PITCH + 6 + height), abs=6)


@given(st.integers(2, 12), st.integers(25, 70), st.integers(14, 30))
def test_text_alone_has_none(count: int, pitch: int, size: int) -> None:
    image = draw_lines((LINES * 3)[:count], size=size, pitch=max(pitch, size + 4), width=640)
    assert not split_lines(image).pictures


def test_rules_and_dirt_between_lines_are_none() -> None:
    image = draw_lines(LINES, size=22, pitch=120, width=420)
    pixels = np.asarray(image).copy()
    pixels[100:103, 30:380] = 0
    pixels[220:224:2, 50:60] = 90
    assert not split_lines(Image.fromarray(pixels)).pictures


def test_the_page_has_it_between_the_texts_around_it() -> None:
    image = box_with_portrait(2, 160)
    region = Region("text", (0.0, 0.0, 1.0, 1.0))
    (job,), requests = plan_page(image, [region], LINE_PROFILE, DecodingParams())
    for _, slot, _ in requests:
        job.results[slot] = Result(LINES[job.piece_line[slot]], (7,), (0.9,), (1,), finish_reason="stop")
    above, picture, below = finish_region(job)
    assert (above.kind, picture.kind, below.kind) == ("text", "image", "text")
    assert above.content.startswith("The name of the king and")
    assert below.content.endswith("of all of it")
    assert above.bbox[3] <= picture.bbox[1] + 0.02
    assert picture.bbox[3] <= below.bbox[1] + 0.02
    assert picture.source["detected"] == "text"
