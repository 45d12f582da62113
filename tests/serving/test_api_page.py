"""The page about the API names every route and every field that there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

from mineru_diffusion.engine.types import Policy
from mineru_diffusion.serving.app import routes
from mineru_diffusion.serving.chat_types import ChatRequest

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")


def test_every_route_is_described() -> None:
    described = set(re.findall(r"(GET|POST|DELETE) (/[\w/{}.]*)", PAGE))
    there = {(m.upper(), path) for path, methods in routes().openapi()["paths"].items() for m in methods}
    assert {(method, path) for method, path in described if path != "/openapi.json"} == there


def test_every_field_of_a_request_is_described() -> None:
    """The other way round, the page's tables name no field that there is not."""
    words = set(re.findall(r"`([\w.]+)", PAGE)) | {"messages"}
    described = routes().openapi()
    names = {name for schema in _forms(described) for name in schema["properties"]} | set(ChatRequest.model_fields)
    assert not [name for name in names if name not in words and f"{name}." not in PAGE]
    rows = {name for row in re.findall(r"^\| (`.*?) \|", PAGE, re.M) for name in re.findall(r"`([a-z_]+)`", row)}
    values = set(get_args(Policy)) | {"stop_reason"}
    assert rows <= names | values


def _forms(described: dict[str, Any]) -> list[dict[str, Any]]:
    return [schema for name, schema in described["components"]["schemas"].items() if name.startswith("Body_")]
