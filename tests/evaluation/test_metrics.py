"""Text metrics: values worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.evaluation.metrics import (
    character_error_rate,
    character_errors,
    normalised_edit_distance,
    page_edit_distance,
    word_error_rate,
)


def test_error_rates_are_averaged_over_characters_and_words() -> None:
    # "abcx" for "abcd" is 1 of 4, "" for "ef" is 2 of 2: 3 of 6 characters.
    assert character_error_rate(["abcx", ""], ["abcd", "ef"]) == pytest.approx(0.5)
    # One word of three is wrong, one of three is missing: 2 of 6 words.
    assert word_error_rate(["a b x", "d e"], ["a b c", "d e f"]) == pytest.approx(2 / 6)


def test_no_truth_is_an_error() -> None:
    with pytest.raises(ValueError, match="no characters"):
        character_error_rate(["a"], [""])
    with pytest.raises(ValueError, match="no words"):
        word_error_rate(["a"], [" "])
    with pytest.raises(ValueError, match="no page"):
        page_edit_distance([[("", "")], []])


def test_normalised_edit_distance_is_over_the_longer_string() -> None:
    assert normalised_edit_distance("kitten", "sitting") == pytest.approx(3 / 7)
    assert normalised_edit_distance("abcd", "ab") == pytest.approx(0.5)
    assert normalised_edit_distance("", "") == 0


def test_pages_count_alike_however_long() -> None:
    # First page: 1 error, lengths 4 and 6; second: 1 error in 2. Mean of 1/10 and 1/2.
    pages = [[("abcx", "abcd"), ("efghij", "efghij")], [("a", "ab")], [("", "")]]
    assert page_edit_distance(pages) == pytest.approx((1 / 10 + 1 / 2) / 2)


@given(st.text(max_size=20), st.text(max_size=20))
def test_distances_are_symmetric_and_bounded(a: str, b: str) -> None:
    assert character_errors(a, b) == character_errors(b, a)
    distance = normalised_edit_distance(a, b)
    assert 0 <= distance <= 1
    assert (distance == 0) == (a == b)
