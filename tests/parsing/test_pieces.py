"""Which gaps of a line are spaces, and where it is cut."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mineru_diffusion.evaluation.lines import held_out_lines
from mineru_diffusion.parsing.ink import ink_mask
from mineru_diffusion.parsing.lines import close_crop, line_pieces
from mineru_diffusion.parsing.pieces import LEAST_GAP, cut_pieces, word_gap
from mineru_diffusion.synthesis.lines import LineSample


@pytest.mark.parametrize(
    ("letters", "words", "size"),
    [
        ([3, 4, 5, 3, 4, 4, 3, 5], [10, 11, 12], 32),
        # Letters as far apart as the words of the line above, and farther.
        ([9, 10, 9, 10, 10, 9, 11], [24, 25], 32),
        ([13, 12, 12, 13, 12], [40, 60, 200], 32),
        # As many spaces as letters: a formula.
        ([2, 3, 2], [9, 10, 9, 10], 32),
    ],
)
def test_spaces_are_the_wide_ones_of_a_line(letters: list[int], words: list[int], size: int) -> None:
    least = word_gap(letters + words, size)
    assert max(letters) < least <= min(words)


@given(st.lists(st.integers(1, 400), max_size=40), st.integers(8, 200))
def test_no_gap_narrower_than_a_fixed_share_is_a_space(widths: list[int], size: int) -> None:
    least = word_gap(widths, size)
    assert LEAST_GAP * size <= least <= max(LEAST_GAP * size, max(widths, default=0))


def test_gaps_of_one_width_are_told_by_it() -> None:
    assert word_gap([7] * 9, 32) == word_gap([], 32) == LEAST_GAP * 32


def is_space(line: LineSample, x: float) -> bool:
    """Whether `x` lies between words."""
    shown = [i for i, character in enumerate(line.text) if character != " "]
    centres = line.char_x.mean(axis=1)
    before, behind = ([i for i in shown if (centres[i] < x) is side] for side in (np.True_, np.False_))
    return bool(behind[0] - before[-1] > 1)


def test_made_lines_are_joined_as_their_text_says() -> None:
    """Hundreds of faces, some with their letters far apart: few pieces are joined in the wrong way (12 % where all gaps
    that are wide for their line's height are spaces)."""
    wrong = cuts = 0
    for line, _ in held_out_lines(150, seed=31, height=32, degrade=0.0):
        mask = ink_mask(close_crop(Image.fromarray(line.image)))
        height, width = mask.shape
        pieces, glued = cut_pieces(mask, (0, 0, width, height), 0, 6.0)
        for number, (left, right) in enumerate(itertools.pairwise(pieces), start=1):
            cuts += 1
            wrong += is_space(line, (left[2] + right[0]) / 2) is (number in glued)
    assert cuts > 200
    assert wrong < 0.05 * cuts


def test_letter_spaced_words_stay_whole() -> None:
    """Bars of ink as letters, a third of the height apart, and two spaces."""
    image = Image.new("L", (1200, 32), 255)
    x = 8
    for length in (8, 9, 8):
        for _ in range(length):
            image.paste(0, (x, 2, x + 9, 30))
            x += 9 + 10
        x += 16
    pieces, glued = line_pieces(image.crop((0, 0, x, 32)), 7)
    assert (len(pieces), glued) == (3, frozenset())
