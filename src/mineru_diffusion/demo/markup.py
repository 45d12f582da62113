"""Small pieces of HTML that are safe where Gradio puts them: it fills templates in which braces and dollars count."""

from __future__ import annotations

import base64
import json
from html import escape
from typing import Any

_TEMPLATE = str.maketrans({"{": "&#123;", "}": "&#125;", "$": "&#36;", "`": "&#96;", "\\": "&#92;"})


def safe(text: object) -> str:
    """Text for HTML, attributes included."""
    return escape(str(text)).translate(_TEMPLATE)


def json_attribute(data: Any) -> str:
    """Data as an attribute's value: JSON in base64, which needs no escaping anywhere."""
    return base64.b64encode(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()).decode("ascii")


def data_uri(content: bytes, mime: str) -> str:
    """A file inside an attribute."""
    return f"data:{mime};base64,{base64.b64encode(content).decode('ascii')}"


def message(text: str, kind: str = "info") -> str:
    """A line that says how it goes. `kind`: `info`, or `error`, which is read out at once."""
    role = "alert" if kind == "error" else "status"
    return f'<div class="md-message md-{kind}" role="{role}">{safe(text)}</div>' if text else ""
