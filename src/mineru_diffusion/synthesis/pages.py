"""Endless, seeded pages with exact layout truth, and the regions cut out of them.

In: a seed. Out: Samples of the task `layout` (target in the layout grammar, in reading order), and samples of the
tasks `text`, `table` and `formula` for their regions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from mineru_diffusion.document import layout_grammar
from mineru_diffusion.engine.types import Task
from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.cells import CellSampler
from mineru_diffusion.synthesis.page_blocks import Piece
from mineru_diffusion.synthesis.page_content import PageWriter
from mineru_diffusion.synthesis.page_look import PageLook
from mineru_diffusion.synthesis.page_typst import build
from mineru_diffusion.synthesis.sample import LayoutBox, Sample
from mineru_diffusion.synthesis.scans import print_page
from mineru_diffusion.synthesis.text import TextSampler
from mineru_diffusion.synthesis.typst_engine import TypstFamily
from mineru_diffusion.synthesis.typst_fonts import FamilyChoice, split_families
from mineru_diffusion.synthesis.typst_run import draw_pages

_TASKS: dict[str, Task] = {"table": "table", "equation": "formula"}
_NO_TRANSCRIPT = frozenset({"image", "chart"})
_LEAST_INK = 2
"""Points; what shows less of itself on a page than this is not a region."""


class PageStream:
    """Endless pages, fully determined by the arguments and the fonts of the machine. Picklable; sample i depends on the
    seed and i only.

    Args:
        seed: any non-negative integer.
        split: "train" or "heldout": disjoint words, formulas and font families.
        dpi: range of resolutions, pixels per inch. The layout task squashes a page anyway; regions to be read need 100
            or more.
        degrade: 0 gives clean pages only; 1 about half of them worn; more wears harder.
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
        dpi: tuple[float, float] = (70, 130),
        degrade: float = 1.0,
        families: Sequence[TypstFamily] | None = None,
    ) -> None:
        if seed < 0 or degrade < 0:
            raise UsageError(f"bad seed {seed} or degrade {degrade}: neither can be negative")
        if not 30 <= dpi[0] <= dpi[1] <= 400:
            raise UsageError(f"bad resolution range {dpi}: use 30 to 400 dpi, the lower first")
        self.seed, self.split, self.dpi, self.degrade = seed, split, dpi, degrade
        self._text = TextSampler(split=split)
        self._cells = CellSampler(split=split)
        self._families = FamilyChoice(split_families(split) if families is None else families)

    def __iter__(self) -> Iterator[Sample]:
        return map(self.sample, count())

    def sample(self, index: int) -> Sample:
        """Page number `index` of the stream."""
        rng = np.random.default_rng((self.seed, index))
        look = PageLook(rng, self._text, self._cells, self._families)
        later = rng.random() < 0.2
        source = PageWriter(look).page(
            1.6 if later else rng.uniform(0.4, 1.5), opening=bool(not later and rng.random() < 0.4)
        )
        page = 2 if later else 1
        code, pieces = build(source, page)
        dpi = float(rng.uniform(*self.dpi))
        drawn = draw_pages(code, dpi)
        if len(drawn) < page:
            page = 1
            code, pieces = build(source, page)
        image, tilt = print_page(drawn[page - 1], rng, self.degrade)
        width, height = source.geometry.width, source.geometry.height
        boxes, target = [], []
        for piece in pieces:
            box = _on_page(piece, width, height)
            if box is None:
                continue
            bbox = tilt.box(box)
            boxes.append(LayoutBox(piece.kind, bbox, piece.content, piece.angle))
            target.append(layout_grammar.LayoutBox(piece.kind, bbox, piece.angle, piece.continued))
        facts = {
            "generator": "pages", "seed": self.seed, "split": self.split, "index": index, "font": look.body.font,
            "language": look.language, "columns": source.geometry.columns, "dpi": round(dpi, 1),
            "tilt_degrees": round(float(np.rad2deg(tilt.radians)), 3), "em": round(look.body.size * dpi / 72, 1),
        }  # fmt: skip
        return Sample(image, "layout", layout_grammar.format_layout(target), tuple(boxes), facts)


def cut_regions(page: Sample, rng: np.random.Generator) -> list[Sample]:
    """The regions of a page that have a transcript, each as a sample of its own: `text`, `table` or `formula`. They are
    cut with a little of what is around them, as a layout model's boxes come; turned ones are turned upright.

    Raises:
        UsageError: the sample is no page.
    """
    if page.task != "layout":
        raise UsageError(f"cannot cut regions out of a sample of the task {page.task!r}: pass one of a PageStream")
    height, width = page.image.shape[:2]
    samples = []
    for number, box in enumerate(page.layout):
        if box.kind in _NO_TRANSCRIPT or not box.content:
            continue
        margin = rng.uniform(0.5, 5, 4) * (1, 1, -1, -1)
        x0, y0, x1, y1 = np.array(box.bbox) * (width, height, width, height) - margin
        left, top = max(0, round(x0)), max(0, round(y0))
        right, bottom = min(width, round(x1)), min(height, round(y1))
        cut = np.rot90(page.image[top:bottom, left:right], round(box.angle / 90))
        facts = {**page.source, "region": number, "kind": box.kind}
        samples.append(Sample(np.ascontiguousarray(cut), _TASKS.get(box.kind, "text"), box.content, source=facts))
    return samples


class RegionStream:
    """Endless regions cut from pages: sample i is region i mod `per_page` of page i // `per_page` (a page with fewer
    starts over), so that neighbours share the work for a page. Arguments as for `PageStream`.

    Raises:
        UsageError: an argument is out of range.
        MissingExtra: typst or wordfreq is not installed.
    """

    per_page = 8

    def __init__(
        self,
        seed: int,
        split: str = "train",
        *,
        dpi: tuple[float, float] = (100, 200),
        degrade: float = 1.0,
        families: Sequence[TypstFamily] | None = None,
    ) -> None:
        self.seed = seed
        self._pages = PageStream(seed, split, dpi=dpi, degrade=degrade, families=families)
        self._kept: tuple[int, list[Sample]] | None = None

    def __iter__(self) -> Iterator[Sample]:
        return map(self.sample, count())

    def sample(self, index: int) -> Sample:
        """Region number `index` of the stream."""
        number, place = divmod(index, self.per_page)
        if self._kept is None or self._kept[0] != number:
            rng = np.random.default_rng((self.seed, number, 1))
            regions = cut_regions(self._pages.sample(number), rng)
            self._kept = (number, [regions[i] for i in rng.permutation(len(regions))])
        regions = self._kept[1]
        region = regions[place % len(regions)]
        return replace(region, source={**region.source, "index": index, "page": number})


def _on_page(piece: Piece, width: float, height: float) -> tuple[float, float, float, float] | None:
    """The box as fractions of the page; None where it lies outside or shows next to nothing."""
    x0, x1 = (min(max(x, 0.0), width) for x in piece.box[::2])
    y0, y1 = (min(max(y, 0.0), height) for y in piece.box[1::2])
    if x1 - x0 < _LEAST_INK or y1 - y0 < _LEAST_INK:
        return None
    return x0 / width, y0 / height, x1 / width, y1 / height
