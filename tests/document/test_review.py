from __future__ import annotations

import json

import jsonschema
import pytest
from PIL import Image

from mineru_diffusion.document.document_json import (
    SCHEMA_VERSION,
    document_from_dict,
    document_schema,
    document_to_json,
)
from mineru_diffusion.document.export_options import ExportOptions
from mineru_diffusion.document.overlay import draw_overlay
from mineru_diffusion.document.review import reasons_to_review, review_list
from mineru_diffusion.document.types import Document, Page, Region

BOX = (0.1, 0.1, 0.9, 0.5)


def sample() -> Document:
    first = (
        Region("title", BOX, 0, content="Sure", level=2, confidence=0.99),
        Region("text", BOX, 1, content="Unsure of infor-", confidence=0.8996, lines=(BOX,), line_texts=("x",)),
        Region("table", BOX, 2, content="x", confidence=0.95, finish_reason="length"),
        Region("image", BOX, 3),
        Region("image_caption", BOX, 4, content="C", warnings=("odd",), source={"layout": "model"}),
    )
    second = (Region("text", BOX, 0, content="mation that the page goes on with", confidence=0.3),)
    return Document("a.pdf", (Page(0, 10, 20, first), Page(1, 10, 20, second), Page(2, 0, 0, error="bad")))


def test_reasons() -> None:
    assert reasons_to_review(Region("text", BOX, confidence=0.9), 0.9) == ()
    assert reasons_to_review(Region("text", BOX, confidence=0.89996), 0.9) == ("confidence 0.899",)
    assert reasons_to_review(Region("image", BOX), 1.0) == ()
    assert reasons_to_review(Region("text", BOX, finish_reason="repetition"), 0.0) == ("reading ended by repetition",)
    both = Region("text", BOX, finish_reason="error", warnings=("could not be read",))
    assert reasons_to_review(both, 0.0) == ("could not be read",)


def test_list_begins_with_the_least_certain() -> None:
    assert [(item.page, item.order) for item in review_list(sample(), 0.9)] == [(1, 0), (0, 1), (0, 2), (0, 4)]
    assert [(item.page, item.order) for item in review_list(sample(), 0.0)] == [(0, 2), (0, 4)]


@pytest.mark.parametrize("options", [ExportOptions(), ExportOptions(review=0.9), ExportOptions(join_tables=False)])
def test_json_follows_its_published_schema(options: ExportOptions) -> None:
    schema = document_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    data = json.loads(document_to_json(sample(), options))
    jsonschema.validate(data, schema)
    assert data["schema_version"] == SCHEMA_VERSION == schema["properties"]["schema_version"]["const"]
    assert ("review" in data) == (options.review is not None)
    assert document_from_dict(data) == sample()
    # Every field that is written is described.
    assert set(data) <= set(schema["properties"])
    for name, thing in (("page", data["pages"][0]), ("region", data["pages"][0]["regions"][1])):
        assert set(thing) == set(schema["$defs"][name]["properties"])


@pytest.mark.parametrize(
    ("field", "value"), [("schema_version", 2), ("pages", {}), ("review", [{}]), ("blocks", [{"kind": "text"}])]
)
def test_schema_refuses_what_is_wrong(field: str, value: object) -> None:
    data = json.loads(document_to_json(sample()))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**data, field: value}, document_schema())


def test_blocks_say_what_is_joined_and_what_belongs_together() -> None:
    data = json.loads(document_to_json(sample()))
    assert data["blocks"] == [
        {"kind": "title", "regions": [{"page": 0, "order": 0}], "level": 2},
        {"kind": "text", "regions": [{"page": 0, "order": 1}]},
        {"kind": "table", "regions": [{"page": 0, "order": 2}]},
        {"kind": "image", "regions": [{"page": 0, "order": 3}], "captions": [{"page": 0, "order": 4}]},
        {"kind": "text", "regions": [{"page": 1, "order": 0}]},
    ]


def test_overlay_highlights_what_to_review() -> None:
    paper = Image.new("RGB", (300, 400), "white")
    page = Page(0, 300, 400, (Region("text", (0.2, 0.4, 0.8, 0.8), confidence=0.5),))
    plain, marked = (draw_overlay(paper, page, review=review).getpixel((150, 300)) for review in (None, 0.9))
    assert isinstance(plain, tuple)
    assert isinstance(marked, tuple)
    assert plain[2] > 240  # a hint of blue
    assert marked[2] < 200 < marked[0]  # yellow
    assert draw_overlay(paper, page, review=0.4).getpixel((150, 300)) == plain
