"""What kind of body a route takes: another one is 415, and the answer says which it should be."""

from __future__ import annotations

from fastapi import Request

from mineru_diffusion.serving.errors import ApiError


def json_only(request: Request) -> None:
    """Raise ApiError (415) unless the body says that it is JSON."""
    kind = _kind(request)
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise _unsupported(kind, "application/json")


def form_only(request: Request) -> None:
    """Raise ApiError (415) unless the body says that it is a form with files."""
    kind = _kind(request)
    if kind != "multipart/form-data":
        raise _unsupported(kind, "multipart/form-data")


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _unsupported(kind: str, wanted: str) -> ApiError:
    message = f"the body must be {wanted}, its Content-Type says {kind[:100] or 'nothing'}"
    return ApiError(415, message, code="unsupported_media_type")
