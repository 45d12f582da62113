"""Passes that are recorded once for each shape and replayed afterwards (CUDA graphs): a step is some hundred small
operations, and starting them one by one takes longer than they do. A graph reads and writes fixed memory, so each shape
has buffers, which are filled before it is replayed.

Only recording needs CUDA. Elsewhere a stand-in calls the same function on the same buffers, which the tests do.

Shapes: G rows, L positions of a row, S slots that a row reads, T positions of a pass, M wanted ones, W decoder width, D
width of a head.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mineru_diffusion.engine.cache import PagedCache
from mineru_diffusion.engine.forward import InferenceDecoder
from mineru_diffusion.engine.kernels import Kernel
from mineru_diffusion.engine.padding import PaddedRows, Shape, pad_rows, shape_of
from mineru_diffusion.engine.passes import Asked, Forward, PlainPasses
from mineru_diffusion.engine.rows import Bucket, Run, attend_bucket
from mineru_diffusion.engine.transfer import fill, to_device

logger = logging.getLogger("mineru_diffusion.engine")

MAX_GRAPHS = 32
"""Shapes that are kept; the one that was not used for longest goes first."""

Record = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]
"""Records a function that works on fixed memory; what it gives does the same again."""


def call_again(function: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """The stand-in where there are no graphs."""
    return function


class CudaRecorder:
    """Records CUDA graphs, which share their intermediate memory: an output is valid until the next replay.

    Args:
        device: where the function's tensors are.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._pool = torch.cuda.graph_pool_handle()
        # torch hands out the same few streams in turn: one of another priority is not the one that images are encoded
        # on meanwhile, whose work would be recorded too.
        self._stream = torch.cuda.Stream(device, priority=-1)

    def __call__(self, function: Callable[[], Tensor]) -> Callable[[], Tensor]:
        with torch.cuda.device(self.device):
            side, current = self._stream, torch.cuda.current_stream()
            side.wait_stream(current)
            with torch.cuda.stream(side):
                # What is made on first use (handles, compiled kernels) must not be made while recording.
                function()
            current.wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            # Threads that prepare images meanwhile do no harm.
            with torch.cuda.graph(graph, pool=self._pool, stream=side, capture_error_mode="thread_local"):
                out = function()

        def replay() -> Tensor:
            graph.replay()
            return out

        return replay


class _OneBucket:
    """The decoder's view of a pass that is a single bucket."""

    asked = None

    def __init__(self, cache: PagedCache, slots: Tensor, bucket: Bucket) -> None:
        self.cache, self.slots, self._bucket = cache, slots, bucket
        self.all = self.last = self

    def mix(self, layer: int, q_THD: Tensor) -> Tensor:
        return attend_bucket(self.cache, layer, q_THD, self._bucket)


@dataclass(frozen=True)
class _Buffers:
    """The fixed memory of a shape: embeddings [G * L, W], cosines and sines [G * L, 1, D / 2], and the arrays of
    `PaddedRows`."""

    x: Tensor
    cos: Tensor
    sin: Tensor
    slots: Tensor
    keys: Tensor
    visible: Tensor

    @staticmethod
    def like(shape: Shape, x: Tensor, head_dim: int) -> _Buffers:
        size = shape.groups * shape.length

        def whole(*sizes: int) -> Tensor:
            return torch.zeros(sizes, dtype=torch.int64, device=x.device)

        turns = x.new_zeros((size, 1, head_dim // 2))
        slots, keys = whole(size), whole(shape.groups * shape.seen)
        visible = whole(shape.groups, shape.length)
        return _Buffers(x.new_zeros((size, x.shape[1])), turns, turns.clone(), slots, keys, visible)


class _Graph:
    """A shape with its buffers; recorded when it is first run."""

    def __init__(self, plain: PlainPasses, shape: Shape, x: Tensor) -> None:
        self._decoder, self._cache, self._kernel = plain.decoder, plain.cache, plain.kernel
        self._shape = shape
        self._buffers = _Buffers.like(shape, x, self._decoder.head_dim)
        self.replay: Callable[[], Tensor] | None = None

    def fill(self, rows: PaddedRows, x_TW: Tensor) -> None:
        """Put a pass into the buffers."""
        to = self._buffers
        # Zeros give zeros in every layer: what is filled up stays finite.
        to.x.zero_().index_copy_(0, to_device(rows.places, x_TW.device), x_TW)
        positions = to_device(rows.positions, x_TW.device)
        cos, sin = self._decoder.rope(positions, int(rows.positions.max()) + 1, x_TW.dtype)
        to.cos.copy_(cos)
        to.sin.copy_(sin)
        fill(to.slots, rows.slots)
        fill(to.keys, rows.keys)
        fill(to.visible, rows.visible)

    def layers(self) -> Tensor:
        """All layers on the buffers [G * L, W]."""
        at, shape = self._buffers, self._shape
        attend = self._kernel(at.visible, shape.seen, self._decoder.repeats, at.x.dtype)
        bucket = Bucket(None, shape.groups, shape.length, shape.seen, at.keys, 0, attend)
        hidden = self._decoder.layers(at.x, at.cos, at.sin, _OneBucket(self._cache, at.slots, bucket), None)
        assert hidden is not None
        return hidden


class GraphedPasses:
    """Passes of the few shapes of `padding.shape_of` are replayed, others run plainly. When recording fails, so do all
    from then on.

    Args:
        plain: what runs the others.
        block_length: B.
        record: how a pass is recorded.
    """

    def __init__(self, plain: PlainPasses, block_length: int, record: Record) -> None:
        self._plain = plain
        self._block_length = block_length
        self._record: Record | None = record
        self._graphs: OrderedDict[Shape, _Graph] = OrderedDict()
        self._storage = 0
        self.graphed = 0

    def plan(self, x_TW: Tensor, runs: Sequence[Run], asked: Asked, picked: NDArray[np.int64] | None) -> Forward:
        record = self._record
        shape = None if record is None else shape_of(runs, self._block_length)
        if record is None or shape is None:
            return self._plain.plan(x_TW, runs, asked, picked)
        graph = self._graph(shape, x_TW)
        rows = pad_rows(runs, shape, self._plain.cache.scratch)
        graph.fill(rows, x_TW)
        wanted = _wanted(rows, runs, asked, picked)
        index = to_device(wanted, x_TW.device)

        def forward() -> Tensor | None:
            if graph.replay is None:
                try:
                    graph.replay = record(graph.layers)
                except RuntimeError as error:
                    logger.warning("passes are not recorded as CUDA graphs: %s", str(error).split("\n", 1)[0])
                    self._record = None
                    self._graphs.clear()
                    return self._plain.plan(x_TW, runs, asked, picked)()
            hidden = graph.replay()
            self.graphed += 1
            return hidden.index_select(0, index) if any(part is not None for part in asked) else None

        return forward

    def _graph(self, shape: Shape, x: Tensor) -> _Graph:
        if self._storage != self._plain.cache.storage:
            # The cache has moved; graphs know it by its address.
            self._graphs.clear()
            self._storage = self._plain.cache.storage
        if shape not in self._graphs:
            while len(self._graphs) >= MAX_GRAPHS:
                self._graphs.popitem(last=False)
            self._graphs[shape] = _Graph(self._plain, shape, x)
        self._graphs.move_to_end(shape)
        return self._graphs[shape]


def _wanted(rows: PaddedRows, runs: Sequence[Run], asked: Asked, picked: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Where in G * L the picked ones of the asked positions are [M]."""
    parts, at = [np.zeros(0, dtype=np.int64)], 0
    for run, part in zip(runs, asked, strict=True):
        if part is not None:
            parts.append(rows.places[at + part[0] - run.start : at + part[1] - run.start])
        at += run.stop - run.start
    flat = np.concatenate(parts)
    return flat if picked is None else flat[picked]


def make_passes(
    decoder: InferenceDecoder,
    cache: PagedCache,
    kernel: Kernel,
    *,
    block_length: int,
    device: torch.device,
    graphs: bool | None,
) -> PlainPasses | GraphedPasses:
    """Passes with graphs or without; None: with them on CUDA."""
    plain = PlainPasses(decoder, cache, kernel)
    if graphs is None:
        graphs = device.type == "cuda"
    if not graphs:
        return plain
    return GraphedPasses(plain, block_length, CudaRecorder(device) if device.type == "cuda" else call_again)
