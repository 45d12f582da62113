"""What a demo may cost and where it looks, in one record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mineru_diffusion.serving.settings import MIB


@dataclass(frozen=True)
class DemoSettings:
    """Limits of a running demo.

    Attributes:
        max_upload_bytes: size of an uploaded file at most.
        max_image_pixels: image files with more pixels are refused before they are decoded.
        max_pages: pages of a document that can be chosen; the others are not read.
        dpi: resolution at which PDF pages are rendered.
        max_queue: people waiting for the engine at most.
        rounds: turns of each reader in a comparison; the best one counts.
        session_seconds: an idle visitor's files are removed after so long.
        max_sessions: visitors whose files are kept; above, the longest idle one has to go.
        examples: documents that can be picked instead of uploading one.
    """

    max_upload_bytes: int = 32 * MIB
    max_image_pixels: int = 50_000_000
    max_pages: int = 50
    dpi: float = 200
    max_queue: int = 16
    rounds: int = 3
    session_seconds: float = 3600
    max_sessions: int = 64
    examples: tuple[Path, ...] = ()


def example_files() -> tuple[Path, ...]:
    """The examples: from the installed package, or from the repository that the package is used from."""
    package = Path(__file__).parents[1]
    for folder in (package / "examples", package.parents[1] / "examples"):
        found = sorted(p for p in folder.glob("*") if p.suffix in (".pdf", ".png", ".jpg"))
        if found:
            return tuple(found)
    return ()
