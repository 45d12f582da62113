"""Tables from where their words stand. In: the words of a table, upright. Out: OTSL.

Good enough to tell whether a table's text arrives whole and in its place; no substitute for a model that sees rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from mineru_diffusion.evaluation.text_layer import Word

_BINS = 1000
_WORD_SPACE = 0.4
"""Of a line's height: words further apart than this are not said in one breath."""
_LEAST_GAP = 0.006
"""Of the page's width: a narrower gap is no border between columns."""


@dataclass(frozen=True)
class _Run:
    """Words of one row with only word spaces between them."""

    text: str
    left: float
    right: float


def table_of_words(words: Sequence[Word]) -> str:
    """OTSL: rows are lines of text, columns are parted where hardly any row has ink.

    What runs over a border between columns, such as a heading above several, spans them.
    """
    rows = _rows(words)
    cuts = _column_cuts(rows)
    return "".join(_row(_runs(row), cuts) for row in rows)


def _rows(words: Sequence[Word]) -> list[list[Word]]:
    """Words by row, from top to bottom and left to right, whatever their order in the file."""
    rows: list[list[Word]] = []
    for word in sorted(words, key=lambda word: word.middle[1]):
        if rows and rows[-1][0].box[1] < word.middle[1] < rows[-1][0].box[3]:
            rows[-1].append(word)
        else:
            rows.append([word])
    return [sorted(row, key=lambda word: word.box[0]) for row in rows]


def _runs(row: Sequence[Word]) -> list[_Run]:
    # Heights are fractions of the page's height, gaps of its width; a page is about 1.3 times as high as wide.
    space = _WORD_SPACE * 1.3 * median(word.box[3] - word.box[1] for word in row)
    runs: list[_Run] = []
    for word in row:
        # Slanted headings stand side by side with their boxes overlapping.
        if runs and -space < word.box[0] - runs[-1].right < space:
            runs[-1] = _Run(f"{runs[-1].text} {word.text}", runs[-1].left, max(runs[-1].right, word.box[2]))
        else:
            runs.append(_Run(word.text, word.box[0], word.box[2]))
    return runs


def _column_cuts(rows: Sequence[Sequence[Word]]) -> list[float]:
    """Where columns part: gaps that at most a tenth of the fuller half of the rows reaches into."""
    if not rows:
        return []
    sizes = [len(_runs(row)) for row in rows]
    columns = [row for row, size in zip(rows, sizes, strict=True) if size >= median(sizes)]
    covered = [0] * (_BINS + 1)
    for row in columns:
        for column in {c for word in row for c in range(_bin(word.box[0]), _bin(word.box[2]) + 1)}:
            covered[column] += 1
    inked = [i for i, n in enumerate(covered) if n]
    if not inked:
        return []
    few = max(1, round(0.1 * len(columns))) if len(columns) > 3 else 0
    cuts: list[float] = []
    start: int | None = None
    for column in range(inked[0], inked[-1] + 1):
        if covered[column] <= few:
            start = column if start is None else start
        elif start is not None:
            if column - start >= _LEAST_GAP * _BINS and start > inked[0]:
                cuts.append((start + column) / 2 / _BINS)
            start = None
    return cuts


def _bin(x: float) -> int:
    return min(_BINS, max(0, int(x * _BINS)))


def _row(runs: Sequence[_Run], cuts: Sequence[float]) -> str:
    cells = [""] * (len(cuts) + 1)
    spans = [False] * (len(cuts) + 1)
    for run in runs:
        first = sum(cut < run.left for cut in cuts)
        last = max(first, sum(cut < run.right for cut in cuts))
        cells[first] = f"{cells[first]} {run.text}".strip()
        for column in range(first + 1, last + 1):
            spans[column] = True
    out = []
    for cell, spanned in zip(cells, spans, strict=True):
        out.append("<lcel>" if spanned and not cell else f"<fcel>{cell}" if cell else "<ecel>")
    return "".join(out) + "<nl>"
