"""The machine-readable report: one JSON object a line, for every file as it is done, and one that sums up.

Every object has a `type`: `file`, `passed_over` (found in a folder, but no document) or `summary` (the last line of a
run that was not killed).
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from mineru_diffusion.errors import UsageError
from mineru_diffusion.parsing.folder import FileReport


class JsonLines:
    """Writes lines to a file that is begun anew; without a path, does nothing.

    Raises:
        UsageError: the file cannot be made.
    """

    def __init__(self, path: Path | None) -> None:
        self._file: IO[str] | None = None
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = path.open("w", encoding="utf-8")
            except OSError as error:
                raise UsageError(
                    f"--report {path}: cannot be written: {error.strerror or error}; name another file"
                ) from error

    def write(self, record: dict[str, Any]) -> None:
        """One line, at once."""
        if self._file is not None:
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()

    def close(self) -> None:
        """No more lines."""
        if self._file is not None:
            self._file.close()
            self._file = None


def file_record(item: FileReport) -> dict[str, Any]:
    """A file's line."""
    error = item.error
    return {
        "type": "file",
        "path": str(item.path),
        "status": item.status,
        "folder": None if item.folder is None else str(item.folder),
        "pages": item.pages,
        "failed_pages": item.failed_pages,
        "seconds": round(item.seconds, 3),
        "counters": asdict(item.counters),
        "warnings": item.warnings,
        "error": None if error is None else {"kind": type(error).__name__, "message": str(error)},
    }
