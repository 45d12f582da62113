"""Our own JSON: everything that is known about a document, with a schema version, there and back without loss."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

from mineru_diffusion.document.export_options import ExportOptions
from mineru_diffusion.document.flow import PAGE_ERROR, Block, Part, flow
from mineru_diffusion.document.review import review_list
from mineru_diffusion.document.types import BBox, Document, Page, Region
from mineru_diffusion.errors import SourceError

#: Raised when a field changes its meaning or goes away; new optional fields do not count.
SCHEMA_VERSION = 1


def document_to_dict(document: Document, options: ExportOptions | None = None) -> dict[str, Any]:
    """Plain data, ready for `json.dump`, as `document_schema` describes it.

    The fields of the types under their own names, `schema_version`, and what follows from them: `blocks`, the
    document as it is read, each block with the regions that it joins; with `options.review`, also `review`, the
    regions to look at, the least certain first.
    """
    options = options or ExportOptions()
    data: dict[str, Any] = {"schema_version": SCHEMA_VERSION, **asdict(document)}
    blocks = flow(document, furniture=True, join_tables=options.join_tables)
    data["blocks"] = [_block_dict(block) for block in blocks if block.kind != PAGE_ERROR]
    if options.review is not None:
        data["review_below"] = options.review
        data["review"] = [asdict(item) for item in review_list(document, options.review)]
    return data


def _block_dict(block: Block) -> dict[str, Any]:
    data: dict[str, Any] = {"kind": block.kind, "regions": _places(block.parts)}
    if block.kind == "title":
        data["level"] = block.region.level
    if len(block.parts) > 1:
        data["content"] = block.content
    if block.captions:
        data["captions"] = _places(block.captions)
    if block.footnotes:
        data["footnotes"] = _places(block.footnotes)
    return data


def _places(parts: tuple[Part, ...]) -> list[dict[str, int]]:
    return [{"page": part.page, "order": part.region.order} for part in parts]


def document_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what `document_to_json` writes, for `SCHEMA_VERSION`."""
    file = resources.files("mineru_diffusion.document") / f"document.v{SCHEMA_VERSION}.schema.json"
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return schema


def document_from_dict(data: dict[str, Any]) -> Document:
    """The inverse of `document_to_dict`. What follows from the regions, and unknown fields, are ignored.

    Raises:
        ValueError: another schema version, or a field is missing or of the wrong type.
    """
    try:
        version = data["schema_version"]
        if version != SCHEMA_VERSION:
            raise ValueError(f"schema version {version!r}, this release reads {SCHEMA_VERSION}")
        return Document(
            source=_text(data["source"]),
            pages=tuple(_page(page) for page in data["pages"]),
            meta=dict(data.get("meta", {})),
            warnings=_texts(data.get("warnings", ())),
        )
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"not a document: {type(error).__name__}: {error}") from error


def document_to_json(document: Document, options: ExportOptions | None = None) -> str:
    """The document as indented JSON; see `document_to_dict`."""
    return json.dumps(document_to_dict(document, options), ensure_ascii=False, indent=2) + "\n"


def read_document(path: str | Path) -> Document:
    """Load what `document_to_json` wrote.

    Raises:
        SourceError: the file cannot be read or is no document.
    """
    try:
        return document_from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise SourceError(path, f"cannot be read: {error.strerror or error}", "check the path") from error
    except ValueError as error:
        raise SourceError(path, f"not a parsed document: {error}", "parse the source again") from error


def _page(data: dict[str, Any]) -> Page:
    return Page(
        index=int(data["index"]),
        width=float(data["width"]),
        height=float(data["height"]),
        regions=tuple(_region(region) for region in data["regions"]),
        error=_text(data.get("error", "")),
    )


def _region(data: dict[str, Any]) -> Region:
    confidence = data.get("confidence")
    return Region(
        kind=_text(data["kind"]),
        bbox=_bbox(data["bbox"]),
        order=int(data.get("order", 0)),
        angle=int(data.get("angle", 0)),
        content=_text(data.get("content", "")),
        level=int(data.get("level", 0)),
        confidence=None if confidence is None else float(confidence),
        finish_reason=_text(data.get("finish_reason", "")),
        source={_text(key): _text(value) for key, value in data.get("source", {}).items()},
        warnings=_texts(data.get("warnings", ())),
        image_path=_text(data.get("image_path", "")),
        lines=tuple(_bbox(line) for line in data.get("lines", ())),
        line_texts=_texts(data.get("line_texts", ())),
    )


def _bbox(values: Any) -> BBox:
    x0, y0, x1, y1 = (float(value) for value in values)
    return x0, y0, x1, y1


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {value!r}")
    return value


def _texts(values: Any) -> tuple[str, ...]:
    if isinstance(values, str):
        raise TypeError(f"expected a list of texts, got {values!r}")
    return tuple(_text(value) for value in values)
