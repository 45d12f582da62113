"""Tables from where their words stand. In: the words of a table, upright. Out: OTSL.

Good enough to tell whether a table's text arrives whole and in its place; no substitute for a model that sees rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from mineru_diffusion.evaluation.text_layer import Word
from mineru_diffusion.parsing.table_grid import Run, column_cuts, otsl_row

_WORD_SPACE = 0.4
"""Of a line's height: words further apart than this are not said in one breath."""


def table_of_words(words: Sequence[Word]) -> str:
    """OTSL, by `parsing.table_grid` from the words of the PDF's own text."""
    rows = _rows(words)
    runs = [_runs(row) for row in rows]
    cuts = column_cuts([[(word.box[0], word.box[2]) for word in row] for row in rows], [len(row) for row in runs])
    return "".join(otsl_row(row, cuts) for row in runs)


def _rows(words: Sequence[Word]) -> list[list[Word]]:
    """Words by row, from top to bottom and left to right, whatever their order in the file."""
    rows: list[list[Word]] = []
    for word in sorted(words, key=lambda word: word.middle[1]):
        if rows and rows[-1][0].box[1] < word.middle[1] < rows[-1][0].box[3]:
            rows[-1].append(word)
        else:
            rows.append([word])
    return [sorted(row, key=lambda word: word.box[0]) for row in rows]


def _runs(row: Sequence[Word]) -> list[Run]:
    # Heights are fractions of the page's height, gaps of its width; a page is about 1.3 times as high as wide.
    space = _WORD_SPACE * 1.3 * median(word.box[3] - word.box[1] for word in row)
    runs: list[Run] = []
    for word in row:
        # Slanted headings stand side by side with their boxes overlapping.
        if runs and -space < word.box[0] - runs[-1].right < space:
            runs[-1] = Run(f"{runs[-1].text} {word.text}", runs[-1].left, max(runs[-1].right, word.box[2]))
        else:
            runs.append(Run(word.text, word.box[0], word.box[2]))
    return runs
