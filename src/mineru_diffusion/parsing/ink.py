"""Ink: which pixels of an image are writing and which are paper. In: PIL images. Out: boolean arrays [H, W].

Text lines, blank-region checks and the search for text that a layout detector missed all start here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageOps

Mask = NDArray[np.bool_]

Box = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels, right and bottom exclusive."""

FAINTEST = 24
"""Least contrast to the paper, in grey levels, that counts as ink: paper grain and JPEG noise stay below it."""

FAINT = 0.3
"""Ink has at least this part of the contrast of the strongest ink around."""

TILE = 72
"""Side in pixels of the squares whose median is the paper's local colour; larger than any stroke of body text."""

FINE_TILE = 26
"""The same inside filled shapes: about the height of a line."""

SOLID = 0.22
"""Text alone covers less than this part of its region; more means that there are filled shapes."""


def ink_mask(image: Image.Image, *, open_solids: bool = False) -> Mask:
    """Pixels that differ clearly from the paper around them, dark on light or light on dark; specks removed.

    Args:
        image: any mode.
        open_solids: also look into filled shapes (shaded table cells, coloured boxes), where the shape's colour is
            the paper; the shapes themselves are then reduced to their outlines.

    Returns:
        Booleans [H, W], all False for blank paper (faint noise and shading included).
    """
    grey = np.asarray(image if image.mode == "L" else image.convert("L"))
    contrast = _contrast(grey, TILE)
    # A histogram is much faster than percentiles of the array itself.
    counts = np.bincount(contrast.ravel(), minlength=256)
    marked = int(counts[FAINTEST:].sum())
    if marked == 0:
        return np.zeros(grey.shape, dtype=np.bool_)
    above = np.cumsum(counts[FAINTEST:])
    strong = FAINTEST + int(np.searchsorted(above, 0.9 * marked))
    least = max(FAINTEST, round(FAINT * strong))
    mask: Mask = contrast >= least
    # A page number fills its small region, and a headline is as dense as a box: only larger regions are opened.
    if open_solids and min(mask.shape) >= TILE and np.count_nonzero(mask) > SOLID * mask.size:
        mask &= _contrast(grey, FINE_TILE) >= min(least, 60)
    return _despeckle(mask)


def _contrast(grey: NDArray[np.uint8], tile: int) -> NDArray[np.uint8]:
    """Absolute difference to the local paper colour, which is the median of a tile, smoothly interpolated."""
    height, width = grey.shape
    rows, columns = max(1, round(height / tile)), max(1, round(width / tile))
    # Every third pixel is enough for a median and a ninth of the work.
    step = 3 if tile >= 60 and min(height, width) >= 60 else 2 if min(height, width) >= 40 else 1
    sparse = grey[::step, ::step]
    tile_h, tile_w = max(1, sparse.shape[0] // rows), max(1, sparse.shape[1] // columns)
    tiles = sparse[: rows * tile_h, : columns * tile_w].reshape(rows, tile_h, columns, tile_w)
    flat = tiles.transpose(0, 2, 1, 3).reshape(rows, columns, -1)
    middle = flat.shape[2] // 2
    paper = np.partition(flat, middle, axis=2)[:, :, middle]
    if int(paper.max()) - int(paper.min()) <= 6:
        level = np.uint8(np.median(paper))
        return _distance(grey, level)
    smooth = np.asarray(Image.fromarray(_outvote(paper)).resize((width, height), Image.Resampling.BILINEAR))
    return _distance(grey, smooth)


def _distance(a: NDArray[np.uint8], b: NDArray[np.uint8] | np.uint8) -> NDArray[np.uint8]:
    """|a - b| without leaving bytes."""
    distance: NDArray[np.uint8] = np.maximum(a, b) - np.minimum(a, b)
    return distance


def _outvote(paper: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A tile filled by one heavy stroke takes its neighbours' colour: 3 x 3 median over the tiles."""
    padded = np.pad(paper, 1, mode="edge")
    around = [padded[dy : dy + paper.shape[0], dx : dx + paper.shape[1]] for dy in range(3) for dx in range(3)]
    median: NDArray[np.uint8] = np.median(np.stack(around), axis=0).astype(np.uint8)
    return median


def _despeckle(mask: Mask) -> Mask:
    """Drop pixels with fewer than two marked neighbours (8-neighbourhood)."""
    if min(mask.shape) < 3:
        return mask
    marks = mask.view(np.uint8)
    wide = marks.copy()
    wide[:, 1:] += marks[:, :-1]
    wide[:, :-1] += marks[:, 1:]
    near = wide.copy()
    near[1:] += wide[:-1]
    near[:-1] += wide[1:]
    kept: Mask = mask & (near >= 3)
    return kept


def dark_on_light(image: Image.Image) -> Image.Image:
    """The negative of a region that is mostly a dark box; the light page around the box becomes the box's paper too, or
    its border would be the heaviest stroke of all.

    Args:
        image: any mode.

    Returns:
        An RGB image of the same size.
    """
    picture = image.convert("RGB")
    red, green, blue = np.median(np.asarray(picture).reshape(-1, 3), axis=0).astype(int).tolist()
    right, bottom = picture.width - 1, picture.height - 1
    for corner in ((0, 0), (right, 0), (0, bottom), (right, bottom)):
        if sum(picture.getpixel(corner)) > red + green + blue + 3 * 100:  # type: ignore[arg-type]
            ImageDraw.floodfill(picture, corner, (red, green, blue), thresh=150)
    return ImageOps.invert(picture)


def remove_rules(mask: Mask, *, shortest: int, thickest: int = 9) -> Mask:
    """The mask without straight horizontal and vertical rules (underlines, table lines, frames).

    Args:
        mask: booleans [H, W]; not changed.
        shortest: runs of at least this many pixels are rules.
        thickest: stacks of more rows (or columns) of such runs are a filled shape, not a rule, and stay.
    """
    cleaned = _without_runs(mask, shortest, thickest)
    upright: Mask = _without_runs(cleaned.T, shortest, thickest).T
    return upright


def _without_runs(mask: Mask, shortest: int, thickest: int) -> Mask:
    if mask.shape[1] < shortest:
        return mask
    candidates = np.flatnonzero(np.count_nonzero(mask, axis=1) >= shortest)
    if candidates.size == 0:
        return mask
    padded = np.zeros((candidates.size, mask.shape[1] + 2), dtype=np.int8)
    padded[:, 1:-1] = mask[candidates]
    rows, edges = np.nonzero(np.diff(padded, axis=1))
    # Edges come row by row, each run as a start and an end.
    starts, ends, rows = edges[::2], edges[1::2], rows[::2]
    long = ends - starts >= shortest
    if not long.any():
        return mask
    runs = np.zeros_like(mask)
    for row, start, end in zip(candidates[rows[long]], starts[long], ends[long], strict=True):
        runs[row, start:end] = True
    kept: Mask = mask & ~(runs & ~_tall_stacks(runs, thickest))
    return kept


def _tall_stacks(runs: Mask, thickest: int) -> Mask:
    """Pixels of `runs` in vertical stacks taller than `thickest`."""
    tall = np.zeros_like(runs)
    for top, bottom in spans(inked_rows(runs)):
        if bottom - top <= thickest:
            continue
        part = runs[top:bottom]
        total = np.zeros((part.shape[0] + 1, part.shape[1]), dtype=np.int32)
        np.cumsum(part, axis=0, out=total[1:])
        full = (total[thickest + 1 :] - total[: -thickest - 1]) == thickest + 1
        for offset in range(thickest + 1):
            tall[top + offset : top + offset + full.shape[0]] |= full
    stacks: Mask = tall & runs
    return stacks


def inked_rows(mask: Mask) -> Mask:
    """Which rows hold any ink [H]."""
    rows: Mask = np.logical_or.reduce(mask, axis=1)
    return rows


def inked_columns(mask: Mask) -> Mask:
    """Which columns hold any ink [W]."""
    columns: Mask = np.logical_or.reduce(mask, axis=0)
    return columns


def extent(flags: Mask) -> tuple[int, int] | None:
    """First and last + 1 of what is True in a one-dimensional array; None if nothing is."""
    found = np.flatnonzero(flags)
    return (int(found[0]), int(found[-1]) + 1) if found.size else None


def ink_bounds(mask: Mask) -> Box | None:
    """The smallest box that holds all ink of a mask, in its pixels; None for blank paper."""
    rows, columns = extent(inked_rows(mask)), extent(inked_columns(mask))
    return (columns[0], rows[0], columns[1], rows[1]) if rows and columns else None


def spans(flags: Mask) -> list[tuple[int, int]]:
    """Start and end (exclusive) of every run of True in a one-dimensional array."""
    edges = np.flatnonzero(np.diff(flags.view(np.int8), prepend=0, append=0))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
