"""Tables from where their text stands, for readers that read text only. In: boxes and texts. Out: OTSL.

Rows are lines of text, columns are parted where hardly any row has ink, and what runs over a border between columns,
such as a heading above several, spans them. No substitute for a model that sees rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from mineru_diffusion.parsing.ink import Mask, inked_columns, spans

BINS = 1000
"""Columns are told apart at this resolution."""
LEAST_GAP = 0.006
"""Of the width that is looked at: a narrower gap is no border between columns."""
FEW = 0.1
"""Of the fuller rows: as many may run over a border."""


@dataclass(frozen=True)
class Run:
    """A text of one row, with its left and right edge as fractions of the width that is looked at."""

    text: str
    left: float
    right: float


def runs_apart(row: Mask, gap: float) -> list[tuple[int, int]]:
    """Left and right (exclusive) of the ink of a row that is parted by more than `gap` pixels without any."""
    runs: list[tuple[int, int]] = []
    for left, right in spans(inked_columns(row)):
        if runs and left - runs[-1][1] <= gap:
            runs[-1] = (runs[-1][0], right)
        else:
            runs.append((left, right))
    return runs


def column_cuts(rows: Sequence[Sequence[tuple[float, float]]], sizes: Sequence[int]) -> list[float]:
    """Where columns part: gaps that at most a tenth of the fuller half of the rows reaches into.

    Args:
        rows: left and right edges of each row's words (or runs).
        sizes: how many runs each row has.
    """
    if not rows:
        return []
    columns = [row for row, size in zip(rows, sizes, strict=True) if size >= median(sizes)]
    covered = [0] * (BINS + 1)
    for row in columns:
        for column in {c for left, right in row for c in range(_bin(left), _bin(right) + 1)}:
            covered[column] += 1
    inked = [i for i, n in enumerate(covered) if n]
    if not inked:
        return []
    few = max(1, round(FEW * len(columns))) if len(columns) > 3 else 0
    cuts: list[float] = []
    start: int | None = None
    for column in range(inked[0], inked[-1] + 1):
        if covered[column] <= few:
            start = column if start is None else start
        elif start is not None:
            if column - start >= LEAST_GAP * BINS and start > inked[0]:
                cuts.append((start + column) / 2 / BINS)
            start = None
    return cuts


def _bin(x: float) -> int:
    return min(BINS, max(0, int(x * BINS)))


def otsl_row(runs: Sequence[Run], cuts: Sequence[float]) -> str:
    """One row; a run over a border spans it."""
    cells = [""] * (len(cuts) + 1)
    spanned = [False] * (len(cuts) + 1)
    for run in runs:
        first = sum(cut < run.left for cut in cuts)
        last = max(first, sum(cut < run.right for cut in cuts))
        cells[first] = f"{cells[first]} {run.text}".strip()
        for column in range(first + 1, last + 1):
            spanned[column] = True
    out = []
    for cell, is_spanned in zip(cells, spanned, strict=True):
        out.append("<lcel>" if is_spanned and not cell else f"<fcel>{cell}" if cell else "<ecel>")
    return "".join(out) + "<nl>"
