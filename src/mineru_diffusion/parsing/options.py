"""How documents are parsed: one frozen record that the library call, the command line and the server all build."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

from mineru_diffusion.document.source_types import DEFAULT_MAX_IMAGE_PIXELS
from mineru_diffusion.engine.types import DecodingParams, Policy
from mineru_diffusion.errors import UsageError

POLICIES: tuple[str, ...] = get_args(Policy)


@dataclass(frozen=True)
class ParseOptions:
    """Options of a run.

    Attributes:
        pages: 1-based, inclusive page range such as `2-5`; None for all pages.
        password: for encrypted PDFs.
        dpi: resolution at which PDF pages are rendered.
        max_image_pixels: larger image files are refused before they are decoded.
        decoding: how every crop is decoded.
        window: pages in flight at a time; bounds memory. Larger fills the engine better.
        jobs: processes that render pages and find their layout; 1: a thread of this process does. The script that
            asks for more needs the usual `if __name__ == "__main__":`.
    """

    pages: str | None = None
    password: str | None = None
    dpi: float = 200
    max_image_pixels: int = DEFAULT_MAX_IMAGE_PIXELS
    decoding: DecodingParams = field(default_factory=DecodingParams)
    window: int = 8
    jobs: int = 1

    def __post_init__(self) -> None:
        if not self.dpi > 0:
            raise UsageError(f"the resolution must be positive, not {self.dpi} dpi")
        if self.max_image_pixels < 1:
            raise UsageError(f"the pixel limit must be positive, not {self.max_image_pixels}")
        if self.window < 1:
            raise UsageError(f"at least one page must be in flight, not {self.window}")
        if self.jobs < 1:
            raise UsageError(f"at least one job must prepare pages, not {self.jobs}")


def decoding_params(
    *, policy: str | None = None, threshold: float | None = None, max_tokens: int | None = None
) -> DecodingParams:
    """Checked decoding parameters; None leaves a choice to the checkpoint.

    Raises:
        UsageError: an unknown policy or a number out of range.
    """
    if policy is not None and policy not in POLICIES:
        raise UsageError(f"unknown policy {policy!r}; choose one of {', '.join(POLICIES)}")
    if threshold is not None and not 0 < threshold <= 1:
        raise UsageError(f"the threshold must lie in (0, 1], not {threshold}")
    if max_tokens is not None and max_tokens < 1:
        raise UsageError(f"max_tokens must be at least 1, not {max_tokens}")
    return DecodingParams(policy=policy, threshold=threshold, max_tokens=max_tokens)  # type: ignore[arg-type]
