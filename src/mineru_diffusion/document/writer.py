"""Output files: one folder a document, names that collide nowhere, every file whole or not there at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from PIL import Image

from mineru_diffusion.document.document_json import read_document
from mineru_diffusion.document.export_options import ExportOptions
from mineru_diffusion.document.exports import FORMATS, DrawnPages, ExportJob, files_of
from mineru_diffusion.document.manifest import MANIFEST, Manifest, read_manifest
from mineru_diffusion.document.names import collision_key, safe_stem, with_suffix
from mineru_diffusion.document.staging import Staging, output_error
from mineru_diffusion.document.types import Document, Page
from mineru_diffusion.errors import OutputError, SourceError, UsageError

IMAGES = "images"

# Says which source a folder belongs to, as a hash: a path may tell more than its owner wants to share.
_MARKER = ".source"

_OUR_IMAGES = re.compile(r"p\d{4,}_\d{3,}_[a-z0-9_]+\.png")


@dataclass(frozen=True)
class OutputFolder:
    """Where the files of one document go: `directory` is `out/<stem>`, files are called `<stem>...`."""

    directory: Path
    stem: str
    staging: Staging = field(compare=False, repr=False)

    def file(self, ending: str) -> Path:
        """Path of `<stem><ending>`, e.g. `file(".md")`."""
        return self.directory / f"{self.stem}{ending}"

    def put(self, target: Path, write: Callable[[Path], object]) -> bool:
        """See `Staging.put`."""
        return self.staging.put(target, write)

    def save_image(self, image: Image.Image, page_index: int, order: int, kind: str) -> str:
        """Save a region's crop as PNG; returns its path relative to the folder, for `Region.image_path`.

        Raises:
            OutputError: it cannot be written.
        """
        label = re.sub(r"[^a-z0-9]+", "_", kind.lower()).strip("_")[:40] or "region"
        relative = f"{IMAGES}/p{page_index + 1:04d}_{order:03d}_{label}.png"
        target = self.directory / relative
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise output_error(target.parent, error) from error
        self.put(target, lambda path: image.save(path, format="PNG"))
        return relative


class OutputWriter:
    """Writes parsed documents below one folder; may be shared between threads. Use it in a `with` statement.

    Raises:
        UsageError: `out_dir` cannot be made or is a file.
        OutputError: nothing can be written there.
    """

    def __init__(self, out_dir: str | Path) -> None:
        self.out_dir = Path(out_dir)
        self._lock = threading.Lock()
        self._folders: dict[str, OutputFolder] = {}
        self._taken: dict[str, Path] | None = None
        try:
            self.out_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{out_dir}: cannot be used as output folder: {error.strerror or error}") from error
        self._staging = Staging(self.out_dir)

    def __enter__(self) -> OutputWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove what was left unfinished."""
        self._staging.close()

    def folder_for(self, source: str | Path) -> OutputFolder:
        """The folder of a source: always the same one, also in a later run, and never another source's.

        The first source of a name gets the plain name; further ones, and names that differ only by case or
        Unicode form, get a hash of their path behind it. The folder is made, and marked as taken, on the way.

        Raises:
            OutputError: it cannot be made.
        """
        return self._folder(source, make=True)

    def find(self, source: str | Path) -> OutputFolder | None:
        """The folder that a source got before; None if there is none."""
        with contextlib.suppress(_NoFolder):
            return self._folder(source, make=False)
        return None

    def _folder(self, source: str | Path, *, make: bool) -> OutputFolder:
        identity = _identity(source)
        with self._lock:
            if identity not in self._folders:
                directory = self._claim(Path(source), identity, make=make)
                self._folders[identity] = OutputFolder(directory, directory.name, self._staging)
            return self._folders[identity]

    def _claim(self, source: Path, identity: str, *, make: bool) -> Path:
        stem = safe_stem(source.stem)
        hashed = with_suffix(stem, f"-{identity[:8]}")
        names = (stem, hashed, with_suffix(stem, f"-{identity[:24]}"))
        taken = self._names()
        # A folder that this source got in an earlier run comes before any new one.
        for name in names:
            entry = taken.get(collision_key(name))
            if entry is not None and _owner(entry) == identity:
                return entry
        if not make:
            raise _NoFolder
        for name in names:
            directory = taken.get(collision_key(name), self.out_dir / name)
            if _take(directory, identity, self._staging):
                taken[collision_key(name)] = directory
                return directory
        raise OutputError(self.out_dir, f"no free name for {source}", "choose another output folder")

    def _names(self) -> dict[str, Path]:
        """Entries of the output folder by collision key; read once, because there may be very many."""
        if self._taken is None:
            with os.scandir(self.out_dir) as entries:
                self._taken = {collision_key(entry.name): self.out_dir / entry.name for entry in entries}
        return self._taken

    def existing(self, source: str | Path) -> Document | None:
        """What an earlier run wrote for this source, or None if that is missing or unreadable."""
        folder = self.find(source)
        try:
            return None if folder is None else read_document(folder.file(".json"))
        except SourceError:
            return None

    def write(
        self,
        document: Document,
        formats: Iterable[str] = (),
        options: ExportOptions | None = None,
        *,
        pages: DrawnPages | None = None,
        manifest: Manifest | None = None,
    ) -> OutputFolder:
        """Write all files of a document. `<stem>.json` and the manifest come last: where they are, all are there.

        Args:
            document: `document.source` decides on the folder. Crops were saved before, by `OutputFolder.save_image`.
            formats: formats besides Markdown and JSON; see `exports.FORMATS`.
            options: how they are written.
            pages: renders the pages once more, for formats that show them; without it, those stay empty.
            manifest: kept for later runs, with the names of the files filled in. Files of other formats that show
                an earlier reading are removed.

        Raises:
            OutputError: a file cannot be written.
        """
        folder = self.folder_for(document.source)
        before = read_manifest(folder.directory)
        (folder.directory / MANIFEST).unlink(missing_ok=True)
        job = ExportJob(document, folder.directory, options or ExportOptions(), pages or _no_pages)
        written = []
        for file in files_of(formats):
            target = folder.file(file.ending)
            if folder.put(target, lambda path, file=file: file.write(job, path)):  # type: ignore[misc]
                written.append(target.name)
        pictures = sorted({r.image_path for page in document.pages for r in page.regions if r.image_path})
        _drop_stale_images(folder, {*pictures})
        if manifest is not None:
            if before is None or not before.complete or before.parsed != manifest.parsed:
                _drop_stale_formats(folder, {*written})
            text = replace(manifest, files=(*written, *pictures)).to_json()
            folder.put(folder.directory / MANIFEST, lambda path: path.write_text(text, encoding="utf-8"))
        return folder


class _NoFolder(Exception):
    """A source has no folder yet."""


def _no_pages(dpi: float) -> Iterator[tuple[Image.Image, Page]]:
    return iter(())


def _identity(source: str | Path) -> str:
    path = os.path.realpath(source)
    return hashlib.sha256(path.encode(errors="surrogatepass")).hexdigest()


def _owner(directory: Path) -> str:
    try:
        return (directory / _MARKER).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _take(directory: Path, identity: str, staging: Staging) -> bool:
    """Mark a new or empty folder as this source's; False if it is someone else's."""
    marker = directory / _MARKER
    try:
        directory.mkdir(exist_ok=True)
        if any(entry.name != _MARKER for entry in directory.iterdir()) and not marker.exists():
            return False
    except FileExistsError:  # a file of that name
        return False
    except OSError as error:
        raise output_error(directory, error) from error
    # This is what decides between two threads or processes.
    return staging.create(marker, identity + "\n") or _owner(directory) == identity


def _drop_stale_formats(folder: OutputFolder, written: set[str]) -> None:
    """Remove files of formats that were not asked for this time: they show what was read before."""
    for file in files_of(FORMATS):
        target = folder.file(file.ending)
        if target.name not in written:
            with contextlib.suppress(OSError):
                target.unlink()


def _drop_stale_images(folder: OutputFolder, named: set[str]) -> None:
    """Remove crops of an earlier run that the document does not name."""
    images = folder.directory / IMAGES
    if not images.is_dir():
        return
    for path in images.iterdir():
        if _OUR_IMAGES.fullmatch(path.name) and f"{IMAGES}/{path.name}" not in named:
            with contextlib.suppress(OSError):
                path.unlink()
