"""The paged key/value cache. A page holds the keys and values of `page_tokens` consecutive positions of one sequence in
every layer; position j of a sequence lives in slot `pages[j // page_tokens] * page_tokens + j % page_tokens`.

Shapes: K key/value heads, D width of a head, T positions.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mineru_diffusion.errors import EngineError

FIRST_PAGES = 64


class PagedCache:
    """Pages are handed out on demand, next to a sequence's last one where that is free, so that most sequences stay in
    one piece and can be read without a copy. Storage grows up to `max_pages`.

    Args:
        layers: decoder layers.
        kv_heads: K.
        head_dim: D.
        page_tokens: positions of a page.
        max_pages: pages in all.
    """

    def __init__(
        self,
        *,
        layers: int,
        kv_heads: int,
        head_dim: int,
        page_tokens: int,
        max_pages: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.page_tokens = page_tokens
        self.max_pages = max_pages
        self.keys = [torch.zeros((0, kv_heads, head_dim), dtype=dtype, device=device) for _ in range(layers)]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        self._free: NDArray[np.bool_] = np.zeros(0, dtype=bool)
        self._used = 0
        self.peak = 0

    @property
    def storage(self) -> int:
        """Pages that have storage now."""
        return len(self._free)

    @property
    def scratch(self) -> int:
        """A slot behind all pages, for what belongs to no sequence. It moves when storage grows."""
        return self.storage * self.page_tokens

    @property
    def used(self) -> int:
        """Pages that are handed out."""
        return self._used

    @property
    def left(self) -> int:
        """Pages that can still be handed out."""
        return self.max_pages - self._used

    @staticmethod
    def page_bytes(layers: int, kv_heads: int, head_dim: int, page_tokens: int, dtype: torch.dtype) -> int:
        """Bytes of one page in all layers, keys and values together."""
        return 2 * layers * kv_heads * head_dim * page_tokens * dtype.itemsize

    def pages_for(self, positions: int) -> int:
        """Pages that hold so many positions."""
        return -(-positions // self.page_tokens)

    def allocate(self, count: int = 1, after: int | None = None) -> list[int]:
        """`count` free pages, in one piece and next to page `after` where possible.

        Raises:
            EngineError: fewer are left; the scheduler makes room before it asks, so this is a bug.
        """
        if count > self.left:
            raise EngineError(f"the cache has no {count} pages left ({self.max_pages} in all)")
        while self.storage - self._used < count:
            self._grow()
        start = None if after is None else after + 1
        if start is None or start + count > self.storage or not self._free[start : start + count].all():
            start = self._run_of(count)
        if start is None:
            pages = np.flatnonzero(self._free)[:count]
        else:
            pages = np.arange(start, start + count)
        self._free[pages] = False
        self._used += count
        self.peak = max(self.peak, self._used)
        return [int(page) for page in pages]

    def _run_of(self, count: int) -> int | None:
        """Start of the longest run of free pages (room to grow), if it has `count`."""
        edges = np.flatnonzero(np.diff(np.concatenate(([False], self._free, [False])).astype(np.int8)))
        if not edges.size:
            return None
        starts, lengths = edges[::2], edges[1::2] - edges[::2]
        best = int(lengths.argmax())
        return int(starts[best]) if lengths[best] >= count else None

    def release(self, pages: list[int]) -> None:
        """Give pages back."""
        self._free[pages] = True
        self._used -= len(pages)

    def slots(self, pages: list[int]) -> NDArray[np.int64]:
        """Slots [pages * page_tokens] of the positions on these pages."""
        return (np.array(pages, dtype=np.int64)[:, None] * self.page_tokens + np.arange(self.page_tokens)).ravel()

    def clear(self) -> None:
        """Free all storage."""
        self.keys.clear()
        self.values.clear()

    def _grow(self) -> None:
        old = self.storage
        new = min(self.max_pages, max(FIRST_PAGES, old * 2))
        for tensors in (self.keys, self.values):
            for layer, tensor in enumerate(tensors):
                grown = tensor.new_zeros((new * self.page_tokens + 1, *tensor.shape[1:]))
                grown[: old * self.page_tokens] = tensor[: old * self.page_tokens]
                tensors[layer] = grown
        self._free = np.concatenate((self._free, np.ones(new - old, dtype=bool)))

    def write(self, layer: int, slots_T: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> None:
        """Store the keys and values of T positions in their slots."""
        self.keys[layer].index_copy_(0, slots_T, k_TKD)
        self.values[layer].index_copy_(0, slots_T, v_TKD)
