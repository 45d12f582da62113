"""One page of a document: blocks to typst source with markers in it, and typst's answers about the markers to boxes.

In: a geometry and blocks. Out: RGB pixels, and for every piece of a block on the page its box and content. Boxes come
from typst's own positions only: of a marker before and behind every word, and in two corners of every unbreakable box.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from mineru_diffusion.synthesis.inline import read_text, typst_words
from mineru_diffusion.synthesis.page_blocks import Block, BoxBlock, Geometry, Group, PageSource, Piece, TextBlock
from mineru_diffusion.synthesis.typst_engine import quote
from mineru_diffusion.synthesis.typst_run import query

_NEAR = 0.3
"""Points; positions closer than this are the same."""


@dataclass
class _Line:
    baseline: float
    left: float
    right: float
    words: list[int] = field(default_factory=list)


class _Place(NamedTuple):
    page: int
    x: float
    y: float


_Tags: TypeAlias = dict[tuple[int, str, int], list[_Place]]


def build(source: PageSource, page: int = 1) -> tuple[str, list[Piece]]:
    """Typst source, and the pieces on one page (from 1) in reading order: header, flow with what floats on top first
    and at the bottom last, footer.

    A word that typst hyphenates at a column's end would belong to two pieces; such words are kept whole, and the source
    is the one with them whole.

    Raises:
        MissingExtra: typst is not installed.
        UsageError: typst refuses the source.
    """
    unbroken: set[tuple[int, int]] = set()
    while True:
        leaves = list(_leaves(source))
        text = _page_code(source, unbroken)
        tags: _Tags = {}
        for leaf, role, word, number, x, y in query(text, "<truth>"):
            tags.setdefault((leaf, role, word), []).append(_Place(number, x, y))
        pieces, torn = _pieces(source.geometry, leaves, tags, page)
        if torn <= unbroken:
            return text, pieces
        unbroken |= torn


def _leaves(source: PageSource) -> Iterable[TextBlock | BoxBlock]:
    """All leaves, in the order of their numbers and of reading."""
    floats_top = [b for b in source.flow if isinstance(b, Group) and b.place == "top"]
    floats_bottom = [b for b in source.flow if isinstance(b, Group) and b.place == "bottom"]
    flow = [b for b in source.flow if not (isinstance(b, Group) and b.place)]
    yield from source.header
    if source.aside is not None:
        yield source.aside
    for block in (*floats_top, *flow, *floats_bottom):
        yield from block.blocks if isinstance(block, Group) else (block,)
    yield from source.footer


def _page_code(source: PageSource, unbroken: set[tuple[int, int]]) -> str:
    numbers = {id(leaf): i for i, leaf in enumerate(_leaves(source))}
    if len(numbers) != sum(1 for _ in _leaves(source)):
        raise AssertionError("each block of a page must be an object of its own")

    def leaf_code(block: TextBlock | BoxBlock) -> str:
        number = numbers[id(block)]
        if isinstance(block, BoxBlock):
            return _box_code(block, number)
        return _text_code(block, number, {word for leaf, word in unbroken if leaf == number})

    def block_code(block: Block) -> str:
        if not isinstance(block, Group):
            return leaf_code(block)
        inner = "; ".join(leaf_code(leaf) for leaf in block.blocks)
        if block.rule:
            inner = f"line(length: 30%, stroke: 0.5pt); v(2pt, weak: true); {inner}"
        space = f"{block.space:.2f}pt"
        if block.place:
            scope = '"parent"' if block.spanning else '"column"'
            where = f"{block.place} + center, float: true, scope: {scope}, clearance: {space}"
            return f"place({where}, block(width: 100%, align(left, {{ {inner} }})))"
        return f"block(breakable: false, width: 100%, spacing: {space}, {{ {inner} }})"

    page = source.geometry
    header = _margin_code([leaf_code(b) for b in source.header], source.rules[0], below=True)
    footer = _margin_code([leaf_code(b) for b in source.footer], source.rules[1], below=False)
    aside = "none" if source.aside is None else f"place(left + horizon, dx: 12pt, {leaf_code(source.aside)})"
    return f"""#let t(..a) = [#metadata(a.pos())<m>]
#set page(width: {page.width}pt, height: {page.height}pt, columns: {page.columns}, fill: {source.fill},
  margin: (left: {page.left}pt, right: {page.right}pt, top: {page.top}pt, bottom: {page.bottom}pt),
  header: {header}, footer: {footer}, background: {aside})
#set columns(gutter: {page.gutter}pt)
#{{ {"; ".join(block_code(block) for block in source.flow)} }}
#context [#metadata(query(<m>).map(m => {{
  let p = m.location().position()
  (..m.value, p.page, p.x.pt(), p.y.pt())
}}))<truth>]
"""


def _margin_code(parts: list[str], rule: bool, *, below: bool) -> str:
    """Up to three parts in one row: left, middle, right."""
    if not parts:
        return "none"
    cells = ", ".join(f"{{ {part} }}" for part in parts)
    row = f"grid(columns: ({', '.join(['1fr'] * len(parts))}), column-gutter: 8pt, {cells})"
    stroke = "line(length: 100%, stroke: 0.5pt)"
    if not rule:
        return row
    return f"{{ {row}; v(3pt, weak: true); {stroke} }}" if below else f"{{ {stroke}; v(3pt, weak: true); {row} }}"


def _box_code(block: BoxBlock, number: int) -> str:
    body = block.code
    if block.angle:
        body = f"rotate({block.angle}deg, reflow: true, {body})"
    marked = f'box({{ place(top + left, t({number}, "a", 0)); {body}; place(bottom + right, t({number}, "b", 0)) }})'
    if block.number:
        marked = f"grid(columns: (1fr, auto, 1fr), [], {marked}, align(right + horizon, {quote(block.number)}))"
    return f"block(breakable: false, width: 100%, spacing: {block.space:.2f}pt, align({block.align}, {marked}))"


def _text_code(block: TextBlock, number: int, unbroken: set[int]) -> str:
    style = block.style
    parts, first = [], 0
    for item in block.items:

        def tag(i: int, code: str, text: str, first: int = first) -> str:
            word = first + i
            # Without hyphenation words could still be broken at dashes and slashes, where no marker tells.
            if word in unbroken or (not style.justified and not text.isalnum() and len(text) < 25):
                code = f"box({{ {code} }})"
            return f't({number}, "s", {word}); {code}; t({number}, "e", {word})'

        # Something of no width first and last: markers at a paragraph's very ends would be moved out of its lines.
        parts.append(f"par({{ h(0pt); {typst_words(item, tag)}; h(0pt) }})")
        first += len(item)
    # In a group of paragraphs nothing but the lines' own distance parts them.
    gap = f"{style.leading * style.size:.2f}pt"
    settings = (
        f"set text(font: {quote(style.font)}, size: {style.size:.2f}pt, weight: {style.weight}, fill: {style.colour}, "
        f"style: {quote('italic' if style.slanted else 'normal')}, lang: {quote(style.language)}, fallback: false, "
        f"hyphenate: {str(style.justified).lower()}, overhang: false, "
        f"top-edge: {style.above:.3f}em, bottom-edge: -{style.below:.3f}em); "
        f"set par(justify: {str(style.justified).lower()}, leading: {gap}, spacing: {gap}, "
        f"first-line-indent: (amount: {style.indent:.2f}pt, all: true), hanging-indent: {style.hanging:.2f}pt)"
    )
    breakable = str(not block.whole).lower()
    return (
        f"block(width: 100%, breakable: {breakable}, spacing: {style.space:.2f}pt, inset: (left: {style.inset:.2f}pt), "
        f"{{ {settings}; align({style.align}, {{ {'; '.join(parts)} }}) }})"
    )


def _pieces(
    page: Geometry, leaves: Sequence[TextBlock | BoxBlock], tags: _Tags, number: int
) -> tuple[list[Piece], set[tuple[int, int]]]:
    """Pieces on a page, and the words (leaf, word) that two pieces share."""
    pieces: list[Piece] = []
    torn: set[tuple[int, int]] = set()
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, BoxBlock):
            corners = [[p for p in tags.get((i, role, 0), []) if p.page == number] for role in "ab"]
            for start, end in zip(*corners, strict=True):
                right = page.column(start.x)[1] if leaf.number else end.x
                box = (start.x, start.y, right, end.y)
                pieces.append(Piece(leaf.kind, box, leaf.content, leaf.angle % 360))
            continue
        fragments, shared = _fragments(page, leaf, i, tags, number)
        torn |= {(i, word) for word in shared}
        pieces += fragments
    return pieces, torn


def _fragments(page: Geometry, block: TextBlock, leaf: int, tags: _Tags, number: int) -> tuple[list[Piece], set[int]]:
    """The parts of a text block by column, and the words that go across from one to the next."""
    style = block.style
    columns: dict[tuple[int, float], list[_Line]] = {}
    shared: set[int] = set()

    def line_at(place: _Place) -> tuple[tuple[int, float], _Line]:
        left, _ = page.column(place.x, block.spanning)
        lines = columns.setdefault((place.page, left), [])
        if not lines or abs(lines[-1].baseline - place.y) > _NEAR:
            lines.append(_Line(place.y, page.width, 0.0))
        return (place.page, left), lines[-1]

    previous: _Place | None = None
    for word in range(len(block.words)):
        starts, ends = tags.get((leaf, "s", word), []), tags.get((leaf, "e", word), [])
        if len(starts) > 1:  # a header or a footer, once on every page
            starts = [p for p in starts if p.page == number]
            ends = [p for p in ends if p.page == number]
        if not starts or not ends:
            continue
        start, end = starts[0], ends[0]
        moved = abs(start.y - end.y) > _NEAR or end.x < start.x or start.page != end.page
        # The marker before a word that begins a line stands behind the last word of the line before.
        hangs = moved and previous is not None and abs(previous.y - start.y) < _NEAR and start.x - previous.x < _NEAR
        here, line = line_at(start) if not hangs else line_at(end)
        if not moved:
            line.left = min(line.left, start.x)
        elif not hangs:
            line.left, line.right = min(line.left, start.x), page.column(start.x, block.spanning)[1]
            there, line = line_at(end)
            if there != here:
                shared.add(word)
        if moved and not line.words:
            line.left = page.column(end.x, block.spanning)[0] + style.inset + style.hanging
        line.right = max(line.right, end.x)
        line.words.append(word)
        previous = end
    return _text_pieces(page, block, columns, number), shared


def _text_pieces(
    page: Geometry, block: TextBlock, columns: dict[tuple[int, float], list[_Line]], number: int
) -> list[Piece]:
    style = block.style
    above, below = style.above * style.size, style.below * style.size
    bounds, first = [], 0
    for item in block.items:
        bounds.append((first, first + len(item), item))
        first += len(item)
    pieces = []
    for i, ((on_page, left), lines) in enumerate(columns.items()):
        if on_page != number:
            continue
        lefts = [line.left for line in lines]
        if style.align != "left":
            start, end = page.column(left + 1, block.spanning)
            middle = (start + style.inset + end) / 2
            lefts = [2 * middle - line.right if style.align == "center" else line.left for line in lines]
        words = {word for line in lines for word in line.words}
        content = [read_text([w for j, w in enumerate(item, low) if j in words]) for low, _, item in bounds]
        box = (min(lefts), lines[0].baseline - above, max(line.right for line in lines), lines[-1].baseline + below)
        pieces.append(Piece(block.kind, box, "\n".join(filter(None, content)), continued=i > 0))
    return pieces
