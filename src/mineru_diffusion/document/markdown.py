"""A document as Markdown: GitHub's dialect with `$` formulas, tables with spans as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mineru_diffusion.document.formulas import clean_formula
from mineru_diffusion.document.html_tables import parse_html_table
from mineru_diffusion.document.markdown_text import escape_text, fenced, list_markdown
from mineru_diffusion.document.paragraphs import is_continued, join_lines
from mineru_diffusion.document.tables import Table, table_to_html
from mineru_diffusion.document.types import FURNITURE, Document, Page, Region

#: Kinds that may stand between two halves of a paragraph without ending it.
_FLOATS = frozenset(
    {"image", "chart", "table", "image_caption", "image_footnote", "table_caption", "table_footnote"} | FURNITURE
)

#: `Region.source["continued"]` says who found that a text goes on from the one before it.
CONTINUED = "continued"


@dataclass
class _Block:
    """One block of the output; `text` is set for paragraphs that may still grow."""

    markdown: str
    text: str = ""


def document_to_markdown(document: Document, *, furniture: bool = False) -> str:
    """All pages, blocks parted by an empty line; ends with a newline unless there is nothing.

    Args:
        document: regions are taken in the order in which they stand.
        furniture: keep headers, footers, page numbers and side notes.
    """
    blocks: list[_Block] = []
    open_text: tuple[_Block, Page, Region] | None = None
    for page, region in _walk(document.pages):
        if region is None:
            reason = page.error.replace("--", "- -")
            blocks.append(_Block(f"<!-- page {page.index + 1} could not be read: {reason} -->"))
            open_text = None
            continue
        if region.kind in FURNITURE and not furniture:
            continue
        if region.kind == "text" and region.content.strip():
            if open_text is not None and _goes_on(open_text, page, region):
                block = open_text[0]
                block.text = join_lines([block.text, region.content])
                block.markdown = escape_text(block.text)
            else:
                block = _Block(escape_text(region.content), region.content.strip())
                blocks.append(block)
            open_text = (block, page, region)
            continue
        if markdown := region_to_markdown(region):
            blocks.append(_Block(markdown))
        if region.kind not in _FLOATS:
            open_text = None
    text = "\n\n".join(block.markdown for block in blocks if block.markdown)
    return f"{text}\n" if text else ""


def _walk(pages: Iterable[Page]) -> Iterator[tuple[Page, Region | None]]:
    """Every region with its page; a page that failed comes once, without a region."""
    for page in pages:
        if page.error:
            yield page, None
        for region in page.regions:
            yield page, region


def _goes_on(open_text: tuple[_Block, Page, Region], page: Page, region: Region) -> bool:
    block, last_page, last = open_text
    if region.source.get(CONTINUED):
        return True
    # In one column, paragraphs are what the layout says they are; over a column or page break it cannot know.
    moved_on = page.index != last_page.index or region.bbox[1] < last.bbox[3] - 0.02
    return moved_on and is_continued(block.text, region.content)


def region_to_markdown(region: Region) -> str:
    """One region as a Markdown block, `""` if it has nothing to show."""
    content = region.content.strip()
    if region.kind in ("image", "chart"):
        picture = f"![](<{region.image_path}>)" if " " in region.image_path else f"![]({region.image_path})"
        parts = [picture if region.image_path else "", _table_or_text(content)]
        return "\n\n".join(part for part in parts if part)
    if not content:
        return ""
    if region.kind == "title":
        level = min(max(region.level, 1), 6)
        return f"{'#' * level} {escape_text(join_lines(content.splitlines()))}"
    if region.kind == "table":
        return _table_or_text(content)
    if region.kind == "equation":
        return f"$$\n{clean_formula(content)}\n$$"
    if region.kind in ("code", "algorithm"):
        return fenced(region.content)
    if region.kind == "list":
        return list_markdown(content)
    return escape_text(content)


def _table_or_text(content: str) -> str:
    table = parse_html_table(content)
    if table is None:
        return escape_text(content)
    if table.has_spans:
        return table_to_html(table)
    return github_table(table)


def github_table(table: Table) -> str:
    """A table without spans as a GitHub table; its first row is the head, its caption a paragraph above."""
    rows = [[escape_text(cell.text, in_table=True) for cell in row] for row in table.grid()]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|" + " --- |" * table.n_cols)
    head = f"{escape_text(table.caption)}\n\n" if table.caption else ""
    return head + "\n".join(lines)
