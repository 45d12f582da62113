"""The replay's data: every token at its step, every step at its time."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.demo.markup import json_attribute, message, safe
from mineru_diffusion.demo.trace import Run, replay_data, run_data, sequence_data
from mineru_diffusion.engine.types import Result


def result(steps: tuple[int, ...], times: tuple[float, ...], text: str = "") -> Result:
    tokens = tuple(range(65, 65 + len(steps)))
    return Result(
        text, tokens=tokens, confidences=(0.9,) * len(steps), steps=steps, nfe=len(times) + 1, step_times=times
    )


def test_tokens_keep_their_steps_and_times_count_from_the_start() -> None:
    data = sequence_data(result((2, 1, 2), (10.5, 10.75)), 10.0, chr)
    assert data["tokens"] == ["A", "B", "C"]
    assert data["step"] == [2, 1, 2]
    assert data["time"] == [0.5, 0.75]


def test_a_result_without_times_is_refused() -> None:
    with pytest.raises(ValueError, match="did not record"):
        sequence_data(result((1, 2), (0.1,)), 0.0, chr)


def test_pieces_of_a_line_share_a_row_and_moments_are_the_passes() -> None:
    run = Run((result((1,), (1.1,)), result((1, 2), (1.1, 1.2)), result((1,), (1.1,))), 1.0, 0.3, 4)
    data = run_data(run, (0, 0, 1), name="x", note="", block=8, spell=chr)
    assert [len(row) for row in data["lines"]] == [2, 1]
    assert data["moments"] == pytest.approx([0.1, 0.2])
    assert data["tokens"] == 4
    assert data["tokens_per_second"] == pytest.approx(4 / 0.3, abs=0.05)
    assert data["tokens_per_step"] == 1.0  # four tokens, and 1 + 2 + 1 steps that decided one


def test_the_speed_up_is_the_ratio_of_measured_times() -> None:
    fast = run_data(Run((), 0.0, 0.5, 3), (), name="a", note="", block=8, spell=chr)
    slow = run_data(Run((), 0.0, 2.0, 9), (), name="b", note="", block=1, spell=chr)
    assert replay_data([fast, slow])["speed_up"] == 4.0
    assert replay_data([slow, fast])["speed_up"] == 0.25


@given(st.text())
def test_markup_leaves_nothing_for_a_template(text: str) -> None:
    assert not set(safe(text)) & set("{}$`\\<>\"'")


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner)))
def test_data_survives_the_attribute(data: object) -> None:
    assert json.loads(base64.b64decode(json_attribute(data))) == data


def test_an_error_is_announced_and_nothing_is_nothing() -> None:
    assert 'role="alert"' in message("<b>", "error")
    assert "<b>" not in message("<b>", "error")
    assert message("") == ""
