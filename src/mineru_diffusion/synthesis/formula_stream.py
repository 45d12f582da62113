"""Endless, seeded pictures of formulas with their LaTeX.

In: a seed. Out: Samples of the task `formula`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np
from numpy.typing import NDArray

from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.formula_render import MATPLOTLIB, NotDrawable, formula_faces, render_formula
from mineru_diffusion.synthesis.formulas import Formula
from mineru_diffusion.synthesis.sample import Sample
from mineru_diffusion.synthesis.scans import print_region

_HELD_OUT_FACES = ((MATPLOTLIB, "stixsans"),)
_HELD_OUT_SHARE = 0.2
_EM_PIXELS = (14, 16, 18, 20, 22, 25, 28, 32, 36, 42)
_SMALLEST_EM = 13.0
_MARGIN = 12


class FormulaStream:
    """Endless formulas, fully determined by the arguments and the fonts of the machine. Picklable; sample i depends on
    the seed and i only.

    Args:
        seed: any non-negative integer.
        split: "train" or "heldout": no formula is in both; one face is drawn in "heldout" only, for a fifth of it.
        max_depth: see `Formula.random`.
        max_length: LaTeX tokens at most.
        max_width: widest image, pixels; wider formulas are drawn smaller, or not at all.
        degrade: 0 gives clean formulas only; 1 about half of them worn; more wears harder.

    Images are 20 to 200 pixels high.

    Raises:
        UsageError: an argument is out of range.
        MissingExtra: typst is not installed.
    """

    def __init__(
        self,
        seed: int,
        split: str = "train",
        *,
        max_depth: int = 3,
        max_length: int = 70,
        max_width: int = 1000,
        degrade: float = 1.0,
    ) -> None:
        if seed < 0 or degrade < 0:
            raise UsageError(f"bad seed {seed} or degrade {degrade}: neither can be negative")
        if split not in ("train", "heldout"):
            raise UsageError(f"unknown split {split!r}: use 'train' or 'heldout'")
        if max_length < 3 or max_width < 100:
            raise UsageError(f"bad formula limits: {max_length} tokens, {max_width} pixels: use at least 3 and 100")
        self.seed, self.split, self.degrade = seed, split, degrade
        self.max_depth, self.max_length, self.max_width = max_depth, max_length, max_width
        self._seen = tuple(face for face in formula_faces() if face not in _HELD_OUT_FACES)

    def __iter__(self) -> Iterator[Sample]:
        return map(self.sample, count())

    def sample(self, index: int) -> Sample:
        """Formula number `index` of the stream."""
        rng = np.random.default_rng((self.seed, index))
        while True:
            formula = Formula.random(rng, split=self.split, max_depth=self.max_depth, max_length=self.max_length)
            face = self._face(rng)
            em = float(_EM_PIXELS[int(rng.integers(len(_EM_PIXELS)))])
            display = bool(rng.random() < 0.85)
            try:
                drawn = self._fitting(formula, face, em, display)
            except NotDrawable:
                face = self._seen[0]  # typst with the font it brings, which draws everything
                drawn = self._fitting(formula, face, em, display)
            if drawn is None:
                continue
            pixels, em = drawn
            pixels = _framed(pixels, rng)
            # Small letters do not survive what larger ones do, and scripts are smaller still.
            image = print_region(pixels, rng, self.degrade * float(np.clip((em - 15) / 12, 0, 1)))
            source = {
                "generator": "formulas", "seed": self.seed, "split": self.split, "index": index,
                "font": f"{face[0]}: {face[1]}", "em": round(em, 2), "display": display, "length": formula.length,
                "held_out_font": face in _HELD_OUT_FACES,
            }  # fmt: skip
            return Sample(image, "formula", formula.latex, source=source)

    def _face(self, rng: np.random.Generator) -> tuple[str, str]:
        faces = self._seen
        if self.split == "heldout" and rng.random() < _HELD_OUT_SHARE:
            faces = _HELD_OUT_FACES
        return faces[int(rng.integers(len(faces)))]

    def _fitting(
        self, formula: Formula, face: tuple[str, str], em: float, display: bool
    ) -> tuple[NDArray[np.uint8], float] | None:
        """The picture at a size that fits, and its em; None if it would be too small to read."""
        pixels = render_formula(formula, face, em, display=display)
        room = min((self.max_width - 2 * _MARGIN) / pixels.shape[1], (200 - 2 * _MARGIN) / pixels.shape[0])
        if room >= 1:
            return pixels, em
        em *= 0.98 * room
        return None if em < _SMALLEST_EM else (render_formula(formula, face, em, display=display), em)


def _framed(pixels: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """With paper around it, so that it is at least 20 pixels high."""
    top, bottom, left, right = (int(v) for v in rng.integers(1, _MARGIN, 4))
    missing = max(0, 20 - pixels.shape[0] - top - bottom)
    top, bottom = top + missing // 2, bottom + missing - missing // 2
    return np.pad(pixels, ((top, bottom), (left, right)), constant_values=255)
