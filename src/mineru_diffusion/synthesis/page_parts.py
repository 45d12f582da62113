"""What stands in one piece on a synthetic page: figures, tables, equations, code, each with its caption.

In: the page's look. Out: blocks for `page_typst`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mineru_diffusion.synthesis.figures import FigureKind, figure_svg
from mineru_diffusion.synthesis.formulas import Formula
from mineru_diffusion.synthesis.page_blocks import BoxBlock, Group, TextBlock
from mineru_diffusion.synthesis.page_look import PageLook
from mineru_diffusion.synthesis.table_typst import TableStyle, plain, table_source
from mineru_diffusion.synthesis.tables import TableSpec
from mineru_diffusion.synthesis.typst_engine import EMBEDDED_MATH, quote
from mineru_diffusion.synthesis.typst_fonts import kept, reach


def code_block(look: PageLook) -> tuple[BoxBlock, float]:
    """A listing, framed or not, and about how high it is."""
    rng, family = look.rng, look.mono_family
    size = look.body.size * rng.uniform(0.75, 0.9)
    most = int(look.width / (0.62 * size)) - 6
    depth, lines = 0, []
    for _ in range(int(rng.integers(2, 10))):
        line = kept(family, look.text.passage(rng, "code", most))
        if len(line) + 4 * depth <= most:
            lines.append("    " * depth + line)
        depth = max(0, min(3, depth + int(rng.integers(-1, 2))))
    content = "\n".join(lines) or "return 0;"
    full = "width: 100%, inset: 5pt"
    frame = ("inset: 1pt", f"{full}, stroke: 0.5pt", f"{full}, fill: luma(238)")[int(rng.integers(3))]
    above, below = reach(family)
    code = (
        f"block({frame}, {{ set par(justify: false, leading: 0.25em); "
        f"show raw: set text(font: {quote(family.name)}, size: {size:.2f}pt, features: (calt: 0, liga: 0), "
        f"top-edge: {above:.3f}em, bottom-edge: -{below:.3f}em); "
        f"align(left, raw({quote(content)}, block: true)) }})"
    )
    return BoxBlock("code", code.replace("\n", "\\n"), content, align="left"), 12 + 1.3 * size * len(lines)


def equation(look: PageLook) -> BoxBlock:
    """A display, narrow enough for a column, often with a number at the edge (`\\tag` in the truth)."""
    rng, body = look.rng, look.body
    most = int(np.clip(0.4 * look.chars(body), 8, 60))
    formula = Formula.random(rng, split=look.text.split, max_length=most)
    face = ("", f"show math.equation: set text(font: {quote(look.math_font)}); ")[look.math_font != EMBEDDED_MATH]
    code = f"{{ {face}set text(font: {quote(body.font)}, size: {body.size:.2f}pt); $ {formula.typst} $ }}"
    if rng.random() > 0.4:
        return BoxBlock("equation", code, formula.latex, space=body.size)
    number = str(look.counters["eq"])
    look.counters["eq"] += 1
    content = rf"{formula.latex} \tag{{{number}}}"
    return BoxBlock("equation", code, content, space=body.size, number=f"({number})")


def caption(look: PageLook, label: str, width: float) -> TextBlock:
    """ "Figure" or "Table", the next number, and some words, for a space of `width`."""
    rng, body = look.rng, look.body
    style = replace(
        body, size=body.size * rng.uniform(0.8, 0.95), indent=0.0, space=body.size * rng.uniform(0.4, 0.9),
        align="center" if rng.random() < 0.5 else "left", justified=False, slanted=bool(rng.random() < 0.15),
    )  # fmt: skip
    head = look.words(f"{look.caption_words[label]} {look.counters[label]}{look.caption_end}")
    look.counters[label] += 1
    if look.caption_bold:
        head = [replace(word, look="bold") for word in head]
    words = head + look.passage("prose", look.chars(style, width) * rng.uniform(0.3, 2.2))
    kind = "image_caption" if label == "Figure" else "table_caption"
    return TextBlock(kind, (tuple(words),), style, whole=True)


def figure(look: PageLook, most: float) -> Group:
    """A picture or a chart of at most this width, mostly with a caption under it."""
    rng = look.rng
    kind: FigureKind = "chart" if rng.random() < 0.45 else "image"
    width = most * rng.uniform(0.55, 1.0)
    height = float(np.clip(width * rng.uniform(0.35, 0.85), 50, 0.4 * look.geometry.height))
    svg = figure_svg(rng, kind, width, height, look.text, look.head_family.name)
    code = f"image(bytes({quote(svg)}), format: {quote('svg')}, width: {width:.1f}pt, height: {height:.1f}pt)"
    parts: list[TextBlock | BoxBlock] = [BoxBlock(kind, code, "")]
    if rng.random() < 0.85:
        parts.append(caption(look, "Figure", most))
    return Group(tuple(parts), space=look.gap)


def table(look: PageLook, most: float) -> Group:
    """A table for a space of this width, mostly with a caption over or under it, sometimes with a note."""
    rng = look.rng
    columns = int(np.clip(most / 55, 2, 8))
    spec = TableSpec.random(rng, max_rows=10, max_cols=columns, sampler=look.cells)
    text = "".join(cell.text for cell in spec.cells)
    family = look.body_family
    for _ in range(20):
        if "".join(text.split()) == "".join(kept(family, text).split()):
            break
        family = look.families.draw(rng)
    style = TableStyle.random(rng, spec, font=family.name, size=look.body.size * rng.uniform(0.75, 0.95))
    code = table_source(spec, style if family.bold else plain(style))
    parts: list[TextBlock | BoxBlock] = [BoxBlock("table", code, spec.to_otsl())]
    if rng.random() < 0.85:
        parts.insert(0 if look.table_caption_above else 1, caption(look, "Table", most))
    if rng.random() < 0.15:
        style_note = replace(look.body, size=look.body.size * 0.8, indent=0.0, space=3.0, justified=False)
        words = look.words("* " + look.text.passage(rng, "prose", 60, look.language))
        parts.append(TextBlock("table_footnote", (tuple(words),), style_note, whole=True))
    return Group(tuple(parts), space=look.gap)


def wide_float(look: PageLook) -> Group:
    """A figure or a table as wide as the page."""
    width = look.geometry.width - look.geometry.left - look.geometry.right
    group = figure(look, width) if look.rng.random() < 0.6 else table(look, width)
    return replace(
        group, blocks=tuple(replace(b, spanning=True) if isinstance(b, TextBlock) else b for b in group.blocks)
    )


def aside(look: PageLook) -> BoxBlock:
    """A line up the left margin, turned to read from below."""
    words = " ".join(w.read for w in look.passage("reference", 50))
    size = min(9.0, look.geometry.left * 0.3)
    font = f"font: {quote(look.body_family.name)}, size: {size:.1f}pt, fill: luma(110), fallback: false"
    code = f"text({font}, {quote(words)})"
    return BoxBlock("aside_text", code, words, angle=-90, align="left")
