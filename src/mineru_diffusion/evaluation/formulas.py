r"""Formula metrics on LaTeX tokens. In: LaTeX strings. Out: similarities from 0 to 1.

Two spellings of one formula must not count as errors, so both sides are brought into their normal form first (see
`document.formula_normal`); what is left of braces around a single token is taken off, so that it does not count.
"""

from __future__ import annotations

from collections.abc import Sequence

from mineru_diffusion.document.formula_normal import formula_tokens
from mineru_diffusion.errors import MissingExtra

try:
    from rapidfuzz.distance import Levenshtein
except ImportError as error:
    raise MissingExtra("measuring formulas", "train") from error


def canonical_tokens(latex: str) -> list[str]:
    """Tokens in the one form that is compared; see the module's text."""
    return _without_single_braces(formula_tokens(latex))


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
