"""A visitor's document as files, made when they are asked for."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from mineru_diffusion.demo.errors import Refused
from mineru_diffusion.demo.pages import page_images
from mineru_diffusion.demo.sessions import Session
from mineru_diffusion.demo.settings import DemoSettings
from mineru_diffusion.document.content_list import content_list
from mineru_diffusion.document.document_json import document_to_json
from mineru_diffusion.document.exports import SEARCHABLE_DPI
from mineru_diffusion.document.html import document_to_html
from mineru_diffusion.document.markdown import document_to_markdown
from mineru_diffusion.document.searchable import write_searchable_pdf

KINDS = {
    "md": ("Markdown", ".md", "text/markdown; charset=utf-8"),
    "json": ("JSON", ".json", "application/json"),
    "html": ("HTML", ".html", "text/html; charset=utf-8"),
    "pdf": ("Searchable PDF", "_searchable.pdf", "application/pdf"),
    "zip": ("Everything (zip)", ".zip", "application/zip"),
}
"""What can be downloaded: label, ending and type."""


def file_name(session: Session, kind: str) -> str:
    """What a download is called."""
    return session.path.stem + KINDS[kind][1]


def make_file(session: Session, kind: str, settings: DemoSettings) -> bytes:
    """The content of a download.

    Raises:
        Refused: there is no such kind, or nothing was read yet.
    """
    if kind not in KINDS:
        raise Refused(f"There is no {kind!r} to download; there are {', '.join(KINDS)}.")
    if not session.pages:
        raise Refused("Nothing was read yet.")
    if kind == "zip":
        return _zip(session, settings)
    return _MAKERS[kind](session, settings)


def _markdown(session: Session, _: DemoSettings) -> bytes:
    return document_to_markdown(session.document()).encode("utf-8", errors="replace")


def _json(session: Session, _: DemoSettings) -> bytes:
    return document_to_json(session.document()).encode("utf-8", errors="replace")


def _html(session: Session, _: DemoSettings) -> bytes:
    return html_of(session).encode("utf-8", errors="replace")


def html_of(session: Session, indices: tuple[int, ...] | None = None) -> str:
    """The document, or some of its pages, as an HTML page that needs nothing else."""
    document = session.document()
    if indices is not None:
        kept = tuple(page for page in document.pages if page.index in indices)
        document = type(document)(document.source, kept, document.meta)
    return document_to_html(document, image_root=session.pictures)


def _pdf(session: Session, settings: DemoSettings) -> bytes:
    with tempfile.TemporaryDirectory(dir=session.folder) as folder:
        path = Path(folder) / "searchable.pdf"
        write_searchable_pdf(path, page_images(session, settings, SEARCHABLE_DPI), title=session.path.stem)
        return path.read_bytes()


_MAKERS: dict[str, Callable[[Session, DemoSettings], bytes]] = {
    "md": _markdown,
    "json": _json,
    "html": _html,
    "pdf": _pdf,
}


def _zip(session: Session, settings: DemoSettings) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for kind, make in _MAKERS.items():
            archive.writestr(file_name(session, kind), make(session, settings))
        listed = json.dumps(content_list(session.document()), ensure_ascii=False, indent=2)
        archive.writestr(f"{session.path.stem}_content_list.json", listed + "\n")
        for path in _pictures(session):
            archive.write(path, path.relative_to(session.pictures).as_posix())
    return buffer.getvalue()


def _pictures(session: Session) -> Iterator[Path]:
    named = {r.image_path for reading in session.pages.values() for r in reading.page.regions if r.image_path}
    for name in sorted(named):
        path = session.pictures / name
        if path.is_file():
            yield path
