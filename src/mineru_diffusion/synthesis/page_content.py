"""What stands on a synthetic page: drawn at random, block by block.

In: the page's look. Out: a PageSource for `page_typst`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mineru_diffusion.synthesis.inline import Word, dress
from mineru_diffusion.synthesis.page_blocks import Block, Group, PageSource, TextBlock
from mineru_diffusion.synthesis.page_look import PageLook
from mineru_diffusion.synthesis.page_parts import aside, code_block, equation, figure, table, wide_float
from mineru_diffusion.synthesis.typst_fonts import kept

_BULLETS = ("•", "•", "•", "–", "-", "*", "·")


class PageWriter:
    """Fills a page in one look."""

    def __init__(self, look: PageLook) -> None:
        self.look = look

    def page(self, fullness: float, *, opening: bool) -> PageSource:
        """A document of about `fullness` pages; `opening`: it begins with a title."""
        look, rng, geometry = self.look, self.look.rng, self.look.geometry
        capacity = geometry.columns * (geometry.height - geometry.top - geometry.bottom) * fullness
        flow: list[Block] = []
        if opening:
            title, used = self._title()
            flow.append(title)
            capacity -= used * geometry.columns
        elif rng.random() < 0.25:
            flow.append(self._continuation())
        if geometry.columns > 1 and rng.random() < 0.3:
            group = wide_float(look)
            flow.append(replace(group, place=("top", "bottom")[int(rng.integers(2))], spanning=True))
            capacity -= 120 * geometry.columns
        previous = ""
        while capacity > 0:
            kind = self._next_kind(previous)
            for block, used in self._blocks(kind):
                flow.append(block)
                capacity -= used
            previous = kind
        header, footer = self._margins()
        side = aside(look) if rng.random() < 0.06 else None
        fill = "white" if rng.random() < 0.85 else f"rgb({', '.join(str(v) for v in rng.integers(235, 256, 3))})"
        rules = (bool(rng.random() < 0.4), bool(rng.random() < 0.2))
        return PageSource(geometry, tuple(flow), header, footer, side, rules, fill)

    def _next_kind(self, previous: str) -> str:
        kinds = ("paragraph", "heading", "list", "equation", "figure", "table", "code", "references", "note")
        shares = np.array((0.48, 0.14, 0.08, 0.08, 0.09, 0.07, 0.025, 0.02, 0.015))
        if previous in ("heading", "list", "references", "code"):
            shares[kinds.index(previous)] = 0  # two of them in a row look like one
        if previous == "heading":
            shares[7] = 0.06
        return kinds[int(self.look.rng.choice(len(kinds), p=shares / shares.sum()))]

    def _blocks(self, kind: str) -> list[tuple[Block, float]]:
        """One or more blocks of a kind, each with an estimate of its height."""
        look, rng, body = self.look, self.look.rng, self.look.body
        if kind == "heading":
            return [self._heading()]
        if kind == "list":
            return [self._list()]
        if kind == "equation":
            return [(equation(look), 35.0)]
        if kind in ("figure", "table"):
            group = figure(look, look.width) if kind == "figure" else table(look, look.width)
            if look.geometry.columns == 1 and rng.random() < 0.15:
                group = replace(group, place=("top", "bottom")[int(rng.integers(2))])
            return [(group, 130.0)]
        if kind == "code":
            return [code_block(look)]
        if kind == "references":
            style = replace(
                body, size=body.size * 0.88, indent=0.0, hanging=body.size * rng.uniform(0.8, 2), space=body.size * 0.3
            )
            entries = [look.passage("reference", 3 * look.chars(style)) for _ in range(int(rng.integers(2, 9)))]
            return [(TextBlock("ref_text", (tuple(words),), style), look.height(words, style)) for words in entries]
        if kind == "note":
            return self._noted_paragraph()
        words = dress(look.passage("prose", look.chars(body) * rng.uniform(0.5, 9)), rng, noted=0.03)
        return [(TextBlock("text", (tuple(words),), body), look.height(words, body))]

    def _continuation(self) -> Block:
        """The end of a paragraph that began on the page before."""
        words = self.look.passage("prose", self.look.chars(self.look.body) * self.look.rng.uniform(0.5, 4))
        return TextBlock("text", (tuple(words),), replace(self.look.body, indent=0.0))

    def _heading(self) -> tuple[Block, float]:
        look, rng, body = self.look, self.look.rng, self.look.body
        deep = rng.random() < 0.35
        style = replace(
            body,
            **look.face(look.head_family),
            size=body.size * (rng.uniform(1.0, 1.15) if deep else rng.uniform(1.1, 1.5)),
            weight=700 if rng.random() < 0.85 else 400,
            slanted=bool(deep and rng.random() < 0.3),
            colour=look.heading_colour,
            justified=False,
            indent=0.0,
            space=look.gap,
            align="center" if rng.random() < 0.08 else "left",
        )
        prose = rng.random() < 0.3
        words = look.passage("prose" if prose else "heading", rng.uniform(6, 60), look.head_family)
        if look.numbered and not words[0].text[0].isdigit():
            number = str(look.section) + (f".{rng.integers(1, 6)}" if deep else "")
            words = [Word(number + ("." if rng.random() < 0.3 else "")), *words]
            look.section += 0 if deep else 1
        return TextBlock("title", (tuple(words),), style, whole=True), look.height(words, style)

    def _list(self) -> tuple[Block, float]:
        look, rng, body = self.look, self.look.rng, self.look.body
        bullet = kept(look.body_family, _BULLETS[int(rng.integers(len(_BULLETS)))]) or "-"
        form = ("{b}", "{b}", "{n}.", "{n})", "({n})", "({a})")[int(rng.integers(6))]
        start = int(rng.integers(1, 5))
        items = []
        for i in range(int(rng.integers(2, 7))):
            mark = form.format(b=bullet, n=start + i, a="abcdefghijklmn"[start + i])
            words = dress(look.passage("prose", look.chars(body) * rng.uniform(0.3, 2.2)), rng, noted=0)
            items.append((Word(mark), *words))
        style = replace(
            body, indent=0.0, inset=body.size * rng.uniform(0, 2), hanging=body.size * rng.uniform(0.9, 1.5)
        )
        return TextBlock("list", tuple(items), style), sum(look.height(list(i), style) for i in items)

    def _noted_paragraph(self) -> list[tuple[Block, float]]:
        """A paragraph with a footnote mark, and the footnote at the foot of its column."""
        look, rng, body = self.look, self.look.rng, self.look.body
        if look.note_number == 3:
            return []
        mark = kept(look.body_family, "¹²³"[look.note_number])
        look.note_number += 1
        words = look.passage("prose", look.chars(body) * rng.uniform(2, 7))
        words[len(words) // 2] = replace(words[len(words) // 2], mark=mark)
        style = replace(body, size=body.size * 0.82, indent=0.0, space=body.size * 0.3)
        note = [Word("", mark=mark), *look.passage("prose", look.chars(style) * rng.uniform(0.4, 2))] if mark else []
        blocks: list[tuple[Block, float]] = [(TextBlock("text", (tuple(words),), body), look.height(words, body))]
        if note:
            leaf = TextBlock("page_footnote", (tuple(note),), style, whole=True)
            blocks.append(
                (Group((leaf,), place="bottom", rule=look.note_number == 1, space=4.0), look.height(note, style))
            )
        return blocks

    def _title(self) -> tuple[Block, float]:
        look, rng, body = self.look, self.look.rng, self.look.body
        align = "center" if rng.random() < 0.7 else "left"
        big = replace(
            body, **look.face(look.head_family), size=body.size * rng.uniform(1.6, 2.6), indent=0.0, space=look.gap,
            weight=700 if rng.random() < 0.7 else 400, justified=False, align=align, colour=look.heading_colour,
        )  # fmt: skip
        small = replace(body, indent=0.0, space=look.gap * 0.6, justified=False, align=align)
        words = look.passage("prose" if rng.random() < 0.5 else "heading", rng.uniform(12, 90), look.head_family)
        parts = [TextBlock("title", (tuple(words),), big, whole=True, spanning=True)]
        width = look.geometry.width - look.geometry.left - look.geometry.right
        used = look.height(words, big, width)
        if rng.random() < 0.7:
            names = look.words(
                ", ".join(look.text.passage(rng, "heading", 16).title() for _ in range(int(rng.integers(1, 5))))
            )
            parts.append(TextBlock("text", (tuple(names),), small, whole=True, spanning=True))
            used += look.height(names, small, width)
        if rng.random() < 0.4:
            place = look.passage("contact", 60)
            parts.append(TextBlock("text", (tuple(place),), small, whole=True, spanning=True))
            used += 15
        return Group(tuple(parts), place="top", spanning=True, space=look.gap), used

    def _margins(self) -> tuple[tuple[TextBlock, ...], tuple[TextBlock, ...]]:
        """Header and footer, with the page number in one of them or in neither."""
        look, rng, body = self.look, self.look.rng, self.look.body
        slanted = bool(rng.random() < 0.3)
        size = min(body.size * 0.85, 11.0)
        style = replace(body, size=size, indent=0.0, space=0.0, justified=False, slanted=slanted)
        number = str(rng.integers(1, 400))
        number = (number, number, f"– {number} –", f"Page {number}", f"{number} / 400")[int(rng.integers(5))]

        def leaf(kind: str, words: list[Word], align: str) -> TextBlock:
            return TextBlock(kind, (tuple(words),), replace(style, align=align), whole=True, spanning=True)

        def running(kind: str, align: str) -> TextBlock:
            return leaf(kind, look.passage("heading" if rng.random() < 0.6 else "prose", rng.uniform(8, 34)), align)

        numbers = leaf("page_number", look.words(number), "center")
        roll = rng.random()
        header: tuple[TextBlock, ...] = ()
        footer: tuple[TextBlock, ...] = ()
        if roll < 0.45:
            footer = (numbers,)
        elif roll < 0.6:
            header = (running("header", "left"), replace(numbers, style=replace(style, align="right")))
        elif roll < 0.75:
            footer = (running("footer", "left"), replace(numbers, style=replace(style, align="right")))
        elif roll < 0.85:
            footer = (replace(numbers, style=replace(style, align="left")), running("footer", "right"))
        if not header and rng.random() < 0.5:
            header = (running("header", "left"),) if rng.random() < 0.5 else (running("header", "center"),)
            if rng.random() < 0.3:
                header = (running("header", "left"), running("header", "right"))
        return header, footer
