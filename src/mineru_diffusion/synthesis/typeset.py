"""One line of text set in its faces: where each character stands, and the ink.

In: pieces of text with their faces, spacing. Out: a canvas of ink (255 = full) with the edges of every character.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mineru_diffusion.synthesis.faces import LIGATURES, Face


@dataclass(frozen=True)
class Ink:
    """Attributes:
    canvas: uint8 [H, W], 0 = paper, 255 = ink, with a border of `em` at the sides and half that above and below.
    edges: left and right edge of each character, canvas pixels [n, 2].
    baseline: canvas row of the baseline.
    em: font size in pixels.
    ascent, descent: the face's own line box above and below the baseline, pixels.
    """

    canvas: NDArray[np.uint8]
    edges: NDArray[np.float64]
    baseline: int
    em: float
    ascent: float
    descent: float


def typeset(
    runs: Sequence[tuple[str, Face]],
    *,
    gaps: NDArray[np.float64] | None = None,
    reduce: int = 1,
    ligatures: bool = False,
) -> Ink:
    """Draw text on one baseline.

    Args:
        runs: texts one after the other, each with a face that covers it; the faces have one size.
        gaps: pixels that each character is wider than its face has it [n].
        reduce: the canvas is made smaller by this factor, for letters at fractions of a pixel, as PDF viewers draw.
        ligatures: draw `fi` and its like as one glyph where the face has it; each letter then gets an equal part of
            the glyph's width.
    """
    pieces = [face.joined(text) if ligatures else list(text) for text, face in runs]
    drawn = ["".join(LIGATURES.get(piece, piece) for piece in line) for line in pieces]
    letters = np.array([len(piece) for line in pieces for piece in line])
    widths = np.concatenate([np.diff(face.pens(text)) for text, (_, face) in zip(drawn, runs, strict=True)])
    steps = np.repeat(widths / letters, letters)
    pens = np.concatenate([[0.0], np.cumsum(steps if gaps is None else steps + gaps)])
    em, ascent, descent = (max(v) for v in zip(*((f.size, f.ascent, f.descent) for _, f in runs), strict=True))
    # Whole multiples of `reduce` keep the baseline and the edges on whole pixels afterwards.
    border = -(-em // reduce) * reduce
    above = -(-(max(ascent, em) + em // 2) // reduce) * reduce
    below = max(descent, em // 3) + em // 2
    pens = np.round(pens) + border
    canvas = np.zeros((above + below, int(pens[-1]) + border + reduce), dtype=np.uint8)
    glyphs = (face.glyph(character) for text, (_, face) in zip(drawn, runs, strict=True) for character in text)
    starts = pens[np.cumsum(letters) - letters]
    for glyph, pen in zip(glyphs, starts.astype(int).tolist(), strict=True):
        if glyph is not None:
            _stamp(canvas, glyph.picture, above + glyph.top, pen + glyph.left)
    if reduce > 1:
        canvas = np.asarray(Image.fromarray(canvas).reduce(reduce))
        pens = pens / reduce
    edges = np.stack([pens[:-1], pens[1:]], axis=1)
    return Ink(canvas, edges, above // reduce, em / reduce, ascent / reduce, descent / reduce)


def _stamp(canvas: NDArray[np.uint8], picture: NDArray[np.uint8], top: int, left: int) -> None:
    """Lay a picture over the canvas in place; what hangs over the canvas' border is cut off."""
    picture = picture[max(0, -top) :, max(0, -left) :]
    top, left = max(0, top), max(0, left)
    target = canvas[top : top + picture.shape[0], left : left + picture.shape[1]]
    np.maximum(target, picture[: target.shape[0], : target.shape[1]], out=target)
