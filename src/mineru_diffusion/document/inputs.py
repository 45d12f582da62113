"""What the user typed: files, folders and globs to a list of documents, and page ranges to indices."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from mineru_diffusion.document.file_kinds import HEAD_BYTES, SUPPORTED_SUFFIXES, file_kind
from mineru_diffusion.errors import SourceError, UsageError

_RANGE = re.compile(r"(\d{1,9})\s*(?:(-)\s*(\d{1,9})?)?", re.ASCII)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/+[^/]")

# Kinds that a file in a folder may have under any name. The signatures of the others are too short for that.
_BY_CONTENT = frozenset({"PDF", "PNG", "JPEG", "TIFF", "WEBP", "JPEG2000", "HEIF", "AVIF"})

PassedOver = Callable[[Path, str], None]
"""Called with a file or folder below a folder that is not taken, and why."""


def expand_inputs(
    inputs: Iterable[str | Path], *, exclude: Sequence[str | Path] = (), passed_over: PassedOver | None = None
) -> list[Path]:
    """Files as they are, folders as the supported documents below them, globs as what they match.

    Args:
        inputs: paths or glob patterns. Inputs keep their order; what one folder or glob gives is sorted.
        exclude: folders whose contents are skipped when a folder or glob is searched (the output folder).
        passed_over: told about files below folders that are no documents, and folders that cannot be looked into.

    Returns:
        Existing files, each once.

    Raises:
        SourceError: a path does not exist, or a folder holds no supported document.
        UsageError: nothing was given, a glob matches nothing, or standard input or a URL was named.
    """
    shut = [Path(folder).resolve() for folder in exclude]
    found: dict[Path, Path] = {}
    for given in inputs:
        for path in _expand_one(given, shut, passed_over):
            found.setdefault(path.resolve(), path)
    if not found:
        raise UsageError("no input given: name files, folders or globs")
    return list(found.values())


def _expand_one(given: str | Path, shut: Sequence[Path], passed_over: PassedOver | None) -> list[Path]:
    if str(given) == "-":
        raise UsageError("-: standard input is not read; save the document to a file and name that")
    if _URL.match(str(given)):
        raise UsageError(f"{given}: nothing is downloaded; save the document to a file and name that")
    path = Path(given)
    if path.is_dir():
        documents = list(_documents_in(path, shut, passed_over))
        if not documents:
            raise SourceError(path, "the folder holds no PDF or image", "name another folder, or a file")
        return documents
    if path.exists():
        return [path]
    if glob.has_magic(str(given)):
        documents = []
        for match in sorted(Path(match) for match in glob.glob(str(given), recursive=True)):
            documents += _documents_in(match, shut, passed_over) if match.is_dir() else [match]
        documents = [document for document in documents if not _is_below(document, shut)]
        if not documents:
            raise UsageError(f"{given}: the pattern matches no document")
        return documents
    raise SourceError(path, "no such file or folder", "check the path")


def _documents_in(folder: Path, shut: Sequence[Path], passed_over: PassedOver | None) -> Iterator[Path]:
    """Documents at any depth, sorted; hidden files and folders are left alone, links to folders not followed."""
    tell = passed_over or (lambda path, why: None)
    if folder.resolve() in shut or _is_below(folder, shut):
        return
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if not entry.name.startswith("."))
    except OSError as error:
        tell(folder, f"the folder cannot be read: {error.strerror or error}")
        return
    # Files and folders together, by name: the order of the whole tree as a person would list it.
    for path in (folder / name for name in names):
        if path.is_dir():
            if not path.is_symlink():
                yield from _documents_in(path, shut, passed_over)
        elif path.suffix.lower() in SUPPORTED_SUFFIXES or _kind(path) in _BY_CONTENT:
            yield path
        else:
            tell(path, "neither a PDF nor an image")


def _kind(path: Path) -> str | None:
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return file_kind(file.read(HEAD_BYTES))
    except OSError:
        return None


def _is_below(path: Path, folders: Sequence[Path]) -> bool:
    if not folders:
        return False
    resolved = path.resolve()
    return any(folder in resolved.parents for folder in folders)


def parse_page_range(spec: str | None, count: int) -> list[int]:
    """Page numbers as people write them to indices from 0.

    Args:
        spec: 1-based, inclusive: `3`, `2-5`, `2-` (to the end), or several joined by commas, `1,3-4`.
            None means all pages.
        count: pages of the document.

    Returns:
        Indices in ascending order, each once.

    Raises:
        UsageError: not a range, page 0, a range that runs backwards, or a page that the document does not have.
    """
    if spec is None:
        return list(range(count))
    pages: set[int] = set()
    for part in spec.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise UsageError(
                f"page range {spec!r}: {part.strip()!r} is not a page or range (examples: 3, 2-5, 2-, 1,3-4)"
            )
        first = int(match[1])
        last = int(match[3]) if match[3] else count if match[2] else first
        if first < 1 or (match[3] and last < 1):
            raise UsageError(f"page range {spec!r}: pages count from 1")
        if first > count or last > count:
            raise UsageError(f"page range {spec!r}: the document has {count} page(s)")
        if first > last:
            raise UsageError(f"page range {spec!r}: {first} comes after {last}; write {last}-{first}")
        pages.update(range(first - 1, last))
    return sorted(pages)
