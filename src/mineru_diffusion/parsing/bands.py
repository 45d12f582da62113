"""Rows and columns of text in an ink mask. In: booleans [H, W]. Out: bands (top, bottom) and column spans."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mineru_diffusion.parsing.ink import Mask, inked_columns, inked_rows, spans

Profile = NDArray[np.float64]

LEAST_HEIGHT = 5
"""Bands lower than this many pixels are not text by themselves (a hyphen beside nothing, dirt)."""


_LEAST_TWO = 24
"""Lowest band in pixels that could be two lines."""


class Band(NamedTuple):
    """Rows `top` to `bottom` (exclusive) that hold one line of text."""

    top: int
    bottom: int

    @property
    def height(self) -> int:
        return self.bottom - self.top


def row_bands(mask: Mask) -> list[Band]:
    """One band for every text line of a column, top to bottom.

    Rows without ink part the lines; where ascenders touch descenders, the valley between two humps of the row profile
    does. Accents and dots that stand apart go to their line; slivers of neighbouring text at the edges are dropped.
    """
    profile = np.count_nonzero(mask, axis=1).astype(np.float64)
    bands = [Band(a, b) for a, b in spans(profile >= 2)]
    if not bands:
        return []
    size = typical_height(bands)
    pitch = line_pitch(profile)
    if pitch:
        size = min(size, 0.95 * pitch)
    parted: list[Band] = []
    if len(bands) == 1 and not pitch and (two := _in_two(profile, bands[0])):
        return two
    for band in bands:
        if band.height > 3 * size and _is_solid(mask[band.top : band.bottom], size):
            continue
        parted += _part(profile, band, size) if band.height > 1.35 * size else [band]
    if not parted:
        return []
    merged = _merge_small(parted, typical_height(parted))
    return [b for b in merged if not _is_dirt(mask, b, typical_height(merged))]


def typical_height(bands: Sequence[Band]) -> float:
    """Median height of the bands; dots and accents, and pictures among the lines, are left out."""
    heights = sorted(b.height for b in bands)
    solid = [h for h in heights if h >= LEAST_HEIGHT] or heights
    # Above the middle: accents that stand apart can make half of the bands, pictures hardly a third.
    base = solid[(2 * len(solid)) // 3 - (len(solid) > 2)] if len(solid) > 1 else solid[0]
    return float(median([h for h in solid if 0.35 * base <= h <= 3 * base]))


def line_pitch(profile: Profile) -> float | None:
    """Distance of the lines in pixels, where the row profile repeats itself clearly; None for a single line."""
    height = profile.size
    longest = int(height / 1.6)
    if longest < 12:
        return None
    x = profile - profile.mean()
    power = np.abs(np.fft.rfft(x, 2 * height)) ** 2
    lags = np.fft.irfft(power)[: longest + 1] / np.arange(height, height - longest - 1, -1)
    if lags[0] <= 0:
        return None
    r = lags / lags[0]
    peaks = [i for i in range(8, longest) if r[i] >= r[i - 1] and r[i] >= r[i + 1] and r[i] > 0.35]
    if not peaks:
        return None
    best = max(float(r[i]) for i in peaks)
    # Two and three times the pitch repeat nearly as well: take the smallest of the good ones.
    return float(next(i for i in peaks if r[i] >= 0.85 * best))


def _part(profile: Profile, band: Band, size: float) -> list[Band]:
    """Part a tall band into lines about `size` high, where the profile has real valleys."""
    values = profile[band.top : band.bottom]
    smooth = _smooth(values, 0.12 * size)
    summits: list[int] = []
    valleys: list[int] = []
    for i in _maxima(smooth):
        if not summits:
            summits.append(i)
            continue
        last = summits[-1]
        valley = last + int(np.argmin(smooth[last : i + 1]))
        if i - last >= 0.5 * size and smooth[valley] < 0.4 * min(smooth[last], smooth[i]):
            summits.append(i)
            valleys.append(valley)
        elif smooth[i] > smooth[last]:
            summits[-1] = i
    edges = [band.top, *(band.top + v for v in valleys), band.bottom]
    return [Band(a, b) for a, b in itertools.pairwise(edges)]


def _in_two(profile: Profile, band: Band) -> list[Band]:
    """Two lines, of a headline usually, that only a few ascenders and descenders tie together; else none.

    The valley must be far deeper than between the upper and lower strokes of capitals.
    """
    if band.height < _LEAST_TWO:
        return []
    parts = _part(profile, band, 0.5 * band.height)
    if len(parts) != 2 or min(part.height for part in parts) < 0.35 * band.height:
        return []
    upper, lower = (profile[part.top : part.bottom] for part in parts)
    deep = min(upper[-1], lower[0]) < 0.1 * min(upper.max(), lower.max())
    return parts if deep else []


def _smooth(values: Profile, sigma: float) -> Profile:
    radius = max(1, round(3 * sigma))
    kernel = np.exp(-0.5 * (np.arange(-radius, radius + 1) / max(sigma, 0.5)) ** 2)
    padded = np.pad(values, radius)
    return np.convolve(padded, kernel / kernel.sum(), mode="valid")


def _maxima(values: Profile) -> list[int]:
    padded = np.pad(values, 1, constant_values=-1.0)
    inner = padded[1:-1]
    return [int(i) for i in np.flatnonzero((inner > padded[:-2]) & (inner >= padded[2:]))]


def _merge_small(bands: list[Band], size: float) -> list[Band]:
    """Join bands much lower than a line (dots, accents, the bars of `=`) to the nearest neighbour close enough."""
    bands = list(bands)
    i = 0
    while i < len(bands):
        band = bands[i]
        if band.height >= 0.45 * size or len(bands) == 1:
            i += 1
            continue
        choices = []
        for j in (i + 1, i - 1):
            if 0 <= j < len(bands):
                joined = Band(min(band.top, bands[j].top), max(band.bottom, bands[j].bottom))
                gap = joined.height - band.height - bands[j].height
                if gap <= 0.35 * size and joined.height <= 1.5 * size:
                    choices.append((gap, j, joined))
        if not choices:
            i += 1
            continue
        _, j, joined = min(choices, key=lambda c: c[0])
        first = min(i, j)
        bands[first : first + 2] = [joined]
        i = max(0, first)
        if joined.height >= 0.45 * size:
            i += 1
    return bands


def _is_solid(rows: Mask, size: float) -> bool:
    """A quarter of the rows or more have runs of ink that no letter has: a picture between the lines."""
    length = max(2, round(3 * size))
    if rows.shape[1] < length:
        return False
    total = np.zeros((rows.shape[0], rows.shape[1] + 1), dtype=np.int32)
    np.cumsum(rows, axis=1, out=total[:, 1:])
    full: Mask = (total[:, length:] - total[:, :-length]) == length
    return bool(np.count_nonzero(inked_rows(full)) > 0.25 * rows.shape[0])


def _is_dirt(mask: Mask, band: Band, size: float) -> bool:
    """Specks of noise, and slivers of a neighbour's text at the region's upper or lower edge."""
    rows = mask[band.top : band.bottom]
    columns = inked_columns(rows)
    width = int(np.count_nonzero(columns))
    if band.height < 3 or width < 3:
        return True
    at_edge = band.top == 0 or band.bottom == mask.shape[0]
    if at_edge and band.height < 0.4 * size:
        return True
    if band.height >= LEAST_HEIGHT:
        # Writing fills its own box; noise is strewn thinly over a wide one.
        return int(np.count_nonzero(rows)) < 0.02 * band.height * min(width, 4 * band.height)
    # A dash or a row of leader dots is low but long or dense.
    return width < 2 * band.height and int(np.count_nonzero(rows)) < 8


def column_spans(mask: Mask) -> list[tuple[int, int]]:
    """Left and right (exclusive) of the text columns of a region: one span unless a wide gutter parts it.

    A gutter is empty over the whole height, with at least three well-filled lines on both sides; tabs, tables of
    contents and label-value lists are not parted.
    """
    height, width = mask.shape
    whole = [(0, width)]
    if width < 200 or height < 40:
        return whole
    bands = row_bands(mask)
    if len(bands) < 3:
        return whole
    size = typical_height(bands)
    empty = spans(~inked_columns(mask))
    gutters = [(a, b) for a, b in empty if b - a >= max(0.6 * size, 8) and a > 0.15 * width and b < 0.85 * width]
    for a, b in sorted(gutters, key=lambda g: g[0] - g[1]):
        middle = (a + b) // 2
        if _is_column(mask[:, :middle], size) and _is_column(mask[:, middle:], size):
            left = column_spans(mask[:, :middle])
            right = column_spans(mask[:, middle:])
            return left + [(x + middle, y + middle) for x, y in right]
    return whole


def _is_column(mask: Mask, size: float) -> bool:
    columns = np.flatnonzero(inked_columns(mask))
    extent = int(columns[-1] - columns[0]) + 1 if columns.size else 0
    bands = row_bands(mask)
    if len(bands) < 3 or extent < 5 * size:
        return False
    fills = []
    for band in bands:
        ink = np.flatnonzero(inked_columns(mask[band.top : band.bottom]))
        fills.append((ink[-1] - ink[0] + 1) / extent)
    return float(np.median(fills)) > 0.8
