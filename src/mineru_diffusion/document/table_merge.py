"""Tables that go on over the next page: is it the same one, and both parts as one grid."""

from __future__ import annotations

import re
from dataclasses import replace

from mineru_diffusion.document.html_tables import parse_html_table
from mineru_diffusion.document.tables import Cell, Table, table_to_html
from mineru_diffusion.document.types import Region

# How far the edges of two parts may differ, as a share of the page's width.
_EDGE = 0.06
# In brackets any abbreviation will do; bare, only what can mean nothing else.
_BRACKETED = (
    r"continued|cont(?:['’]?d|\.)|continuation|fortsetzung|forts\.|suite|continuación|continua|продолжение|"
    r"续表?|續表?|続き"
)
_BARE = r"continued|fortsetzung|продолжение|续表|續表|続き"
_CONTINUED = re.compile(
    rf"[\s,;:–—-]*(?:[(\[（【]\s*(?:{_BRACKETED})[^()\[\]]{{0,40}}[)\]）】]|\b(?:{_BARE}))[\s.:]*$", re.IGNORECASE
)


def join_if_one(first: Region, second: Region, *, captioned: bool) -> str | None:
    """The HTML of both tables as one, or None if the second is a table of its own.

    They are one when they have equally many columns and stand equally wide on their pages. The head that is printed
    again on the second page is left out.

    Args:
        first: the last thing in the body of its page; its content may be a joined table already.
        second: the first thing in the body of the next page.
        captioned: the second has a caption that does not say that it goes on.
    """
    if captioned or first.angle != second.angle:
        return None
    axes = (0, 2) if first.angle % 180 == 0 else (1, 3)
    if any(abs(first.bbox[axis] - second.bbox[axis]) > _EDGE for axis in axes):
        return None
    above, below = parse_html_table(first.content), parse_html_table(second.content)
    if above is None or below is None or above.n_cols != below.n_cols:
        return None
    return table_to_html(append_rows(above, below))


def append_rows(above: Table, below: Table) -> Table:
    """Two grids of equal width as one, the second's repeated head left out."""
    skipped = _repeated_head(above, below)
    moved = [replace(cell, row=cell.row - skipped + above.n_rows) for cell in below.cells if cell.row >= skipped]
    caption = " ".join(text for text in (above.caption, below.caption) if text)
    return Table(above.n_rows + below.n_rows - skipped, above.n_cols, (*above.cells, *moved), caption)


def _repeated_head(above: Table, below: Table) -> int:
    """How many rows at the top of `below` only repeat the top of `above`."""
    upper, lower = _said(above), _said(below)
    rows = 0
    while rows < min(len(upper), len(lower)) and upper[rows] == lower[rows] and any(upper[rows]):
        rows += 1
    # Rows that come again further down are data, such as a column of zeros; so is a table that is nothing but head.
    if rows == min(len(upper), len(lower)) or any(row in upper[rows:] for row in upper[:rows]):
        return 0
    while rows and any(cell.row < rows < cell.row + cell.row_span for cell in below.cells):
        rows -= 1
    return rows


def _said(table: Table) -> list[list[str]]:
    """Texts by position; a spanning cell counts where it begins, so that equal heads have equal shapes."""

    def text(cell: Cell, row: int, col: int) -> str:
        return " ".join(cell.text.split()) if (cell.row, cell.col) == (row, col) else "\0"

    return [[text(cell, r, c) for c, cell in enumerate(row)] for r, row in enumerate(table.grid())]


def says_it_goes_on(caption: str) -> bool:
    """True for captions such as `Table 2 (continued)`."""
    return bool(_CONTINUED.search(" ".join(caption.split())))


def repeats_caption(caption: str, first: str) -> bool:
    """True if a caption of the second part says nothing beyond the first part's caption and that it goes on."""
    bare = _CONTINUED.sub("", " ".join(caption.split())).rstrip(".: ")
    return " ".join(first.split()).startswith(bare)
