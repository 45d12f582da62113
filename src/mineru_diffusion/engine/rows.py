"""The one decoding primitive (docs/design.md, section 5): a forward pass takes runs of positions of any sequences. In
every layer each position writes its key and value to its own slot of the cache, then attends to all positions of its
sequence up to the end of its own block. Prompt, denoising and commit are all rows; with blocks of one position it is
causal attention.

Shapes: T positions of the pass, H query heads, K key/value heads, R = H / K, D width of a head; in a bucket G
sequences, L positions of each (filled up), S positions that they see.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from mineru_diffusion.engine.cache import PagedCache
from mineru_diffusion.engine.kernels import Attend, Kernel, sdpa
from mineru_diffusion.engine.transfer import to_device

SHORT = 128
"""Sequences that see at most this many positions share an attention call whatever their lengths."""

LONG = 512
"""Sequences that see at least this many, in one piece of the cache, are read in place, each by itself."""

QUERY_STEP = 16
"""Runs are filled up to multiples of this to share a call."""


@dataclass(frozen=True)
class Run:
    """Consecutive positions of one sequence in one pass: a piece of a prompt, a finished block, a block being denoised,
    or several of these.

    Attributes:
        slots: cache slots of the sequence's positions from 0, at least up to what the last of these sees.
        start: first position.
        stop: behind the last one.
        block_length: B.
        pad: positions that the first block lacks (prompt blocks are aligned to the prompt's end).
    """

    slots: NDArray[np.int64]
    start: int
    stop: int
    block_length: int
    pad: int

    def visible(self) -> NDArray[np.int64]:
        """How many positions each of these sees [stop - start]: all up to the end of its block."""
        blocks = (np.arange(self.start, self.stop) + self.pad) // self.block_length
        return (blocks + 1) * self.block_length - self.pad

    @property
    def reach(self) -> int:
        """What the last one sees, which is the most."""
        return ((self.stop - 1 + self.pad) // self.block_length + 1) * self.block_length - self.pad

    def fill_read(self, row: NDArray[np.int64]) -> None:
        """Write the slots that it reads into a row [S] of at least `reach`, filled up with a slot of its own: a
        stranger's could hold infinities, which a mask does not remove."""
        row[: self.reach] = self.slots[: self.reach]
        row[self.reach :] = self.slots[0]


@dataclass(frozen=True)
class Bucket:
    """Runs that share an attention call. `queries` [G * L] picks their positions (None: they are all there are, in
    order); `keys` [G * S] are slots (None: read the cache in place from `first`); `attend` is the kernel, which knows
    what is visible."""

    queries: Tensor | None
    groups: int
    length: int
    seen: int
    keys: Tensor | None
    first: int
    attend: Attend


class Mixer:
    """Attention of some runs over the cache, planned once a pass and used in every layer.

    Args:
        cache: where keys and values are.
        runs: in the order of the queries.
        repeats: R, query heads per key/value head.
        kernel: what attends.
    """

    def __init__(self, cache: PagedCache, runs: Sequence[Run], repeats: int, kernel: Kernel = sdpa) -> None:
        self.cache = cache
        self.repeats = repeats
        self.kernel = kernel
        store = cache.keys[0]
        self.device, self.dtype = store.device, store.dtype
        members: dict[tuple[int, int, int], list[tuple[int, Run]]] = defaultdict(list)
        at = 0
        for number, run in enumerate(runs):
            count = run.stop - run.start
            length = count if count <= QUERY_STEP else -(-count // QUERY_STEP) * QUERY_STEP
            reach = run.reach
            alone = number + 1 if reach >= LONG and _in_one_piece(run.slots[:reach]) else 0
            members[length, max(reach - 1, SHORT - 1).bit_length(), alone].append((at, run))
            at += count
        built = [self._bucket(length, alone > 0, m) for (length, _, alone), m in members.items()]
        self._buckets = [bucket for bucket, _ in built]
        order = np.concatenate([o for _, o in built]) if built else np.zeros(0, dtype=np.int64)
        self._order: Tensor | None = None
        if len(built) == 1 and np.array_equal(order, np.arange(at)):
            # Every query is there once, in order.
            self._buckets = [replace(self._buckets[0], queries=None)]
            return
        inverse = np.zeros(at, dtype=np.int64)
        real = order >= 0
        inverse[order[real]] = np.flatnonzero(real)
        self._order = to_device(inverse, self.device)

    def _bucket(self, length: int, alone: bool, members: list[tuple[int, Run]]) -> tuple[Bucket, NDArray[np.int64]]:
        """The bucket, and the query that each of its G * L rows answers (-1: filled up)."""
        groups = len(members)
        seen = max(run.reach for _, run in members)
        queries = np.empty((groups, length), dtype=np.int64)
        order = np.full((groups, length), -1, dtype=np.int64)
        visible = np.empty((groups, length), dtype=np.int64)
        slots = np.empty((groups, seen), dtype=np.int64)
        for row, (at, run) in enumerate(members):
            count = run.stop - run.start
            order[row, :count] = queries[row, :count] = np.arange(at, at + count)
            queries[row, count:] = at
            visible[row, :count] = run.visible()
            visible[row, count:] = run.reach
            run.fill_read(slots[row])
        attend: Attend = F.scaled_dot_product_attention
        if int(visible.min()) < seen:
            attend = self.kernel(to_device(visible, self.device), seen, self.repeats, self.dtype)
        keys = None if alone else to_device(slots.ravel(), self.device)
        index = to_device(queries.ravel(), self.device)
        return Bucket(index, groups, length, seen, keys, int(slots[0, 0]), attend), order.ravel()

    def mix(self, layer: int, q_THD: Tensor) -> Tensor:
        """Attended values [T, H * D] of `layer`."""
        mixed = [attend_bucket(self.cache, layer, q_THD, bucket) for bucket in self._buckets]
        if self._order is None:
            return mixed[0]
        return (mixed[0] if len(mixed) == 1 else torch.cat(mixed)).index_select(0, self._order)


def attend_bucket(cache: PagedCache, layer: int, q_THD: Tensor, bucket: Bucket) -> Tensor:
    """Attended values [G * L, H * D] of one bucket."""
    groups, length = bucket.groups, bucket.length
    keys, values = _read(cache.keys[layer], bucket), _read(cache.values[layer], bucket)
    q = q_THD if bucket.queries is None else q_THD.index_select(0, bucket.queries)
    heads, width = keys.shape[1], q.shape[2]
    repeats = q.shape[1] // heads
    # Query heads that share a key head are laid side by side as more queries: keys need not be repeated.
    q = q.view(groups, length, heads, repeats, width).permute(0, 2, 3, 1, 4)
    q = q.reshape(groups, heads, repeats * length, width)
    out = bucket.attend(q, keys, values)
    out = out.view(groups, heads, repeats, length, width).permute(0, 3, 1, 2, 4)
    return out.reshape(groups * length, heads * repeats * width)


def _read(store: Tensor, bucket: Bucket) -> Tensor:
    """Keys or values [G, K, S, D]."""
    if bucket.keys is None:
        found = store[bucket.first : bucket.first + bucket.seen]
    else:
        found = store.index_select(0, bucket.keys)
    return found.view(bucket.groups, bucket.seen, *store.shape[1:]).transpose(1, 2)


def _in_one_piece(slots: NDArray[np.int64]) -> bool:
    return bool(slots[-1] - slots[0] == len(slots) - 1 and (np.diff(slots) == 1).all())


class RowAttention:
    """What the layers of one pass need: where to write, how to attend, and which positions the last layer is asked for.

    Args:
        cache: where pages live.
        runs: the pass's runs, in the order of its positions.
        asked: for each run the part (start, stop) of its positions whose outputs are wanted, or None.
        repeats: query heads per key/value head.
        kernel: what attends.
    """

    def __init__(
        self,
        cache: PagedCache,
        runs: Sequence[Run],
        asked: Sequence[tuple[int, int] | None],
        repeats: int,
        kernel: Kernel = sdpa,
    ) -> None:
        self.cache = cache
        device = cache.keys[0].device
        self.slots = to_device(np.concatenate([r.slots[r.start : r.stop] for r in runs]), device)
        self.all = Mixer(cache, runs, repeats, kernel)
        parts, index, at = [], [], 0
        for run, part in zip(runs, asked, strict=True):
            if part is not None:
                parts.append(Run(run.slots, *part, run.block_length, run.pad))
                index.append(np.arange(at + part[0] - run.start, at + part[1] - run.start))
            at += run.stop - run.start
        self.asked: Tensor | None = None
        self.last: Mixer | None = None
        if parts:
            flat = np.concatenate(index)
            everything = len(flat) == at
            self.asked = None if everything else to_device(flat, device)
            self.last = self.all if everything else Mixer(cache, parts, repeats, kernel)
