"""MinerU's `content_list.json`: a flat list in reading order, field for field as its readers expect."""

from __future__ import annotations

from typing import Any

from mineru_diffusion.document.export_options import ExportOptions
from mineru_diffusion.document.flow import PAGE_ERROR, Block, flow
from mineru_diffusion.document.formulas import clean_formula
from mineru_diffusion.document.inline_math import split_math
from mineru_diffusion.document.list_text import list_items
from mineru_diffusion.document.types import FURNITURE, BBox, Document

_GRID = 1000


def content_list(document: Document, options: ExportOptions | None = None) -> list[dict[str, Any]]:
    """The document as MinerU's content list; `page_idx` counts from 0, `bbox` is 0..1000 of the page.

    Captions and footnotes are fields of what they belong to; one that belongs to nothing is a text of its own. What
    goes on over columns or pages is one item, at the place where it begins. Headers, footers and page numbers are
    always there.
    """
    options = options or ExportOptions()
    blocks = flow(document, furniture=True, join_tables=options.join_tables)
    return [
        {**_item(block), "bbox": _bbox(block.region.bbox), "page_idx": block.page}
        for block in blocks
        if block.kind != PAGE_ERROR
    ]


def _bbox(bbox: BBox) -> list[int]:
    return [min(max(round(value * _GRID), 0), _GRID) for value in bbox]


def _item(block: Block) -> dict[str, Any]:
    region, content = block.region, block.content
    captions = [_dollars(part.region.content) for part in block.captions]
    footnotes = [_dollars(part.region.content) for part in block.footnotes]
    if block.kind == "title":
        return {"type": "text", "text": _dollars(content), "text_level": max(region.level, 1)}
    if block.kind == "equation":
        text = f"$$\n{clean_formula(content)}\n$$" if content.strip() else ""
        return {"type": "equation", "img_path": region.image_path, "text": text, "text_format": "latex"}
    if block.kind == "image":
        item = {"type": "image", "img_path": region.image_path, "image_caption": captions, "image_footnote": footnotes}
        return {**item, "content": content} if content else item
    if block.kind == "chart":
        return {
            "type": "chart",
            "img_path": region.image_path,
            "content": content,
            "chart_caption": captions,
            "chart_footnote": footnotes,
        }
    if block.kind == "table":
        return {
            "type": "table",
            "img_path": region.image_path,
            "table_caption": captions,
            "table_footnote": footnotes,
            "table_body": content,
        }
    if block.kind in ("code", "algorithm"):
        return {
            "type": "code",
            "sub_type": block.kind,
            "code_caption": captions,
            "code_footnote": footnotes,
            "code_body": content,
        }
    if block.kind == "list":
        return {"type": "list", "sub_type": "text", "list_items": [*map(_dollars, list_items(content))]}
    return {"type": block.kind if block.kind in FURNITURE else "text", "text": _dollars(content)}


def _dollars(text: str) -> str:
    """Running text with its formulas between single dollars, as MinerU's readers look for them."""
    return "".join(f"${piece}$" if is_math else piece for is_math, piece in split_math(text))
