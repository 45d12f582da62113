r"""Parts of formulas in three notations at once: LaTeX in normal form, typst math, and matplotlib's mathtext.

Each function takes parts and gives a larger one, so that the three always say the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mineru_diffusion.document.formula_normal import join_tokens
from mineru_diffusion.synthesis.formula_symbols import BRACKETS
from mineru_diffusion.synthesis.typst_engine import quote

_ESCAPED_IN_TYPST = frozenset("()[]{}|,;:/#$&_^'\"⟨⟩⌊⌋⌈⌉‖")


@dataclass(frozen=True)
class Part:
    r"""Attributes:
    tokens: LaTeX tokens in normal form.
    typst: the same in typst's math mode.
    mathtext: the same for matplotlib, or None where it has no way to write it.
    tall: whether brackets around it must grow (`\left( \right)` in LaTeX).
    """

    tokens: tuple[str, ...]
    typst: str
    mathtext: str | None
    tall: bool = False

    @property
    def latex(self) -> str:
        return join_tokens(self.tokens)


def symbol(latex: str, character: str) -> Part:
    """A single symbol: a letter, a digit string, a relation, a bracket that does not grow."""
    drawn = "\\" + character if character in _ESCAPED_IN_TYPST else character
    return Part(tuple(latex) if latex[0].isdigit() else (latex,), drawn, latex)


def number(text: str) -> Part:
    """Digits with or without a decimal point, as one part."""
    return Part(tuple(text), text, text)


def sequence(parts: Sequence[Part]) -> Part:
    """Parts side by side."""
    drawn = [part.mathtext for part in parts]
    return Part(
        tuple(token for part in parts for token in part.tokens),
        " ".join(part.typst for part in parts),
        None if None in drawn else " ".join(text for text in drawn if text),
        any(part.tall for part in parts),
    )


def command(name: str, typst: str, *parts: Part, tall: bool = False, mathtext: bool = True) -> Part:
    r"""A LaTeX command with braced arguments.

    Args:
        name: with its backslash.
        typst: a format string with one `{}` for each argument.
        parts: the arguments.
        tall: see `Part`; an argument that is tall makes the whole tall anyway.
        mathtext: whether matplotlib knows the command.
    """
    tokens = [name]
    for part in parts:
        tokens += ["{", *part.tokens, "}"]
    drawn = [part.mathtext for part in parts]
    known = mathtext and None not in drawn
    return Part(
        tuple(tokens),
        typst.format(*(part.typst for part in parts)),
        name + "".join(f"{{{text}}}" for text in drawn) if known else None,
        tall or any(part.tall for part in parts),
    )


def fraction(top: Part, bottom: Part) -> Part:
    return command(r"\frac", "frac({}, {})", top, bottom, tall=True)


def binomial(top: Part, bottom: Part) -> Part:
    return command(r"\binom", "binom({}, {})", top, bottom, tall=True)


def root(body: Part, degree: Part | None = None) -> Part:
    if degree is None:
        return command(r"\sqrt", "sqrt({})", body)
    drawn = (
        None if body.mathtext is None or degree.mathtext is None else rf"\sqrt[{degree.mathtext}]{{{body.mathtext}}}"
    )
    tokens = (r"\sqrt", "[", *degree.tokens, "]", "{", *body.tokens, "}")
    return Part(tokens, f"root({degree.typst}, {body.typst})", drawn, body.tall)


def scripts(
    base: Part, sub: Part | None = None, sup: Part | None = None, *, primes: int = 0, tall: bool = False
) -> Part:
    """A base with a subscript, primes and a superscript; `tall` where they stand below and above a large sign."""
    typst_top = " ".join(["′"] * primes + ([sup.typst] if sup else []))
    arguments = [base.typst, *([f"t: {typst_top}"] if typst_top else []), *([f"b: {sub.typst}"] if sub else [])]
    texts = [base.mathtext, *(part.mathtext for part in (sub, sup) if part)]
    drawn = None
    if None not in texts:
        drawn = f"{base.mathtext}" + (f"_{{{sub.mathtext}}}" if sub else "")
        top = r"\prime" * primes + (" " + (sup.mathtext or "") if sup else "")
        drawn += f"^{{{top}}}" if top else ""
    tokens = [*base.tokens]
    for mark, part in (("_", sub), ("'", None), ("^", sup)):
        if mark == "'":
            tokens += ["'"] * primes
        elif part:
            tokens += [mark, *(part.tokens if len(part.tokens) == 1 else ("{", *part.tokens, "}"))]
    return Part(tuple(tokens), f"attach({', '.join(arguments)})", drawn, tall or base.tall)


def function(name: str) -> Part:
    r"""`\sin` and its like, with upright letters."""
    return Part((f"\\{name}",), name, f"\\{name}")


def brackets(kind: str, body: Part) -> Part:
    r"""The body in brackets of a kind of `BRACKETS`, which grow with `\left \right` where it is tall."""
    (left, right), (typst_left, typst_right) = BRACKETS[kind]
    if not body.tall:
        group = sequence([symbol(left, typst_left), body, symbol(right, typst_right)])
        # Alone, typst takes a bar for a relation and keeps its distance.
        return replace(group, typst=f"lr({group.typst})") if left == right else group
    drawn = None if body.mathtext is None else rf"\left{left} {body.mathtext} \right{right}"
    opening, closing = (f"\\{c}" if c in _ESCAPED_IN_TYPST else c for c in (typst_left, typst_right))
    tokens = (r"\left", left, *body.tokens, r"\right", right)
    return Part(tokens, f"lr({opening} {body.typst} {closing})", drawn, tall=True)


def text(words: str, *, before: bool = False, after: bool = False) -> Part:
    r"""Upright words; spaces around them are drawn, but not part of the normal form."""
    gap = (" " if before else "", " " if after else "")
    upright = words.replace(" ", r"\ ")
    return Part(
        (r"\text", "{", words, "}"),
        f"{'space ' * before}upright({quote(words)}){' space' * after}",
        gap[0].replace(" ", r"\ ") + rf"\mathrm{{{upright}}}" + gap[1].replace(" ", r"\ "),
    )


def matrix(kind: str, rows: Sequence[Sequence[Part]]) -> Part:
    r"""A `pmatrix`, `bmatrix`, `vmatrix` or `matrix`."""
    delimiters = {"pmatrix": '"("', "bmatrix": '"["', "vmatrix": '"|"', "matrix": "#none"}
    body = "; ".join(", ".join(cell.typst for cell in row) for row in rows)
    return Part(_environment(kind, rows), f"mat(delim: {delimiters[kind]}, {body})", None, tall=True)


def cases(rows: Sequence[Sequence[Part]]) -> Part:
    """Values behind a brace, each with its condition."""
    body = ", ".join(" & ".join(cell.typst for cell in row) for row in rows)
    return Part(_environment("cases", rows), f"cases({body})", None, tall=True)


def aligned(rows: Sequence[Sequence[Part]]) -> Part:
    """Lines that are aligned at one place each. In typst it must be a whole formula."""
    body = " \\ ".join(" & ".join(cell.typst for cell in row) for row in rows)
    return Part(_environment("aligned", rows), body, None, tall=True)


def _environment(name: str, rows: Sequence[Sequence[Part]]) -> tuple[str, ...]:
    tokens = [f"\\begin{{{name}}}"]
    for i, row in enumerate(rows):
        tokens += ["\\\\"] if i else []
        for j, cell in enumerate(row):
            tokens += [*(["&"] if j else []), *cell.tokens]
    return (*tokens, f"\\end{{{name}}}")
