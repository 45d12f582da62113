"""Random formulas: LaTeX in normal form, drawn by every backend, repeatable, with disjoint splits."""

from __future__ import annotations

import itertools
import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mineru_diffusion.document.formula_normal import formula_tokens, normalise_formula
from mineru_diffusion.document.formulas import clean_formula
from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis import formula_symbols as symbols
from mineru_diffusion.synthesis import formula_tree as tree
from mineru_diffusion.synthesis.formula_render import (
    MATPLOTLIB,
    TYPST,
    NotDrawable,
    cut_at_ink,
    formula_faces,
    render_formula,
)
from mineru_diffusion.synthesis.formula_stream import FormulaStream
from mineru_diffusion.synthesis.formulas import Formula, is_held_out
from mineru_diffusion.synthesis.typst_engine import EMBEDDED_MATH

pytest.importorskip("typst")
pytest.importorskip("matplotlib")

EMBEDDED = (TYPST, EMBEDDED_MATH)


def letter(name: str) -> tree.Part:
    return tree.symbol(name, name)


def formula_of(part: tree.Part) -> Formula:
    return Formula(part.latex, part.typst, part.mathtext, len(part.tokens))


@settings(max_examples=100)
@given(st.integers(0, 2**32 - 1), st.integers(0, 4), st.integers(5, 120), st.sampled_from(["train", "heldout"]))
def test_latex_is_balanced_and_in_normal_form(seed: int, depth: int, longest: int, split: str) -> None:
    formula = Formula.random(np.random.default_rng(seed), split=split, max_depth=depth, max_length=longest)
    assert normalise_formula(formula.latex) == formula.latex
    assert clean_formula(formula.latex) == formula.latex
    assert 3 <= formula.length <= longest
    assert len(formula_tokens(formula.latex)) <= formula.length
    plain = re.sub(r"\\[{}]", "", formula.latex)
    assert plain.count("{") == plain.count("}")
    assert len(re.findall(r"\\left(?![a-zA-Z])", plain)) == len(re.findall(r"\\right(?![a-zA-Z])", plain))
    assert formula.latex.count(r"\begin") == formula.latex.count(r"\end{")
    assert is_held_out(formula.latex) == (split == "heldout")
    assert formula.latex.isascii()


def test_variety() -> None:
    formulas = [Formula.random(np.random.default_rng(i)) for i in range(300)]
    text = " ".join(f.latex for f in formulas)
    for construction in (
        r"\frac", r"\sqrt", r"\sum", r"\prod", r"\int", "pmatrix", "bmatrix", "cases", "aligned", r"\hat", r"\bar",
        r"\vec", r"\tilde", r"\dot", r"\left", r"\text", r"\alpha", r"\Gamma", r"\sin", r"\lim", r"\mathbf", "'",
        r"\binom", r"\partial", r"\ldots",
    ):  # fmt: skip
        assert construction in text, construction
    lengths = [f.length for f in formulas]
    assert min(lengths) < 6
    assert max(lengths) > 50


def test_every_backend_draws_ink() -> None:
    drawn = dict.fromkeys(formula_faces(), 0)
    for seed in range(12):
        formula = Formula.random(np.random.default_rng(seed), max_length=40)
        for face in drawn:
            try:
                picture = render_formula(formula, face, 20)
            except NotDrawable:
                assert face[0] == MATPLOTLIB
                continue
            assert picture.dtype == np.uint8
            assert (picture < 128).any()
            # Cut at the ink on all four sides.
            assert all((side < 250).any() for side in (picture[0], picture[-1], picture[:, 0], picture[:, -1]))
            drawn[face] += 1
    assert drawn[EMBEDDED] == 12
    assert min(drawn.values()) > 4


def test_every_symbol_has_a_picture_of_its_own() -> None:
    names = {**symbols.GREEK, **symbols.CONSTANTS, **symbols.OPERATORS, **symbols.RELATIONS}
    for face in (EMBEDDED, (MATPLOTLIB, "cm")):
        seen: dict[bytes, str] = {}
        for latex, character in names.items():
            part = tree.sequence([letter("x"), tree.symbol(latex, character), letter("x")])
            picture = render_formula(formula_of(part), face, 40)
            key = bytes(picture) + str(picture.shape).encode()
            assert key not in seen, (latex, seen[key], face)
            seen[key] = latex


def test_backends_agree_on_the_layout() -> None:
    # The same tree in both notations: more ink to the right, above, or below at the same places.
    body = tree.fraction(letter("a"), letter("b"))
    for face in formula_faces():
        fraction = render_formula(formula_of(body), face, 40)
        rooted = render_formula(formula_of(tree.root(body)), face, 40)
        squared = render_formula(formula_of(tree.scripts(letter("a"), None, tree.number("2"))), face, 40)
        plain = render_formula(formula_of(letter("a")), face, 40)
        assert fraction.shape[0] > 1.8 * plain.shape[0]
        assert rooted.shape[1] > fraction.shape[1]
        assert squared.shape[1] > plain.shape[1]
        assert squared.shape[0] > plain.shape[0]


def test_brackets_grow_only_around_what_is_tall() -> None:
    assert tree.brackets("round", letter("x")).latex == "(x)"
    assert tree.brackets("curly", tree.fraction(letter("x"), letter("y"))).latex == r"\left\{\frac{x}{y}\right\}"


def test_what_mathtext_lacks_is_refused() -> None:
    part = tree.matrix("pmatrix", [[letter("a"), letter("b")]])
    with pytest.raises(NotDrawable):
        render_formula(formula_of(part), (MATPLOTLIB, "cm"), 20)
    missing = Formula("☃", "☃", "☃", 1)
    for _ in range(2):  # the second time matplotlib's own cache keeps quiet
        with pytest.raises(NotDrawable):
            render_formula(missing, (MATPLOTLIB, "cm"), 20)
    with pytest.raises(UsageError, match="unknown formula face"):
        render_formula(missing, ("latex", "cm"), 20)
    with pytest.raises(NotDrawable):
        cut_at_ink(np.full((4, 4), 255, dtype=np.uint8))


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_stream_is_repeatable(split: str) -> None:
    stream = FormulaStream(5, split)
    samples = list(itertools.islice(stream, 25))
    again = pickle.loads(pickle.dumps(stream))
    for index in (24, 0, 7):
        np.testing.assert_array_equal(again.sample(index).image, samples[index].image)
        assert again.sample(index).target == samples[index].target
    for sample in samples:
        assert sample.task == "formula"
        assert 20 <= sample.image.shape[0] <= 200
        assert sample.image.shape[1] <= 1000
        assert sample.image.std() > 3
        assert is_held_out(sample.target) == (split == "heldout")


def test_bad_arguments() -> None:
    with pytest.raises(UsageError, match="split"):
        FormulaStream(0, "test")
    with pytest.raises(UsageError, match="negative"):
        FormulaStream(0, degrade=-1)
    with pytest.raises(UsageError, match="formula range"):
        Formula.random(np.random.default_rng(0), min_length=9, max_length=3)
