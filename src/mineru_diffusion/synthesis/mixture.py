"""Several streams as one: each sample comes from one of them, by weight.

In: names of streams with weights, a seed. Out: one SampleStream; sample i depends on the arguments and i only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count

import numpy as np

from mineru_diffusion.errors import UsageError
from mineru_diffusion.synthesis.formula_stream import FormulaStream
from mineru_diffusion.synthesis.lines import LineStream
from mineru_diffusion.synthesis.pages import PageStream, RegionStream
from mineru_diffusion.synthesis.paragraphs import ParagraphStream
from mineru_diffusion.synthesis.sample import Sample, SampleStream
from mineru_diffusion.synthesis.table_stream import TableStream

STREAMS = ("line", "text", "table", "formula", "layout", "region")
"""Lines, paragraphs and other regions of text, tables, formulas, whole pages, and regions cut out of pages."""


class LineSamples:
    """A LineStream as Samples of the task `text`."""

    def __init__(self, lines: LineStream, split: str) -> None:
        self._lines, self._split = lines, split

    def sample(self, index: int) -> Sample:
        """Line number `index` of the stream."""
        line = self._lines.sample(index)
        source = {
            "generator": "lines", "seed": self._lines.seed, "split": self._split, "index": index, "font": line.font,
        }  # fmt: skip
        return Sample(line.image, "text", line.text, source=source)


def make_stream(name: str, seed: int, split: str = "train", *, degrade: float = 1.0) -> SampleStream:
    """One of STREAMS with its defaults.

    Raises:
        UsageError: unknown name or split, a negative seed.
        MissingExtra: typst or wordfreq is not installed.
    """
    if name == "line":
        return LineSamples(LineStream(seed=seed, split=split, degrade=degrade), split)
    if name == "text":
        return ParagraphStream(seed, split, degrade=degrade)
    if name == "table":
        return TableStream(seed, split, degrade=degrade)
    if name == "formula":
        return FormulaStream(seed, split, degrade=degrade)
    if name == "layout":
        return PageStream(seed, split, degrade=degrade)
    if name == "region":
        return RegionStream(seed, split, degrade=degrade)
    raise UsageError(f"unknown kind of data {name!r}: use {', '.join(STREAMS)}")


class Mixture:
    """A stream of streams. Picklable.

    Args:
        weights: how often each of STREAMS comes, in any unit.
        seed: any non-negative integer; the streams get seeds of their own from it.
        split: "train" or "heldout".
        degrade: see the streams.

    Raises:
        UsageError: no weights, one that is not positive, an unknown name, or a negative seed.
        MissingExtra: typst or wordfreq is not installed.
    """

    def __init__(self, weights: Mapping[str, float], seed: int, split: str = "train", *, degrade: float = 1.0) -> None:
        if not weights or min(weights.values()) <= 0:
            raise UsageError(
                f"bad weights {dict(weights)}: name at least one kind of data, each with a positive weight"
            )
        if seed < 0:
            raise UsageError(f"bad seed {seed}: use a non-negative integer")
        self.seed, self.split = seed, split
        self.names = tuple(weights)
        self._ends = np.cumsum([weights[name] for name in self.names]) / sum(weights.values())
        # Seeds by place in STREAMS, so that a stream is the same whatever it is mixed with.
        seeds = np.random.SeedSequence(seed).generate_state(len(STREAMS))
        self._streams = tuple(
            make_stream(name, int(seeds[STREAMS.index(name)]) if name in STREAMS else 0, split, degrade=degrade)
            for name in self.names
        )

    def __iter__(self) -> Iterator[Sample]:
        return map(self.sample, count())

    def sample(self, index: int) -> Sample:
        """Sample number `index` of the mixture: sample `index` of one of its streams."""
        roll = np.random.default_rng((self.seed, index, 2)).random()
        chosen = min(int(np.searchsorted(self._ends, roll, side="right")), len(self.names) - 1)
        return self._streams[chosen].sample(index)
