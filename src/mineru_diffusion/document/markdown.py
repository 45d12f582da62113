"""A document as Markdown: GitHub's dialect, formulas between dollars, tables with spans as HTML."""

from __future__ import annotations

from collections.abc import Iterable

from mineru_diffusion.document.export_options import ExportOptions, MathStyle
from mineru_diffusion.document.flow import PAGE_ERROR, Block, Part, flow
from mineru_diffusion.document.formulas import clean_formula
from mineru_diffusion.document.html_tables import parse_html_table
from mineru_diffusion.document.markdown_text import escape_text, fenced, list_markdown
from mineru_diffusion.document.paragraphs import join_lines
from mineru_diffusion.document.tables import Table, table_to_html
from mineru_diffusion.document.types import Document, Region


def document_to_markdown(document: Document, options: ExportOptions | None = None) -> str:
    """All pages, blocks parted by an empty line; ends with a newline unless there is nothing.

    Captions stand above or below their hosts as they do on the page, footnotes below.
    """
    options = options or ExportOptions()
    pieces = [
        _block(block, options.math)
        for block in flow(document, furniture=options.furniture, join_tables=options.join_tables)
    ]
    text = "\n\n".join(piece for piece in pieces if piece)
    return f"{text}\n" if text else ""


def _block(block: Block, math: MathStyle) -> str:
    if block.kind == PAGE_ERROR:
        reason = block.content.replace("--", "- -")
        return f"<!-- page {block.page + 1} could not be read: {reason} -->"
    pieces = [
        *_around(block.captions_above(), math),
        content_to_markdown(block.region, block.content, math=math),
        *_around((*block.captions_below(), *block.footnotes), math),
    ]
    return "\n\n".join(piece for piece in pieces if piece)


def _around(parts: Iterable[Part], math: MathStyle) -> list[str]:
    return [escape_text(part.region.content, math=math) for part in parts]


def region_to_markdown(region: Region, *, math: MathStyle = "dollar") -> str:
    """One region as a Markdown block, `""` if it has nothing to show."""
    return content_to_markdown(region, region.content, math=math)


def content_to_markdown(region: Region, content: str, *, math: MathStyle = "dollar") -> str:
    """A region as a Markdown block, with `content` in place of its own (parts of several regions joined)."""
    raw, content = content, content.strip()
    if region.kind in ("image", "chart"):
        picture = f"![](<{region.image_path}>)" if " " in region.image_path else f"![]({region.image_path})"
        parts = [picture if region.image_path else "", _table_or_text(content, math)]
        return "\n\n".join(part for part in parts if part)
    if not content:
        return ""
    if region.kind == "title":
        level = min(max(region.level, 1), 6)
        return f"{'#' * level} {escape_text(join_lines(content.splitlines()), math=math)}"
    if region.kind == "table":
        return _table_or_text(content, math)
    if region.kind == "equation":
        opening, closing = ("$$", "$$") if math == "dollar" else ("\\[", "\\]")
        return f"{opening}\n{clean_formula(content)}\n{closing}"
    if region.kind in ("code", "algorithm"):
        return fenced(raw)
    if region.kind == "list":
        return list_markdown(content, math=math)
    return escape_text(content, math=math)


def _table_or_text(content: str, math: MathStyle) -> str:
    table = parse_html_table(content)
    if table is None:
        return escape_text(content, math=math)
    if table.has_spans:
        return table_to_html(table)
    return github_table(table, math=math)


def github_table(table: Table, *, math: MathStyle = "dollar") -> str:
    """A table without spans as a GitHub table; its first row is the head, its caption a paragraph above."""
    rows = [[escape_text(cell.text, in_table=True, math=math) for cell in row] for row in table.grid()]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|" + " --- |" * table.n_cols)
    head = f"{escape_text(table.caption, math=math)}\n\n" if table.caption else ""
    return head + "\n".join(lines)
