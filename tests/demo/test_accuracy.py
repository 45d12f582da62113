"""Accuracy and differences of two readings, and what the drawing makes of them."""

from __future__ import annotations

import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.demo.accuracy import character_accuracy, difference_html, plain
from mineru_diffusion.demo.sessions import Trial
from mineru_diffusion.demo.trials_view import trials_html


def test_layout_does_not_count() -> None:
    assert character_accuracy("- one\n- two", "• one • two".replace("• two", "\n• two")) == 1.0
    assert character_accuracy("<table><tr><td>a</td></tr></table>", "a") == 1.0


def test_errors_count_over_the_reference() -> None:
    assert character_accuracy("abcX", "abcd") == pytest.approx(0.75)
    assert character_accuracy("completely different and longer", "ab") == 0.0
    assert character_accuracy("text", "  ") is None


@given(st.text(alphabet="ab <{"), st.text(alphabet="ab <{"))
def test_both_texts_can_be_read_from_the_difference(text: str, reference: str) -> None:
    html = difference_html(text, reference)
    new = unescape(re.sub(r"</?ins>", "", re.sub(r"<del>.*?</del>", "", html)))
    old = unescape(re.sub(r"</?del>", "", re.sub(r"<ins>.*?</ins>", "", html)))
    assert (new, old) == (plain(text), plain(reference))


def test_every_trial_is_in_the_table_and_the_latest_is_marked() -> None:
    trials = [Trial(0.5, 10, 100, 0.5, 4.0, 0.9), Trial(0.95, 20, 100, 1.0, 2.0, 0.99)]
    html = trials_html(trials, 0.95, "the truth")
    assert html.count("<circle") == 2
    assert re.search(r'aria-current="true"><th scope="row">0.95</th><td>20</td><td>2.00</td><td>100</td>', html)
    assert "99.0%" in html


def test_without_a_reference_there_is_a_table_and_no_drawing() -> None:
    html = trials_html([Trial(0.5, 10, 100, 0.5, 4.0, None)], 0.5, "nothing")
    assert "<svg" not in html
    assert "<td>200</td>" in html


@given(st.lists(st.tuples(st.floats(0, 40), st.floats(0, 1)), min_size=1, max_size=6))
def test_axes_have_whole_numbers_and_hold_all_dots(tried: list[tuple[float, float]]) -> None:
    trials = [Trial(0.1 + 0.1 * i, 1, 10, 1.0, speed, accuracy) for i, (speed, accuracy) in enumerate(tried)]
    html = trials_html(trials, 0.1, "the truth")
    accuracies = [int(value) for value in re.findall(r'text-anchor="end">(\d+)%<', html)]
    speeds = [int(value) for value in re.findall(r'text-anchor="middle">(\d+)</text>', html)]
    for high, middle, low in (accuracies, speeds[::-1]):
        assert high - middle == middle - low > 0
    for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', html):
        assert 52 <= float(x) <= 442
        assert 16 <= float(y) <= 192
