"""Passes of a few fixed shapes, for CUDA graphs: every run is a row of the same number of positions, which sees the
same number of slots, and rows are filled up to a power of two. Rows that are filled up read and write a slot that
belongs to no sequence.

Shapes: G rows, L positions of a row, S slots that a row reads, T positions of the pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mineru_diffusion.engine.rows import Run

CONTEXT_STEP = 256
"""S is a multiple of this."""

MOST_WASTE = 4
"""A pass is laid out so only if it reads at most this many times what its runs see."""


@dataclass(frozen=True)
class Shape:
    """G, L and S of a pass."""

    groups: int
    length: int
    seen: int


def shape_of(runs: Sequence[Run], block_length: int) -> Shape | None:
    """The smallest shape that holds these runs: G a power of two, L one or two blocks (a block being denoised, and the
    finished one before it), S a multiple of `CONTEXT_STEP`. None where that does not pay: pieces of prompts have all
    lengths, and beside one long sequence many short ones would be read as if they were long."""
    longest = max(run.stop - run.start for run in runs)
    if longest > 2 * block_length:
        return None
    reaches = [max(run.reach, CONTEXT_STEP) for run in runs]
    groups = 1 << (len(runs) - 1).bit_length()
    seen = -(-max(reaches) // CONTEXT_STEP) * CONTEXT_STEP
    if groups * seen > MOST_WASTE * sum(reaches):
        return None
    return Shape(groups, block_length if longest <= block_length else 2 * block_length, seen)


@dataclass(frozen=True)
class PaddedRows:
    """A pass in a fixed shape.

    Attributes:
        places: where in G * L the pass's positions are [T].
        positions: positions of their sequences [G * L].
        slots: where they write [G * L].
        keys: slots that the rows read [G * S].
        visible: how many of these each sees [G, L].
    """

    places: NDArray[np.int64]
    positions: NDArray[np.int64]
    slots: NDArray[np.int64]
    keys: NDArray[np.int64]
    visible: NDArray[np.int64]


def pad_rows(runs: Sequence[Run], shape: Shape, scratch: int) -> PaddedRows:
    """Lay runs out in a shape that holds them; `scratch` is the slot that belongs to no sequence."""
    positions = np.zeros((shape.groups, shape.length), dtype=np.int64)
    slots = np.full((shape.groups, shape.length), scratch, dtype=np.int64)
    keys = np.full((shape.groups, shape.seen), scratch, dtype=np.int64)
    visible = np.ones((shape.groups, shape.length), dtype=np.int64)
    places = []
    for row, run in enumerate(runs):
        count = run.stop - run.start
        positions[row, :count] = np.arange(run.start, run.stop)
        slots[row, :count] = run.slots[run.start : run.stop]
        run.fill_read(keys[row])
        visible[row, :count] = run.visible()
        places.append(row * shape.length + np.arange(count))
    return PaddedRows(np.concatenate(places), positions.ravel(), slots.ravel(), keys.ravel(), visible)
