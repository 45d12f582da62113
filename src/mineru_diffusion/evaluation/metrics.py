"""Text metrics, by rapidfuzz's edit distance. In: predictions and truths, strings. Out: rates from 0 (perfect) up."""

from __future__ import annotations

from collections.abc import Sequence

from mineru_diffusion.errors import MissingExtra

try:
    from rapidfuzz.distance import Levenshtein
except ImportError as error:
    raise MissingExtra("measuring accuracy", "train") from error


def character_errors(prediction: str, truth: str) -> int:
    """Insertions, deletions and substitutions that turn `prediction` into `truth`."""
    return int(Levenshtein.distance(prediction, truth))


def character_error_rate(predictions: Sequence[str], truths: Sequence[str]) -> float:
    """Errors over all characters of the truth (micro average); 0 is perfect, above 1 is possible.

    Raises:
        ValueError: the lengths differ, or there is no truth at all.
    """
    total = sum(len(truth) for truth in truths)
    if not total:
        raise ValueError("the truth has no characters")
    return sum(character_errors(p, t) for p, t in zip(predictions, truths, strict=True)) / total


def word_error_rate(predictions: Sequence[str], truths: Sequence[str]) -> float:
    """Word errors over all words of the truth (micro average).

    Raises:
        ValueError: the lengths differ, or there is no truth at all.
    """
    total = sum(len(truth.split()) for truth in truths)
    if not total:
        raise ValueError("the truth has no words")
    errors = sum(Levenshtein.distance(p.split(), t.split()) for p, t in zip(predictions, truths, strict=True))
    return errors / total


def normalised_edit_distance(prediction: str, truth: str) -> float:
    """Edit distance over the length of the longer string: 0 is equal, 1 shares nothing; two empty strings are equal.

    The text metric of OmniDocBench (arXiv 2412.07626) for one pair.
    """
    return float(Levenshtein.normalized_distance(prediction, truth))


def page_edit_distance(pages: Sequence[Sequence[tuple[str, str]]]) -> float:
    """OmniDocBench's page average: for each page all its pairs' edit distances over the sum of their longer lengths,
    then the mean over the pages. Pages on which there is nothing to compare are left out.

    Args:
        pages: per page its pairs (prediction, truth).

    Raises:
        ValueError: no page has a character.
    """
    rates = []
    for pairs in pages:
        length = sum(max(len(prediction), len(truth)) for prediction, truth in pairs)
        if length:
            rates.append(sum(character_errors(*pair) for pair in pairs) / length)
    if not rates:
        raise ValueError("no page has a character")
    return sum(rates) / len(rates)
