"""Held-out data of every task: texts, seeds and, for a tenth of the samples, fonts that training never shows.

In: a set and a number. Out: samples with a flag, True where the fonts are unseen ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Literal, get_args

from mineru_diffusion.evaluation.lines import UNSEEN_FONT_SHARE, held_out_lines
from mineru_diffusion.synthesis.formula_stream import FormulaStream
from mineru_diffusion.synthesis.pages import PageStream
from mineru_diffusion.synthesis.sample import Sample, SampleStream
from mineru_diffusion.synthesis.table_stream import TableStream
from mineru_diffusion.synthesis.typst_engine import TypstFamily
from mineru_diffusion.synthesis.typst_fonts import split_families

HeldOut = Literal["text", "text-degraded", "formula", "table", "layout"]
SETS: tuple[HeldOut, ...] = get_args(HeldOut)

_WEAR = {"text": (0.0, 0.0), "text-degraded": (1.0, 1.0)}
"""`degrade` and `worn_share` of the sets of lines: none worn, or all of them."""


def held_out_samples(name: HeldOut, number: int, *, seed: int = 0, line_height: int = 32) -> list[tuple[Sample, bool]]:
    """Samples of a set, the ones in unseen fonts last.

    Args:
        name: of the set.
        number: how many.
        seed: of the first stream; the unseen fonts' stream has the next one.
        line_height: height of the images of lines, pixels.
    """
    if name in _WEAR:
        degrade, worn_share = _WEAR[name]
        lines = held_out_lines(number, seed=seed, height=line_height, degrade=degrade, worn_share=worn_share)
        return [
            (Sample(line.image, "text", line.text, source={"generator": "lines", "font": line.font}), flag)
            for line, flag in lines
        ]
    unseen = max(1, round(number * UNSEEN_FONT_SHARE))
    if name == "formula":
        return _formulas(number - unseen, unseen, seed)
    known = split_families("train")
    streams = ((_stream(name, seed, known), number - unseen, False), (_stream(name, seed + 1, None), unseen, True))
    return [(stream.sample(i), flag) for stream, size, flag in streams for i in range(size)]


def _stream(name: HeldOut, seed: int, families: Sequence[TypstFamily] | None) -> SampleStream:
    """Held-out words in these font families, or in held-out ones."""
    kind = TableStream if name == "table" else PageStream
    return kind(seed, "heldout", families=families)


def _formulas(known: int, unseen: int, seed: int) -> list[tuple[Sample, bool]]:
    """The first so many held-out formulas in known and in unseen faces, which their stream mixes."""
    stream = FormulaStream(seed, "heldout")
    found: dict[bool, list[Sample]] = {False: [], True: []}
    for index in count():
        if len(found[False]) >= known and len(found[True]) >= unseen:
            break
        sample = stream.sample(index)
        found[bool(sample.source["held_out_font"])].append(sample)
    return [(sample, False) for sample in found[False][:known]] + [(sample, True) for sample in found[True][:unseen]]
