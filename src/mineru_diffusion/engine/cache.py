"""The paged key/value cache: one page holds the keys and values of one block, in every layer.

Shapes: B block length, K key/value heads, D width of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mineru_diffusion.errors import EngineError


class PagedCache:
    """Pages are handed out one by one; storage grows on demand up to `max_pages` and is never copied per step.

    Args:
        layers: decoder layers.
        kv_heads: K.
        head_dim: D.
        block_length: B.
        max_pages: pages in all.
    """

    def __init__(
        self,
        *,
        layers: int,
        kv_heads: int,
        head_dim: int,
        block_length: int,
        max_pages: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.block_length = block_length
        self.max_pages = max_pages
        self.keys = [
            torch.zeros((0, block_length, kv_heads, head_dim), dtype=dtype, device=device) for _ in range(layers)
        ]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        self._free: list[int] = []

    @property
    def storage(self) -> int:
        """Pages that have storage now."""
        return self.keys[0].shape[0]

    @property
    def used(self) -> int:
        """Pages that are handed out."""
        return self.storage - len(self._free)

    @staticmethod
    def page_bytes(layers: int, kv_heads: int, head_dim: int, block_length: int, dtype: torch.dtype) -> int:
        """Bytes of one page in all layers, keys and values together."""
        return 2 * layers * kv_heads * head_dim * block_length * dtype.itemsize

    def allocate(self) -> int:
        """A free page.

        Raises:
            EngineError: none is left; the scheduler reserves pages before it admits a request, so this is a bug.
        """
        if not self._free:
            self._grow()
        return self._free.pop()

    def release(self, pages: list[int]) -> None:
        """Give pages back."""
        self._free.extend(reversed(pages))

    def _grow(self) -> None:
        old = self.storage
        new = min(self.max_pages, max(64, old * 2))
        if new <= old:
            raise EngineError(f"the cache has no page left ({self.max_pages} in all)")
        fresh = [
            [tensor.new_zeros((new, *tensor.shape[1:])) for tensor in tensors] for tensors in (self.keys, self.values)
        ]
        for tensors, grown in zip((self.keys, self.values), fresh, strict=True):
            for layer, tensor in enumerate(tensors):
                grown[layer][:old] = tensor
                tensors[layer] = grown[layer]
        self._free.extend(range(new - 1, old - 1, -1))

    def write(self, layer: int, pages: Tensor, k_NKBD: Tensor, v_NKBD: Tensor) -> None:
        """Store the keys and values of N rows on their pages [N]."""
        self.keys[layer].index_copy_(0, pages, k_NKBD.transpose(1, 2))
        self.values[layer].index_copy_(0, pages, v_NKBD.transpose(1, 2))

    def read(self, layer: int, tables_GT: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [G, K, T * B, D] of G sequences with T pages each."""
        sequences, pages = tables_GT.shape

        def gather(store: Tensor) -> Tensor:
            found = store.index_select(0, tables_GT.flatten())
            return found.view(sequences, pages * self.block_length, *store.shape[2:]).transpose(1, 2)

        return gather(self.keys[layer]), gather(self.values[layer])
