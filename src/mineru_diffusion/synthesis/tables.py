"""Random tables: a valid tiling of cells with texts, header rows and alignments, and the truth for it in OTSL.

In: a random generator. Out: TableSpec. How a table is drawn is another matter (`table_typst`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mineru_diffusion.document.otsl import otsl_to_html, table_to_otsl
from mineru_diffusion.document.tables import Cell, Table
from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.cells import CellSampler, Column, pick
from mineru_diffusion.synthesis.words import has_held_out, letter_runs

ALIGNMENTS = ("left", "center", "right")
_TRIES = 200


@dataclass(frozen=True)
class TableSpec:
    """What a table says and how its cells lie.

    Attributes:
        n_rows, n_cols: size of the grid.
        cells: tile the grid exactly, in reading order; texts are single lines of CHARSET characters. `Cell.header` is
            not used: OTSL, the target, does not tell header cells from others.
        header_rows: how many rows on top are headings; what spans into another row ends with them.
        aligns: "left", "center" or "right" for each column's body cells.
        wrapped: for each column, whether its text is meant to be broken into lines.

    Raises:
        UsageError: the cells do not tile the grid, some row or column is made of spans only (no picture could show
            it), or the lengths of `aligns` and `wrapped` are wrong.
    """

    n_rows: int
    n_cols: int
    cells: tuple[Cell, ...]
    header_rows: int
    aligns: tuple[str, ...]
    wrapped: tuple[bool, ...]

    def __post_init__(self) -> None:
        covered = [
            (r, c)
            for cell in self.cells
            for r in range(cell.row, cell.row + cell.row_span)
            for c in range(cell.col, cell.col + cell.col_span)
        ]
        if sorted(covered) != [(r, c) for r in range(self.n_rows) for c in range(self.n_cols)]:
            raise UsageError(f"the cells of a table do not tile its {self.n_rows} x {self.n_cols} grid: {self.cells}")
        if {cell.row for cell in self.cells} != set(range(self.n_rows)):
            raise UsageError(f"a row of the table has no cell of its own: {self.cells}")
        if {cell.col for cell in self.cells} != set(range(self.n_cols)):
            raise UsageError(f"a column of the table has no cell of its own: {self.cells}")
        if not len(self.aligns) == len(self.wrapped) == self.n_cols:
            raise UsageError(f"a table of {self.n_cols} columns needs as many entries in `aligns` and `wrapped`")

    @classmethod
    def random(
        cls,
        rng: np.random.Generator,
        *,
        max_rows: int = 12,
        max_cols: int = 8,
        sampler: CellSampler | None = None,
        wild: float = 0.15,
    ) -> TableSpec:
        """Draw a table.

        Args:
            rng: its state decides everything.
            max_rows, max_cols: largest grid; at least 2 x 2. Up to 20 x 12 is sensible.
            sampler: where texts come from; by default the training split's words.
            wild: share of tables whose cells are merged at random, instead of as authors do.

        Raises:
            UsageError: a maximum under 2.
            MissingExtra: wordfreq is not installed.
        """
        if max_rows < 2 or max_cols < 2:
            raise UsageError(f"cannot draw tables of at most {max_rows} x {max_cols} cells: use at least 2 x 2")
        sampler = sampler or CellSampler()
        for _ in range(_TRIES):
            n_rows = 2 + int((max_rows - 1) * rng.random() ** 1.2)
            n_cols = 2 + int((max_cols - 1) * rng.random() ** 1.2)
            builder = _Builder(rng, sampler, min(n_rows, max_rows), min(n_cols, max_cols))
            spec = builder.build(wild=rng.random() < wild)
            if spec is not None and spec.is_readable and spec._in_split(sampler.split):
                return spec
        raise UsageError(f"no readable table in {_TRIES} tries: allow more rows and columns")

    @property
    def table(self) -> Table:
        """The grid as the document types have it."""
        return Table(self.n_rows, self.n_cols, self.cells)

    @property
    def needs(self) -> str:
        """Which rules show how the cells lie: "grid" (lines around every cell), "rows" (lines between rows or groups
        of rows), or "any" (alignment is enough)."""
        body = [cell for cell in self.cells if cell.row >= self.header_rows]
        spans = [cell for cell in self.cells if cell.row_span > 1 or cell.col_span > 1]
        if any(not cell.text for cell in spans) or any(1 < cell.col_span < self.n_cols for cell in body):
            return "grid"
        if any(cell.col_span > 1 and cell.row_span > 1 for cell in self.cells):
            return "grid"
        return "rows" if any(cell.row_span > 1 for cell in body) else "any"

    @property
    def is_readable(self) -> bool:
        """Whether every row and column has some text of its own, so that a picture without any rules shows them all,
        and no body row has text in its first cell only, which would look like a heading across the table."""
        rows = {cell.row for cell in self.cells if cell.text and cell.row_span == 1}
        cols = {cell.col for cell in self.cells if cell.text and cell.col_span == 1}
        lone = False
        for row in range(self.header_rows, self.n_rows):
            here = [cell for cell in self.cells if cell.row <= row < cell.row + cell.row_span]
            filled = [cell for cell in here if cell.text]
            lone = lone or (len(here) > 1 and len(filled) < 2)
        return len(rows) == self.n_rows and len(cols) == self.n_cols and not lone

    def to_otsl(self) -> str:
        """The table in OTSL: the target."""
        return table_to_otsl(self.table)

    def to_html(self) -> str:
        """The table as HTML, by way of OTSL as a reader's answer goes; header cells are `<td>` too."""
        return otsl_to_html(self.to_otsl())

    def _in_split(self, split: str) -> bool:
        text = " ".join(cell.text for cell in self.cells)
        return has_held_out(text) == (split == "heldout") or (split == "heldout" and not letter_runs(text))


class _Builder:
    """Places cells on a grid, header first."""

    def __init__(self, rng: np.random.Generator, sampler: CellSampler, n_rows: int, n_cols: int) -> None:
        self.rng, self.sampler = rng, sampler
        self.n_rows, self.n_cols = n_rows, n_cols
        self.cells: dict[tuple[int, int], Cell] = {}
        self.taken: set[tuple[int, int]] = set()
        deep = int(np.searchsorted((0.08, 0.70, 0.94), rng.random()))
        self.header_rows = min(deep, n_rows - 1, 1 if n_cols < 3 else 3)
        self.has_labels = rng.random() < 0.85
        self.label_cols = 2 if self.has_labels and n_cols > 3 and rng.random() < 0.2 else int(self.has_labels)

    def build(self, *, wild: bool) -> TableSpec | None:
        """The table, or None if some level of its header came out without a heading of its own."""
        rng = self.rng
        body_align = pick(rng, ("right", "right", "center", "center", "left"))
        kinds = [self.sampler.column(rng) for _ in range(self.n_cols)]
        same = self.sampler.numbers(rng) if rng.random() < 0.35 else None
        columns = [same if same and number else make for make, number in kinds]
        aligns = [body_align if number else pick(rng, ("left", "left", "center")) for _, number in kinds]
        for col in range(self.label_cols):
            aligns[col] = pick(rng, ("left", "left", "left", "center", "right"))
        wrapped = self._wrapped(aligns)
        if wild:
            self.header_rows = min(1, self.header_rows)
        self._header()
        if len({row for row, _ in self.cells}) < self.header_rows:
            return None
        self._labels(wrapped)
        self._body(columns, wrapped)
        if wild:
            self._merge_some()
        cells = tuple(sorted(self.cells.values(), key=lambda cell: (cell.row, cell.col)))
        return TableSpec(self.n_rows, self.n_cols, cells, self.header_rows, tuple(aligns), tuple(wrapped))

    def _wrapped(self, aligns: list[str]) -> list[bool]:
        wrapped = [False] * self.n_cols
        if self.rng.random() < 0.25:
            for col in self.rng.permutation(self.n_cols)[: int(self.rng.integers(1, 3))].tolist():
                wrapped[col] = True
                aligns[col] = "left" if self.rng.random() < 0.8 else aligns[col]
        return wrapped

    def _put(self, row: int, col: int, text: str, row_span: int = 1, col_span: int = 1) -> None:
        area = {(r, c) for r in range(row, row + row_span) for c in range(col, col + col_span)}
        if not area.isdisjoint(self.taken):
            raise UsageError(f"two cells of a table would cover ({row}, {col})")
        self.taken |= area
        self.cells[row, col] = Cell(row, col, row_span, col_span, text)

    def _header(self) -> None:
        depth = self.header_rows
        if not depth:
            return
        for col in range(self.label_cols):
            # An empty corner is not merged: without rules nobody could tell.
            if self.rng.random() < 0.3:
                for row in range(depth):
                    self._put(row, col, "")
            else:
                self._put(0, col, self._heading(), row_span=depth)
        self._split_header(0, self.label_cols, self.n_cols, depth)

    def _split_header(self, row: int, start: int, end: int, depth: int) -> None:
        """Headings for columns start..end on `depth` levels from `row` on: groups, and under each the next level."""
        series = self._series(end - start) if depth == 1 else None
        col = start
        while col < end:
            left = end - col
            if depth == 1:
                self._put(row, col, series[col - start] if series else self._heading())
                col += 1
                continue
            width = min(left, int(self.rng.integers(2, 5)) if self.rng.random() < 0.75 else 1)
            if width == 1:
                self._put(row, col, self._heading(), row_span=depth)
            else:
                self._put(row, col, self._heading(), col_span=width)
                self._split_header(row + 1, col, col + width, depth - 1)
            col += width

    def _series(self, length: int) -> list[str] | None:
        """Headings that count: years, numbers, letters."""
        if self.rng.random() > 0.12:
            return None
        kind = pick(self.rng, ("year", "number", "quarter", "letter"))
        start = {"year": int(self.rng.integers(1950, 2025)), "number": 1, "quarter": 1, "letter": 0}[kind]
        form = {"year": "{}", "number": pick(self.rng, ("{}", "({})", "#{}")), "quarter": "Q{}", "letter": "{}"}[kind]
        return [form.format(chr(65 + i) if kind == "letter" else start + i) for i in range(length)]

    def _heading(self) -> str:
        return "" if self.rng.random() < 0.03 else self.sampler.label(self.rng, 2 if self.n_cols > 4 else 3)

    def _labels(self, wrapped: list[bool]) -> None:
        """Fill the label columns of the body, with rows that go across the table and row groups."""
        rng, row = self.rng, self.header_rows
        sections = rng.random() < 0.12 and self.n_rows - row > 4
        may_head = True  # two such rows never follow each other
        total = rng.random() < 0.25 and self.has_labels and self.n_rows - row > 2
        last = self.n_rows - int(total)
        kind = pick(rng, ("words", "words", "words", "words", "words", "number", "year", "code"))
        code, _ = self.sampler.column(rng) if kind == "code" else (None, False)
        year = int(rng.integers(1950, 2010))
        while row < last:
            if sections and may_head and rng.random() < 0.3 and row < last - 1:
                self._put(row, 0, self.sampler.label(rng, 4), col_span=self.n_cols)
                may_head = False
                row += 1
                continue
            may_head = True
            size = min(last - row, int(rng.integers(1, 5))) if self.label_cols == 2 else 1
            if self.label_cols == 2:
                self._put(row, 0, self.sampler.label(rng, 2), row_span=size)
            for r in range(row, row + size if self.has_labels else row):
                if kind == "words":
                    text = self.sampler.phrase(rng, 60) if wrapped[self.label_cols - 1] else self.sampler.label(rng)
                elif code is not None:
                    text = code(rng)
                else:
                    text = str(r - self.header_rows + 1 if kind == "number" else year + r)
                self._put(r, self.label_cols - 1, text)
            row += size
        if total:
            self._put(last, 0, self.sampler.total(rng), col_span=self.label_cols)

    def _body(self, columns: list[Column], wrapped: list[bool]) -> None:
        rng = self.rng
        empty = pick(rng, (0.0, 0.0, 0.0, 0.05, 0.2, 0.45))
        dashed = pick(rng, (0.0, 0.0, 0.1))
        blank = self.sampler.blank(rng)
        hollow = int(rng.integers(self.n_cols)) if self.header_rows and rng.random() < 0.05 else -1
        for row in range(self.header_rows, self.n_rows):
            for col in range(self.n_cols):
                if (row, col) in self.taken:
                    continue
                roll = rng.random()
                if col == hollow or roll < empty:
                    text = ""
                elif roll > 1 - dashed:
                    text = blank
                else:
                    text = self.sampler.phrase(rng, 60) if wrapped[col] else columns[col](rng)
                self._put(row, col, text)

    def _merge_some(self) -> None:
        """Merge random rectangles of single cells, as long as every row and column keeps a cell of its own."""
        rng = self.rng
        for _ in range(int(rng.integers(1, 2 + self.n_rows * self.n_cols // 8))):
            height, width = (int(v) for v in rng.integers(1, 4, 2))
            row, col = int(rng.integers(self.n_rows)), int(rng.integers(self.n_cols))
            area = [(r, c) for r in range(row, row + height) for c in range(col, col + width)]
            old = [self.cells.get(place) for place in area]
            if len(area) < 2 or any(cell is None or cell.row_span * cell.col_span > 1 for cell in old):
                continue
            kept = {place: cell for place, cell in self.cells.items() if place not in area}
            rows, cols = {r for r, _ in (*kept, (row, col))}, {c for _, c in (*kept, (row, col))}
            if len(rows) == self.n_rows and len(cols) == self.n_cols:
                text = next((cell.text for cell in old if cell and cell.text), "")
                self.cells = {**kept, (row, col): Cell(row, col, height, width, text)}
