"""What an earlier run wrote for a document, from what, and how: so that a later one need not do it again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

#: Name of the file in a document's output folder. It is written after all others.
MANIFEST = ".manifest.json"

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Manifest:
    """A run's record of one document.

    Attributes:
        parsed: what the reading depends on: the input's hash, the model, the options. Plain JSON values.
        exported: what the written files depend on besides: export options.
        files: names of the written files, relative to the folder, pictures included.
        complete: every page and region was read; if not, a later run tries the rest again.
    """

    parsed: dict[str, Any]
    exported: dict[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    complete: bool = True

    def to_json(self) -> str:
        """As indented JSON with sorted keys."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=2, sort_keys=True) + "\n"


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest in a document's output folder; None where there is none that can be read."""
    try:
        data = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return Manifest(
            parsed=dict(data["parsed"]),
            exported=dict(data["exported"]),
            files=tuple(str(name) for name in data["files"]),
            complete=data["complete"] is True,
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def content_hash(path: Path) -> str:
    """SHA-256 of a file's bytes in hexadecimal digits.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
