"""The page about the API names every route and every field that there is."""

from __future__ import annotations

import re
from pathlib import Path

from mineru_diffusion.serving.app import routes
from mineru_diffusion.serving.chat_types import ChatRequest

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")


def test_every_route_is_described() -> None:
    described = set(re.findall(r"(GET|POST|DELETE) (/[\w/{}.]*)", PAGE))
    there = {(m.upper(), path) for path, methods in routes().openapi()["paths"].items() for m in methods}
    assert {(method, path) for method, path in described if path != "/openapi.json"} == there


def test_every_field_of_a_chat_request_is_described() -> None:
    words = set(re.findall(r"`([\w.]+)`", PAGE)) | {"messages", "n"}
    assert not [name for name in ChatRequest.model_fields if name not in words and f"{name}." not in PAGE]
