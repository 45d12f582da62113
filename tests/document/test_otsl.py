from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mineru_diffusion.document.html_tables import parse_html_table
from mineru_diffusion.document.otsl import html_to_otsl, otsl_to_html, parse_otsl, table_to_otsl
from mineru_diffusion.document.tables import Cell, Table, table_from_rows, table_to_html

TOKENS = ["<fcel>", "<ecel>", "<lcel>", "<ucel>", "<xcel>", "<nl>"]
word = st.text(alphabet="ab<>&\"'|表0 \\", max_size=5).map(str.strip)


def assert_tiles(table: Table) -> None:
    """Every position belongs to exactly one cell."""
    covered = [
        (row, col)
        for cell in table.cells
        for row in range(cell.row, cell.row + cell.row_span)
        for col in range(cell.col, cell.col + cell.col_span)
    ]
    assert sorted(covered) == [(row, col) for row in range(table.n_rows) for col in range(table.n_cols)]
    assert list(table.cells) == sorted(table.cells, key=lambda cell: (cell.row, cell.col))


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Random tilings: spans are placed wherever they fit."""
    n_rows, n_cols = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    free = {(row, col) for row in range(n_rows) for col in range(n_cols)}
    cells = []
    for row in range(n_rows):
        for col in range(n_cols):
            if (row, col) not in free:
                continue
            row_span = draw(st.integers(1, n_rows - row))
            col_span = draw(st.integers(1, n_cols - col))
            area = {(r, c) for r in range(row, row + row_span) for c in range(col, col + col_span)}
            if not area <= free:
                row_span, col_span, area = 1, 1, {(row, col)}
            free -= area
            cells.append(Cell(row, col, row_span, col_span, " ".join(draw(word).split())))
    return Table(n_rows, n_cols, tuple(cells))


@given(tables())
def test_otsl_round_trip(table: Table) -> None:
    assert parse_otsl(table_to_otsl(table)) == table


@given(tables())
def test_html_round_trip(table: Table) -> None:
    assert parse_html_table(table_to_html(table)) == table
    assert otsl_to_html(html_to_otsl(table_to_html(table))) == table_to_html(table)


@given(st.lists(st.sampled_from(TOKENS) | st.sampled_from(["w1", "w2", " ", "<b>"]), max_size=30).map("".join))
def test_malformed_otsl_keeps_every_word_in_a_rectangle(text: str) -> None:
    table = parse_otsl(text)
    if table is None:
        assert not re.search("<[felux]cel>", text)
        return
    assert_tiles(table)
    said = table.caption + " ".join(cell.text for cell in table.cells)
    for piece in ("w1", "w2"):
        assert said.count(piece) == text.count(piece)


TAGS = ["<tr>", "<td>", "</td>", "<td rowspan=3>", "<td colspan='2'>", "</tr>", "<table>", "</table>", "x", "<th>"]
TAGS += ["<td colspan=99999999>", "<caption>", "<!--", "&lt;"]


@given(st.lists(st.sampled_from(TAGS), max_size=25).map(lambda parts: "<table>" + "".join(parts)))
def test_malformed_html_gives_a_rectangle(html: str) -> None:
    table = parse_html_table(html)
    if table is not None:
        assert_tiles(table)


@pytest.mark.parametrize(
    ("otsl", "grid"),
    [
        ("lost <fcel>a<fcel>b<nl>", [["a", "b"]]),
        ("<fcel>a<fcel>b<nl><nl><fcel>c<fcel>d<nl>", [["a", "b"], ["c", "d"]]),
        ("<nl><fcel>a<fcel>b", [["a", "b"]]),
        ("<fcel>a<fcel>b<nl>stray<fcel>c<fcel>d", [["a", "b"], ["stray c", "d"]]),
        ("<fcel>a<fcel>b<nl>tail", [["a", "b"], ["tail", ""]]),
        ("<fcel>a<lcel>more", [["a more", "a more"]]),
        ("<ecel>text<fcel>b", [["text", "b"]]),
        ("<ucel>u<fcel>a<nl><lcel>l<fcel>b", [["u", "a"], ["l", "b"]]),
        ("<fcel>a<fcel>b<nl><fcel>c<xcel>", [["a", "b"], ["c", ""]]),
        ("<fcel>a<fcel>b<fcel>c<nl><fcel>d<nl>", [["a", "b", "c"], ["d", "", ""]]),
        ("<ched>h<fcel>b", [["h", "b"]]),
    ],
)
def test_repairs(otsl: str, grid: list[list[str]]) -> None:
    table = parse_otsl(otsl)
    assert table is not None
    assert [[cell.text for cell in row] for row in table.grid()] == grid


def test_what_was_repaired_is_said() -> None:
    table = parse_otsl("lost <fcel>a<fcel>b<nl><ucel><fcel>c<nl><lcel>")
    assert table is not None
    assert table.caption == "lost"
    assert len(table.warnings) == 3
    clean = parse_otsl("<fcel>a<lcel><nl><ucel><xcel><nl>")
    assert clean is not None
    assert clean.warnings == ()


def test_empty_columns_are_kept() -> None:
    table = parse_otsl("<fcel>a<ecel><ecel><nl><fcel>b<ecel><ecel><nl>")
    assert table is not None
    assert (table.n_rows, table.n_cols) == (2, 3)
    assert table_to_html(table).count("<td></td>") == 4


def test_empty_form_stays_a_form() -> None:
    html = otsl_to_html(("<ecel>" * 4 + "<nl>") * 40)
    assert html.count("<tr>") == 40
    assert html.count("<td></td>") == 160


def test_cells_cannot_smuggle_tokens_or_markup() -> None:
    table = table_from_rows([["<nl>", "<script>"]])
    back = parse_otsl(table_to_otsl(table))
    assert back is not None
    assert (back.n_rows, back.n_cols) == (1, 2)
    assert "<script>" not in otsl_to_html("<fcel><script>x</script>")


def test_headers() -> None:
    table = parse_html_table("<table><thead><tr><th>h</th></tr></thead><tr><td>x</table>")
    assert table is not None
    assert [cell.header for cell in table.cells] == [True, False]
    assert table_to_otsl(table, header_tokens=True) == "<ched>h<nl><fcel>x<nl>"
    assert parse_otsl(table_to_otsl(table, header_tokens=True)) == table


def test_html_text_is_unescaped_and_cleaned() -> None:
    inner = "<table><tr><td>in</td></tr></table>"
    row = f"<tr><td> a &amp;\n b<br>c </td><td><b>d</b>{inner}</td></tr>"
    html = f"<p>no</p><table><caption> C </caption>{row}</table><table><tr><td>second"
    table = parse_html_table(html)
    assert table is not None
    assert [cell.text for cell in table.cells] == ["a & b\nc", "d in"]
    assert table.caption == "C"


def test_wild_spans_are_cut() -> None:
    table = parse_html_table(
        "<table><tr><td rowspan=70000 colspan=x>a</td><td rowspan=0>b</td></tr><tr><td>c</td></tr></table>"
    )
    assert table is not None
    assert_tiles(table)
    assert table.cells[0].row_span == 2


def test_no_table() -> None:
    assert parse_html_table("<p>x</p>") is None
    assert parse_html_table("<table></table>") is None
    assert parse_otsl("plain") is None
    assert otsl_to_html(" plain ") == "plain"
    with pytest.raises(ValueError, match="no table"):
        html_to_otsl("plain")
