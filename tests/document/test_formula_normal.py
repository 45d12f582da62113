"""The normal form of formulas: one spelling for what looks alike, nothing lost, and stable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.document.formula_normal import formula_tokens, normalise_formula


@pytest.mark.parametrize(
    ("latex", "normal"),
    [
        (r"$ \frac12 $", r"\frac{1}{2}"),
        (r"x^2_i", "x_i^2"),
        (r"x _ { i } ^ { 2 }", "x_i^2"),
        (r"x_{ij}", "x_{ij}"),
        (r"{x}^{2}+{{y}}", "x^2+y"),
        (r"{x+y}^2", "{x+y}^2"),
        (r"a_{1}_{2}", "a_1{}_2"),
        (r"f^{\prime}(x)=f''", "f'(x)=f''"),
        (r"f'^{2}", "f'^2"),
        (r"\sqrt [3] {x}", r"\sqrt[3]{x}"),
        (r"\alpha x + \beta \gamma", r"\alpha x+\beta\gamma"),
        (r"\left( \dfrac ab \right)^2", r"\left(\frac{a}{b}\right)^2"),
        (r"a \le b \rightarrow c", r"a\leq b\to c"),
        (r"\text{ if  we } x\, y", r"\text{if we}xy"),
        (r"\begin{pmatrix} a & b \\ c & d \\ \end{pmatrix}", r"\begin{pmatrix}a&b\\c&d\end{pmatrix}"),
        (r"\begin{array} {l r} a \\[2pt] b \end{array}", r"\begin{array}{lr}a\\b\end{array}"),
        (r"\hat x \mathrm{d} x", r"\hat{x}\mathrm{d}x"),
        (r"{\rm abc} x", r"{\rm abc}x"),
        (r"\sum\limits_{i=1}^n i", r"\sum_{i=1}^ni"),
        (r"\operatorname*{argmax}_\theta", r"\operatorname{argmax}_\theta"),
        (r"\varphi *2", r"\varphi*2"),
        (r"\hspace{2cm} x \label{eq:1}", "x"),
        ("", ""),
    ],
)
def test_known_forms(latex: str, normal: str) -> None:
    assert normalise_formula(latex) == normal
    assert normalise_formula(normal) == normal


def test_tokens() -> None:
    assert formula_tokens(r"\frac{a}{12}+\text{for all}") == [
        r"\frac", "{", "a", "}", "{", "1", "2", "}", "+", r"\text", "{", "for all", "}",
    ]  # fmt: skip


PIECES = [
    "x", "1", "+", r"\alpha", r"\frac", "{", "}", "_", "^", "'", " ", r"\left(", r"\right)", "&", r"\\", r"\text", "[",
    r"\begin{cases}", r"\end{cases}", r"\sqrt", r"\rm", r"\,", "$", "\\", r"\hspace", r"\begin{array}",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_never_raises_and_keeps_letters(latex: str) -> None:
    normal = normalise_formula(latex)
    if r"\hspace" not in latex:
        assert normal.count("x") >= latex.replace(r"\begin{", "").count("x") - latex.count(r"\begin{array}")


@given(st.text(max_size=40))
def test_never_raises(text: str) -> None:
    normalise_formula(text)


def test_deep_nesting_does_not_overflow() -> None:
    assert normalise_formula("{" * 5000 + "x").count("x") == 1
