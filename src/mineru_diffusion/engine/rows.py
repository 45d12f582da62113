"""The one decoding primitive (docs/design.md, section 5): a forward pass takes N rows, a row being one block of one
sequence. In every layer each row writes its keys and values to its own page, then attends to all pages of its sequence
up to and including its own. Prompt, denoising and commit are all rows.

Shapes: N rows, B block length, H query heads, K key/value heads, D width of a head, G sequences of one bucket with R
rows each, T pages of the longest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mineru_diffusion.engine.cache import PagedCache
from mineru_diffusion.model.attention import grouped_sdpa


@dataclass(frozen=True)
class RowSpan:
    """Consecutive rows of one sequence in one pass.

    Attributes:
        pages: the sequence's page table up to and including the last of these rows.
        rows: how many of the last pages are rows of this pass.
        pad: empty slots at the start of the first page (prompt blocks are aligned to the prompt's end).
    """

    pages: Sequence[int]
    rows: int
    pad: int


class RowAttention:
    """The engine's `AttentionContext`: keys and values come from the cache, whoever computed them.

    Args:
        cache: where pages live.
        spans: the pass's rows, in the order of the batch dimension.
        device: where index tensors go.
    """

    def __init__(self, cache: PagedCache, spans: Sequence[RowSpan], device: torch.device) -> None:
        self.cache = cache
        block = cache.block_length
        self.pages = torch.tensor([p for span in spans for p in span.pages[-span.rows :]], device=device)
        # Sequences with equally many rows share one attention call.
        members: dict[int, list[tuple[int, RowSpan]]] = defaultdict(list)
        start = 0
        for span in spans:
            members[span.rows].append((start, span))
            start += span.rows
        self.buckets: list[tuple[Tensor | None, int, Tensor, Tensor | None]] = []
        for rows, bucket in members.items():
            longest = max(len(span.pages) for _, span in bucket)
            # Filled up with a page of its own: a stranger's could hold infinities, which a mask does not remove.
            tables = np.array([[*s.pages, *[s.pages[0]] * (longest - len(s.pages))] for _, s in bucket], dtype=np.int64)
            lengths = np.array([len(span.pages) for _, span in bucket])
            pads = np.array([span.pad for _, span in bucket])
            slots = np.arange(longest * block)
            # Row r of a sequence is its page number length - rows + r, and sees pages up to that one.
            last = lengths[:, None] - rows + np.arange(rows)
            visible = (slots // block <= last[:, :, None]) & (slots >= pads[:, None, None])
            mask = None
            if not visible.all():
                wide = np.repeat(visible, block, axis=1)[:, None]
                mask = torch.from_numpy(wide).to(device)
            index = None
            if len(members) > 1:
                flat = [first + r for first, _ in bucket for r in range(rows)]
                index = torch.tensor(flat, device=device)
            self.buckets.append((index, rows, torch.from_numpy(tables).to(device), mask))

    def attend(self, layer: int, q_NHLD: Tensor, k_NKLD: Tensor, v_NKLD: Tensor) -> Tensor:
        self.cache.write(layer, self.pages, k_NKLD, v_NKLD)
        mixed = torch.empty_like(q_NHLD)
        for index, rows, tables, mask in self.buckets:
            queries = q_NHLD if index is None else q_NHLD.index_select(0, index)
            count, heads, block, width = queries.shape
            groups = count // rows
            if rows > 1:
                queries = queries.view(groups, rows, heads, block, width).transpose(1, 2).flatten(2, 3)
            keys, values = self.cache.read(layer, tables)
            out = grouped_sdpa(queries, keys, values, mask)
            if rows > 1:
                out = out.view(groups, heads, rows, block, width).transpose(1, 2).flatten(0, 1)
            if index is None:
                mixed = out
            else:
                mixed.index_copy_(0, index, out)
        return mixed
