from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.document.formulas import clean_formula, inline_display_math, strip_delimiters

PIECES = ["{", "}", "\\left", "\\right", "(", ")", ".", "_", "^", "a", "1", " ", "&", "\\\\", "\\{", "\\}", "\\frac",
          "\\begin{array}", "\\end{array}", "\\begin{cases}", "\\end{cases}", "$", "\\[", "\\]"]  # fmt: skip


@pytest.mark.parametrize(
    "formula",
    [
        r"E = mc^2",
        r"\left( \frac{a}{b} \right.",
        r"\begin{array}{ll} a & \left[ b \right] \\[2pt] c_{1}^{2} & d'^2 \end{array}",
        r"\{ x \mid x_{i_j}^{k} \}",
        r"a \\[2pt] b",
        r"\left\{ \begin{matrix} 1 & 2 \end{matrix} \right\}",
        r"x \$ 5",
    ],
)
def test_good_formulas_are_left_alone(formula: str) -> None:
    assert clean_formula(formula) == formula
    assert clean_formula(f"\\[\n{formula}\n\\]") == formula


@pytest.mark.parametrize(
    ("broken", "repaired"),
    [
        ("{ a", "{ a}"),
        ("a }", "a"),
        (r"\frac{a}{b", r"\frac{a}{b}"),
        (r"\left( a", r"\left( \right. a"),
        (r"a \right)", r"a \left. \right)"),
        (r"{\left( a} \right)", r"{\left( \right. a} \left. \right)"),
        (r"\left( a & b \right)", r"\left( \right. a & b \left. \right)"),
        (r"a_{1}_{2}", r"a_{1}{}_{2}"),
        (r"x_1^2_3", r"x_1^2{}_3"),
        (r"\begin{cases} a & {b", r"\begin{cases} a & {b}\end{cases}"),
        (r"{\begin{a} x }", r"{\begin{a} x \end{a}}"),
        (r"a \end{array}", "a"),
    ],
)
def test_repairs(broken: str, repaired: str) -> None:
    assert clean_formula(broken) == repaired


@given(st.lists(st.sampled_from(PIECES), max_size=25).map(" ".join))
def test_result_is_balanced_and_stable(latex: str) -> None:
    clean = clean_formula(latex)
    depth = 0
    for char in clean.replace("\\\\", "").replace("\\{", "").replace("\\}", ""):
        depth += (char == "{") - (char == "}")
        assert depth >= 0
    assert depth == 0
    assert clean.count("\\begin") == clean.count("\\end")
    assert clean.count("\\left") == clean.count("\\right")
    for letter in "a1":
        assert clean.replace("array", "").replace("cases", "").replace("frac", "").count(letter) == latex.replace(
            "array", ""
        ).replace("cases", "").replace("frac", "").count(letter)


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        (r"\[ x^2 \]", "x^2"), ("$$x$$", "x"), ("$x$", "x"), (r"\( a \)", "a"), (r"\[ x", "x"), (r"x \]", "x"),
        ("  ", ""), (r"x \\]", r"x \\]"), (r"5 \$", r"5 \$"), ("$a$ and $b$", "$a$ and $b$"),
    ],
)  # fmt: skip
def test_strip_delimiters(text: str, inner: str) -> None:
    assert strip_delimiters(text) == inner


def test_display_math_in_text() -> None:
    assert inline_display_math(r"See \[ x \] here") == r"See \( x \) here"
    assert inline_display_math(r"a \\[2pt] b") == r"a \\[2pt] b"
