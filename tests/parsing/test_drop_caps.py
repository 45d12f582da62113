"""Drop caps are read whole and once; nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsing_fakes import draw_lines, font
from PIL import Image, ImageDraw

from mineru_diffusion.parsing.drop_caps import as_capital
from mineru_diffusion.parsing.lines import split_lines

WORDS = "past three decades increasing pressure from organisations and companies has required them to examine"
PITCH, SIZE = 30, 21


def paragraph(letter: str, beside: int, below: int, large: float) -> Image.Image:
    """Text whose first `beside` lines make room for a large letter."""
    image = Image.new("RGB", (560, 40 + PITCH * (beside + below)), "white")
    draw = ImageDraw.Draw(image)
    big = font(round(large * ((beside - 1) * PITCH + SIZE * 0.75) / 0.73))
    left, top, right, _ = draw.textbbox((0, 0), letter, font=big)
    draw.text((20 - left, 24 - top), letter, fill="black", font=big)
    for i in range(beside + below):
        x = 20 + (right - left + 7 if i < beside else 0)
        draw.text((x, 18 + i * PITCH), WORDS[i : i + 30].strip(), fill="black", font=font(SIZE))
    return image


@pytest.mark.parametrize("letter", ["O", "T", "W", "I", "A", "M"])
@pytest.mark.parametrize("beside", [2, 3, 4])
def test_a_drop_cap_is_one_piece_of_the_first_line(letter: str, beside: int) -> None:
    lines = split_lines(paragraph(letter, beside, 3, 1.0), max_aspect=8).lines
    assert len(lines) == beside + 3
    first = lines[0]
    assert first.drop_cap
    assert not any(line.drop_cap for line in lines[1:])
    _, top, right, bottom = first.pieces[0]
    assert bottom - top > (beside - 1) * PITCH
    assert right <= min(line.box[0] for line in lines[:beside]) + 4
    assert first.joined([letter.lower(), "ver the", *["more"] * (len(first.pieces) - 2)]).startswith(letter + "ver the")
    assert not any(line.indented for line in lines)
    assert all(line.ink_height < 1.4 * SIZE for line in lines)


@given(st.integers(3, 9), st.integers(22, 40), st.booleans())
def test_paragraphs_without_one_have_none(lines: int, pitch: int, numbered: bool) -> None:
    texts = [f"{i + 1}. {WORDS[i : i + 30]}" if numbered else WORDS[i : i + 34] for i in range(lines)]
    found = split_lines(draw_lines(texts, size=20, pitch=pitch, width=600)).lines
    assert not any(line.drop_cap for line in found)


def test_a_letter_as_high_as_the_paragraph_is_no_drop_cap() -> None:
    assert not any(line.drop_cap for line in split_lines(paragraph("O", 3, 0, 1.0)).lines)


@pytest.mark.parametrize(("read", "letter"), [("o", "O"), ("0", "O"), ("l", "I"), (" w ", "W"), ("Th", "Th"), ("", "")])
def test_the_letter_is_a_capital(read: str, letter: str) -> None:
    assert as_capital(read) == letter
