"""Words with their looks: which are bold, italic, or a raised mark. In: plain text. Out: runs, and typst code for them.

The looks are never part of the truth: a reader writes the words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from mineru_diffusion.synthesis.typst_engine import quote

Look = Literal["plain", "bold", "italic", "both", "underlined", "raised"]

_NOTE_MARKS = ("¹", "²", "³", "*", "†", "‡", "§")
_RAISED = str.maketrans("¹²³", "123")


@dataclass(frozen=True)
class Word:
    """One word as it is read, and its look. A `mark` is drawn raised behind it and belongs to the read text."""

    text: str
    look: Look = "plain"
    mark: str = ""

    @property
    def read(self) -> str:
        return self.text + self.mark


def plain_words(text: str) -> list[Word]:
    return [Word(word) for word in text.split()]


def dress(words: Sequence[Word], rng: np.random.Generator, *, styled: float = 0.35, noted: float = 0.1) -> list[Word]:
    """Some words in other looks: with probability `styled` one or two runs of them, with `noted` a footnote mark."""
    dressed = list(words)
    if words and rng.random() < styled:
        for _ in range(int(rng.integers(1, 3))):
            start = int(rng.integers(len(words)))
            looks: tuple[Look, ...] = ("bold", "italic", "italic", "both", "underlined")
            look = looks[int(rng.integers(len(looks)))]
            for i in range(start, min(len(words), start + int(rng.integers(1, 5)))):
                dressed[i] = replace(dressed[i], look=look)
    if words and rng.random() < noted:
        i = int(rng.integers(len(words)))
        if dressed[i].text[-1].isalnum() or dressed[i].text[-1] in ".,":
            dressed[i] = replace(dressed[i], mark=_NOTE_MARKS[int(rng.integers(len(_NOTE_MARKS)))])
    return dressed


def read_text(words: Sequence[Word]) -> str:
    """What a reader writes for the words: one space between them."""
    return " ".join(word.read for word in words)


def typst_words(words: Sequence[Word], tag: Callable[[int, str, str], str] | None = None) -> str:
    """Typst code (in code mode, statements) that sets the words with spaces between them.

    Args:
        words: what to set.
        tag: given a word's number, its code and its text, code with whatever should stand around it.
    """
    parts: list[str] = []
    for i, word in enumerate(words):
        code = _look(quote(word.text), word.look)
        if word.mark:
            raised = word.mark.translate(_RAISED)
            code += f"; super({quote(raised)})"
        parts.append(code if tag is None else tag(i, code, word.text))
    return '; " "; '.join(parts)


def _look(code: str, look: Look) -> str:
    if look == "bold":
        return f"strong({code})"
    if look == "italic":
        return f"emph({code})"
    if look == "both":
        return f"strong(emph({code}))"
    if look == "underlined":
        return f"underline({code})"
    return code if look == "plain" else f"super({code})"
