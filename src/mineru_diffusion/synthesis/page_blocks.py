"""What a synthetic page is made of: its geometry, blocks of words and unbreakable boxes, and the pieces of truth.

Lengths are typst points (1/72 inch) unless said otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from mineru_diffusion.synthesis.inline import Word


@dataclass(frozen=True)
class Geometry:
    """A page in points: its size, margins, columns and the gutter between them."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    columns: int = 1
    gutter: float = 14.0

    def column(self, x: float, spanning: bool = False) -> tuple[float, float]:
        """Left and right edge of the column that x lies in."""
        inner = self.width - self.left - self.right
        if spanning or self.columns == 1:
            return self.left, self.left + inner
        each = (inner - self.gutter * (self.columns - 1)) / self.columns
        for i in range(self.columns):
            start = self.left + i * (each + self.gutter)
            if x <= start + each + self.gutter / 2:
                break
        return start, start + each

    @property
    def column_width(self) -> float:
        start, end = self.column(self.left)
        return end - start


@dataclass(frozen=True)
class Style:
    """How the words of a block are set.

    Attributes:
        font: typst's name of the family.
        size: points.
        above, below: reach of the ink over and under the baseline, em.
        leading: between lines, em.
        weight, slanted, colour: of the letters; colour is a typst expression.
        align: "left", "center" or "right".
        justified: lines of equal length, with words hyphenated.
        indent, hanging: of the first line and of all others, points.
        inset: of the whole block from the column's left edge, points.
        space: before and after the block, points.
        language: for hyphenation.
    """

    font: str
    size: float
    above: float = 0.76
    below: float = 0.24
    leading: float = 0.25
    weight: int = 400
    slanted: bool = False
    colour: str = "black"
    align: str = "left"
    justified: bool = False
    indent: float = 0.0
    hanging: float = 0.0
    inset: float = 0.0
    space: float = 6.0
    language: str = "en"


@dataclass(frozen=True)
class TextBlock:
    """Words that flow, and break across columns unless `whole`. Several lines of a list are several items."""

    kind: str
    items: tuple[tuple[Word, ...], ...]
    style: Style
    whole: bool = False
    spanning: bool = False

    @property
    def words(self) -> list[Word]:
        return [word for item in self.items for word in item]


@dataclass(frozen=True)
class BoxBlock:
    """Something in one piece: typst code for it, what a reader writes for it, how far it is turned clockwise, and the
    number of an equation, which stands at the column's right edge and belongs to the box."""

    kind: str
    code: str
    content: str
    angle: int = 0
    align: str = "center"
    space: float = 8.0
    number: str = ""


@dataclass(frozen=True)
class Group:
    """Blocks that stay together, as a figure and its caption; `place` ("top" or "bottom") makes them float there, over
    all columns if they are spanning."""

    blocks: tuple[TextBlock | BoxBlock, ...]
    place: str = ""
    spanning: bool = False
    rule: bool = False
    space: float = 10.0


Block: TypeAlias = "TextBlock | BoxBlock | Group"


@dataclass(frozen=True)
class PageSource:
    """Everything on the pages: the flow, and what stands in the margins of each page."""

    geometry: Geometry
    flow: tuple[Block, ...]
    header: tuple[TextBlock, ...] = ()
    footer: tuple[TextBlock, ...] = ()
    aside: BoxBlock | None = None
    rules: tuple[bool, bool] = (False, False)
    """Whether a line divides the header and the footer from the text."""
    fill: str = "white"


@dataclass(frozen=True)
class Piece:
    """What stands in one place: the box in points of the page, the content, and whether it goes on from another."""

    kind: str
    box: tuple[float, float, float, float]
    content: str
    angle: int = 0
    continued: bool = False
