"""Text for synthetic lines: prose in five languages, and all the other things that stand on pages.

In: a random generator and a length range. Out: one line of CHARSET characters, without outer or double spaces.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, TypeVar

import numpy as np

from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.charset import CHARSET
from mineru_diffusion.synthesis.words import LANGUAGES, has_held_out, letter_runs, vocabulary

_LANGUAGE_ENDS = np.cumsum((0.84, 0.05, 0.04, 0.04))
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_UNITS = (
    "mm", "cm", "m", "km", "g", "kg", "mg", "s", "ms", "h", "Hz", "kHz", "MHz", "GB", "MB", "kB", "°C", "K", "μm",
    "nm", "V", "W", "kW", "J", "N", "Pa", "l", "ml", "%", "‰", "px", "pt", "dpi",
)  # fmt: skip
_LABELS = (
    "Fig.", "Figure", "Table", "Tab.", "Section", "Sec.", "Eq.", "Chapter", "Appendix", "Theorem", "Lemma", "Step",
    "No.", "Vol.", "Part", "Note",
)  # fmt: skip
_DOMAINS = ("com", "org", "net", "edu", "de", "fr", "io", "co.uk", "gov")
_BULLETS = "•·–—-*→§†‡»›+"
_OPERATORS = ("+", "−", "-", "=", "≤", "≥", "≠", "≈", "<", ">", "×", "·", "÷", "±", "/", "→", "∞")
_QUOTES = (("“", "”"), ("“", "”"), ('"', '"'), ("‘", "’"), ("'", "'"), ("„", "“"), ("«", "»"), ("‹", "›"))
_BRACKETS = (("(", ")"), ("(", ")"), ("(", ")"), ("[", "]"), ("{", "}"), ("<", ">"))

Kind = Literal["prose", "heading", "numbers", "reference", "code", "contact", "mathematics"]

_T = TypeVar("_T")


def _accents() -> dict[str, str]:
    """For each plain letter, the letters of CHARSET that are it with a mark."""
    table = {"l": "ł", "L": "Ł", "o": "øœ", "O": "ØŒ", "d": "đð", "a": "æ", "A": "Æ", "i": "ı", "D": "Đ"}
    for character in CHARSET:
        base = unicodedata.normalize("NFD", character)[0]
        if character != base:
            table[base] = table.get(base, "") + character
    return table


_ACCENTED = _accents()


class TextSampler:
    """Draws lines of text; the same generator state gives the same text.

    Args:
        split: "train" never yields a held-out word (see `words.is_held_out`); in "heldout" every line that has a
            word of five or more letters has at least one held-out word.

    Raises:
        UsageError: unknown split.
    """

    def __init__(self, *, split: str = "train") -> None:
        if split not in ("train", "heldout"):
            raise UsageError(f"unknown split {split!r}: use 'train' or 'heldout'")
        self.split = split
        self._kinds: tuple[tuple[float, Callable[[np.random.Generator], str]], ...] = (
            (0.62, self._prose),
            (0.08, self._heading),
            (0.06, self._item),
            (0.07, self._numbers),
            (0.05, self._reference),
            (0.03, self._code),
            (0.02, self._contact),
            (0.03, self._mathematics),
            (0.04, self._random),
        )
        self._ends = np.cumsum([share for share, _ in self._kinds])

    def sample(self, rng: np.random.Generator, min_chars: int = 1, max_chars: int = 70) -> str:
        """Draw one line with a length uniform in [min_chars, max_chars], cut at word borders where that fits.

        Raises:
            UsageError: the range is empty or starts below 1.
        """
        if not 1 <= min_chars <= max_chars:
            raise UsageError(f"bad length range {min_chars}..{max_chars}: use 1 <= min_chars <= max_chars")
        target = int(rng.integers(min_chars, max_chars + 1))
        while True:
            kind = self._kinds[int(np.searchsorted(self._ends, rng.random() * self._ends[-1]))][1]
            parts = [kind(rng)]
            while sum(map(len, parts)) + len(parts) - 1 < target:
                parts.append(kind(rng))
            text = _cut(" ".join(" ".join(parts).split()), target, min_chars, prose=kind == self._prose, rng=rng)
            if min_chars <= len(text) <= max_chars and self.allows(text):
                return text

    def passage(self, rng: np.random.Generator, kind: Kind, chars: int, language: str = "en") -> str:
        """Text of one kind, as many whole words as come next to `chars` characters (at least one); prose starts with a
        capital. Only prose heeds the language (one of `words.LANGUAGES`).

        Raises:
            UsageError: `chars` is below 1.
        """
        if chars < 1:
            raise UsageError(f"bad passage length {chars}: use at least 1 character")
        kinds: dict[Kind, Callable[[np.random.Generator], str]] = {
            "prose": partial(self._prose, language=language),
            "heading": self._heading,
            "numbers": self._numbers,
            "reference": self._reference,
            "code": self._code,
            "contact": self._contact,
            "mathematics": self._mathematics,
        }
        draw = kinds[kind]
        while True:
            text = draw(rng)
            while len(text) < chars and kind != "code":
                text += " " + draw(rng)
            border = text.rfind(" ", 0, chars + 1)
            if len(text) > chars and kind not in ("code", "contact"):
                text = text[:border] if border > 0 else text.split(" ", 1)[0]
            text = " ".join(text.split())
            if text and self.allows(text):
                return _capital(text) if kind == "prose" else text

    def allows(self, text: str) -> bool:
        """Whether a text may stand in this split."""
        if self.split == "train":
            return not has_held_out(text)
        return has_held_out(text) or not letter_runs(text)

    def _word(self, rng: np.random.Generator, language: str = "en") -> str:
        held_out = self.split == "heldout" and rng.random() < 0.35
        return vocabulary(language, held_out).draw(rng)

    def _clause(self, rng: np.random.Generator, low: int, high: int, language: str) -> list[str]:
        """Words with the short frequent ones between them, as in sentences."""
        common = vocabulary(language, False)
        count = int(rng.integers(low, high + 1))
        return [common.draw_frequent(rng) if r < 0.3 else self._word(rng, language) for r in rng.random(count)]

    def _words(self, rng: np.random.Generator, low: int, high: int) -> list[str]:
        return [self._word(rng) for _ in range(int(rng.integers(low, high + 1)))]

    def _prose(self, rng: np.random.Generator, language: str | None = None) -> str:
        language = language or LANGUAGES[int(np.searchsorted(_LANGUAGE_ENDS, rng.random()))]
        words = self._clause(rng, 5, 16, language)
        if rng.random() < 0.5:
            words[0] = _capital(words[0])
        chance = rng.random(len(words))
        for i, word in enumerate(words):
            roll = chance[i]
            if roll < 0.42:
                continue
            if roll < 0.45:
                words[i] = _accented(word, rng)
            elif roll < 0.53:
                words[i] = word + ","
            elif roll < 0.57:
                words[i] = word + _pick(rng, ".....?!;:") + (" " + _pick(rng, ("—", "–")) if rng.random() < 0.1 else "")
                if i + 1 < len(words) and words[i][-1] not in ";:":
                    words[i + 1] = _capital(words[i + 1])
            elif roll < 0.65:
                words[i] = _capital(word)
            elif roll < 0.67:
                left, right = _pick(rng, _QUOTES)
                words[i] = f"{left}{word}{right}"
            elif roll < 0.69:
                left, right = _pick(rng, _BRACKETS)
                words[i] = f"{left}{word}{right}"
            elif roll < 0.71:
                words[i] = f"{word}-{self._word(rng, language)}"
            elif roll < 0.75:
                words[i] = self._number(rng)
            elif roll < 0.76:
                words[i] = _capital(word) + _pick(rng, ("’s", "'s"))
            elif roll < 0.77:
                words[i] = word.upper()
            elif roll < 0.78:
                words[i] = _pick(rng, ("e.g.", "i.e.", "cf.", "etc.", "vs.", "Mr.", "Dr.", "St.", "ca.", "approx."))
            elif roll < 0.79:
                words[i] = word + _pick(rng, ("—", "–", " – ", " — ", "/", "…", "...", "*", "¹", "²", "†"))
            elif roll < 0.80:
                words[i] = self._citation(rng)
        return " ".join(words)

    def _heading(self, rng: np.random.Generator) -> str:
        words = self._words(rng, 1, 8)
        roll = rng.random()
        if roll < 0.4:
            words = [w if len(w) < 4 and i else _capital(w) for i, w in enumerate(words)]
        elif roll < 0.75:
            words = [w.upper() for w in words]
        else:
            words[0] = _capital(words[0])
        number = ""
        if rng.random() < 0.4:
            parts = [str(rng.integers(1, 13)) for _ in range(int(rng.integers(1, 4)))]
            number = _pick(rng, ("", "", "Chapter ", "Appendix ", "§ ")) + ".".join(parts) + _pick(rng, ("", ".", ":"))
        elif rng.random() < 0.15:
            number = _pick(rng, ("I", "II", "III", "IV", "V", "VI", "VII", "IX", "X", "A", "B", "C")) + "."
        return f"{number} {' '.join(words)}".strip()

    def _item(self, rng: np.random.Generator) -> str:
        roll = rng.random()
        if roll < 0.5:
            mark = _pick(rng, _BULLETS)
        elif roll < 0.8:
            mark = f"{rng.integers(1, 40)}{_pick(rng, ('.', ')', ':'))}"
        else:
            mark = f"{_pick(rng, ('(', ''))}{_pick(rng, string.ascii_lowercase)})"
        return f"{mark} {self._prose(rng)}"

    def _numbers(self, rng: np.random.Generator) -> str:
        return " ".join(self._number(rng) for _ in range(int(rng.integers(1, 6))))

    def _number(self, rng: np.random.Generator) -> str:
        whole = int(10 ** rng.uniform(0, 6))
        roll = rng.random()
        if roll < 0.2:
            return str(whole)
        if roll < 0.32:
            return f"{whole:,}{_pick(rng, ('', f'.{rng.integers(0, 100):02d}'))}"
        if roll < 0.45:
            digits = int(rng.integers(1, 5))
            text = f"{rng.uniform(-20, 1000):.{digits}f}".replace("-", _pick(rng, ("-", "−")))
            return text.replace(".", ",") if rng.random() < 0.2 else text
        if roll < 0.53:
            return f"{rng.uniform(0, 120):.{int(rng.integers(0, 3))}f}{_pick(rng, ('%', '%', ' %', '‰', '°'))}"
        if roll < 0.63:
            amount = f"{whole:,}{_pick(rng, ('', f'.{rng.integers(0, 100):02d}'))}"
            return _pick(rng, (f"${amount}", f"€{amount}", f"{amount} €", f"£{amount}", f"¥{amount}", f"{amount}¢"))
        if roll < 0.73:
            return self._date(rng)
        if roll < 0.79:
            return f"{rng.integers(1, 500)}{_pick(rng, ('–', '-', '—', '/', ':', '×', '±'))}{rng.integers(1, 999)}"
        if roll < 0.86:
            return f"{rng.integers(0, 2000)} {_pick(rng, _UNITS)}"
        if roll < 0.90:
            return f"({rng.integers(1, 200)}{_pick(rng, ('', 'a', 'b', 'c', '.1'))})"
        if roll < 0.93:
            return f"{rng.integers(0, 60)}{_pick(rng, '½¼¾²³¹°ºª')}"
        if roll < 0.97:
            power = _pick(rng, ("e-", "E+", " × 10", "e"))
            return f"{rng.integers(1, 10)}.{rng.integers(0, 100)}{power}{rng.integers(1, 12)}"
        return "+" + "-".join(str(rng.integers(10, 10000)) for _ in range(3))

    def _date(self, rng: np.random.Generator) -> str:
        day, month, year = int(rng.integers(1, 32)), int(rng.integers(1, 13)), int(rng.integers(1850, 2031))
        return _pick(
            rng,
            (
                f"{year}-{month:02d}-{day:02d}",
                f"{day}.{month}.{year}",
                f"{month}/{day}/{year % 100:02d}",
                f"{day} {_MONTHS[month - 1]} {year}",
                f"{_MONTHS[month - 1]} {day}, {year}",
                f"{_MONTHS[month - 1][:3]} {year}",
                f"{year}",
                f"{day % 24}:{month:02d}",
            ),
        )

    def _name(self, rng: np.random.Generator) -> str:
        name = _capital(self._word(rng))
        initials = " ".join(f"{_pick(rng, string.ascii_uppercase)}." for _ in range(int(rng.integers(1, 3))))
        return _pick(rng, (f"{name}, {initials}", f"{initials} {name}", f"{_capital(self._word(rng))} {name}"))

    def _citation(self, rng: np.random.Generator) -> str:
        year = rng.integers(1950, 2027)
        name = _capital(self._word(rng))
        return _pick(
            rng,
            (
                f"[{rng.integers(1, 150)}]",
                f"[{rng.integers(1, 90)}, {rng.integers(1, 99)}]",
                f"[{rng.integers(1, 90)}–{rng.integers(1, 99)}]",
                f"({name} et al., {year})",
                f"{name} ({year})",
                f"({name} & {_capital(self._word(rng))}, {year})",
                f"{_pick(rng, _LABELS)} {rng.integers(1, 20)}",
                f"({_pick(rng, _LABELS)} {rng.integers(1, 20)}.{rng.integers(1, 9)})",
            ),
        )

    def _reference(self, rng: np.random.Generator) -> str:
        if rng.random() < 0.3:
            caption = f"{_pick(rng, _LABELS)} {rng.integers(1, 30)}{_pick(rng, '.::–')}"
            return f"{caption} {_capital(self._prose(rng))}"
        names = ", ".join(self._name(rng) for _ in range(int(rng.integers(1, 4))))
        title = _capital(" ".join(self._words(rng, 3, 9)))
        pages = f"{rng.integers(1, 400)}–{rng.integers(400, 999)}"
        journal = " ".join(_capital(w) for w in self._words(rng, 1, 3))
        number = _pick(rng, ("", f"[{rng.integers(1, 120)}] ", f"{rng.integers(1, 120)}. "))
        return (
            f"{number}{names}{_pick(rng, (' and ' + self._name(rng), ', et al.', ''))}"
            f"{_pick(rng, ('.', ':', f' ({rng.integers(1950, 2027)}).'))} {title}. {journal}, "
            f"{rng.integers(1, 99)}({rng.integers(1, 12)}):{pages}, {rng.integers(1950, 2027)}."
        )

    def _code(self, rng: np.random.Generator) -> str:
        a, b, c = self._words(rng, 3, 3)
        number = rng.integers(0, 1000)
        return _pick(
            rng,
            (
                f"{a}_{b} = {c}({number}, {a[:1]})",
                f"def {a}_{b}(self, {c}: int) -> None:",
                f"if ({a}[{number % 10}] != {b}.{c}()) {{ return {number}; }}",
                f"$ {a} --{b}={c} -{c[:1]} | {b} > {a}.txt",
                f'<{a} {b}="{c}">{number}</{a}>',
                f"C:\\{_capital(a)}\\{b}\\{c}.{_pick(rng, ('txt', 'py', 'pdf', 'exe'))}",
                f"{_capital(a)}{_capital(b)}.{c}()",
                f"#{number:06x} @{a} ~/{b}/{c} `{a}`",
                f"for {a[:1]} in {b}: {c} += {number} ** 2  # {a}",
                f"{a}&{b}=%{number % 90 + 10}^{c[:1]} ||  !{a};",
            ),
        )

    def _contact(self, rng: np.random.Generator) -> str:
        a, b, c = self._words(rng, 3, 3)
        domain = f"{b}{_pick(rng, ('', '-' + c))}.{_pick(rng, _DOMAINS)}"
        return _pick(
            rng,
            (
                f"{a}.{c}@{domain}",
                f"{a}{rng.integers(1, 99)}@{domain}",
                f"https://www.{domain}/{a}/{c}?id={rng.integers(1, 9999)}",
                f"http://{domain}/{a}_{c}.html#{b}",
                f"www.{domain}",
                f"doi:10.{rng.integers(1000, 9999)}/{a}.{rng.integers(1000, 99999)}",
                f"© {rng.integers(1990, 2030)} {_capital(a)} {_capital(b)}{_pick(rng, '®™†')}",
                f"ISBN {rng.integers(100, 999)}-{rng.integers(0, 9)}-{rng.integers(1000, 99999)}-X",
            ),
        )

    def _mathematics(self, rng: np.random.Generator) -> str:
        terms = []
        for _ in range(int(rng.integers(2, 6))):
            letter = _pick(rng, "αβγδεθλμπσφωΔΣΩxyzabcdnkfgN")
            terms.append(letter + _pick(rng, ("", "", "²", "³", "¹", "(x)", f"{rng.integers(0, 10)}")))
            terms.append(_pick(rng, _OPERATORS))
        return " ".join(terms[:-1]) if rng.random() < 0.7 else "".join(terms[:-1])

    def _random(self, rng: np.random.Generator) -> str:
        groups = []
        for _ in range(int(rng.integers(1, 6))):
            picks = rng.integers(1, len(CHARSET), int(rng.integers(1, 10)))
            groups.append("".join(CHARSET[i] for i in picks))
        return " ".join(groups)


def _cut(text: str, target: int, min_chars: int, *, prose: bool, rng: np.random.Generator) -> str:
    """Shorten text to at most target characters: at a space; in prose sometimes inside a word, with a hyphen."""
    if len(text) <= target or text[target] == " ":
        return text[:target].strip()
    border = text.rfind(" ", 0, target)
    word = text[border + 1 :].split(" ", 1)[0]
    inside = target - border - 2
    if prose and word.isalpha() and 2 <= inside <= len(word) - 2 and rng.random() < 0.4:
        return text[: target - 1] + "-"
    if border >= max(min_chars, target // 2):
        return text[:border].strip()
    return text[:target].strip()


def _accented(word: str, rng: np.random.Generator) -> str:
    """The word with a mark on one letter, as in names from languages that the word lists lack."""
    place = int(rng.integers(len(word)))
    return word[:place] + _pick(rng, _ACCENTED.get(word[place], word[place])) + word[place + 1 :]


def _capital(word: str) -> str:
    return word[:1].upper() + word[1:]


def _pick(rng: np.random.Generator, options: Sequence[_T]) -> _T:
    return options[int(rng.integers(len(options)))]
