"""Text lines of a region by row profile. In: the image of one text region. Out: boxes of its lines, top to bottom.

Only for checkpoints that read single lines (`text_unit` = `line`). The steps: ink mask, rules out, skew out, columns
apart, rows apart, and for every line its ink bounds with a margin that lets ascenders and descenders in.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image, ImageOps

from mineru_diffusion.document.crops import paper_colour
from mineru_diffusion.parsing.bands import Band, column_spans, row_bands, typical_height
from mineru_diffusion.parsing.drop_caps import as_capital, find_drop_cap
from mineru_diffusion.parsing.ink import (
    Box,
    Mask,
    dark_on_light,
    extent,
    ink_mask,
    inked_columns,
    inked_rows,
    remove_rules,
)
from mineru_diffusion.parsing.overlooked import overlooked_pictures
from mineru_diffusion.parsing.pieces import MARGIN, cut_pieces, join_pieces
from mineru_diffusion.parsing.table_grid import runs_apart

MAX_ASPECT = 25.0
"""Width to height of the longest crop: about 60 to 80 characters of book text."""
CELL_GAP = 0.8
"""Of a line's height: ink further apart than this is of two cells of a table."""
RULE = 2.5
"""Of a line's height: a straight stroke in a table that is longer is a rule."""
LEAST_INK = 0.4
"""A close crop of a single line is at least this part of what it was cut from."""
TALLEST = 4.0
"""Bands higher than this many usual lines are no text."""
DARK = 100
"""Grey level; a region whose median is below it is light writing on a dark box."""
WORK_PIXELS = 2_500_000
"""Larger regions are searched at a smaller scale."""
SKEWS = tuple(x / 4 for x in range(-12, 13))
"""Skews in degrees that are tried."""


@dataclass(frozen=True)
class TextLine:
    """One line of text.

    Attributes:
        box: the crop, margin included, in pixels of `RegionLines.image`.
        pieces: the crops to read, left to right, whose texts are joined by a space; just `(box,)` unless the line is
            very long or has a wide gap.
        glued: numbers of the pieces that go on inside a word, whose texts are joined to the one before without a space.
        ink_height: height of the ink in pixels, without margin.
        cap_height: from the top of the ink to the baseline in pixels: about the height of a capital letter.
        column: which column of the region the line stands in, from 0.
        indented: it starts clearly to the right of the column's left edge.
        short: it ends clearly before the column's right edge.
        spaced: the gap above is clearly larger than usual in the region.
        drop_cap: the first piece is a large letter that stands beside this line and others; `box` is without it.
    """

    box: Box
    pieces: tuple[Box, ...]
    ink_height: int
    cap_height: int
    column: int = 0
    indented: bool = False
    short: bool = False
    spaced: bool = False
    glued: frozenset[int] = frozenset()
    drop_cap: bool = False

    def joined(self, texts: Sequence[str]) -> str:
        """The line's text from its pieces' texts."""
        if self.drop_cap and texts:
            texts = (as_capital(texts[0]), *texts[1:])
        return join_pieces(texts, self.glued)


@dataclass(frozen=True)
class RegionLines:
    """The lines of a region, and the image that their boxes refer to.

    Attributes:
        image: the region, turned by `skew` when that is not 0.
        skew: counter-clockwise degrees by which the region was turned to make its lines level.
        lines: column by column, top to bottom; empty for blank paper.
        pictures: boxes of pictures between the lines, and the number of the line before which each stands.
    """

    image: Image.Image
    skew: float
    lines: tuple[TextLine, ...]
    pictures: tuple[tuple[Box, int], ...] = ()

    def crop(self, box: Box) -> Image.Image:
        """The picture of a box, dark on light."""
        crop = self.image.crop(box).convert("RGB")
        # A grey level is cheap and settles nearly all; only dark crops are looked at more closely.
        if crop.resize((1, 1), Image.Resampling.BOX).convert("L").getpixel((0, 0)) > 150:  # type: ignore[operator]
            return crop
        return ImageOps.invert(crop) if sum(paper_colour(crop)) < 3 * 100 else crop

    def in_region(self, box: Box) -> Box:
        """A box in pixels of the region as it was given, before turning; the bounds of the turned rectangle."""
        if not self.skew:
            return box
        angle = math.radians(self.skew)
        cos, sin = math.cos(angle), math.sin(angle)
        middle_x, middle_y = self.image.width / 2, self.image.height / 2
        # Along the middle line only: the bounds of a long, slightly turned box would cover its neighbours.
        left, top, right, bottom = box
        half = (bottom - top) / 2
        x0, x1, y = left - middle_x, right - middle_x, (top + bottom) / 2 - middle_y
        xs = [middle_x + cos * x - sin * y for x in (x0, x1)]
        ys = [middle_y + sin * x + cos * y for x in (x0, x1)]
        return (
            max(0, round(min(xs))),
            max(0, round(min(ys) - half)),
            min(self.image.width, round(max(xs))),
            min(self.image.height, round(max(ys) + half)),
        )


def split_lines(
    image: Image.Image, *, max_aspect: float = MAX_ASPECT, usual_height: float | None = None, cells: bool = False
) -> RegionLines:
    """Find the text lines of a region.

    Args:
        image: one text region, upright up to about 3 degrees.
        max_aspect: lines wider than this many times their height are cut into pieces at word gaps.
        usual_height: ink height in pixels of lines elsewhere on the page, which tells a lone `-` from a headline.
        cells: it is a table: whatever stands apart in a row is a line of its own, row by row, in no columns of text.

    Returns:
        The lines; none for blank paper.
    """
    scale = max(1, math.ceil(math.sqrt(image.width * image.height / WORK_PIXELS)))
    grey = image.convert("L")
    if np.median(np.asarray(grey)[::2, ::2]) < DARK:
        image = dark_on_light(image)
        grey = image.convert("L")
    small = grey.reduce(scale) if scale > 1 else grey
    ink = ink_mask(small, open_solids=True)
    mask = _without_rules(ink)
    if not mask.any():
        return RegionLines(image, 0.0, ())
    skew = estimate_skew(mask)
    if skew:
        paper = paper_colour(image)
        image = image.convert("RGB").rotate(skew, Image.Resampling.BICUBIC, fillcolor=paper)
        small = image.convert("L").reduce(scale) if scale > 1 else image.convert("L")
        ink = ink_mask(small, open_solids=True)
        mask = _without_rules(ink)
    if cells:
        found = [_enlarge(line, scale, image.size) for line in _row_cells(mask, max_aspect)]
        return RegionLines(image, skew, tuple(found))
    usual = usual_height / scale if usual_height else None
    pixels = np.asarray(small)
    paper_level = float(np.median(pixels[::2, ::2]))
    lines: list[TextLine] = []
    pictures: list[tuple[Box, int]] = []
    for column, (left, right) in enumerate(column_spans(mask)):
        found, bands = _column_lines(ink[:, left:right], mask[:, left:right], left, column, max_aspect, usual)
        seen = overlooked_pictures(ink[:, left:right], pixels[:, left:right], paper_level, bands)
        for (x0, y0, x1, y1), number in seen:
            box = (x0 + left, y0, x1 + left, y1)
            pictures.append((_grown(box, scale, image.size), number + len(lines)))
        lines += found
    if scale > 1:
        lines = [_enlarge(line, scale, image.size) for line in lines]
    return RegionLines(image, skew, tuple(lines), tuple(pictures))


def line_pieces(image: Image.Image, max_aspect: float) -> tuple[list[Image.Image], frozenset[int]]:
    """One line's picture as `split_lines` would cut it: close to its ink, in pieces of at most about `max_aspect` times
    its height, and the numbers of those that go on inside a word (see `join_pieces`).

    For crops that already hold a single line.
    """
    image = close_crop(image)
    box = (0, 0, image.width, image.height)
    pieces, glued = cut_pieces(_text_mask(image.convert("L")), box, 0, max_aspect)
    return [image.crop(piece) for piece in pieces], glued


def close_crop(image: Image.Image) -> Image.Image:
    """One line's picture without the paper above and below that `split_lines` would leave away: small letters in a high
    crop are read badly. A lone dash keeps some of the height, or it would be blown up to a bar."""
    rows = extent(inked_rows(_text_mask(image.convert("L"))))
    if rows is None:
        return image
    top, bottom = rows
    margin = max(MARGIN * (bottom - top), (LEAST_INK * image.height - (bottom - top)) / 2)
    return image.crop((0, max(0, round(top - margin)), image.width, min(image.height, round(bottom + margin))))


def _text_mask(grey: Image.Image) -> Mask:
    return _without_rules(ink_mask(grey, open_solids=True))


def _without_rules(mask: Mask) -> Mask:
    # Longer than any stroke of a letter: a quarter of the region, or the bar of a very large T.
    return remove_rules(mask, shortest=max(70, min(mask.shape[0], mask.shape[1] // 4)))


def estimate_skew(mask: Mask) -> float:
    """Degrees to turn counter-clockwise until the lines are level; 0 if they are, or if it cannot be told.

    At the right angle the sum over narrow upright strips, each shifted by its share, has the sharpest row profile.
    """
    height, width = mask.shape
    if width < 240 or height < 24:
        return 0.0
    count = 16
    edges = np.linspace(0, width, count + 1).astype(int)
    strips = np.stack([np.count_nonzero(mask[:, a:b], axis=1) for a, b in itertools.pairwise(edges)]).astype(np.float32)
    middles = (edges[:-1] + edges[1:]) / 2 - width / 2
    pad = math.ceil(math.tan(math.radians(SKEWS[-1])) * width / 2) + 1
    padded = np.pad(strips, ((0, 0), (pad, pad)))

    def sharpness(degrees: float) -> float:
        shifts = np.rint(math.tan(math.radians(degrees)) * middles).astype(int)
        total = np.zeros(height, dtype=np.float32)
        for strip, shift in zip(padded, shifts, strict=True):
            # Turning counter-clockwise lifts the right side: that strip is read from further down.
            total += strip[pad + shift : pad + shift + height]
        return float(np.square(np.diff(total)).sum())

    scores = [sharpness(a) for a in SKEWS]
    best = int(np.argmax(scores))
    level = scores[SKEWS.index(0.0)]
    # A single short line or a picture gives a nearly flat curve: then leave it alone.
    return SKEWS[best] if abs(SKEWS[best]) >= 0.5 and scores[best] > 1.25 * level else 0.0


def _column_lines(
    ink: Mask, mask: Mask, offset: int, column: int, max_aspect: float, usual: float | None
) -> tuple[list[TextLine], list[Band]]:
    """Lines of one column, and their rows; `offset` is its left edge in the region, `mask` its ink without rules."""
    height, width = mask.shape
    bands = row_bands(mask)
    if not bands:
        return [], []
    cap = find_drop_cap(ink, bands)
    if cap:
        mask = mask.copy()
        mask[cap[1] : cap[3], cap[0] : cap[2]] = False
        bands = row_bands(mask)
    typical = typical_height(bands)
    if len(bands) >= 4:
        # What towers over the other lines in a region of text is a picture that the layout overlooked.
        bands = [b for b in bands if b.height <= TALLEST * typical]
    if len(bands) < 3 and usual:
        typical = usual
    inks = [_ink_span(mask[b.top : b.bottom]) for b in bands]
    # A line beside a drop cap tells nothing of the column's edge, and is not indented.
    free = [left for band, (left, _) in zip(bands, inks, strict=True) if not (cap and band.top < cap[3])]
    lefts = sorted(free or [left for left, _ in inks])
    rights = sorted(right for _, right in inks)
    left_edge = lefts[len(lefts) // 10]
    right_edge = rights[len(rights) - 1 - len(rights) // 10]
    gaps = [b.top - a.bottom for a, b in itertools.pairwise(bands)]
    usual_gap = float(np.median(gaps)) if gaps else 0.0
    lines = []
    for i, (band, (left, right)) in enumerate(zip(bands, inks, strict=True)):
        top, bottom = _with_margin(bands, i, height, typical)
        side = max(2, round(MARGIN * (bottom - top)))
        box = (max(0, left - side) + offset, top, min(width, right + side) + offset, bottom)
        pieces, glued = cut_pieces(mask[band.top : band.bottom], box, offset, max_aspect)
        if cap and not i:
            pieces, glued = (_around(cap, offset, mask.shape), *pieces), frozenset({1, *(n + 1 for n in glued)})
        lines.append(
            TextLine(
                box=box,
                pieces=pieces,
                ink_height=band.height,
                cap_height=_cap_height(mask[band.top : band.bottom]),
                column=column,
                indented=left - left_edge > 0.6 * typical and not (cap and band.top < cap[3]),
                short=right_edge - right > max(2 * typical, 0.08 * width),
                spaced=bool(i) and gaps[i - 1] > usual_gap + 0.5 * typical,
                glued=glued,
                drop_cap=bool(cap) and not i,
            )
        )
    return lines, bands


def _row_cells(mask: Mask, max_aspect: float) -> list[TextLine]:
    """What stands apart in the rows of a table; all of one row have the same top and bottom."""
    if bands := row_bands(mask):
        # The rules under headings are no longer than a word.
        mask = remove_rules(mask, shortest=round(RULE * typical_height(bands)))
        bands = row_bands(mask)
    found = []
    height, width = mask.shape
    typical = typical_height(bands) if bands else 0.0
    for i, band in enumerate(bands):
        top, bottom = _with_margin(bands, i, height, typical)
        row = mask[band.top : band.bottom]
        for left, right in runs_apart(row, CELL_GAP * typical):
            side = max(2, round(MARGIN * band.height))
            box = (max(0, left - side), top, min(width, right + side), bottom)
            pieces, glued = cut_pieces(row, box, 0, max_aspect)
            found.append(TextLine(box, pieces, band.height, _cap_height(row[:, left:right]), glued=glued))
    return found


def _around(cap: Box, offset: int, shape: tuple[int, ...]) -> Box:
    """The crop of a drop cap. Little paper beside it: the lines are near."""
    left, top, right, bottom = cap
    margin = round(MARGIN * (bottom - top))
    return max(0, left - 2) + offset, max(0, top - margin), right + 2 + offset, min(shape[0], bottom + margin)


def _cap_height(mask: Mask) -> int:
    """Rows from the top of a line's ink to its baseline, below which the profile falls off steeply."""
    profile = np.count_nonzero(mask, axis=1)
    solid = np.flatnonzero(profile >= 0.45 * np.partition(profile, -2)[-2] if profile.size > 1 else profile)
    return int(solid[-1]) + 1 if solid.size else mask.shape[0]


def _with_margin(bands: Sequence[Band], number: int, height: int, typical: float) -> tuple[int, int]:
    """Top and bottom of a line's crop: a margin of paper, and for lines without ascenders or descenders their room.

    Half way into a neighbour's gap at most, or a pixel or two where lines touch.
    """
    band = bands[number]
    above = bands[number - 1].bottom if number else 0
    below = bands[number + 1].top if number + 1 < len(bands) else height
    ink = band.bottom - band.top
    want = max(2.0, MARGIN * ink)
    if ink < 0.55 * typical:
        # A lone dash is not blown up to the height of a line.
        want = max(want, (0.7 * typical - ink) / 2)
    room_above = max(0.06 * ink, (band.top - above) * 0.6)
    room_below = max(0.06 * ink, (below - band.bottom) * 0.6)
    if above == 0:
        room_above = band.top
    top = band.top - round(min(want, room_above))
    bottom = band.bottom + round(min(want, max(room_below, 1)))
    return max(0, top), min(bottom, height)


def _ink_span(mask: Mask) -> tuple[int, int]:
    found = extent(inked_columns(mask))
    assert found is not None  # a band of rows has ink
    return found


def _grown(box: Box, scale: int, size: tuple[int, int]) -> Box:
    left, top, right, bottom = (v * scale for v in box)
    return left, top, min(right, size[0]), min(bottom, size[1])


def _enlarge(line: TextLine, scale: int, size: tuple[int, int]) -> TextLine:
    return replace(
        line,
        box=_grown(line.box, scale, size),
        pieces=tuple(_grown(piece, scale, size) for piece in line.pieces),
        ink_height=line.ink_height * scale,
        cap_height=line.cap_height * scale,
    )
