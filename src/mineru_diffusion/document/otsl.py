"""OTSL, the table language of the model: to a grid, to HTML, and back.

`<fcel>` opens a cell with text, `<ecel>` an empty one, `<lcel>` belongs to the cell on its left, `<ucel>` to the one
above, `<xcel>` to the one above and left (inside a block that spans both ways), `<nl>` ends a row. `<ched>`, `<rhed>`
and `<srow>`, which some writers use for header cells, are read as well.
"""

from __future__ import annotations

import re
from html import escape

from mineru_diffusion.document.html_tables import parse_html_table
from mineru_diffusion.document.tables import Cell, Table, table_to_html

FCEL, ECEL, LCEL, UCEL, XCEL, NL = "<fcel>", "<ecel>", "<lcel>", "<ucel>", "<xcel>", "<nl>"
_HEADERS = frozenset({"<ched>", "<rhed>", "<srow>"})
_SPANS = frozenset({LCEL, UCEL, XCEL})
_WRAPPING = re.compile(r"</?(?:otsl|table|tbody|thead|html|body|div)\b[^<>]*>|<\|[^<>|]*\|>", re.IGNORECASE)
_TOKEN = re.compile(r"<(?:fcel|ecel|lcel|ucel|xcel|nl|ched|rhed|srow)>")


def parse_otsl(text: str) -> Table | None:
    """An OTSL string as a grid, or None if it has no cell. Never raises and loses no text.

    Short rows are filled up with empty cells. Where tokens contradict each other, spans give way and cells stay:
    a span token that has nothing to belong to becomes an empty cell. Text after a span token is added to the cell
    that it belongs to, text between `<nl>` and the next cell to that cell, text before the first token is the
    caption. A row without any cell (`<nl><nl>`) is no row.
    """
    rows, caption, warnings = _split(text)
    if not rows:
        return None
    n_cols = max(len(row) for row in rows)
    if any(len(row) != n_cols for row in rows):
        warnings.append("rows of different length were filled up")
    tags = [[tag for tag, _ in row] + [ECEL] * (n_cols - len(row)) for row in rows]
    texts = [[content for _, content in row] + [""] * (n_cols - len(row)) for row in rows]
    taken = [[False] * n_cols for _ in rows]
    cells: list[Cell] = []
    for r, row_tags in enumerate(tags):
        for c, tag in enumerate(row_tags):
            if taken[r][c]:
                continue
            if tag in _SPANS:
                warnings.append(f"{tag} in row {r + 1}, column {c + 1} has no cell to belong to")
            row_span, col_span = _extent(tags, taken, r, c)
            said = []
            for row in range(r, r + row_span):
                for col in range(c, c + col_span):
                    taken[row][col] = True
                    if texts[row][col]:
                        said.append(texts[row][col])
            cells.append(Cell(r, c, row_span, col_span, " ".join(said), tag in _HEADERS))
    return Table(len(rows), n_cols, tuple(cells), caption, tuple(warnings))


def _split(text: str) -> tuple[list[list[tuple[str, str]]], str, list[str]]:
    """Rows of (token, text), the text before the first token, and warnings."""
    matches = list(_TOKEN.finditer(text))
    if not matches:
        return [], "", []
    warnings: list[str] = []
    caption = text[: matches[0].start()].strip()
    if caption and not _WRAPPING.sub("", caption).strip():
        caption = ""  # nothing but markup
    if caption:
        warnings.append("text before the first cell")
    rows: list[list[tuple[str, str]]] = []
    current: list[tuple[str, str]] = []
    stray = ""
    ends = [match.start() for match in matches[1:]] + [len(text)]
    for match, end in zip(matches, ends, strict=True):
        tag, content = match.group(), text[match.end() : end].strip()
        if tag == NL:
            if stray:
                current.append((FCEL, stray))
            if current:
                rows.append(current)
            current, stray = [], content
            if content:
                warnings.append(f"text outside of a cell after row {len(rows)}")
            continue
        current.append((tag, f"{stray} {content}".strip()))
        stray = ""
    if stray:
        current.append((FCEL, stray))
    if current:
        rows.append(current)
    return rows, caption, warnings


def _extent(tags: list[list[str]], taken: list[list[bool]], r: int, c: int) -> tuple[int, int]:
    """How many rows and columns the cell at (r, c) covers, by the span tokens around it."""
    n_cols = len(tags[r])
    col_span = 1
    # In the first row nothing is above, so that <xcel> can only mean the cell on its left.
    rightwards = {LCEL, XCEL} if r == 0 else {LCEL}
    while c + col_span < n_cols and tags[r][c + col_span] in rightwards and not taken[r][c + col_span]:
        col_span += 1
    row_span = 1
    while r + row_span < len(tags):
        below = slice(c, c + col_span)
        row_tags = tags[r + row_span][below]
        if row_tags[0] != UCEL or not _SPANS.issuperset(row_tags) or any(taken[r + row_span][below]):
            break
        row_span += 1
    return row_span, col_span


def table_to_otsl(table: Table, *, header_tokens: bool = False) -> str:
    """A grid in OTSL, every row closed by `<nl>`.

    Args:
        table: the grid.
        header_tokens: write header cells as `<ched>` instead of `<fcel>`.
    """
    out = [_harmless(table.caption)]
    for r, row in enumerate(table.grid()):
        for c, cell in enumerate(row):
            if (cell.row, cell.col) == (r, c):
                filled = "<ched>" if cell.header and header_tokens else FCEL if cell.text else ECEL
                out.append(filled + _harmless(cell.text))
            else:
                out.append(LCEL if cell.row == r else UCEL if cell.col == c else XCEL)
        out.append(NL)
    return "".join(out)


def _harmless(text: str) -> str:
    """Cell text that spells a token must not become one."""
    return _TOKEN.sub(lambda match: f"< {match.group()[1:]}", text)


def otsl_to_html(text: str) -> str:
    """The model's answer for a table as HTML; an HTML table passes as it is, other text comes back as text."""
    text = text.strip()
    if not _TOKEN.search(text):
        return text
    table = parse_otsl(text)
    if table is None:
        return _TOKEN.sub("", text).strip()
    # As the public implementation has it: a cell's line break stays a bare newline.
    return table_to_html(table, escape)


def html_to_otsl(html: str, *, header_tokens: bool = False) -> str:
    """The first table of an HTML string in OTSL.

    Raises:
        ValueError: there is no table with a cell.
    """
    table = parse_html_table(html)
    if table is None:
        raise ValueError("the HTML holds no table with a cell")
    return table_to_otsl(table, header_tokens=header_tokens)
