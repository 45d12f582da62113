r"""Formula metrics on LaTeX tokens. In: LaTeX strings. Out: similarities from 0 to 1.

Two spellings of one formula must not count as errors, so both sides are brought into one form first: balanced as the
parser does it, without spacing commands and white space, one name per symbol (`\le` is `\leq`), and no braces around a
single token (`x^{2}` is `x^2`, which TeX sets alike).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mineru_diffusion.document.formulas import clean_formula
from mineru_diffusion.errors import MissingExtra

try:
    from rapidfuzz.distance import Levenshtein
except ImportError as error:
    raise MissingExtra("measuring formulas", "train") from error

_TOKEN = re.compile(r"\\(?:begin|end)\s*\{[^{}]*\}|\\[a-zA-Z]+\*?|\\.|\S", re.DOTALL)
_SPACING = frozenset(
    {r"\,", r"\;", r"\:", r"\!", r"\>", "\\ ", "~", r"\quad", r"\qquad", r"\thinspace", r"\enspace", r"\displaystyle"}
    | {r"\textstyle", r"\limits", r"\nolimits"}
)
_ALIASES = {
    r"\le": r"\leq",
    r"\ge": r"\geq",
    r"\ne": r"\neq",
    r"\to": r"\rightarrow",
    r"\gets": r"\leftarrow",
    r"\dfrac": r"\frac",
    r"\tfrac": r"\frac",
    r"\lbrace": r"\{",
    r"\rbrace": r"\}",
    r"\lbrack": "[",
    r"\rbrack": "]",
    r"\lvert": "|",
    r"\rvert": "|",
    r"\vert": "|",
    r"\Vert": r"\|",
    r"\lVert": r"\|",
    r"\rVert": r"\|",
    r"\land": r"\wedge",
    r"\lor": r"\vee",
    r"\lnot": r"\neg",
    r"\owns": r"\ni",
    r"\ast": "*",
    r"\operatorname*": r"\operatorname",
    r"\rm": r"\mathrm",
    r"\bf": r"\mathbf",
    r"\boldsymbol": r"\mathbf",
    r"\bm": r"\mathbf",
    r"\dots": r"\ldots",
    "−": "-",
    "′": "'",
}


def formula_tokens(latex: str) -> list[str]:
    r"""Tokens of a formula as it is written: `\begin{name}` and `\end{name}`, commands, escaped characters, and every
    other character that is not white space."""
    # `\begin {cases}` without its space; the blank of `\ ` stays.
    return [re.sub(r"\s", "", token) if len(token) > 2 else token for token in _TOKEN.findall(latex)]


def canonical_tokens(latex: str) -> list[str]:
    """Tokens in the one form that is compared; see the module's text."""
    tokens = [_ALIASES.get(t, t) for t in formula_tokens(clean_formula(latex)) if t not in _SPACING]
    return _without_single_braces(tokens)


def _without_single_braces(tokens: list[str]) -> list[str]:
    """Take braces off groups of one token, inner ones first."""
    out: list[str] = []
    for token in tokens:
        out.append(token)
        while len(out) >= 3 and out[-1] == "}" and out[-3] == "{" and out[-2] not in "{}":
            out[-3:] = [out[-2]]
    return out


def formula_similarity(prediction: str, truth: str) -> float:
    """1 - token edit distance / the longer number of tokens, of canonical forms; two empty formulas are equal."""
    return float(Levenshtein.normalized_similarity(canonical_tokens(prediction), canonical_tokens(truth)))


def formulas_match(prediction: str, truth: str) -> bool:
    """The canonical forms are equal."""
    return canonical_tokens(prediction) == canonical_tokens(truth)


def mean_formula_similarity(predictions: Sequence[str], truths: Sequence[str]) -> float:
    """Mean of `formula_similarity` over pairs.

    Raises:
        ValueError: the lengths differ, or there is no pair.
    """
    scores = [formula_similarity(p, t) for p, t in zip(predictions, truths, strict=True)]
    if not scores:
        raise ValueError("there is no formula to compare")
    return sum(scores) / len(scores)
