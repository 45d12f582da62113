"""Finished pages of a document that is not finished yet, one a line, so that a run that is stopped loses only what it
was just doing. In: page results. Out: the same page results, in a later run.

A journal that belongs to another content, model or options is started afresh; a last line that was cut off is dropped.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import IO, Any

from mineru_diffusion.document.document_json import SCHEMA_VERSION, document_from_dict
from mineru_diffusion.document.staging import output_error
from mineru_diffusion.document.types import Document
from mineru_diffusion.parsing.progress import Counters
from mineru_diffusion.parsing.record import PageResult

#: Name of the file in a document's output folder; it is there while pages are missing.
JOURNAL = ".pages.jsonl"

# Raised when lines mean something else; older journals are then started afresh.
_VERSION = 1


def read_journal(folder: Path, parsed: dict[str, Any]) -> dict[int, PageResult]:
    """Pages that an earlier run finished, by index; none where `parsed` (see `Manifest`) was another."""
    return _read(folder / JOURNAL, parsed)[0]


class Journal:
    """Appends finished pages; every line reaches the operating system before `add` returns.

    Args:
        folder: the document's output folder.
        parsed: what the reading depends on; see `Manifest`.
        fresh: forget what is there.

    Raises:
        OutputError: the file cannot be written.
    """

    def __init__(self, folder: Path, parsed: dict[str, Any], *, fresh: bool = False) -> None:
        self._path = folder / JOURNAL
        end = 0 if fresh else _read(self._path, parsed)[1]
        try:
            self._file: IO[bytes] = self._path.open("r+b" if end else "wb")
            if end:
                self._file.truncate(end)
                self._file.seek(end)
            else:
                self._write({"version": _VERSION, "parsed": parsed})
        except OSError as error:
            raise output_error(self._path, error) from error

    def add(self, result: PageResult) -> None:
        """Keep a page, unless something of it failed and is to be tried again.

        Raises:
            OutputError: it cannot be written.
        """
        if not result.complete:
            return
        try:
            self._write(
                {
                    "page": {"schema_version": SCHEMA_VERSION, **asdict(Document("", (result.page,)))},
                    "heights": {str(order): height for order, height in result.heights.items()},
                    "notes": result.notes,
                    "counters": asdict(result.counters),
                }
            )
        except OSError as error:
            raise output_error(self._path, error) from error

    def close(self) -> None:
        """Stop writing; the file stays."""
        self._file.close()

    def remove(self) -> None:
        """The document is complete: what is in its JSON need not be kept twice."""
        self.close()
        self._path.unlink(missing_ok=True)

    def _write(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record, ensure_ascii=True).encode("ascii") + b"\n")
        self._file.flush()


def _read(path: Path, parsed: dict[str, Any]) -> tuple[dict[int, PageResult], int]:
    """Pages by index, and where the last whole line ends; ({}, 0) where nothing can be used."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError:
        return {}, 0
    results: dict[int, PageResult] = {}
    end = 0
    for number, line in enumerate(lines):
        try:
            if not line.endswith(b"\n"):
                break
            record = json.loads(line)
            if number == 0:
                if record != {"version": _VERSION, "parsed": parsed}:
                    return {}, 0
            else:
                result = _result(record)
                results[result.page.index] = result
        except (ValueError, KeyError, TypeError, AttributeError):
            break
        end += len(line)
    return results, end


def _result(record: dict[str, Any]) -> PageResult:
    (page,) = document_from_dict(record["page"]).pages
    known = {field.name for field in fields(Counters)}
    return PageResult(
        page=page,
        heights={int(order): float(height) for order, height in record["heights"].items()},
        notes=tuple(str(note) for note in record["notes"]),
        counters=Counters(**{name: int(value) for name, value in record["counters"].items() if name in known}),
    )
