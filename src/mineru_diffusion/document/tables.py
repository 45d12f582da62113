"""A table as a rectangular grid of cells with spans, and the same as HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Cell:
    """One cell: where its top left corner is (from 0), how far it reaches, and what it says (plain text)."""

    row: int
    col: int
    row_span: int = 1
    col_span: int = 1
    text: str = ""
    header: bool = False


@dataclass(frozen=True)
class Table:
    """Cells that tile `n_rows` x `n_cols` exactly, in reading order.

    `caption` is text that belongs to no cell; `warnings` say what had to be repaired.
    """

    n_rows: int
    n_cols: int
    cells: tuple[Cell, ...]
    caption: str = ""
    warnings: tuple[str, ...] = ()

    def grid(self) -> list[list[Cell]]:
        """Rows of cells, `n_rows` x `n_cols`; a cell that spans is at every position it covers."""
        owners: dict[tuple[int, int], Cell] = {}
        for cell in self.cells:
            for row in range(cell.row, cell.row + cell.row_span):
                for col in range(cell.col, cell.col + cell.col_span):
                    owners[row, col] = cell
        return [[owners[row, col] for col in range(self.n_cols)] for row in range(self.n_rows)]

    @property
    def has_spans(self) -> bool:
        """True if any cell covers more than one position."""
        return any(cell.row_span > 1 or cell.col_span > 1 for cell in self.cells)


def escape_cell(text: str) -> str:
    """A cell's text as HTML; line breaks of its own stay line breaks."""
    return "<br>".join(escape(line) for line in text.split("\n"))


def table_to_html(table: Table, render: Callable[[str], str] = escape_cell) -> str:
    """The table as one line of HTML; `render` makes HTML of the text of a cell or caption."""
    rows: list[list[str]] = [[] for _ in range(table.n_rows)]
    for cell in table.cells:
        tag = "th" if cell.header else "td"
        spans = f' rowspan="{cell.row_span}"' if cell.row_span > 1 else ""
        spans += f' colspan="{cell.col_span}"' if cell.col_span > 1 else ""
        rows[cell.row].append(f"<{tag}{spans}>{render(cell.text)}</{tag}>")
    caption = f"<caption>{render(table.caption)}</caption>" if table.caption else ""
    body = "".join("<tr>" + "".join(row) + "</tr>" for row in rows)
    return f"<table>{caption}{body}</table>"


def table_from_rows(rows: Sequence[Sequence[str]], *, header_rows: int = 0) -> Table:
    """A table without spans; short rows are filled up with empty cells."""
    n_cols = max((len(row) for row in rows), default=0)
    cells = tuple(
        Cell(r, c, text=row[c] if c < len(row) else "", header=r < header_rows)
        for r, row in enumerate(rows)
        for c in range(n_cols)
    )
    return Table(len(rows), n_cols, cells)
