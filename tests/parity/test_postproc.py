"""Post-processing against recorded pairs: equal, except where the recorded behaviour loses or garbles content.

Each exception is listed by name with what we do instead, so that an unlisted difference fails.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mineru_diffusion.document.formulas import clean_formula, inline_display_math
from mineru_diffusion.document.layout_grammar import LayoutBox, parse_layout
from mineru_diffusion.document.markdown import document_to_markdown
from mineru_diffusion.document.otsl import otsl_to_html
from mineru_diffusion.document.types import Document, Page, Region

HERE = Path(__file__).parent


@cache
def pairs() -> dict[str, Any]:
    """The recorded pairs; found without the rest of the kit's helpers, which need torch."""
    named = os.environ.get("MINERU_DIFFUSION_PARITY_KIT")
    folders = [Path(named)] if named else []
    folders += [parent.parent / "shared" / "parity" for parent in HERE.parents if (parent / "pyproject.toml").is_file()]
    path = next((path for folder in folders if (path := folder / "postproc" / "postproc.json").is_file()), None)
    if path is None:
        pytest.skip("the parity kit is not here; set MINERU_DIFFUSION_PARITY_KIT")
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def table(*rows: str) -> str:
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def cells(*texts: str) -> str:
    return "".join(f"<td>{text}</td>" for text in texts)


#: Tables where both recorded implementations lose text or overlap cells, or disagree with each other.
TABLES = {
    # text is kept
    "text_before_first_token": "<table><caption>caption</caption><tr><td>a</td><td>b</td></tr></table>",
    "text_after_nl": table(cells("a", "b"), cells("stray c", "d")),
    "text_after_lcel": table('<td colspan="2">a stray</td><td>b</td>', cells("c", "d", "e")),
    "double_nl": table(cells("a", "b"), cells("c", "d")),
    "leading_nl": table(cells("a", "b")),
    "html_then_otsl": table(cells("a")),
    # no cell covers another
    "xcel_orphan": table(cells("a", "b"), cells("c", "")),
    "rowspan_overlap_colspan": table(cells("a", "b"), '<td colspan="2">c</td>', cells("", "d")),
    # every row has all columns
    "lcel_first": table(cells("", "a"), cells("b", "c")),
    "ucel_first_row": table(cells("", "a"), cells("b", "c")),
    "ucel_under_lcel": table('<td colspan="2">a</td>', cells("b", "")),
    # tokens without a cell are no text
    "only_nl": "",
}


def test_tables() -> None:
    different = {}
    for row in pairs()["otsl"]:
        ours = otsl_to_html(row["input"])
        if ours != row["run_end2end"]["out"]:
            different[row["name"]] = ours
    assert different == TABLES


#: Boxes that the recorded pipeline drops and that have one plausible reading: (kind, bbox, angle) as we read them.
BOXES = {
    "no_newline_between": [("title", (0.1, 0.2, 0.3, 0.4), 0), ("text", (0.1, 0.45, 0.9, 0.8), 0)],
    "over_1000": [("text", (0.1, 0.2, 1.0, 0.4), 0)],
    "extra_spaces": [("text", (0.1, 0.2, 0.3, 0.4), 0)],
    "comma_separated": [("text", (0.1, 0.2, 0.3, 0.4), 0)],
    "negative": [("text", (0.0, 0.002, 0.003, 0.004), 0)],
    "float_coords": [("text", (0.0015, 0.002, 0.003, 0.004), 0)],
    "spaces_in_tags": [("text", (0.001, 0.002, 0.003, 0.004), 0)],
    "hyphen_type": [("page_number", (0.001, 0.002, 0.03, 0.04), 0)],
    "type_with_space": [("image_caption", (0.001, 0.002, 0.03, 0.04), 0)],
    "empty_type": [("unknown", (0.001, 0.002, 0.03, 0.04), 0)],
    "prefix_garbage": [("text", (0.001, 0.002, 0.03, 0.04), 0)],
    "missing_ref_end": [("text", (0.001, 0.002, 0.03, 0.04), 0)],
    # the first rotation counts, not the first in a table of rotations
    "two_rotations": [("text", (0.001, 0.002, 0.03, 0.04), 270)],
}


def as_tuples(boxes: list[LayoutBox]) -> list[tuple[str, tuple[float, ...], int]]:
    return [(box.kind, box.bbox, box.angle) for box in boxes]


def test_layouts() -> None:
    different = {}
    for row in pairs()["layout"]:
        ours = as_tuples(parse_layout(row["input"]))
        recorded = [(box["type"], tuple(box["bbox"]), box["angle"] or 0) for box in row["run_end2end"]["out"]]
        if ours != recorded:
            different[row["name"]] = ours
    assert different == BOXES


def test_continuation_marks() -> None:
    for row in pairs()["layout"]:
        boxes, recorded = parse_layout(row["input"]), row["vl_utils"]["out"]
        if as_tuples(boxes) == [(box["type"], tuple(box["bbox"]), box["angle"] or 0) for box in recorded]:
            assert [box.continued for box in boxes] == [box.get("merge_prev", False) for box in recorded], row["name"]


def test_equations() -> None:
    for row in pairs()["wrap_equation"]:
        recorded = row["wrap_equation"]["out"]
        # Ours are kept without delimiters, whichever they came in; the recorded ones keep an inner pair.
        body = recorded.removeprefix("\\[").removesuffix("\\]").strip().strip("$")
        for mark in ("\\(", "\\)", "\\[ ", "\\]"):
            body = body.replace(mark, "") if "\\\\[" not in body else body
        assert clean_formula(row["input"]) == body.strip(), row["input"]


#: Formulas of which the recorded clean-up deletes a part.
FORMULAS = {r"\[ a_{1}_{2} \]": "a_{1}{}_{2}", "{ a": "{ a}"}


def test_whole_regions() -> None:
    different = {}
    for case in pairs()["vl_utils_post_process"]:
        if case["name"] in ("equation_block", "table_plain_text", "nontext"):
            continue  # one array of several formulas; content that is thrown away
        contents = [block["content"] for block in case["blocks"]]
        if case["kwargs"].get("abandon_paratext"):
            contents = [block["content"] for block in case["blocks"] if block["type"] != "header"]
        for content, block in zip(contents, case["result"]["out"]["blocks"], strict=True):
            recorded = block["content"]
            if block["type"] == "table":
                assert otsl_to_html(content) == recorded
            elif block["type"] == "equation":
                ours = clean_formula(content)
                if ours != recorded.removeprefix("\\[").removesuffix("\\]").strip():
                    different[content] = ours
            else:
                assert inline_display_math(content) == recorded
    assert different == FORMULAS


@pytest.mark.parametrize("name", ["merge_prev_en", "merge_prev_cjk", "merge_prev_across_table", "paratext"])
def test_markdown_of_continued_text(name: str) -> None:
    case = next(case for case in pairs()["vl_utils_post_process"] if case["name"] == name)
    regions = tuple(
        Region(
            block["type"],
            tuple(block["bbox"]),
            content=otsl_to_html(block["content"]),
            source={"continued": "layout"} if block.get("merge_prev") else {},
        )
        for block in case["blocks"]
    )
    ours = document_to_markdown(Document("x", (Page(0, 1, 1, regions),)))
    recorded = case["result"]["out"]["markdown"].replace("<table><tr><td>a</td></tr></table>", "| a |\n| --- |")
    assert ours == recorded + "\n"
