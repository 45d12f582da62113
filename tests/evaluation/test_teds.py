"""TEDS: values worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mineru_diffusion.document.tables import table_from_rows, table_to_html
from mineru_diffusion.evaluation.tables import mean_teds, teds

# 2 x 2: two rows and four cells are six nodes without the root.
SQUARE = "<table><tr><td>uv</td><td>cd</td></tr><tr><td>ef</td><td>gh</td></tr></table>"


def test_identical_tables_are_alike() -> None:
    assert teds(SQUARE, SQUARE) == 1
    assert teds("<table></table>", "<table></table>") == 1


def test_one_wrong_cell() -> None:
    # Half of one cell's text is wrong: a renaming for 0.5, of 6 nodes.
    assert teds(SQUARE.replace("uv", "xv"), SQUARE) == pytest.approx(1 - 0.5 / 6)
    assert teds(SQUARE.replace("uv", ""), SQUARE) == pytest.approx(1 - 1 / 6)
    assert teds(SQUARE.replace("uv", "xv"), SQUARE, structure_only=True) == 1


def test_a_changed_span_costs_the_whole_cell() -> None:
    spanned = SQUARE.replace("<td>uv", '<td colspan="2">uv')
    assert teds(spanned, SQUARE) == pytest.approx(1 - 1 / 6)
    assert teds(spanned, SQUARE, structure_only=True) == pytest.approx(1 - 1 / 6)
    assert teds(SQUARE.replace("<td>uv", '<td colspan="1" rowspan="x">uv'), SQUARE) == 1


def test_missing_and_extra_parts() -> None:
    row = "<table><tr><td>uv</td><td>cd</td></tr></table>"
    # A row with two cells is missing: 3 of 6 nodes; the same the other way round.
    assert teds(row, SQUARE) == pytest.approx(0.5)
    assert teds(SQUARE, row) == pytest.approx(0.5)
    # One cell too many: one insertion, of 7 nodes.
    assert teds(SQUARE.replace("</tr></table>", "<td></td></tr></table>"), SQUARE) == pytest.approx(1 - 1 / 7)


def test_markup_around_the_cells_does_not_count() -> None:
    dressed = (
        "<p>see</p><table class='a'><caption>T</caption><thead><tr><th><b>u</b>v</th><th>cd</th></tr></thead>"
        "<tbody><tr><td>\n ef </td><td>gh</td></tr></tbody></table><table><tr><td>other</td></tr></table>"
    )
    assert teds(dressed, SQUARE) == 1


def test_malformed_html_is_read_as_far_as_it_goes() -> None:
    assert teds("<table><tr><td>uv<td>cd<tr><td>ef<td>gh", SQUARE) == 1
    assert teds("<tr><td>uv</td></tr>", SQUARE) == 0
    assert teds("<table><tr><td>a < b & c</td></tr>", "<table><tr><td>a &lt; b &amp; c</td></tr></table>") == 1
    for nothing in ("", " ", "\x00", "<", "plain words"):
        assert teds(nothing, SQUARE) == 0
    with pytest.raises(ValueError, match="no table"):
        teds(SQUARE, "plain words")


def test_the_mean_is_over_tables() -> None:
    assert mean_teds([SQUARE, ""], [SQUARE, SQUARE]) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="no table to compare"):
        mean_teds([], [])


@given(st.text(max_size=60))
def test_any_answer_gets_a_score(answer: str) -> None:
    assert 0 <= teds("<table>" + answer, SQUARE) <= 1


@settings(max_examples=30)
@given(st.lists(st.lists(st.text("ab<&", max_size=3), min_size=2, max_size=3), min_size=1, max_size=3))
def test_our_own_html_equals_itself(rows: list[list[str]]) -> None:
    table = table_to_html(table_from_rows(rows))
    assert teds(table, table) == 1
    assert teds(table, SQUARE) == pytest.approx(teds(SQUARE, table))
