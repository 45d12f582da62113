"""What the user typed: files, folders and globs to a list of documents, and page ranges to indices."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mineru_diffusion.errors import SourceError, UsageError

#: Suffixes picked up in folders, in lower case. A file named outright is opened whatever its suffix.
SUPPORTED_SUFFIXES = frozenset(
    {".pdf", ".png", ".jpg", ".jpeg", ".jpe", ".jp2", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".pbm"}
)

_RANGE = re.compile(r"(\d{1,9})\s*(?:(-)\s*(\d{1,9})?)?", re.ASCII)


def expand_inputs(inputs: Iterable[str | Path], *, exclude: Sequence[str | Path] = ()) -> list[Path]:
    """Files as they are, folders as the supported documents below them, globs as what they match.

    Args:
        inputs: paths or glob patterns. Inputs keep their order; what one folder or glob gives is sorted.
        exclude: folders whose contents are skipped when a folder or glob is searched (the output folder).

    Returns:
        Existing files, each once.

    Raises:
        SourceError: a path does not exist, or a folder holds no supported document.
        UsageError: nothing was given, or a glob matches nothing.
    """
    shut = [Path(folder).resolve() for folder in exclude]
    found: dict[Path, Path] = {}
    for given in inputs:
        for path in _expand_one(given, shut):
            found.setdefault(path.resolve(), path)
    if not found:
        raise UsageError("no input given: name files, folders or globs")
    return list(found.values())


def _expand_one(given: str | Path, shut: Sequence[Path]) -> list[Path]:
    path = Path(given)
    if path.is_dir():
        return _documents_in(path, shut)
    if path.exists():
        return [path]
    if glob.has_magic(str(given)):
        matches = sorted(Path(match) for match in glob.glob(str(given), recursive=True))
        nested = [_documents_in(match, shut, may_be_empty=True) if match.is_dir() else [match] for match in matches]
        documents = [document for group in nested for document in group if not _is_below(document, shut)]
        if not documents:
            raise UsageError(f"{given}: the pattern matches no document")
        return documents
    raise SourceError(path, "no such file or folder", "check the path")


def _documents_in(folder: Path, shut: Sequence[Path], *, may_be_empty: bool = False) -> list[Path]:
    documents = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUPPORTED_SUFFIXES
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and path.is_file()
        and not _is_below(path, shut)
    )
    if not documents and not may_be_empty:
        raise SourceError(folder, "the folder holds no PDF or image", "name the file itself if its suffix is unusual")
    return documents


def _is_below(path: Path, folders: Sequence[Path]) -> bool:
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
