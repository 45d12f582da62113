r"""Formula metrics: values worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.evaluation.formulas import (
    formula_similarity,
    formulas_match,
    mean_formula_similarity,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"x^{2}", r"x^2"),
        (r"\frac{1}{2}", r"\frac12"),
        (r"$$ a \le b $$", r"a\leq b"),
        (r"\int f(x)\,dx", r"\int f ( x ) d x"),
        (r"\dfrac{{a}}{b}", r"\frac{a}{b}"),
        (r"\sqrt{x", r"\sqrt{x}"),
        ("a − b", "a-b"),
        (r"\lvert x\rvert\rightarrow\infty", r"|x| \to \infty"),
    ],
)
def test_spellings_of_one_formula_match(one: str, other: str) -> None:
    assert formulas_match(one, other)
    assert formula_similarity(one, other) == 1


@pytest.mark.parametrize(("one", "other"), [("x^{12}", "x^12"), ("a_b", "a^b"), (r"\alpha", "a"), ("x", "X")])
def test_different_formulas_do_not(one: str, other: str) -> None:
    assert not formulas_match(one, other)


def test_similarity_counts_tokens() -> None:
    # Five tokens a ^ 2 + b; one of them is wrong.
    assert formula_similarity("a^{2}+b", "a^{3}+b") == pytest.approx(1 - 1 / 5)
    # A command is one token however long its name.
    assert formula_similarity(r"\alpha+b", r"\beta+b") == pytest.approx(1 - 1 / 3)
    assert formula_similarity("", "ab") == 0
    assert formula_similarity("", "") == 1
    assert mean_formula_similarity(["ab", ""], ["ab", "c"]) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="no formula"):
        mean_formula_similarity([], [])


@given(st.text(r"\abc{}^_$ &123", max_size=30), st.text(r"\abc{}^_$ &123", max_size=30))
def test_any_pair_gets_a_score(one: str, other: str) -> None:
    assert formula_similarity(one, one) == 1
    assert 0 <= formula_similarity(one, other) <= 1
    assert formula_similarity(one, other) == pytest.approx(formula_similarity(other, one))
    assert formulas_match(one, other) == (formula_similarity(one, other) == 1)
