"""What stands in the cells of a synthetic table: labels, phrases, and columns of numbers of one kind.

In: a random generator. Out: short strings of CHARSET characters, without outer or double spaces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.words import has_held_out, vocabulary

_UNITS = ("mm", "cm", "m", "km", "g", "kg", "mg", "s", "ms", "h", "Hz", "kHz", "GB", "MB", "°C", "K", "μm", "nm", "V",
          "W", "kW", "J", "Pa", "ml", "%", "€", "$", "m²", "px", "pt", "dB", "eV")  # fmt: skip
_MARKS = ("+", "−", "±", "•", "*", "†", "×", "≈")
_YES = (("Yes", "No"), ("yes", "no"), ("Y", "N"), ("high", "low"), ("+", "−"), ("A", "B"), ("M", "F"), ("•", "–"))
_TOTALS = ("Total", "Sum", "Mean", "Average", "All", "Overall", "Avg.", "TOTAL", "Median", "N")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_BLANKS = ("–", "-", "—", "n/a", "N/A", "NA", "…", "*", "n.s.", "0")

_T = TypeVar("_T")
Column = Callable[[np.random.Generator], str]


class CellSampler:
    """Draws cell texts; the same generator state gives the same text.

    Args:
        split: "train" never yields a held-out word (see `words.is_held_out`); "heldout" often does.

    Raises:
        UsageError: unknown split.
    """

    def __init__(self, *, split: str = "train") -> None:
        if split not in ("train", "heldout"):
            raise UsageError(f"unknown split {split!r}: use 'train' or 'heldout'")
        self.split = split

    def word(self, rng: np.random.Generator) -> str:
        """One English word in small letters."""
        held_out = self.split == "heldout" and rng.random() < 0.35
        return vocabulary("en", held_out).draw(rng)

    def label(self, rng: np.random.Generator, most_words: int = 3) -> str:
        """What heads a row or a column: a few words, an acronym, a year, a symbol with its unit."""
        roll = rng.random()
        if roll < 0.08:
            return self._allowed(lambda: "".join(pick(rng, "ABCDEFGHIKLMNPRSTUVW") for _ in range(rng.integers(1, 5))))
        if roll < 0.13:
            return str(rng.integers(1900, 2031))
        if roll < 0.17:
            return f"{pick(rng, 'QABCTNkxα')}{rng.integers(1, 10)}"
        if roll < 0.20:
            return f"{pick(rng, 'abcdhklmnpqrtuvxyzαβγδλμσθ')} ({pick(rng, _UNITS)})"
        words = [self.word(rng) for _ in range(int(rng.integers(1, most_words + 1)))]
        roll = rng.random()
        if roll < 0.55:
            words[0] = words[0][:1].upper() + words[0][1:]
        elif roll < 0.75:
            words = [w[:1].upper() + w[1:] for w in words]
        elif roll < 0.80:
            words = [w.upper() for w in words]
        text = " ".join(words)
        roll = rng.random()
        if roll < 0.08:
            text += f" ({pick(rng, _UNITS)})"
        elif roll < 0.11:
            text += pick(rng, ("*", "†", "¹", "²", " (%)", " #", ":", " [%]"))
        return text

    def phrase(self, rng: np.random.Generator, most_chars: int) -> str:
        """Running text, for cells that are wrapped: at least two words, at most `most_chars` characters beyond them."""
        length = int(rng.integers(8, max(9, most_chars)))
        words = [self.word(rng), self.word(rng)]
        while sum(map(len, words)) + len(words) < length:
            roll = rng.random()
            if roll < 0.3:
                words.append(vocabulary("en", False).draw_frequent(rng))
            elif roll < 0.36:
                words.append(str(rng.integers(1, 2000)))
            elif roll < 0.39:
                words.append(f"({self.word(rng)})")
            else:
                words.append(self.word(rng))
            if roll > 0.93:
                words[-1] += pick(rng, ",,;:/")
        text = " ".join(words).rstrip(",;:/")
        text = text[:1].upper() + text[1:] if rng.random() < 0.8 else text
        return text + "." if rng.random() < 0.25 else text

    def total(self, rng: np.random.Generator) -> str:
        """What heads the row of sums."""
        return pick(rng, _TOTALS)

    def blank(self, rng: np.random.Generator) -> str:
        """What stands where there is no value."""
        return pick(rng, _BLANKS)

    def numbers(self, rng: np.random.Generator) -> Column:
        """A kind of number for a whole column: size, decimals, separators, unit or percent sign, error, brackets."""
        size = rng.uniform(0, 5)
        digits = int(rng.integers(0, 4))
        negative = 0.3 if rng.random() < 0.3 else 0.0
        minus = pick(rng, ("-", "−"))
        comma = rng.random() < 0.15
        thousands = "" if comma else pick(rng, ("", ",", ","))
        unit = pick(rng, _UNITS)

        def value(generator: np.random.Generator, scale: float = 1.0) -> str:
            amount = scale * 10 ** generator.uniform(max(0, size - 1.5), size)
            text = f"{amount:{thousands}.{digits}f}"
            text = text.replace(".", ",") if comma else text
            return minus + text if generator.random() < negative else text

        def stars(generator: np.random.Generator) -> str:
            return value(generator) + pick(generator, ("", "", "*", "**", "***"))

        def percent(generator: np.random.Generator) -> str:
            return f"{generator.uniform(0, 100):.{min(digits, 2)}f}"

        kinds: tuple[tuple[float, Column], ...] = (
            (0.36, value),
            (0.12, lambda g: percent(g) + "%"),
            (0.08, percent),
            (0.06, lambda g: f"{value(g)} {unit}"),
            (0.07, lambda g: f"{value(g)} ± {value(g, 0.1).lstrip(minus)}"),
            (0.04, lambda g: f"{value(g)} ({percent(g)}%)"),
            (0.05, lambda g: f"{value(g)} ({value(g, 0.1).lstrip(minus)})"),
            (0.05, lambda g: f"{g.integers(1, 60)}–{g.integers(60, 200)}"),
            (0.04, stars),
            (0.03, lambda g: pick(g, ("<0.001", "<0.01", f"0.{g.integers(100):02d}", f"0.{g.integers(1000):03d}"))),
            (0.04, lambda g: f"${value(g).lstrip(minus)}"),
            (0.03, lambda g: f"({value(g).lstrip(minus)})"),
            (0.03, lambda g: f"{g.integers(1, 10)}.{g.integers(0, 100):02d}e{pick(g, '+-')}{g.integers(1, 10):02d}"),
        )
        return _choose(rng, kinds)

    def column(self, rng: np.random.Generator) -> tuple[Column, bool]:
        """A kind of column, and whether it holds numbers (which are set to the right or in the middle)."""
        roll = rng.random()
        if roll < 0.68:
            return self.numbers(rng), True
        if roll < 0.84:
            most = int(rng.integers(1, 4))
            return lambda g: self.label(g, most), False
        if roll < 0.89:
            pair = pick(rng, _YES)
            return lambda g: pick(g, pair), False
        if roll < 0.93:
            return _dates(rng), False
        if roll < 0.96:
            return lambda g: pick(g, _MARKS), False
        letters = "".join(pick(rng, "ABCDEFGHKLMNPRSTXZ") for _ in range(int(rng.integers(1, 3))))
        return lambda g: self._allowed(lambda: f"{letters}{pick(g, ('-', '', '.'))}{g.integers(1, 10000)}"), False

    def _allowed(self, make: Callable[[], str]) -> str:
        text = make()
        while self.split == "train" and has_held_out(text):
            text = make()
        return text


def _dates(rng: np.random.Generator) -> Column:
    style = int(rng.integers(4))

    def date(generator: np.random.Generator) -> str:
        day, month, year = (int(generator.integers(*limits)) for limits in ((1, 29), (1, 13), (1950, 2031)))
        return (
            f"{year}-{month:02d}-{day:02d}",
            f"{day}.{month}.{year}",
            f"{_MONTHS[month - 1]} {year}",
            f"{day} {_MONTHS[month - 1]} {year}",
        )[style]

    return date


def _choose(rng: np.random.Generator, options: Sequence[tuple[float, _T]]) -> _T:
    ends = np.cumsum([share for share, _ in options])
    return options[int(np.searchsorted(ends, rng.random() * ends[-1]))][1]


def pick(rng: np.random.Generator, options: Sequence[_T]) -> _T:
    """One of the options, each as likely as the others."""
    return options[int(rng.integers(len(options)))]
