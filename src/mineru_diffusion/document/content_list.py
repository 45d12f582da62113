"""MinerU's `content_list.json`: a flat list in reading order, field for field as its readers expect."""

from __future__ import annotations

from typing import Any

from mineru_diffusion.document.captions import Attached, attach_captions
from mineru_diffusion.document.formulas import clean_formula
from mineru_diffusion.document.markdown_text import list_items
from mineru_diffusion.document.types import FURNITURE, Document, Page, Region

_GRID = 1000


def content_list(document: Document) -> list[dict[str, Any]]:
    """The document as MinerU's content list; `page_idx` counts from 0, `bbox` is 0..1000 of the page.

    Captions and footnotes are fields of what they belong to; one that belongs to nothing is a text of its own.
    """
    return [item for page in document.pages for item in _page_items(page)]


def _page_items(page: Page) -> list[dict[str, Any]]:
    attached = attach_captions(page.regions)
    inside = {index for group in attached.values() for index in (*group.captions, *group.footnotes)}
    items: list[dict[str, Any]] = []
    for index, region in enumerate(page.regions):
        if index in inside:
            continue
        item = _item(region, attached.get(index, Attached()), page)
        item["bbox"] = [min(max(round(value * _GRID), 0), _GRID) for value in region.bbox]
        item["page_idx"] = page.index
        items.append(item)
    return items


def _item(region: Region, group: Attached, page: Page) -> dict[str, Any]:
    captions = [page.regions[index].content for index in group.captions]
    footnotes = [page.regions[index].content for index in group.footnotes]
    content = region.content
    if region.kind == "title":
        return {"type": "text", "text": content, "text_level": max(region.level, 1)}
    if region.kind == "equation":
        text = f"$$\n{clean_formula(content)}\n$$" if content.strip() else ""
        return {"type": "equation", "img_path": region.image_path, "text": text, "text_format": "latex"}
    if region.kind == "image":
        item = {"type": "image", "img_path": region.image_path, "image_caption": captions, "image_footnote": footnotes}
        return {**item, "content": content} if content else item
    if region.kind == "chart":
        return {
            "type": "chart",
            "img_path": region.image_path,
            "content": content,
            "chart_caption": captions,
            "chart_footnote": footnotes,
        }
    if region.kind == "table":
        return {
            "type": "table",
            "img_path": region.image_path,
            "table_caption": captions,
            "table_footnote": footnotes,
            "table_body": content,
        }
    if region.kind in ("code", "algorithm"):
        return {
            "type": "code",
            "sub_type": region.kind,
            "code_caption": captions,
            "code_footnote": footnotes,
            "code_body": content,
        }
    if region.kind == "list":
        return {"type": "list", "sub_type": "text", "list_items": list_items(content)}
    return {"type": region.kind if region.kind in FURNITURE else "text", "text": content}
