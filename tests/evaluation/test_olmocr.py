"""olmOCR-bench: each kind of test on Markdown that passes and Markdown that does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mineru_diffusion.document.tables import Cell
from mineru_diffusion.errors import UsageError
from mineru_diffusion.evaluation.olmocr import BenchTest, load_tests, markdown_files, normalise_text, score_tests
from mineru_diffusion.evaluation.olmocr_tables import Neighbours, tables_in

PIPES = """Before

| Fruit | Price | Stock |
| :--- | ---: | --- |
| Apple | 1.00 | 5 |
| Pear \\| Quince | 2.50 | 7 |
"""
SPANS = (
    "<table><thead><tr><td>Year</td><td colspan='2'>Sales</td></tr><tr><td></td><td>East</td><td>West</td></tr></thead>"
    "<tbody><tr><td rowspan='2'>2001</td><td>10</td><td>20</td></tr><tr><td>11</td><td>21</td></tr></tbody></table>"
)


def check(kind: str, markdown: str, **fields: Any) -> bool:
    return BenchTest("t", "a.pdf", 1, kind, {"type": kind, **fields}).passes(markdown)


def test_normal_form() -> None:
    assert normalise_text("**Bold** and *it* __x__ <b>y</b>\n\n“q” – ‘r’<br/>z") == "Bold and it x y \"q\" - 'r' z"


def test_present_and_absent_are_opposites() -> None:
    for markdown, there in (("a *quick*\nbrown  fox", True), ("a quick red fox", False), ("", False), ("q", False)):
        assert check("present", markdown, text="quick brown") is there
        assert check("absent", markdown, text="quick brown") is not there


def test_allowed_differences() -> None:
    assert not check("present", "the qvick brown fox", text="quick brown")
    # One substitution in 11 characters: rapidfuzz's ratio counts it as two edits of 22.
    assert check("present", "the qvick brown fox", text="quick brown", max_diffs=1)
    assert not check("present", "the qvikk brovn fox", text="quick brown", max_diffs=1)


def test_case_and_place() -> None:
    assert not check("present", "Quick Brown", text="quick brown")
    assert check("present", "Quick Brown", text="quick brown", case_sensitive=False)
    page = "Title " + "x" * 100 + " 12"
    assert check("present", page, text="Title", first_n=10)
    assert not check("present", page, text="Title", last_n=10)
    assert check("absent", page, text="12", first_n=50)
    assert check("present", page, text="12", first_n=5, last_n=5)


def test_order() -> None:
    page = "First part. Second part. First again."
    assert check("order", page, before="First part", after="Second part")
    assert not check("order", page, before="Second part", after="First part")
    assert check("order", page, before="Second part", after="First")
    assert not check("order", page, before="First part", after="Third part")
    assert check("order", page, before="Frst part", after="Second part", max_diffs=1)


@pytest.mark.parametrize(
    ("fields", "passes"),
    [
        ({"cell": "1.00"}, True),
        ({"cell": "9.00"}, False),
        ({"cell": "1.00", "left": "Apple", "right": "5", "up": "Price", "down": "2.50"}, True),
        ({"cell": "1.00", "left": "Pear"}, False),
        ({"cell": "7", "top_heading": "Stock", "left_heading": "Pear | Quince"}, True),
        ({"cell": "7", "top_heading": "Price"}, False),
        ({"cell": "2.50", "down": "x"}, False),
    ],
)
def test_cells_of_pipe_tables(fields: dict[str, str], passes: bool) -> None:
    assert check("table", PIPES, **fields) is passes


@pytest.mark.parametrize(
    ("fields", "passes"),
    [
        ({"cell": "21", "top_heading": "Sales"}, True),
        ({"cell": "21", "top_heading": "West"}, True),
        ({"cell": "21", "top_heading": "East"}, False),
        ({"cell": "21", "up": "20", "left": "11"}, True),
        ({"cell": "11", "left": "2001", "up": "10"}, True),
        ({"cell": "Sales", "down": "West"}, True),
        ({"cell": "21", "left_heading": "2001"}, True),
    ],
)
def test_cells_of_tables_with_spans(fields: dict[str, str], passes: bool) -> None:
    assert check("table", f"Text.\n\n{SPANS}\n", **fields) is passes


def test_tables_are_found_wherever_they_are() -> None:
    found = tables_in(f"{PIPES}\n{SPANS}\n{SPANS}")
    assert [(t.n_rows, t.n_cols) for t in found] == [(3, 3), (4, 3), (4, 3)]
    assert tables_in("a | b\n\nno table") == []
    assert tables_in("<table>\x00</table>") == []
    neighbours = Neighbours(found[1])
    corner = found[1].grid()[0][0]
    assert neighbours.beside(corner, "up") == []
    assert neighbours.headings(corner, "left") == []
    sales = Cell(0, 1, 1, 2, "Sales", True)
    assert [cell.text for cell in neighbours.beside(sales, "down")] == ["East", "West"]


@pytest.mark.parametrize(
    ("markdown", "passes"),
    [
        (r"so $e^{i\pi} + 1 = 0$ holds", True),
        ("$$\n e^{i \\pi}+1=0 \n$$", True),
        (r"\(e^{i \pi}+1=0\)", True),
        (r"\[ \text{Euler: } \left. e^{i\pi}+1=0 \right. \]", True),
        (r"$e^{i\pi} - 1 = 0$", False),
        (r"e^{i\pi} + 1 = 0", False),
        ("", False),
    ],
)
def test_formulas(markdown: str, passes: bool) -> None:
    assert check("math", markdown, math=r"e^{i \pi}+1=0") is passes


def write_tests(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("\n\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return path


def test_a_run_counts_by_type_and_names_what_is_missing(tmp_path: Path) -> None:
    shared = {"pdf": "a.pdf", "page": 2}
    tests = write_tests(
        tmp_path / "tests.jsonl",
        {"id": "1", "type": "present", "text": "here", **shared},
        {"id": "2", "type": "present", "text": "gone", **shared},
        {"id": "3", "type": "absent", "text": "gone", **shared},
        {"id": "4", "type": "math", "math": "x", "pdf": "deep/b.pdf", "page": 1},
        {"id": "5", "type": "absent", "text": "x", "pdf": "c.pdf", "page": 1},
    )
    out = tmp_path / "out"
    (out / "x").mkdir(parents=True)
    (out / "a.md").write_text("the whole document")
    (out / "a_pg2_repeat1.md").write_text("it is here")
    (out / "x" / "set-b.md").write_text("$x$")
    score = score_tests(load_tests(tests), markdown_files(out))
    assert {k: (score.passed[k], n) for k, n in score.total.items() if n} == {
        "present": (1, 2),
        "absent": (1, 1),
        "math": (1, 1),
    }
    assert score.failed == ("2",)
    assert score.missing == ("c.pdf",)


def test_bad_input_is_said_with_its_place(tmp_path: Path) -> None:
    good = {"id": "1", "pdf": "a.pdf", "page": 1, "type": "order", "before": "a", "after": "b"}
    for bad in ({**good, "type": "smell"}, {**good, "after": " "}, {"id": "1"}, {**good, "page": "x"}):
        with pytest.raises(UsageError, match=r"tests\.jsonl, line 3"):
            load_tests(write_tests(tmp_path / "tests.jsonl", good, bad))
    with pytest.raises(UsageError, match="cannot be read"):
        load_tests(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="no Markdown"):
        markdown_files(tmp_path)
