"""One look for a whole synthetic page: geometry, fonts, sizes and habits, and words that these fonts can show.

In: a random generator and the split's words and fonts. Out: PageLook, which the writers of a page share.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mineru_diffusion.synthesis.cells import CellSampler
from mineru_diffusion.synthesis.formula_render import TYPST, formula_faces
from mineru_diffusion.synthesis.inline import Word, plain_words
from mineru_diffusion.synthesis.page_blocks import Geometry, Style
from mineru_diffusion.synthesis.text import Kind, TextSampler
from mineru_diffusion.synthesis.typst_engine import TypstFamily
from mineru_diffusion.synthesis.typst_fonts import FamilyChoice, kept, reach
from mineru_diffusion.synthesis.words import LANGUAGES

_SIZES = ((595, 842), (595, 842), (595, 842), (612, 792), (612, 792), (420, 595), (516, 729), (720, 540), (960, 540))
_LANGUAGE_SHARES = (0.8, 0.06, 0.06, 0.04, 0.04)


class PageLook:
    """Draws a look; every choice comes from the generator, here and later.

    Args:
        rng: its state decides everything.
        text: words of the split.
        cells: words of tables, of the same split.
        families: fonts of the split.

    Attributes:
        body: how paragraphs are set.
        gap: space around headings, figures and tables, points.
        counters, section, note_number: the next number of a figure, a table, an equation, a section, a footnote.
    """

    def __init__(self, rng: np.random.Generator, text: TextSampler, cells: CellSampler, families: FamilyChoice) -> None:
        self.rng, self.text, self.cells, self.families = rng, text, cells, families
        self.body_family = families.draw(rng)
        self.head_family = self.body_family if rng.random() < 0.6 else families.draw(rng)
        math_fonts = [font for engine, font in formula_faces() if engine == TYPST]
        self.math_font = math_fonts[int(rng.integers(len(math_fonts)))]
        self.mono_family = families.draw(rng, mono=True)
        self.language = LANGUAGES[int(rng.choice(len(LANGUAGES), p=_LANGUAGE_SHARES))]
        self.geometry = self._draw_geometry()
        slide = self.geometry.width > self.geometry.height
        size = rng.uniform(13, 18) if slide else rng.uniform(7.5, 12)
        if self.geometry.columns > 1:
            size = min(size, 10.5)
        apart = rng.random() < 0.5
        self.body = Style(
            **self.face(self.body_family),
            size=size,
            leading=rng.uniform(0.05, 0.55),
            justified=bool(rng.random() < 0.65),
            indent=0.0 if apart else size * rng.uniform(1, 2),
            space=size * (rng.uniform(0.5, 1.2) if apart else rng.uniform(0.25, 0.5)),
            language=self.language,
        )
        self.gap = size * rng.uniform(0.9, 1.8)
        self.heading_colour = "black" if rng.random() < 0.75 else f"rgb({', '.join(map(str, rng.integers(0, 120, 3)))})"
        self.numbered = bool(rng.random() < 0.5)
        self.section = int(rng.integers(1, 8))
        self.counters = {
            "Figure": int(rng.integers(1, 9)),
            "Table": int(rng.integers(1, 6)),
            "eq": int(rng.integers(1, 20)),
        }
        self.caption_words = {
            "Figure": ("Figure", "Fig.")[int(rng.integers(2))],
            "Table": ("Table", "Tab.")[int(rng.integers(2))],
        }
        self.caption_end = (".", ":", " –")[int(rng.integers(3))]
        self.caption_bold = bool(rng.random() < 0.4)
        self.table_caption_above = bool(rng.random() < 0.75)
        self.note_number = 0

    def _draw_geometry(self) -> Geometry:
        rng = self.rng
        width, height = _SIZES[int(rng.integers(len(_SIZES)))]
        columns = 1
        if width < height and width > 500:
            columns = int(rng.choice((1, 2, 3), p=(0.45, 0.5, 0.05)))
        sides = rng.uniform(28, 45) if columns > 1 else rng.uniform(35, 0.17 * width)
        skew = rng.uniform(-8, 8)
        top, bottom, gutter = rng.uniform(46, 85), rng.uniform(46, 85), rng.uniform(12, 26)
        return Geometry(width, height, sides + skew, sides - skew, top, bottom, columns, gutter)

    def words(self, text: str, family: TypstFamily | None = None) -> list[Word]:
        """The words of a text as the family (the body's by default) can show them; never none."""
        words = plain_words(kept(family or self.body_family, text))
        return words or [Word(kept(family or self.body_family, str(self.rng.integers(10, 10**6))) or "0")]

    def passage(self, kind: Kind, chars: float, family: TypstFamily | None = None) -> list[Word]:
        """About `chars` characters of one kind of text."""
        return self.words(self.text.passage(self.rng, kind, max(4, int(chars)), self.language), family)

    def chars(self, style: Style, width: float | None = None) -> float:
        """About how many characters make a line."""
        return max(8.0, (width or self.width) / (0.48 * style.size))

    def height(self, words: list[Word], style: Style, width: float | None = None) -> float:
        """About how high a block of these words becomes, with the space after it, points."""
        chars = sum(len(w.read) + 1 for w in words)
        lines = np.ceil(chars / self.chars(style, width))
        return float(lines * style.size * (style.above + style.below + style.leading) + style.space)

    def face(self, family: TypstFamily) -> dict[str, Any]:
        """The fields of a Style that go with a family."""
        above, below = reach(family)
        return {"font": family.name, "above": above, "below": below}

    @property
    def width(self) -> float:
        """Of a column, points."""
        return self.geometry.column_width
