from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.engine.loops import repeating_tail


@given(st.lists(st.integers(0, 5), max_size=40), st.lists(st.integers(0, 50), min_size=1, max_size=30))
def test_a_loop_is_found_and_what_came_before_is_kept(before: list[int], period: list[int]) -> None:
    tokens = before + period * (400 // len(period) + 60)
    keep = repeating_tail(tokens)
    assert keep is not None
    # Nothing is lost: what was cut off follows from what was kept.
    assert any(
        all(tokens[i] == tokens[i - p] for i in range(keep, len(tokens))) for p in range(1, min(keep, len(period)) + 1)
    )


@given(st.lists(st.integers(0, 1000), max_size=600, unique=True))
def test_text_without_repeats_is_no_loop(tokens: list[int]) -> None:
    assert repeating_tail(tokens) is None


def test_long_paragraph_loop() -> None:
    paragraph = list(range(180))
    assert repeating_tail([7, 7, 9] + paragraph * 6) is not None
    assert repeating_tail([7, 7, 9] + paragraph * 4) is None


def test_a_long_rule_and_twenty_equal_rows_are_no_loop() -> None:
    rule = [1] * 150
    row = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 2]
    assert repeating_tail(rule) is None
    assert repeating_tail([3, 4] + row * 20) is None
    assert repeating_tail(rule + row * 20) is None


def test_an_ended_loop_is_no_loop() -> None:
    assert repeating_tail([1, 2] * 300 + [3]) is None
