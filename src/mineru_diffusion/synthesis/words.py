"""Word lists with a fixed tenth of all words held out, drawn by tempered frequency so that rare words come up often.

In: wordfreq's lists. Out: words as arrays with cumulative weights.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from mineru_diffusion.errors import MissingExtra
from mineru_diffusion.synthesis.charset import CHARSET
from mineru_diffusion.synthesis.vulgar import is_vulgar

LANGUAGES = ("en", "de", "fr", "es", "it")
SHORTEST_HELD_OUT = 5
HELD_OUT_PERCENT = 10

_LETTERS = re.compile(rf"[^\W\d_]{{{SHORTEST_HELD_OUT},}}")
_TEMPER = 0.55
_RANK_OFFSET = 20
_LIST_LENGTH = {"en": 60000}


@dataclass(frozen=True)
class Vocabulary:
    """Words of one language, with the cumulative probability of each."""

    words: tuple[str, ...]
    cumulative: NDArray[np.float64]

    def draw(self, rng: np.random.Generator) -> str:
        return self.words[int(np.searchsorted(self.cumulative, rng.random()))]

    def draw_frequent(self, rng: np.random.Generator) -> str:
        """One of the commonest hundred: what holds sentences together."""
        return self.words[int(100 * rng.random() ** 2)]


def is_held_out(word: str) -> bool:
    """Whether a run of letters belongs to the held-out tenth. Words under five letters never do."""
    return len(word) >= SHORTEST_HELD_OUT and crc32(word.casefold().encode()) % 100 < HELD_OUT_PERCENT


def letter_runs(text: str) -> list[str]:
    """Every run of five or more letters: the unit of the split, wherever it stands (URLs and code included)."""
    return _LETTERS.findall(text)


def has_held_out(text: str) -> bool:
    return any(map(is_held_out, letter_runs(text)))


@cache
def vocabulary(language: str, held_out: bool) -> Vocabulary:
    """The words of one side of the split, without the vulgar ones. Words without a run of five letters are on both
    sides' texts, but listed only for training.

    Raises:
        MissingExtra: wordfreq is not installed.
    """
    try:
        from wordfreq import top_n_list
    except ImportError as error:
        raise MissingExtra("drawing words", "train") from error
    known = frozenset(CHARSET)
    ranked = [
        (rank, word)
        for rank, word in enumerate(top_n_list(language, _LIST_LENGTH.get(language, 20000)))
        if known.issuperset(word + word.upper()) and has_held_out(word) == held_out and not word[0].isdigit()
    ]
    weights = np.array([(rank + _RANK_OFFSET) ** -_TEMPER for rank, _ in ranked])
    cumulative = np.cumsum(weights) / weights.sum()
    # A word that is left out gives its share to the next one: every draw that did not hit it stays as it was.
    clean = [place for place, (_, word) in enumerate(ranked) if not is_vulgar(word)]
    cumulative = cumulative[clean]
    cumulative[-1] = 1.0
    return Vocabulary(tuple(ranked[place][1] for place in clean), cumulative)
