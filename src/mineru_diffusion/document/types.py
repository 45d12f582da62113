"""The document data model: what parsing produces and every exporter reads. Torch-free, frozen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

BBox = tuple[float, float, float, float]
"""x0, y0, x1, y1 as fractions of the page (0..1), origin top left, x0 <= x1 and y0 <= y1."""


def around(boxes: Sequence[BBox]) -> BBox:
    """The smallest box that holds all of these (at least one), in their unit."""
    return (
        min(box[0] for box in boxes),
        min(box[1] for box in boxes),
        max(box[2] for box in boxes),
        max(box[3] for box in boxes),
    )


#: Region kinds, in MinerU's names. Unknown kinds from a model are kept as they are.
KINDS = (
    "text",
    "title",
    "list",
    "table",
    "equation",
    "image",
    "chart",
    "code",
    "algorithm",
    "table_caption",
    "table_footnote",
    "image_caption",
    "image_footnote",
    "code_caption",
    "code_footnote",
    "ref_text",
    "phonetic",
    "header",
    "footer",
    "page_number",
    "aside_text",
    "page_footnote",
    "unknown",
)

#: Kinds that stay out of the Markdown by default; the JSON always has them.
FURNITURE = frozenset({"header", "footer", "page_number", "aside_text", "page_footnote"})


@dataclass(frozen=True)
class Region:
    """One part of a page: where it is, what it is, and what was read there.

    Attributes:
        kind: one of `KINDS` (or a model's own label).
        bbox: fractions of the displayed page.
        order: position in reading order on the page, from 0.
        angle: clockwise rotation of the content in degrees: 0, 90, 180 or 270.
        content: text, HTML (tables) or LaTeX without delimiters (equations); empty for pictures.
        level: heading level 1..6 for titles, 0 elsewhere.
        confidence: mean probability of the decoded tokens, or None when nothing was decoded.
        finish_reason: `stop`, `length`, `repetition`, `error`, or `""` when nothing was decoded.
        source: who found the region and who read it, e.g. `{"layout": "rapid-layout", "content": "model"}`.
        warnings: everything a careful reader should know; empty when all went well.
        image_path: path of the saved crop relative to the output folder, or "".
        lines: line boxes that were read one by one, when the checkpoint's text unit is `line`.
        line_texts: what each of `lines` says, before they were joined; as many as `lines`, or none.
    """

    kind: str
    bbox: BBox
    order: int = 0
    angle: int = 0
    content: str = ""
    level: int = 0
    confidence: float | None = None
    finish_reason: str = ""
    source: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    image_path: str = ""
    lines: tuple[BBox, ...] = ()
    line_texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Page:
    """One page: `index` from 0 in the source, size in PDF points (pixels for images), regions in reading order.

    `error` is the message of a page that could not be read; such a page has no regions.
    """

    index: int
    width: float
    height: float
    regions: tuple[Region, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Document:
    """A parsed document: its source path, its pages, and facts about the run (model, options, counters)."""

    source: str
    pages: tuple[Page, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def to_markdown(self) -> str:
        """The document as Markdown, page furniture left out."""
        from mineru_diffusion.document.markdown import document_to_markdown

        return document_to_markdown(self)
