"""Tables as typst draws them: rules, fills, weights, widths, and the picture.

In: a TableSpec and a TableStyle. Out: a typst expression for any document, or a grey picture of the table alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mineru_diffusion.document.tables import Cell
from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.cells import pick
from mineru_diffusion.synthesis.tables import TableSpec
from mineru_diffusion.synthesis.typst_engine import draw, quote

RULES = ("grid", "rows", "columns", "booktabs", "header", "frame", "none")
# Which rules show the spans of a table, by TableSpec.needs.
_FITTING = {"grid": ("grid",), "rows": ("grid", "rows", "booktabs"), "any": RULES}
_SHARES = {"grid": 0.3, "rows": 0.14, "columns": 0.06, "booktabs": 0.24, "header": 0.1, "frame": 0.06, "none": 0.1}
_NARROW, _WIDE = frozenset("ijl.,;:'|!()[]-’‘ "), frozenset("mwMW@%—…™‰©®ŒœÆæ")


@dataclass(frozen=True)
class TableStyle:
    """How a table looks.

    Attributes:
        rules: one of RULES: "grid" all lines; "rows" lines between rows; "columns" lines between columns and under the
            header; "booktabs" thick at top and bottom, thin under the header and its groups; "header" one line under
            the header; "frame" a box and a line under the header; "none".
        font: family as typst spells it; "" takes the surrounding text's.
        size: font size in pt; 0 takes the surrounding text's.
        rule: thickness of thin lines, pt.
        inset_x, inset_y: room between text and cell border, em.
        bold_header, bold_labels, italic_labels: weight and slant of header rows and of the first column.
        header_fill, stripe_fill: grey level 0..255 behind header rows and behind every second body row; 255 is none.
        header_ink: grey level of the header's text.
        align_header: "" as the column's cells, or an alignment for all of the header.
        align_vertical: "top", "horizon" or "bottom" for cells of one row; cells over several rows are centred.
        wrap_em: for each column, its fixed width in em, or 0 for the natural one.
    """

    rules: str = "grid"
    font: str = ""
    size: float = 0.0
    rule: float = 0.5
    inset_x: float = 0.5
    inset_y: float = 0.35
    bold_header: bool = False
    bold_labels: bool = False
    italic_labels: bool = False
    header_fill: int = 255
    stripe_fill: int = 255
    header_ink: int = 0
    align_header: str = "center"
    align_vertical: str = "horizon"
    wrap_em: tuple[float, ...] = ()

    @classmethod
    def random(cls, rng: np.random.Generator, spec: TableSpec, *, font: str = "", size: float = 0.0) -> TableStyle:
        """A look that shows all of `spec`: rules that its spans need, widths at which no word is cut."""
        options = _FITTING[spec.needs]
        ends = np.cumsum([_SHARES[rules] for rules in options])
        rules = options[int(np.searchsorted(ends, rng.random() * ends[-1]))]
        fills = rng.random() < 0.3
        dark = fills and rng.random() < 0.15
        wraps = any(spec.wrapped)
        tight = wraps and rules in ("columns", "booktabs", "header", "frame", "none")
        return cls(
            rules=rules,
            font=font,
            size=size,
            rule=float(pick(rng, (0.3, 0.4, 0.5, 0.5, 0.75, 1.0))),
            inset_x=float(rng.uniform(0.3, 1.0) if rules in ("grid", "columns") else rng.uniform(0.5, 1.4)),
            # Without lines, the space between rows must be clearly wider than that between the lines of a cell.
            inset_y=float(rng.uniform(0.55, 0.9) if tight else rng.uniform(0.28, 0.75)),
            bold_header=bool(rng.random() < 0.45),
            bold_labels=bool(rng.random() < 0.12),
            italic_labels=bool(rng.random() < 0.06),
            header_fill=int(rng.integers(0, 60)) if dark else int(rng.integers(200, 246)) if fills else 255,
            stripe_fill=int(rng.integers(215, 250)) if rng.random() < 0.15 and spec.needs == "any" else 255,
            header_ink=255 if dark else 0,
            align_header=pick(rng, ("", "", "center", "center", "left")),
            align_vertical=pick(rng, ("top", "horizon", "horizon", "bottom") if not wraps else ("top", "horizon")),
            wrap_em=tuple(_width(spec, col, rng) if spec.wrapped[col] else 0.0 for col in range(spec.n_cols)),
        )


def table_source(spec: TableSpec, style: TableStyle) -> str:
    """A typst expression for the table, without a caption.

    It is a code block `{ ... }` that yields content: `#{ ... }` in markup, or an argument as in `figure({ ... })`. What
    it sets holds inside only. Natural columns shrink, and wrap, when the surroundings are too narrow.

    Raises:
        UsageError: unknown rules, or rules that would not show how the cells lie (see `TableSpec.needs`).
    """
    if style.rules not in _FITTING[spec.needs]:
        raise UsageError(f"rules {style.rules!r} do not show this table: use one of {', '.join(_FITTING[spec.needs])}")
    parts = []
    if style.font:
        parts.append(f"set text(font: {quote(style.font)})")
    if style.size:
        parts.append(f"set text(size: {style.size:g}pt)")
    parts.append("set text(hyphenate: false); set par(justify: false, first-line-indent: 0pt, leading: 0.5em)")
    widths = style.wrap_em or (0.0,) * spec.n_cols
    columns = ", ".join(f"{width + 2 * style.inset_x:g}em" if width else "auto" for width in widths)
    arguments = [
        f"columns: ({columns},)",
        f"inset: (x: {style.inset_x:g}em, y: {style.inset_y:g}em)",
        f"stroke: {_stroke(style)}",
        *_lines(spec, style),
        *(_cell(cell, spec, style) for cell in spec.cells),
    ]
    parts.append("table(\n  " + ",\n  ".join(arguments) + ",\n)")
    return "{ " + "; ".join(parts) + " }"


def render_table(spec: TableSpec, style: TableStyle, *, ppi: float) -> NDArray[np.uint8]:
    """The table alone, on white, grey uint8 [H, W], cut at its outer lines or text.

    Raises:
        MissingExtra: typst is not installed.
        UsageError: see `table_source`.
    """
    # The page is as large as the table; half a line's thickness hangs over its border.
    margin = f"{style.rule + 1:g}pt"
    source = f"#set page(width: auto, height: auto, margin: {margin}, fill: white)\n#{table_source(spec, style)}"
    return draw(source, ppi)


def plain(style: TableStyle) -> TableStyle:
    """The style without bold and slanted text, for families that lack such faces."""
    return replace(style, bold_header=False, bold_labels=False, italic_labels=False)


def _stroke(style: TableStyle) -> str:
    thin = f"{style.rule:g}pt"
    if style.rules == "grid":
        return thin
    if style.rules == "rows":
        return f"(x: none, y: {thin})"
    if style.rules == "columns":
        return f"(x: {thin}, y: none)"
    return "none"


def _lines(spec: TableSpec, style: TableStyle) -> list[str]:
    """The lines that are no cell's border."""
    thin = f"stroke: {style.rule:g}pt"
    thick = f"stroke: {2 * style.rule:g}pt"
    under = [f"table.hline(y: {spec.header_rows}, {thin})"] if spec.header_rows else []
    if style.rules in ("header", "columns"):
        return under
    if style.rules == "frame":
        ends = [f"table.hline(y: {y}, {thin})" for y in (0, spec.n_rows)]
        return [*ends, *(f"table.vline(x: {x}, {thin})" for x in (0, spec.n_cols)), *under]
    if style.rules != "booktabs":
        return []
    lines = [f"table.hline(y: {y}, {thick})" for y in (0, spec.n_rows)] + under
    for cell in spec.cells:
        end = cell.row + cell.row_span
        if end < spec.header_rows and cell.col_span > 1:
            lines.append(f"table.hline(y: {end}, start: {cell.col}, end: {cell.col + cell.col_span}, {thin})")
        elif cell.row >= spec.header_rows and cell.row_span > 1:
            lines += [f"table.hline(y: {y}, {thin})" for y in (cell.row, end) if spec.header_rows < y < spec.n_rows]
    return list(dict.fromkeys(lines))


def _cell(cell: Cell, spec: TableSpec, style: TableStyle) -> str:
    header = cell.row < spec.header_rows
    across = cell.col_span == spec.n_cols
    label = cell.col == 0 and not header
    horizontal = spec.aligns[cell.col]
    if cell.col_span > 1 and not across:
        horizontal = "center"
    elif header and style.align_header:
        horizontal = style.align_header if cell.col or style.align_header != "center" else horizontal
    elif across:
        horizontal = "center" if spec.n_cols % 2 else "left"
    vertical = "horizon" if cell.row_span > 1 else style.align_vertical
    options = [f"x: {cell.col}, y: {cell.row}, align: {horizontal} + {vertical}"]
    if cell.row_span > 1:
        options.append(f"rowspan: {cell.row_span}")
    if cell.col_span > 1:
        options.append(f"colspan: {cell.col_span}")
    fill = style.header_fill if header else 255 if (cell.row - spec.header_rows) % 2 else style.stripe_fill
    if fill < 255:
        options.append(f"fill: luma({fill})")
    body = quote(cell.text)
    faces = []
    if (header and style.bold_header) or (label and style.bold_labels):
        faces.append('weight: "bold"')
    if label and style.italic_labels:
        faces.append('style: "italic"')
    if header and style.header_ink:
        faces.append(f"fill: luma({style.header_ink})")
    if faces and cell.text:
        body = f"text({', '.join(faces)}, {body})"
    return f"table.cell({', '.join(options)}, {body})"


def _width(spec: TableSpec, col: int, rng: np.random.Generator) -> float:
    """A width in em at which the longest word of a column still fits, in any face."""
    words = [word for cell in spec.cells if cell.col == col and cell.col_span == 1 for word in cell.text.split()]
    return max([float(rng.uniform(5, 14)), *(1.05 * _ems(word) for word in words)])


def _ems(word: str) -> float:
    """Upper estimate of a word's width in em."""
    return sum(0.5 if c in _NARROW else 1.0 if c in _WIDE else 0.82 if c.isupper() else 0.66 for c in word)
