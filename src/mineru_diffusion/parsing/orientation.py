"""Which way up a scanned page is. In: the ink of a page. Out: the clockwise rotation of its content.

Lines of text make the row profile of an upright page jagged and its column profile smooth; sideways it is the other
way round. Up from down tells a classifier, or, without it, the ink: Latin, Greek and Cyrillic writing has far more
above the x-height than below the baseline. Where it is not plain, the page counts as upright.
"""

from __future__ import annotations

import itertools

import numpy as np

from mineru_diffusion.document.types import BBox
from mineru_diffusion.parsing.bands import row_bands
from mineru_diffusion.parsing.ink import Mask, inked_columns
from mineru_diffusion.parsing.orientation_model import OrientationModel

STRIPS = 6
SIDEWAYS = 1.6
"""How much sharper the column profile must be than the row profile."""
LEAST_LINES = 3
"""Lines that must agree before a page is turned."""
SURE = 0.8
"""Probability from which the classifier alone turns a page whose profiles are not plain."""


def content_angle(mask: Mask, model: OrientationModel | None = None) -> int:
    """0, 90, 180 or 270: clockwise degrees by which the content is turned.

    Args:
        mask: ink at about 100 dpi, rules removed [H, W].
        model: the classifier; without it, small type and tables count as upright where the ink does not tell.
    """
    across, along = _sharpness(mask), _sharpness(mask.T)
    odds = model.probabilities(mask) if model is not None else None
    if odds is not None:
        best = int(np.argmax(odds))
        # Columns of figures have sharp profiles both ways. Scripts that the classifier never saw it turns round, so a
        # page is not put on its head against its ink.
        agrees = (True, along > 0.5 * across, best != 2 or up_down(mask) <= 0, along > 0.5 * across)[best]
        if odds[best] >= SURE and agrees:
            return 90 * best
        if along > SIDEWAYS * across and max(odds[1], odds[3]) > 2 * min(odds[1], odds[3]):
            return 90 if odds[1] > odds[3] else 270
    if along > SIDEWAYS * across:
        # np.rot90 turns counter-clockwise, which undoes a clockwise rotation.
        up = up_down(np.rot90(mask))
        return 90 if up > 0 else 270 if up < 0 else 0
    # Columns of vertical strokes, not lines, are what a page shows that lies on its side unrecognised.
    return 180 if across > 1.25 * along and up_down(mask) < 0 else 0


def _sharpness(mask: Mask) -> float:
    """Sum of squared steps of the row profile, over upright strips so that unaligned columns do not blur it."""
    edges = np.linspace(0, mask.shape[1], STRIPS + 1).astype(int)
    total = 0.0
    for a, b in itertools.pairwise(edges):
        profile = np.count_nonzero(mask[:, a:b], axis=1).astype(np.float64)
        if profile.any():
            total += float(np.square(np.diff(profile)).sum()) / float(profile.sum())
    return total


def up_down(mask: Mask) -> int:
    """1 if the lines are the right way up, -1 if they are upside down, 0 if they do not tell."""
    edges = np.linspace(0, mask.shape[1], 4).astype(int)
    votes = []
    for a, b in itertools.pairwise(edges):
        strip = mask[:, a:b]
        for band in row_bands(strip):
            rows = strip[band.top : band.bottom]
            profile = np.count_nonzero(rows, axis=1).astype(np.float64)
            if band.height < 7 or np.count_nonzero(inked_columns(rows)) < 4 * band.height:
                continue
            core = np.flatnonzero(profile >= 0.5 * np.sort(profile)[-2])
            above, below = float(profile[: core[0]].sum()), float(profile[core[-1] + 1 :].sum())
            votes.append((above - below) / float(profile.sum()))
    if len(votes) < LEAST_LINES:
        return 0
    mean, error = float(np.mean(votes)), float(np.std(votes)) / len(votes) ** 0.5
    if abs(mean) < max(0.02, 2 * error):
        return 0
    return 1 if mean > 0 else -1


def turn_back(bbox: BBox, angle: int) -> BBox:
    """A box on the upright page to the page as displayed, whose content is turned clockwise by `angle`."""
    x0, y0, x1, y1 = bbox
    if angle == 90:
        return 1 - y1, x0, 1 - y0, x1
    if angle == 180:
        return 1 - x1, 1 - y1, 1 - x0, 1 - y0
    if angle == 270:
        return y0, 1 - x1, y1, 1 - x0
    return bbox
