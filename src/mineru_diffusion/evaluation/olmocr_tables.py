"""Tables in a Markdown answer, and how their cells stand to each other, as olmOCR-bench asks about them.

In: Markdown with pipe tables and HTML tables. Out: grids, and for a cell its neighbours and headings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from mineru_diffusion.document.html_tables import parse_html_table
from mineru_diffusion.document.tables import Cell, Table
from mineru_diffusion.errors import MissingExtra

try:
    from lxml import etree, html
except ImportError as error:
    raise MissingExtra("scoring tables", "train") from error

Side = Literal["up", "down", "left", "right"]

_RULE = re.compile(r"[\s|:\-]+")
_PIPE = re.compile(r"(?<!\\)\|")


def tables_in(markdown: str) -> list[Table]:
    """All pipe tables, then all HTML tables. Headings are the first row and column of a pipe table, and in an HTML
    table the `th` cells and all of `thead`."""
    return [*_pipe_tables(markdown), *_html_tables(markdown)]


def _pipe_tables(markdown: str) -> Iterator[Table]:
    block: list[str] = []
    for line in [*markdown.strip().split("\n"), ""]:
        if "|" in line:
            block.append(line)
            continue
        rows = [_pipe_cells(row) for row in block if not _RULE.fullmatch(row)]
        rows = [row for row in rows if row]
        if len(block) >= 2 and rows:
            width = max(map(len, rows))
            cells = tuple(
                Cell(r, c, text=text, header=r == 0 or c == 0)
                for r, row in enumerate(rows)
                for c, text in enumerate(row + [""] * (width - len(row)))
            )
            yield Table(len(rows), width, cells)
        block = []


def _pipe_cells(line: str) -> list[str]:
    cells = [cell.strip().replace("\\|", "|") for cell in _PIPE.split(line)]
    cells = cells[1:] if cells[0] == "" else cells
    return cells[:-1] if cells and cells[-1] == "" else cells


def _html_tables(markdown: str) -> Iterator[Table]:
    if "<table" not in markdown.lower():
        return
    try:
        root = html.document_fromstring(markdown.encode("utf-8", "replace"), html.HTMLParser(encoding="utf-8"))
    except (etree.ParserError, ValueError):
        return
    for element in root.iter("table"):
        for cell in element.iterfind(".//thead//td"):
            cell.tag = "th"
        table = parse_html_table(html.tostring(element, encoding="unicode"))
        if table is not None:
            yield table


class Neighbours:
    """Who stands next to whom in a table."""

    def __init__(self, table: Table) -> None:
        self._grid = table.grid()
        self._table = table

    def beside(self, cell: Cell, side: Side) -> list[Cell]:
        """Cells that touch this one on one side; several where it spans."""
        last_row, last_col = cell.row + cell.row_span - 1, cell.col + cell.col_span - 1
        rows, cols = range(cell.row, last_row + 1), range(cell.col, last_col + 1)
        if side in ("up", "down"):
            row = cell.row - 1 if side == "up" else last_row + 1
            places = [(row, col) for col in cols] if 0 <= row < self._table.n_rows else []
        else:
            col = cell.col - 1 if side == "left" else last_col + 1
            places = [(row, col) for row in rows] if 0 <= col < self._table.n_cols else []
        return list(dict.fromkeys(self._grid[row][col] for row, col in places))

    def headings(self, cell: Cell, side: Literal["up", "left"]) -> list[Cell]:
        """Heading cells met on the way to the table's edge; without one, the cells at the edge."""
        headings: list[Cell] = []
        edge: list[Cell] = []
        seen = {cell}
        queue = [cell]
        while queue:
            current = queue.pop(0)
            if current is not cell and current.header:
                headings.append(current)
            following = self.beside(current, side)
            if not following and current is not cell:
                edge.append(current)
            queue += [c for c in following if c not in seen]
            seen.update(following)
        return headings or edge
