"""Document OCR by block-wise masked diffusion: PDFs and images to Markdown and structured JSON.

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mineru_diffusion.document.types import Document, Page, Region
    from mineru_diffusion.engine import load_engine
    from mineru_diffusion.errors import (
        CheckpointError,
        EngineError,
        MinerUDiffusionError,
        MissingExtra,
        PasswordRequired,
        RequestTooLarge,
        SourceError,
        UsageError,
    )
    from mineru_diffusion.parsing import Outcome, ParseOptions, parse, parse_many

    __version__: str

_HOME = {
    **dict.fromkeys(("Document", "Page", "Region"), "document.types"),
    **dict.fromkeys(
        (
            "CheckpointError",
            "EngineError",
            "MinerUDiffusionError",
            "MissingExtra",
            "PasswordRequired",
            "RequestTooLarge",
            "SourceError",
            "UsageError",
        ),
        "errors",
    ),
    **dict.fromkeys(("Outcome", "ParseOptions", "parse", "parse_many"), "parsing"),
    "load_engine": "engine",
}

__all__ = [
    "CheckpointError",
    "Document",
    "EngineError",
    "MinerUDiffusionError",
    "MissingExtra",
    "Outcome",
    "Page",
    "ParseOptions",
    "PasswordRequired",
    "Region",
    "RequestTooLarge",
    "SourceError",
    "UsageError",
    "__version__",
    "load_engine",
    "parse",
    "parse_many",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("mineru-diffusion")
        except PackageNotFoundError:
            return "0+unknown"
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
