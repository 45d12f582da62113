"""Text metrics, by rapidfuzz's edit distance."""

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
