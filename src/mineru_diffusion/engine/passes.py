"""How a pass through the decoder is carried out: planned on the host, then run.

Shapes: T positions of a pass, A asked ones, M of these picked, W decoder width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from mineru_diffusion.engine.cache import PagedCache
from mineru_diffusion.engine.forward import InferenceDecoder
from mineru_diffusion.engine.kernels import Kernel
from mineru_diffusion.engine.rows import RowAttention, Run
from mineru_diffusion.engine.transfer import to_device

Asked = Sequence[tuple[int, int] | None]
Forward = Callable[[], Tensor | None]
"""Runs a planned pass: hidden states [M, W] after the final norm; None if nothing was asked for."""


class Passes(Protocol):
    """Plans passes. `graphed` counts those that were replayed from a graph."""

    graphed: int

    def plan(self, x_TW: Tensor, runs: Sequence[Run], asked: Asked, picked: NDArray[np.int64] | None) -> Forward:
        """Plan a pass, which must be run before the next one is planned.

        Args:
            x_TW: input embeddings; may be overwritten.
            runs: the pass's runs, in the order of its positions.
            asked: for each run the part (start, stop) of its positions whose outputs are wanted, or None.
            picked: which of the A asked positions [M] are wanted; None: all.
        """
        ...


class PlainPasses:
    """Every pass in the shape that it has, operation by operation.

    Args:
        decoder: the layers.
        cache: where pages live.
        kernel: what attends.
    """

    def __init__(self, decoder: InferenceDecoder, cache: PagedCache, kernel: Kernel) -> None:
        self.decoder, self.cache, self.kernel = decoder, cache, kernel
        self.graphed = 0

    def plan(self, x_TW: Tensor, runs: Sequence[Run], asked: Asked, picked: NDArray[np.int64] | None) -> Forward:
        attention = RowAttention(self.cache, runs, asked, self.decoder.repeats, self.kernel)
        positions = np.concatenate([np.arange(run.start, run.stop) for run in runs])
        return partial(
            self.decoder,
            x_TW,
            to_device(positions, x_TW.device),
            int(positions.max()) + 1,
            attention,
            None if picked is None else to_device(picked, x_TW.device),
        )
