"""A document as docling's `DoclingDocument`, as JSON or DocTags, through docling-core (the extra `docling`)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mineru_diffusion.document.export_options import ExportOptions
from mineru_diffusion.document.flow import PAGE_ERROR, Block, Part, flow
from mineru_diffusion.document.formulas import clean_formula
from mineru_diffusion.document.html_tables import parse_html_table
from mineru_diffusion.document.list_text import read_list
from mineru_diffusion.document.tables import Table
from mineru_diffusion.document.types import FURNITURE, Document, Page
from mineru_diffusion.errors import MissingExtra

if TYPE_CHECKING:
    from docling_core.types.doc import DoclingDocument

_LABELS = {
    "header": "page_header",
    "footer": "page_footer",
    "page_number": "page_footer",
    "page_footnote": "footnote",
    "ref_text": "reference",
}


def require_docling() -> None:
    """Raise MissingExtra unless docling-core is installed."""
    if importlib.util.find_spec("docling_core") is None:
        raise MissingExtra("the docling export", "docling")


def document_to_docling(document: Document, options: ExportOptions | None = None) -> DoclingDocument:
    """The document with docling's labels, provenance (points, origin top left) and body order.

    Headers, footers and page numbers go to its furniture layer. A table or paragraph that goes on over pages is one
    item with the provenance of each part. A page that could not be read is there, and empty.

    Raises:
        MissingExtra: docling-core is not installed.
    """
    return _build(document, options, nested=True)


def _build(document: Document, options: ExportOptions | None, *, nested: bool) -> DoclingDocument:
    options = options or ExportOptions()
    require_docling()
    from docling_core.types.doc import DoclingDocument, Size

    made = DoclingDocument(name=Path(document.source).stem or "document")
    for page in document.pages:
        made.add_page(page_no=page.index + 1, size=Size(width=page.width, height=page.height))
    builder = _Builder(made, {page.index: page for page in document.pages}, nested=nested)
    for block in flow(document, furniture=True, join_tables=options.join_tables):
        if block.kind != PAGE_ERROR:
            builder.add(block)
    return made


def docling_json(document: Document, options: ExportOptions | None = None) -> str:
    """`document_to_docling` as JSON, which `DoclingDocument.load_from_json` reads. Raises MissingExtra."""
    return document_to_docling(document, options).model_dump_json(indent=2, by_alias=True, exclude_none=True) + "\n"


def doctags(document: Document, options: ExportOptions | None = None) -> str:
    """The document in DocTags. Raises MissingExtra.

    DocTags have no place for footnotes, captions of code and text inside a picture: they follow what they belong to.
    """
    text: str = _build(document, options, nested=False).export_to_doctags()
    return text.rstrip("\n") + "\n"


class _Builder:
    """Adds blocks to a `DoclingDocument`.

    Args:
        made: the document.
        pages: pages by index.
        nested: what belongs to an item goes below it; otherwise what DocTags do not show there goes behind it.
    """

    def __init__(self, made: DoclingDocument, pages: dict[int, Page], *, nested: bool) -> None:
        self._made = made
        self._pages = pages
        self._nested = nested

    def add(self, block: Block) -> None:
        from docling_core.types.doc import ContentLayer, DocItemLabel

        content = block.content.strip()
        layer = ContentLayer.FURNITURE if block.kind in FURNITURE else ContentLayer.BODY
        prov = self._provenance(block.parts[0], content)
        item: Any
        if block.kind == "list":
            self._add_list(content, block)
            return
        table = parse_html_table(content) if block.kind in ("table", "image", "chart") else None
        if block.kind in ("image", "chart"):
            item = self._made.add_picture(prov=prov)
            if content:
                # Docling's place for text inside a picture is below it; its exporters show it with `traverse_pictures`.
                self._add_content(table, content, item if self._nested else None, prov)
        elif block.kind == "table" and table is not None:
            item = self._add_table(table, None, prov)
        elif not content:
            self._add_captions(block, None)
            return
        elif block.kind == "title":
            level = block.region.level
            item = (
                self._made.add_title(content, prov=prov)
                if level == 1
                else self._made.add_heading(content, level=max(level - 1, 1), prov=prov)
            )
        elif block.kind == "equation":
            item = self._made.add_formula(clean_formula(content), prov=prov)
        elif block.kind in ("code", "algorithm"):
            item = self._made.add_code(block.content, prov=prov)
        else:
            ending = block.kind.rsplit("_", 1)[-1]
            label = _LABELS.get(block.kind, ending if ending in ("caption", "footnote") else "text")
            item = self._made.add_text(DocItemLabel(label), content, prov=prov, content_layer=layer)
        for part in block.parts[1:]:
            item.prov.append(self._provenance(part, part.region.content))
        self._add_captions(block, item)

    def _add_captions(self, block: Block, item: Any) -> None:
        from docling_core.types.doc import DocItemLabel

        for label, parts in ((DocItemLabel.CAPTION, block.captions), (DocItemLabel.FOOTNOTE, block.footnotes)):
            for part in parts:
                prov = self._provenance(part, part.region.content)
                hosted = hasattr(item, "captions") and (self._nested or self._shows(item, label))
                made = self._made.add_text(label, part.region.content, prov=prov, parent=item if hosted else None)
                if hosted:
                    (item.captions if label == DocItemLabel.CAPTION else item.footnotes).append(made.get_ref())

    @staticmethod
    def _shows(item: Any, label: Any) -> bool:
        """DocTags show it with the item: captions only, and those of code break docling-core's serializer."""
        from docling_core.types.doc import CodeItem, DocItemLabel

        return label == DocItemLabel.CAPTION and not isinstance(item, CodeItem)

    def _add_content(self, table: Table | None, content: str, parent: Any, prov: Any) -> None:
        from docling_core.types.doc import DocItemLabel

        if table is not None:
            self._add_table(table, parent, prov)
        else:
            self._made.add_text(DocItemLabel.TEXT, content, prov=prov, parent=parent)

    def _add_table(self, table: Table, parent: Any, prov: Any) -> Any:
        """The table's item; a caption that was read inside the table is its first one."""
        from docling_core.types.doc import DocItemLabel

        item = self._made.add_table(_table_data(table), prov=prov, parent=parent)
        if table.caption:
            made = self._made.add_text(DocItemLabel.CAPTION, table.caption, prov=prov, parent=item)
            item.captions.append(made.get_ref())
        return item

    def _add_list(self, content: str, block: Block) -> None:
        groups = [self._made.add_list_group()]
        last: Any = None
        for entry in read_list(content):
            while len(groups) > entry.depth + 1:
                groups.pop()
            while len(groups) < entry.depth + 1:
                groups.append(self._made.add_list_group(parent=last or groups[-1]))
            last = self._made.add_list_item(
                entry.text,
                enumerated=bool(entry.number),
                marker=entry.number or None,
                parent=groups[-1],
                prov=self._provenance(block.parts[0], entry.text),
            )

    def _provenance(self, part: Part, text: str) -> Any:
        from docling_core.types.doc import BoundingBox, CoordOrigin, ProvenanceItem

        page = self._pages[part.page]
        x0, y0, x1, y1 = part.region.bbox
        box = BoundingBox(
            l=x0 * page.width,
            t=y0 * page.height,
            r=x1 * page.width,
            b=y1 * page.height,
            coord_origin=CoordOrigin.TOPLEFT,
        )
        return ProvenanceItem(page_no=part.page + 1, bbox=box, charspan=(0, len(text)))


def _table_data(table: Table) -> Any:
    from docling_core.types.doc import TableCell, TableData

    cells = [
        TableCell(
            row_span=cell.row_span,
            col_span=cell.col_span,
            start_row_offset_idx=cell.row,
            end_row_offset_idx=cell.row + cell.row_span,
            start_col_offset_idx=cell.col,
            end_col_offset_idx=cell.col + cell.col_span,
            text=cell.text,
            column_header=cell.header,
        )
        for cell in table.cells
    ]
    return TableData(num_rows=table.n_rows, num_cols=table.n_cols, table_cells=cells)
