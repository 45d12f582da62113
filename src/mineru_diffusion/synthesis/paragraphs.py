"""Endless, seeded text regions of 1 to 12 lines, set by typst: paragraphs, headings, lists, code, references.

In: a seed. Out: Samples of the task `text`. The truth is the text before it was set: no line breaks inside a paragraph
and no hyphens from breaking words; list items, references and lines of code stand on lines of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal

import numpy as np

from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.inline import Word, dress, plain_words, read_text, typst_words
from mineru_diffusion.synthesis.sample import Sample
from mineru_diffusion.synthesis.scans import print_region
from mineru_diffusion.synthesis.text import Kind, TextSampler
from mineru_diffusion.synthesis.typst_engine import TypstFamily, draw, quote
from mineru_diffusion.synthesis.typst_fonts import FamilyChoice, is_mono, kept, reach, split_families
from mineru_diffusion.synthesis.typst_run import query
from mineru_diffusion.synthesis.words import LANGUAGES

MAX_LINES = 12
RegionKind = Literal["paragraph", "heading", "list", "code", "references", "caption", "lines"]

_KINDS: tuple[tuple[RegionKind, float], ...] = (
    ("paragraph", 0.56), ("heading", 0.08), ("list", 0.14), ("code", 0.09), ("references", 0.05), ("caption", 0.05),
    ("lines", 0.03),
)  # fmt: skip
_LANGUAGE_SHARES = (0.8, 0.06, 0.06, 0.04, 0.04)
_EM_PIXELS = (12, 14, 16, 18, 20, 22, 25, 28, 32, 36, 42)
_POINTS = 10.0
"""Everything is set at this size; the resolution makes it as large in pixels as it should be."""


@dataclass(frozen=True)
class Item:
    """One line of the truth: its mark (a bullet, a number, an indentation) and its words."""

    words: tuple[Word, ...]
    mark: str = ""

    @property
    def read(self) -> str:
        text = read_text(self.words)
        if not self.mark.strip():
            return self.mark + text
        return f"{self.mark} {text}"


class ParagraphStream:
    """Endless text regions, fully determined by the arguments and the fonts of the machine. Picklable; sample i depends
    on the seed and i only.

    Args:
        seed: any non-negative integer.
        split: "train" or "heldout": disjoint words and font families.
        max_lines: lines of a region at most, 1 to 12.
        degrade: 0 gives clean regions only; 1 about half of them worn; more wears harder.
        families: font families to use as they are; None takes the split's share of the machine's.

    Raises:
        UsageError: an argument is out of range.
        MissingExtra: typst or wordfreq is not installed.
    """

    def __init__(
        self,
        seed: int,
        split: str = "train",
        *,
        max_lines: int = MAX_LINES,
        degrade: float = 1.0,
        families: Sequence[TypstFamily] | None = None,
    ) -> None:
        if seed < 0 or degrade < 0:
            raise UsageError(f"bad seed {seed} or degrade {degrade}: neither can be negative")
        if not 1 <= max_lines <= MAX_LINES:
            raise UsageError(f"bad max_lines {max_lines}: use 1 to {MAX_LINES}")
        self.seed, self.split, self.max_lines, self.degrade = seed, split, max_lines, degrade
        self._text = TextSampler(split=split)
        self._families = FamilyChoice(split_families(split) if families is None else families)

    def __iter__(self) -> Iterator[Sample]:
        return map(self.sample, count())

    def sample(self, index: int) -> Sample:
        """Region number `index` of the stream."""
        rng = np.random.default_rng((self.seed, index))
        kinds, shares = zip(*_KINDS, strict=True)
        kind: RegionKind = kinds[int(rng.choice(len(kinds), p=shares))]
        language = LANGUAGES[int(rng.choice(len(LANGUAGES), p=_LANGUAGE_SHARES))]
        family = self._families.draw(rng, mono=kind == "code" or rng.random() < 0.03)
        columns = int(rng.integers(20, 91))
        lines = int(rng.integers(1, self.max_lines + 1))
        items = [_fit(item, family) for item in self._items(kind, language, columns, lines, rng)]
        items = [item for item in items if item.words]
        if not items:
            items = [Item(tuple(plain_words(kept(family, str(rng.integers(10, 10**6))))))]
        setting = _setting(kind, family, language, columns, rng)
        # Lines are counted by typst itself; a region that came out too long loses words, the longest item first.
        while (found := query(_source(setting, items), "<lines>")) > self.max_lines:
            items = _shorten(items, self.max_lines / found)
        em = _EM_PIXELS[int(rng.integers(len(_EM_PIXELS)))]
        em = em if columns * em < 1900 else max(12, 1900 // columns)
        pixels = draw(_source(setting, items), em / _POINTS * 72)
        # Small letters do not survive what larger ones do.
        image = print_region(pixels, rng, self.degrade * float(np.clip((em - 13) / 7, 0, 1)))
        source = {
            "generator": "paragraphs", "seed": self.seed, "split": self.split, "index": index, "kind": kind,
            "font": family.name, "language": language, "em": em, "lines": int(found),
        }  # fmt: skip
        return Sample(image, "text", "\n".join(item.read for item in items), source=source)

    def _items(self, kind: RegionKind, language: str, columns: int, lines: int, rng: np.random.Generator) -> list[Item]:
        text = self._text
        if kind == "heading":
            words = plain_words(text.passage(rng, "heading", int(rng.integers(4, 2 * columns))))
            return [Item(tuple(words))]
        if kind == "caption":
            label = ("Figure", "Fig.", "Table", "Tab.")[int(rng.integers(4))]
            mark = f"{label} {rng.integers(1, 30)}" + (".", ":")[int(rng.integers(2))]
            prose = text.passage(rng, "prose", columns * min(lines, 4), language)
            return [Item(tuple(dress(plain_words(f"{mark} {prose}"), rng)))]
        if kind == "list":
            style = int(rng.integers(5))
            start = int(rng.integers(1, 9))
            number = int(rng.integers(1, max(2, lines // 2) + 1))
            bullet = "•–-*·→"[int(rng.choice(6, p=(0.5, 0.15, 0.15, 0.1, 0.05, 0.05)))]
            marks = ("{b}", "{b}", "{n}.", "{n})", "({a})")
            items = []
            for i in range(number):
                mark = marks[style].format(b=bullet, n=start + i, a="abcdefghijklmnopqrstuvwxyz"[(start + i) % 26])
                size = int(max(4, columns * rng.uniform(0.2, 1.6) * min(1.0, lines / number)))
                items.append(Item(tuple(dress(plain_words(text.passage(rng, "prose", size, language)), rng)), mark))
            return items
        if kind == "code":
            depth, unit, items = 0, " " * (2, 4)[int(rng.integers(2))], []
            for _ in range(lines):
                words = plain_words(text.passage(rng, "code", columns))
                items.append(Item(tuple(words), unit * depth))
                depth = max(0, min(4, depth + int(rng.integers(-1, 2))))
            return items
        if kind == "references":
            number = max(1, lines // 3)
            return [Item(tuple(plain_words(text.passage(rng, "reference", 3 * columns)))) for _ in range(number)]
        if kind == "lines":
            kinds: tuple[Kind, ...] = ("contact", "numbers", "heading", "mathematics")
            return [
                Item(tuple(plain_words(text.passage(rng, kinds[int(rng.integers(4))], columns - 8))))
                for _ in range(lines)
            ]
        prose = text.passage(rng, "prose", max(4, int(columns * (lines - rng.uniform(0.05, 0.95)))), language)
        ending = "." if rng.random() < 0.7 and prose[-1].isalnum() else ""
        return [Item(tuple(dress(plain_words(prose + ending), rng)))]


def _fit(item: Item, family: TypstFamily) -> Item:
    """The item without what the family cannot draw."""
    words = (Word(text, w.look, kept(family, w.mark)) for w in item.words if (text := kept(family, w.text)))
    mark = item.mark if not item.mark.strip() else kept(family, item.mark) or "-"
    return Item(tuple(words), mark)


def _shorten(items: list[Item], share: float) -> list[Item]:
    if len(items) > 1:
        return items[: max(1, int(len(items) * share))]
    words = items[0].words
    return [Item(words[: max(1, min(len(words) - 1, int(len(words) * share)))], items[0].mark)]


def _setting(
    kind: RegionKind, family: TypstFamily, language: str, columns: int, rng: np.random.Generator
) -> dict[str, str]:
    """Typst's settings for one region, as code."""
    justified = kind in ("paragraph", "list", "references", "caption") and rng.random() < 0.6
    advance = 0.6 if is_mono(family) else 0.5
    # Code and addresses never wrap: a wrapped line could not be told from two.
    width = "auto" if kind in ("code", "lines") else f"{columns * advance * _POINTS:.1f}pt"
    above, below = reach(family)
    margins = ", ".join(f"{side}: {rng.uniform(1, 7):.2f}pt" for side in ("left", "right", "top", "bottom"))
    indent = rng.uniform(1, 3) if kind == "paragraph" and rng.random() < 0.4 else 0.0
    hanging = rng.uniform(1, 3) if kind == "references" else 0.0
    centred = kind in ("heading", "caption", "lines") and rng.random() < 0.3
    looks = {"paragraph": 0.05, "heading": 0.6, "caption": 0.2}.get(kind, 0.03)
    return {
        "kind": kind,
        "width": width,
        "page": f"width: auto, height: auto, margin: ({margins})",
        "text": f"font: {quote(family.name)}, size: {_POINTS}pt, lang: {quote(language)}, fallback: false, "
        f"hyphenate: {str(justified or rng.random() < 0.1).lower()}, top-edge: {above:.3f}em, "
        f"bottom-edge: -{below:.3f}em, weight: {700 if rng.random() < looks else 400}, "
        f"style: {quote('italic' if rng.random() < looks / 2 else 'normal')}, "
        f"tracking: {rng.uniform(-0.02, 0.08) if rng.random() < 0.08 else 0:.3f}em",
        "par": f"justify: {str(justified).lower()}, leading: {rng.uniform(0.0, 0.5):.3f}em, "
        f"first-line-indent: (amount: {indent:.2f}em, all: true), hanging-indent: {hanging:.2f}em",
        "align": "center" if centred else "left",
        "gap": f"{rng.uniform(0.1, 0.8):.2f}em",
        "body": f"{rng.uniform(1.2, 2.5):.2f}em",
        "features": "(calt: 0, liga: 0)" if kind == "code" else "()",
    }


def _source(setting: dict[str, str], items: Sequence[Item]) -> str:
    """The whole typst source; `<lines>` is the number of lines of the region."""
    if setting["kind"] == "list":
        cells = ", ".join(f"[#{quote(i.mark)}], {{ {typst_words(i.words)} }}" for i in items)
        body = f"grid(columns: (auto, 1fr), column-gutter: 0.5em, row-gutter: {setting['gap']}, {cells})"
    else:
        indent = "h({:.2f}em)"
        blocks = []
        for item in items:
            words = typst_words(item.words)
            lead = f"{indent.format(0.6 * len(item.mark))}; " if item.mark else ""
            blocks.append(f"block(spacing: {setting['gap']}, {{ {lead}{words} }})")
        body = "{ " + "; ".join(blocks) + " }"
    return f"""#set page({setting["page"]})
#set text({setting["text"]}, features: {setting["features"]})
#set par({setting["par"]})
#set par.line(numbering: n => [#metadata(n)<line>], numbering-scope: "page")
#block(width: {setting["width"]}, align({setting["align"]}, {body}))
#context [#metadata(query(<line>).len())<lines>]
"""
