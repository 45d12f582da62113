"""Endless, seeded pictures of tables with their OTSL.

In: a seed. Out: Samples of the task `table`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np

from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.cells import CellSampler
from mineru_diffusion.synthesis.sample import Sample
from mineru_diffusion.synthesis.scans import print_region
from mineru_diffusion.synthesis.table_typst import TableStyle, render_table
from mineru_diffusion.synthesis.tables import TableSpec
from mineru_diffusion.synthesis.typst_engine import TypstFamily
from mineru_diffusion.synthesis.typst_fonts import FamilyChoice, kept, split_families

# 10 pt at 80 to 200 dpi.
_EM_PIXELS = (11, 12, 14, 16, 18, 20, 22, 25, 28)
_POINTS = 10.0
_SMALLEST_EM = 10.0
_MARGIN = 14
_TRIES = 6


class TableStream:
    """Endless tables, fully determined by the arguments and the fonts of the machine. Picklable; sample i depends on
    the seed and i only.

    Args:
        seed: any non-negative integer.
        split: "train" or "heldout": disjoint words and font families.
        max_rows, max_cols: largest grid.
        max_side: longest side of an image, pixels; larger tables are drawn smaller, or not at all.
        degrade: 0 gives clean tables only; 1 about half of them worn; more wears harder.
        families: font families to use as they are; None takes the split's share of the machine's.

    Raises:
        UsageError: an argument is out of range.
        MissingExtra: typst or wordfreq is not installed.
    """

    def __init__(
        self,
        seed: int,
        split: str = "train",
        *,
        max_rows: int = 12,
        max_cols: int = 8,
        max_side: int = 1200,
        degrade: float = 1.0,
        families: Sequence[TypstFamily] | None = None,
    ) -> None:
        if seed < 0 or degrade < 0:
            raise UsageError(f"bad seed {seed} or degrade {degrade}: neither can be negative")
        if max_rows < 2 or max_cols < 2 or max_side < 200:
            raise UsageError(f"bad table limits {max_rows} x {max_cols}, {max_side} pixels: use at least 2 x 2 and 200")
        self.seed, self.split, self.degrade = seed, split, degrade
        self.max_rows, self.max_cols, self.max_side = max_rows, max_cols, max_side
        self._cells = CellSampler(split=split)
        self._families = FamilyChoice(split_families(split) if families is None else families)

    def __iter__(self) -> Iterator[Sample]:
        return map(self.sample, count())

    def sample(self, index: int) -> Sample:
        """Table number `index` of the stream."""
        rng = np.random.default_rng((self.seed, index))
        while True:
            spec = TableSpec.random(rng, max_rows=self.max_rows, max_cols=self.max_cols, sampler=self._cells)
            text = "".join(sorted(set("".join(cell.text for cell in spec.cells)) - {" "}))
            drawn = (self._families.draw(rng, mono=rng.random() < 0.04) for _ in range(_TRIES))
            family = next((f for f in drawn if kept(f, text) == text), None)
            if family is None:
                continue
            style = TableStyle.random(rng, spec, font=family.name, size=_POINTS)
            em = float(_EM_PIXELS[int(rng.integers(len(_EM_PIXELS)))])
            pixels = render_table(spec, style, ppi=em / _POINTS * 72)
            margins = rng.integers(0, _MARGIN, 4)
            room = (self.max_side - 2 * _MARGIN) / max(pixels.shape)
            if room < 1:
                em *= 0.99 * room
                if em < _SMALLEST_EM:
                    continue
                pixels = render_table(spec, style, ppi=em / _POINTS * 72)
            pixels = np.pad(pixels, (margins[:2], margins[2:]), constant_values=255)
            # Small letters do not survive what larger ones do.
            image = print_region(pixels, rng, self.degrade * float(np.clip((em - 11) / 9, 0, 1)))
            source = {
                "generator": "tables", "seed": self.seed, "split": self.split, "index": index, "font": family.name,
                "em": round(em, 2), "rules": style.rules, "rows": spec.n_rows, "columns": spec.n_cols,
                "header_rows": spec.header_rows, "spans": spec.table.has_spans,
            }  # fmt: skip
            return Sample(image, "table", spec.to_otsl(), source=source)
