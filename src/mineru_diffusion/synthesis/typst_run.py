"""Typst beyond one grey picture: coloured pages of a longer document, and values queried from it."""

from __future__ import annotations

import io
import json
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.typst_engine import compiler


def draw_pages(source: str, ppi: float) -> list[NDArray[np.uint8]]:
    """The RGB pixels [H, W, 3] of every page, `ppi` pixels per inch.

    Raises:
        MissingExtra: typst is not installed.
        UsageError: typst refuses the source.
    """
    try:
        result = compiler().compile(source.encode(), format="png", ppi=ppi)
    except RuntimeError as error:
        raise UsageError(f"typst refuses a generated document: {error}") from error
    pages = result if isinstance(result, list) else [result]
    return [np.asarray(Image.open(io.BytesIO(page)).convert("RGB")) for page in pages]


def query(source: str, label: str) -> Any:
    """The value of the one metadata element with this label, e.g. `<truth>`.

    Raises:
        MissingExtra: typst is not installed.
        UsageError: typst refuses the source, or there is not exactly one such element.
    """
    compiler()  # raises where typst is missing
    import typst

    try:
        answer = typst.query(source.encode(), label, field="value", one=True, font_paths=_fonts())
    except RuntimeError as error:
        raise UsageError(f"typst cannot answer {label} on a generated document: {error}") from error
    return json.loads(answer)


@cache
def _fonts() -> Any:
    import typst

    return typst.Fonts()
