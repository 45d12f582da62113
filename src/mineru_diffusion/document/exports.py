"""Which files a document is written to. One table: a format's name, its files' endings, and who writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from mineru_diffusion.document.content_list import content_list
from mineru_diffusion.document.docling import docling_json, doctags, require_docling
from mineru_diffusion.document.document_json import document_to_json
from mineru_diffusion.document.export_options import ExportOptions
from mineru_diffusion.document.html import document_to_html
from mineru_diffusion.document.markdown import document_to_markdown
from mineru_diffusion.document.overlay import write_overlay_pdf
from mineru_diffusion.document.searchable import write_searchable_pdf
from mineru_diffusion.document.types import Document, Page
from mineru_diffusion.errors import UsageError

DrawnPages = Callable[[float], Iterator[tuple[Image.Image, Page]]]
"""Gives the pages that could be read with their images, one at a time, rendered at so many dpi."""

OVERLAY_DPI = 110
SEARCHABLE_DPI = 150


@dataclass(frozen=True)
class ExportJob:
    """What a format's writer gets.

    Attributes:
        folder: the document's output folder, to which `Region.image_path` is relative.
        pages: renders the pages once more; for formats that show them.
    """

    document: Document
    folder: Path
    options: ExportOptions
    pages: DrawnPages


@dataclass(frozen=True)
class Format:
    """One file: its name is the document's with `ending`; `write` puts it at the path that it is given."""

    ending: str
    write: Callable[[ExportJob, Path], object]


def _text(render: Callable[[ExportJob], str]) -> Callable[[ExportJob, Path], object]:
    return lambda job, path: path.write_bytes(render(job).encode("utf-8", errors="replace"))


def _markdown(job: ExportJob) -> str:
    return document_to_markdown(job.document, job.options)


def _content_list(job: ExportJob) -> str:
    return json.dumps(content_list(job.document, job.options), ensure_ascii=False, indent=2) + "\n"


def _html(job: ExportJob) -> str:
    return document_to_html(job.document, job.options, image_root=job.folder)


def _layout(job: ExportJob, path: Path) -> int:
    return write_overlay_pdf(path, job.pages(OVERLAY_DPI), review=job.options.review)


def _searchable(job: ExportJob, path: Path) -> int:
    return write_searchable_pdf(path, job.pages(SEARCHABLE_DPI), title=Path(job.document.source).stem)


#: Formats by name. The document's own JSON is not among them: it is always written, and last.
FORMATS: Mapping[str, tuple[Format, ...]] = {
    "md": (Format(".md", _text(_markdown)),),
    "json": (Format("_content_list.json", _text(_content_list)),),
    "html": (Format(".html", _text(_html)),),
    "layout": (Format("_layout.pdf", _layout),),
    "searchable-pdf": (Format("_searchable.pdf", _searchable),),
    "docling": (Format("_docling.json", _text(lambda job: docling_json(job.document, job.options))),),
    "doctags": (Format(".doctags", _text(lambda job: doctags(job.document, job.options))),),
}
ALWAYS = ("md", "json")
DOCUMENT = Format(".json", _text(lambda job: document_to_json(job.document, job.options)))


def check_formats(spec: str) -> frozenset[str]:
    """Names of output formats from a comma-separated list.

    Raises:
        UsageError: one of them is unknown.
        MissingExtra: one of them needs a package that is not installed.
    """
    formats = frozenset(part.strip().lower() for part in spec.split(",") if part.strip())
    if not formats or formats - set(FORMATS):
        wrong = ", ".join(sorted(formats - set(FORMATS))) or "nothing"
        raise UsageError(f"unknown output format: {wrong}; choose from {', '.join(FORMATS)}")
    if formats & {"docling", "doctags"}:
        require_docling()
    return formats


def files_of(formats: Iterable[str]) -> tuple[Format, ...]:
    """The files of these formats and of those that are always written, in the order in which they are written."""
    chosen = {*ALWAYS, *formats}
    return (*(file for name, files in FORMATS.items() if name in chosen for file in files), DOCUMENT)
