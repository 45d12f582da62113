"""HTML tables to grids: spans resolved, missing end tags and overlapping spans tolerated."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

from mineru_diffusion.document.tables import Cell, Table

# Limits of the HTML standard; they also keep a wild answer from filling the memory.
_MAX_COL_SPAN = 1000
_MAX_ROW_SPAN = 65534

_BREAKS = frozenset({"br", "p", "div", "li"})


@dataclass
class _RawCell:
    row_span: int
    col_span: int
    header: bool
    text: list[str] = field(default_factory=list)


class _TableReader(HTMLParser):
    """Collects the cells of the first table; tables inside it become text of their cell."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[list[_RawCell]] = []
        self.caption: list[str] = []
        self.depth = 0
        self.done = False
        self._sink: list[str] | None = None
        self._row_open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self.done:
            return
        if tag == "table":
            self.depth += 1
        elif self.depth == 1 and tag == "tr":
            self._open_row()
        elif self.depth == 1 and tag in ("td", "th"):
            if not self._row_open:
                self._open_row()
            values = dict(attrs)
            cell = _RawCell(
                _span(values.get("rowspan"), _MAX_ROW_SPAN), _span(values.get("colspan"), _MAX_COL_SPAN), tag == "th"
            )
            self.rows[-1].append(cell)
            self._sink = cell.text
        elif self.depth == 1 and tag == "caption":
            self._sink = self.caption
        elif self._sink is not None and (tag in _BREAKS or tag in ("td", "th", "tr")):
            self._sink.append("\n" if tag in _BREAKS else " ")

    def handle_endtag(self, tag: str) -> None:
        if self.done or not self.depth:
            return
        if tag == "table":
            self.depth -= 1
            self.done = self.depth == 0
        elif self.depth == 1 and tag in ("td", "th", "caption"):
            self._sink = None
        elif self.depth == 1 and tag in ("tr", "thead", "tbody", "tfoot"):
            self._sink, self._row_open = None, False

    def handle_data(self, data: str) -> None:
        if self.done or not self.depth:
            return
        # Text between cells would be shown above the table by a browser; it is kept with the caption.
        # A line break in the source is white space; only a `<br>` or paragraph breaks a line.
        (self.caption if self._sink is None else self._sink).append(data.replace("\n", " "))

    def _open_row(self) -> None:
        self.rows.append([])
        self._sink, self._row_open = None, True


def parse_html_table(html: str) -> Table | None:
    """The first table of an HTML string, or None if there is none with a cell. Never raises.

    Text is unescaped and its white space collapsed (line breaks of `<br>` and paragraphs kept). Spans that reach
    beyond the last row are cut; positions that no cell covers become empty cells.
    """
    reader = _TableReader()
    reader.feed(html)
    reader.close()
    n_rows = len(reader.rows)
    taken: set[tuple[int, int]] = set()
    cells: list[Cell] = []
    for row, raw_cells in enumerate(reader.rows):
        col = 0
        for raw in raw_cells:
            while (row, col) in taken:
                col += 1
            row_span = min(raw.row_span, n_rows - row)
            col_span = 1
            while col_span < raw.col_span and (row, col + col_span) not in taken:
                col_span += 1
            # A cell from above may have taken a position further down; the span ends before it.
            positions: list[tuple[int, int]] = []
            for r in range(row, row + row_span):
                line = [(r, c) for c in range(col, col + col_span)]
                if not taken.isdisjoint(line):
                    row_span = r - row
                    break
                positions += line
            taken.update(positions)
            cells.append(Cell(row, col, row_span, col_span, _clean(raw.text), raw.header))
            col += col_span
    if not cells:
        return None
    n_cols = max(col for _, col in taken) + 1
    cells += [Cell(r, c) for r in range(n_rows) for c in range(n_cols) if (r, c) not in taken]
    cells.sort(key=lambda cell: (cell.row, cell.col))
    return Table(n_rows, n_cols, tuple(cells), _clean(reader.caption))


def _span(value: str | None, limit: int) -> int:
    match = re.match(r"\s*(\d{1,9})", value or "", re.ASCII)
    return min(max(int(match[1]), 1), limit) if match else 1


def _clean(parts: list[str]) -> str:
    lines = (" ".join(line.split()) for line in "".join(parts).split("\n"))
    return "\n".join(line for line in lines if line)
