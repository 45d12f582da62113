"""Writing that a layout detector missed. In: the ink of a page and the boxes found. Out: boxes for the rest.

No text may be lost because a detector overlooked it: whatever ink is left over becomes a text region, or a picture
where it plainly is none.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from mineru_diffusion.parsing.bands import row_bands, typical_height
from mineru_diffusion.parsing.boxes import PICTURES, Found, PixelBox, overlap
from mineru_diffusion.parsing.ink import Mask, ink_bounds, inked_columns, spans

IntBox = tuple[int, int, int, int]

CELL = 8
"""Side in pixels of the grid's cells (at about 100 dpi: half a line of text)."""


def uncovered_ink(mask: Mask, boxes: Iterable[PixelBox], *, slack: int = 3) -> Mask:
    """The mask with everything inside the boxes (grown by `slack` pixels) cleared."""
    rest: Mask = mask.copy()
    for x0, y0, x1, y1 in boxes:
        rows = slice(max(0, int(y0) - slack), int(np.ceil(y1)) + slack)
        rest[rows, max(0, int(x0) - slack) : int(np.ceil(x1)) + slack] = False
    return rest


def recover(mask: Mask, boxes: Iterable[PixelBox]) -> list[Found]:
    """Regions for ink outside all boxes.

    Args:
        mask: ink of the page at about 100 dpi, rules removed [H, W].
        boxes: what was found, in the mask's pixels.
    """
    boxes = list(boxes)
    rest = uncovered_ink(mask, boxes)
    found = []
    for blob in blobs(rest):
        for x0, y0, x1, y1 in _beside(rest, blob, boxes):
            inner = rest[y0:y1, x0:x1]
            ink = int(np.count_nonzero(inner))
            thin, long = sorted((y1 - y0, x1 - x0))
            # Dirt, dots, and what is left of a broken rule.
            if y1 - y0 < 4 or x1 - x0 < 2 or ink < 10 or (thin <= 6 and long > 12 * thin):
                continue
            kind = "image" if _is_picture(inner, mask.shape) else "text"
            found.append(Found(kind, (x0, y0, x1, y1), 0.0, "ink"))
    return found


def _beside(rest: Mask, blob: IntBox, boxes: Sequence[PixelBox]) -> list[IntBox]:
    """A blob as it is, or, where its box would reach over a region, in parts of whole lines that do not."""
    if not _touches(blob, boxes):
        return [blob]
    left, top, right, bottom = blob
    parts: list[IntBox] = []
    for band in row_bands(rest[top:bottom, left:right]):
        columns = np.flatnonzero(inked_columns(rest[top + band.top : top + band.bottom, left:right]))
        line = (left + int(columns[0]), top + band.top, left + int(columns[-1]) + 1, top + band.bottom)
        if parts:
            last = parts[-1]
            both = (min(last[0], line[0]), last[1], max(last[2], line[2]), line[3])
            if not _touches(both, boxes):
                parts[-1] = both
                continue
        parts.append(line)
    return parts or [blob]


def _touches(box: PixelBox, boxes: Sequence[PixelBox]) -> bool:
    """The box shares a visible part of itself, or of one of the boxes, with it."""
    return any(overlap(box, other) > 0.03 for other in boxes)


def absorb(found: Sequence[Found], recovered: Sequence[Found]) -> list[Found]:
    """Give recovered writing to the text region whose line it ends or begins, so that no line is torn apart."""
    kept = list(found)
    rest = []
    for item in recovered:
        x0, y0, x1, y1 = item.box
        height = y1 - y0
        homes = []
        for i, home in enumerate(kept):
            gap = max(home.box[0] - x1, x0 - home.box[2])
            inside = min(y1, home.box[3]) - max(y0, home.box[1])
            if item.kind == "text" and home.kind not in PICTURES and inside > 0.6 * height and gap < 1.5 * height:
                grown = (min(x0, home.box[0]), home.box[1], max(x1, home.box[2]), max(y1, home.box[3]))
                grown = (grown[0], min(y0, grown[1]), grown[2], grown[3])
                others = [*kept[:i], *kept[i + 1 :]]
                if all(overlap(grown, o.box) < 0.05 for o in others):
                    homes.append((gap, i, grown))
        if homes:
            _, i, grown = min(homes)
            kept[i] = replace(kept[i], box=grown)
        else:
            rest.append(item)
    return kept + rest


def blobs(mask: Mask) -> list[IntBox]:
    """Boxes (pixels, tight around ink) of groups of ink: letters to words to lines to paragraphs.

    Cells are joined over two empty cells sideways and one up and down.
    """
    height, width = mask.shape
    rows, columns = -(-height // CELL), -(-width // CELL)
    padded = np.zeros((rows * CELL, columns * CELL), dtype=np.bool_)
    padded[:height, :width] = mask
    counts = padded.reshape(rows, CELL, columns, CELL).sum(axis=(1, 3))
    # Not list(map(tuple, ...)) of numpy integers: plain ints hash faster.
    open_cells = set(zip(*(axis.tolist() for axis in np.nonzero(counts >= 2)), strict=True))
    boxes = []
    while open_cells:
        start = open_cells.pop()
        group, queue = [start], [start]
        while queue:
            y, x = queue.pop()
            for dy in (-2, -1, 0, 1, 2):
                for dx in range(-3, 4):
                    cell = (y + dy, x + dx)
                    # Diagonal leaps would chain neighbouring columns together.
                    if cell in open_cells and (abs(dy) <= 1 or abs(dx) <= 1):
                        open_cells.remove(cell)
                        group.append(cell)
                        queue.append(cell)
        ys, xs = [c[0] for c in group], [c[1] for c in group]
        y0, x0 = min(ys) * CELL, min(xs) * CELL
        part = mask[y0 : (max(ys) + 1) * CELL, x0 : (max(xs) + 1) * CELL]
        bounds = ink_bounds(part)
        assert bounds is not None  # every open cell has ink
        left, top, right, bottom = bounds
        boxes.append((x0 + left, y0 + top, x0 + right, y0 + bottom))
    return boxes


def looks_like_text(mask: Mask) -> bool:
    """Three or more lines of even height and even, moderate ink: a paragraph, whatever a detector called it."""
    bands = row_bands(mask)
    if len(bands) < 3:
        return False
    size = typical_height(bands)
    heights = np.array([b.height for b in bands])
    if size < 4 or np.mean(np.abs(heights - size) < 0.35 * size) < 0.7:
        return False
    gaps = np.array([b.top - a.bottom for a, b in itertools.pairwise(bands)])
    densities = []
    for band in bands:
        part = mask[band.top : band.bottom]
        columns = np.flatnonzero(inked_columns(part))
        densities.append(np.count_nonzero(part) / (part.shape[0] * (columns[-1] - columns[0] + 1)))
        # A letter is seldom wider than two lines are high; strokes of a drawing run on.
        runs = np.diff(np.flatnonzero(np.diff(inked_columns(part).view(np.int8), prepend=0, append=0)))[::2]
        if runs.max() > 14 * size:
            return False
    density = float(np.median(densities))
    return 0.08 < density < 0.55 and float(np.median(gaps)) < 1.6 * size


def _is_one_line(mask: Mask) -> bool:
    """Long, of moderate ink, and in as many pieces as letters or words make: a line, however small the page is."""
    height, width = mask.shape
    if width < 3 * height or not 0.05 < np.count_nonzero(mask) / mask.size < 0.6:
        return False
    pieces = spans(inked_columns(mask))
    return len(pieces) >= 4 and max(end - start for start, end in pieces) < 4 * height


def _is_picture(mask: Mask, page: tuple[int, int]) -> bool:
    """Large and not in lines, or one solid shape far higher than a headline."""
    height, width = mask.shape
    if height < 0.03 * page[0] or width < 0.03 * page[1]:
        return False
    if looks_like_text(mask) or _is_one_line(mask):
        return False
    tallest = max((b.height for b in row_bands(mask)), default=0)
    return tallest > 0.06 * page[0]
