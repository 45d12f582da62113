"""Output files: one folder a document, names that collide nowhere, every file whole or not there at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from PIL import Image

from mineru_diffusion.document.content_list import content_list
from mineru_diffusion.document.document_json import document_to_json, read_document
from mineru_diffusion.document.html import document_to_html
from mineru_diffusion.document.markdown import document_to_markdown
from mineru_diffusion.document.names import collision_key, safe_stem, with_suffix
from mineru_diffusion.document.overlay import write_overlay_pdf
from mineru_diffusion.document.types import Document, Page
from mineru_diffusion.errors import SourceError, UsageError

IMAGES = "images"

# Says which source a folder belongs to, as a hash: a path may tell more than its owner wants to share.
_MARKER = ".source"

_OUR_IMAGES = re.compile(r"p\d{4,}_\d{3,}_[a-z0-9_]+\.png")


@dataclass(frozen=True)
class OutputFolder:
    """Where the files of one document go: `directory` is `out/<stem>`, files are called `<stem>...`."""

    directory: Path
    stem: str

    def file(self, ending: str) -> Path:
        """Path of `<stem><ending>`, e.g. `file(".md")`."""
        return self.directory / f"{self.stem}{ending}"

    def save_image(self, image: Image.Image, page_index: int, order: int, kind: str) -> str:
        """Save a region's crop as PNG; returns its path relative to the folder, for `Region.image_path`."""
        label = re.sub(r"[^a-z0-9]+", "_", kind.lower()).strip("_")[:40] or "region"
        relative = f"{IMAGES}/p{page_index + 1:04d}_{order:03d}_{label}.png"
        target = self.directory / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        _write_atomically(target, lambda path: image.save(path, format="PNG"))
        return relative


class OutputWriter:
    """Writes parsed documents below one folder; may be shared between threads.

    Raises:
        UsageError: `out_dir` cannot be made or is a file.
    """

    def __init__(self, out_dir: str | Path) -> None:
        self.out_dir = Path(out_dir)
        self._lock = threading.Lock()
        self._folders: dict[str, OutputFolder] = {}
        try:
            self.out_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{out_dir}: cannot be used as output folder: {error.strerror or error}") from error

    def folder_for(self, source: str | Path) -> OutputFolder:
        """The folder of a source: always the same one, also in a later run, and never another source's.

        The first source of a name gets the plain name; further ones, and names that differ only by case or
        Unicode form, get a hash of their path behind it. The folder is made, and marked as taken, on the way.
        """
        identity = _identity(source)
        with self._lock:
            if identity not in self._folders:
                self._folders[identity] = self._claim(Path(source), identity)
            return self._folders[identity]

    def _claim(self, source: Path, identity: str) -> OutputFolder:
        stem = safe_stem(source.stem)
        hashed = with_suffix(stem, f"-{identity[:8]}")
        existing = {collision_key(entry.name): entry for entry in self.out_dir.iterdir()}
        # A folder that this source got in an earlier run comes before any new one.
        for name in (stem, hashed):
            entry = existing.get(collision_key(name))
            if entry is not None and _owner(entry) == identity:
                return OutputFolder(entry, entry.name)
        for name in (stem, hashed, with_suffix(stem, f"-{identity[:24]}")):
            directory = existing.get(collision_key(name), self.out_dir / name)
            if _take(directory, identity):
                return OutputFolder(directory, directory.name)
        raise UsageError(f"{self.out_dir}: no free name for {source}; choose another output folder")

    def existing(self, source: str | Path) -> Document | None:
        """What an earlier run wrote for this source, or None if that is missing or unreadable."""
        try:
            return read_document(self.folder_for(source).file(".json"))
        except SourceError:
            return None

    def write(
        self,
        document: Document,
        *,
        html: bool = False,
        overlay: Iterable[tuple[Image.Image, Page]] | None = None,
        furniture: bool = False,
    ) -> OutputFolder:
        """Write all files of a document; `<stem>.json` comes last, so that its presence means that all are there.

        Args:
            document: `document.source` decides on the folder. Crops were saved before, by `OutputFolder.save_image`.
            html: write `<stem>.html` as well.
            overlay: pages with their images, drawn into `<stem>_layout.pdf` when given (may be lazy).
            furniture: keep headers, footers and page numbers in Markdown and HTML.
        """
        folder = self.folder_for(document.source)
        _write_text(folder.file(".md"), document_to_markdown(document, furniture=furniture))
        items = json.dumps(content_list(document), ensure_ascii=False, indent=2)
        _write_text(folder.file("_content_list.json"), items + "\n")
        if html:
            page = document_to_html(document, image_root=folder.directory, furniture=furniture)
            _write_text(folder.file(".html"), page)
        pages = iter(overlay or ())
        if (first := next(pages, None)) is not None:
            drawn = chain([first], pages)
            _write_atomically(folder.file("_layout.pdf"), lambda path: write_overlay_pdf(path, drawn))
        _write_text(folder.file(".json"), document_to_json(document))
        _drop_stale_images(folder, document)
        return folder


def _identity(source: str | Path) -> str:
    path = os.path.realpath(source)
    return hashlib.sha256(path.encode(errors="surrogatepass")).hexdigest()


def _owner(directory: Path) -> str:
    try:
        return (directory / _MARKER).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _take(directory: Path, identity: str) -> bool:
    """Mark a new or empty folder as this source's; False if it is someone else's."""
    try:
        directory.mkdir(exist_ok=True)
        if any(entry.name != _MARKER for entry in directory.iterdir()) and not (directory / _MARKER).exists():
            return False
        # Exclusive creation is what decides between two processes.
        with (directory / _MARKER).open("x", encoding="ascii") as file:
            file.write(identity + "\n")
    except FileExistsError:
        return directory.is_dir() and _owner(directory) == identity
    except OSError as error:
        raise UsageError(f"{directory}: cannot be written: {error.strerror or error}") from error
    return True


def _write_text(target: Path, text: str) -> None:
    data = text.encode("utf-8", errors="replace")
    _write_atomically(target, lambda path: path.write_bytes(data))


def _write_atomically(target: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make a temporary file beside `target`, then put it in place in one step."""
    temporary = target.with_name(f".writing-{uuid.uuid4().hex}")
    try:
        write(temporary)
        os.replace(temporary, target)
    except OSError as error:
        raise UsageError(f"{target}: cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _drop_stale_images(folder: OutputFolder, document: Document) -> None:
    """Remove crops of an earlier run that this document does not name."""
    images = folder.directory / IMAGES
    if not images.is_dir():
        return
    named = {region.image_path for page in document.pages for region in page.regions}
    for path in images.iterdir():
        if _OUR_IMAGES.fullmatch(path.name) and f"{IMAGES}/{path.name}" not in named:
            with contextlib.suppress(OSError):
                path.unlink()
