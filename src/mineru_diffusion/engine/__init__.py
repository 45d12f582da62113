"""Requests in, tokens out. The types load no torch; `load_engine` does, when it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mineru_diffusion.engine.types import CheckpointProfile, DecodingParams, Engine, Request, Result

if TYPE_CHECKING:
    from mineru_diffusion.engine.local import LocalEngine, load_engine

__all__ = ["CheckpointProfile", "DecodingParams", "Engine", "LocalEngine", "Request", "Result", "load_engine"]


def __getattr__(name: str) -> Any:
    if name in ("LocalEngine", "load_engine"):
        from mineru_diffusion.engine import local

        return getattr(local, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
