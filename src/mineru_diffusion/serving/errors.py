"""Errors on the wire: one exception, OpenAI's JSON shape, and what our own errors become."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from mineru_diffusion.errors import MinerUDiffusionError, MissingExtra, RequestTooLarge, SourceError, UsageError

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class ApiError(HTTPException):
    """An answer other than 200.

    Args:
        status: HTTP status.
        message: what is wrong and what helps, for the caller.
        code: a word for programs, such as `model_not_found`.
        param: the field at fault.
        retry_after: seconds after which trying again makes sense.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        headers = {}
        if retry_after is not None:
            headers["Retry-After"] = str(retry_after)
        if status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        super().__init__(status, message, headers)
        self.code = code
        self.param = param

    def body(self) -> dict[str, Any]:
        """`{"error": {...}}` as OpenAI's servers write it."""
        kind = _TYPES.get(self.status_code, "server_error")
        return {"error": {"message": self.detail, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        """The answer itself."""
        return JSONResponse(self.body(), self.status_code, self.headers)


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """400: the request itself is wrong."""
    return ApiError(400, message, param=param, code=code)


def busy(message: str, retry_after: int) -> ApiError:
    """429: try again later."""
    return ApiError(429, message, code="overloaded", retry_after=retry_after)


def from_ours(error: MinerUDiffusionError, param: str | None = None) -> ApiError:
    """What one of the package's errors means to a client. File names are said without their folders.

    Args:
        error: of the package.
        param: the field at fault, if it is one's.
    """
    if isinstance(error, SourceError):
        where = f"page {error.page}: " if error.page is not None else ""
        cure = f" ({error.cure})" if error.cure else ""
        return bad_request(f"{error.path.name}: {where}{error.cause}{cure}", code="unreadable_document")
    if isinstance(error, RequestTooLarge):
        return bad_request(str(error), code="context_length_exceeded")
    if isinstance(error, (UsageError, MissingExtra)):
        return bad_request(str(error), param)
    return ApiError(500, str(error), code="engine_error")
